//! Clusters: several nodes, a network between them, and a model of the quorum that agrees on their metadata.
//!
//! | file | idea |
//! |---|---|
//! | `quorum` | what Raft guarantees, and all that it doesn't: lost leaderships, lost proposals, entries that come late |
//! | `machine` | nodes on their disks: start, jobs, time, death |
//! | `world` | the event loop, and the network |
//! | `faults` | what goes wrong |
//! | `clients` | producers and readers that find the leaders by metadata |
//! | `groups` | groups whose coordinators fail over |
//! | `sharers` | members of share groups |
//! | `transactors` | transactional producers, and a reader of what they have committed |
//! | `moves` | replicas that move meanwhile |
//! | `compacted` | a compacted topic, and copies that come back behind what was cleaned away |
//! | `min_isr` | acknowledgements that ask for more copies, or fewer |
//! | `unrest` | leaderships that go to and fro, disks that fill up |
//! | `ways` | connections that stand, end and are refused; at times that is a lie |
//! | `echoes` | messages that come again when what they say is long over |
//! | `pipelines` | batches that are sent behind others before those are answered |
//! | `model` | what must be true |
//! | `copies` | what lies in the folders of those that died |
//! | `end` | all is healed: everyone moves, also without one; the in-sync sets are whole, all copies are equal |

mod clients;
mod compacted;
mod copies;
mod echoes;
mod end;
mod faults;
mod groups;
mod listed;
mod machine;
mod min_isr;
mod model;
mod moves;
mod overtaken;
mod pipelines;
mod quorum;
mod sharers;
mod swarm;
mod transactors;
mod unrest;
mod ways;
mod world;

pub use world::{ClusterReport, run_cluster};
