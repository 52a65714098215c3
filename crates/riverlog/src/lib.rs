//! An event log that runs inside a program.
