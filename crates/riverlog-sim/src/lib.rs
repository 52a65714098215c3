//! Whole nodes and clients on virtual time, network and disk.
