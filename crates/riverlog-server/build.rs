//! Compiles again what carries the console, once the console has been built anew.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../console/dist");
}
