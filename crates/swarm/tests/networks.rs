//! A bounded run of cases in networks of switches, and the replay of one seed:
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test networks replay -- --nocapture`.

mod runner;

use std::time::Duration;

use farwrite_swarm::NetworkPlan;
use runner::{Runner, replay};

const RUNNER: Runner = Runner {
    fewest: 60,
    time: Duration::from_secs(5),
    most: 2_000,
    enough: 500,
    twice: 8,
};

#[test]
fn no_case_breaks_a_rule() {
    RUNNER.run::<NetworkPlan>();
}

#[test]
fn replay_a_seed() {
    replay::<NetworkPlan>();
}
