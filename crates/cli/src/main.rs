//! The `farwrite` program.

fn main() {}
