//! The binary `riverlog`: the server, and the tools around it.

mod cli;
mod client;
mod config;
mod failure;
mod serve;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
