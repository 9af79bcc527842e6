//! Runs the target that `FARWRITE_FUZZ` names.
#![no_main]

use std::sync::LazyLock;

use farwrite_fuzz::Target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FARWRITE_FUZZ").unwrap_or_default();
    farwrite_fuzz::find(&name).unwrap_or_else(|| panic!("FARWRITE_FUZZ={name}: there is no such target"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
