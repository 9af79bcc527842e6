//! Runs the examples and checks their results.

#[path = "../examples/best_effort.rs"]
mod best_effort;
#[path = "../examples/bitmap.rs"]
mod bitmap;
#[path = "../examples/new_scheme.rs"]
mod new_scheme;

#[test]
fn the_bitmap_is_enough_to_repair_losses() {
    bitmap::main().unwrap();
}

#[test]
fn a_new_scheme_moves_a_message() {
    new_scheme::main().unwrap();
}

#[test]
fn messages_end_in_time() {
    best_effort::main().unwrap();
}
