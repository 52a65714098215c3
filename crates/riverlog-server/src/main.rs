//! The binary `riverlog`.
fn main() {}
