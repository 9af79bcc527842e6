//! The random seeds of all scenarios. A test prints its 64-bit seeds, and environment variables set
//! them.
//!
//! `FARWRITE_TEST_SEED=0x1234` runs a test with that seed only. `FARWRITE_TEST_SEEDS=1000` runs
//! each test with a thousand seeds. Without these variables, a test runs with a few constant seeds.
//! with a thousand. Without them a test runs with a few that never change.

use farwrite_rng::SplitMix;

/// Runs `scenario` with each seed of a test. If the test fails, the last printed seed reproduces
/// the failure.
pub(crate) fn each(test: &str, count: u64, mut scenario: impl FnMut(u64)) {
    if let Some(seed) = variable("FARWRITE_TEST_SEED") {
        announce(test, seed);
        return scenario(seed);
    }
    // The name of the test changes the seeds, so that no two tests draw the same mixes.
    let mut rng = SplitMix::new(
        test.bytes()
            .fold(0, |h: u64, b| h.wrapping_mul(131) ^ u64::from(b)),
    );
    for _ in 0..variable("FARWRITE_TEST_SEEDS").unwrap_or(count) {
        let seed = rng.next();
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
