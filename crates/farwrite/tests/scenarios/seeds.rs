//! Where every scenario's randomness comes from: 64-bit seeds, printed, and given back through the
//! environment.
//!
//! `FARWRITE_TEST_SEED=0x1234` runs a test with that one seed; `FARWRITE_TEST_SEEDS=1000` runs each
//! with a thousand. Without them a test runs with a few that never change.

use farwrite_dice::SplitMix;

/// Runs `scenario` with each seed of a test. Of a failing test the last seed printed is the one.
pub(crate) fn each(test: &str, count: u64, mut scenario: impl FnMut(u64)) {
    if let Some(seed) = variable("FARWRITE_TEST_SEED") {
        announce(test, seed);
        return scenario(seed);
    }
    // A test's name sets it apart, so that no two try the same mixes.
    let mut dice = SplitMix::new(
        test.bytes()
            .fold(0, |h: u64, b| h.wrapping_mul(131) ^ u64::from(b)),
    );
    for _ in 0..variable("FARWRITE_TEST_SEEDS").unwrap_or(count) {
        let seed = dice.next();
        announce(test, seed);
        scenario(seed);
    }
}

fn announce(test: &str, seed: u64) {
    println!("{test}: FARWRITE_TEST_SEED={seed:#018x}");
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Some(number.unwrap_or_else(|_| panic!("{name}={text}: want a number, 0x before hexadecimal")))
}
