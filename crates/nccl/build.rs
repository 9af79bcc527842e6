//! Linker options of the plugin.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // NCCL closes the library when its last communicator ends. Threads may still run its code then.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnccl-net-farwrite.so");
}
