//! A bounded run of cases of boxes, and the replay of one seed:
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test boxes replay -- --nocapture`.

mod runner;

use std::time::Duration;

use farwrite_swarm::boxes::BoxPlan;
use runner::{Runner, replay};

const RUNNER: Runner = Runner {
    fewest: 200,
    time: Duration::from_secs(6),
    most: 4_000,
    enough: 2_000,
    twice: 16,
};

#[test]
fn no_case_breaks_a_rule() {
    RUNNER.run::<BoxPlan>();
}

#[test]
fn replay_a_seed() {
    replay::<BoxPlan>();
}
