//! A bounded run of cases of endpoints, and the replay of one seed:
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test swarm replay -- --nocapture`.

mod runner;

use std::time::Duration;

use farwrite_swarm::Plan;
use runner::{Runner, replay};

const RUNNER: Runner = Runner {
    fewest: 500,
    time: Duration::from_secs(20),
    most: 8_000,
    enough: 2_000,
    twice: 16,
};

#[test]
fn no_case_breaks_a_rule() {
    RUNNER.run::<Plan>();
}

#[test]
fn replay_a_seed() {
    replay::<Plan>();
}
