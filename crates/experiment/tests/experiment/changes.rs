//! Cables that fail or become slower during a run.

use farwrite_experiment::FlowEnd;
use farwrite_experiment::plan::{Plan, sweep};
use farwrite_net::FrameDrop;

use crate::plans::{PORTS, read};

/// A leaf-spine network with two hosts on each side, whose cables change.
fn changing(spines: u32, changes: &str) -> String {
    format!(
        r#"
        transport = ["irn"]
        [topology.fabric]
        shape = "leaf-spine"
        leaves = 2
        spines = {spines}
        hosts_per_leaf = 2
        host_cable = {{ rate = "10Gbit", delay = "1us" }}
        spine_cable = {{ rate = "10Gbit", delay = "1us" }}
        {changes}
        [workload.some]
        pattern = "flows"
        flows = [
            {{ src = 0, dst = 2, size = "5MB" }},
            {{ src = 1, dst = 3, size = "5MB" }},
        ]
        "#
    )
}

/// A change of the cable between the first leaf and the first spine.
fn change(keys: &str) -> String {
    format!("[[topology.fabric.changes]]\ncable = [\"leaf0\", \"spine0\"]\n{keys}\n")
}

/// The time until all flows are done, in microseconds, and the frames that were lost on a cable that
/// was down. `None` instead of the time if a flow fails.
fn outcome(plan: &Plan) -> (Option<u64>, u64) {
    let outcomes = sweep(plan, 1, Some((0, PORTS)), |_| true);
    let outcome = outcomes[0].outcome.as_ref().unwrap();
    let ends = outcome.flows.iter().map(|flow| match flow.end {
        FlowEnd::Done { at_ns } => Some(at_ns / 1_000),
        _ => None,
    });
    let ends: Option<Vec<_>> = ends.collect();
    let down = outcome.totals.dropped_for(FrameDrop::CableDown);
    (ends.and_then(|ends| ends.into_iter().max()), down)
}

#[test]
fn a_cable_that_is_down_for_a_while_delays_flows_by_that_time() {
    let run = |changes: &str| outcome(&read(&changing(1, changes)).unwrap());
    let (undisturbed, lost) = run("");
    let undisturbed = undisturbed.unwrap();
    // 10 MB over 10 Gbit/s.
    assert!((8_000..9_500).contains(&undisturbed), "{undisturbed} us");
    assert_eq!(lost, 0);
    let down = change("at = \"2ms\"\nstate = \"down\"") + &change("at = \"4ms\"\nstate = \"up\"");
    let (delayed, lost) = run(&down);
    let delayed = delayed.expect("the cable comes back");
    assert!(delayed >= undisturbed + 1_900, "{delayed} us");
    assert!(lost > 0);
    // Half of the bytes have passed when the rate falls to a half. A later change of the delay
    // keeps the rate.
    let slower =
        change("at = \"4ms\"\nrate = \"5Gbit\"") + &change("at = \"5ms\"\ndelay = \"2us\"");
    let (slowed, _) = run(&slower);
    let slowed = slowed.unwrap();
    assert!((11_000..14_000).contains(&slowed), "{slowed} us");
}

/// The rates of a change are those from the first of its nodes to the second, and back.
#[test]
fn a_change_may_slow_one_direction_of_a_cable() {
    let run = |cable: [&str; 2]| {
        let change = change("at = \"0s\"\nrate = \"10Gbit\"\nback_rate = \"1Gbit\"");
        let change = change.replace(
            "\"leaf0\", \"spine0\"",
            &format!("{:?}, {:?}", cable[0], cable[1]),
        );
        let (end_us, lost) = outcome(&read(&changing(1, &change)).unwrap());
        assert_eq!(lost, 0);
        end_us.unwrap()
    };
    // 10 MB cross the cable from the leaf to the spine, and acknowledgements come back.
    assert!((8_000..9_500).contains(&run(["leaf0", "spine0"])));
    assert!((80_000..95_000).contains(&run(["spine0", "leaf0"])));
}

#[test]
fn switches_avoid_a_cable_that_is_down_once_they_have_new_routes() {
    let down = change("at = \"1ms\"\nstate = \"down\"");
    let text = changing(2, &down);
    let keeping = read(&text).unwrap();
    let note = "topology.fabric: cables go down or up, and switches keep their routes";
    assert!(
        keeping.notes()[0].starts_with(note),
        "{:?}",
        keeping.notes()
    );
    let moving = read(&format!("reroute = \"100us\"\n{text}")).unwrap();
    assert_eq!(moving.notes(), [] as [&str; 0]);
    let (time, lost) = outcome(&moving);
    // Both flows share the spine that is left, or have used it before.
    assert!(time.expect("there is another path") < 12_000, "{time:?} us");
    let (never, more_lost) = outcome(&keeping);
    // With the first seed, a flow hashes to the spine that is cut off.
    assert!(never.is_none(), "{never:?}");
    assert!(more_lost > lost && lost > 0, "{more_lost}, {lost}");
}

#[test]
fn changes_of_cables_are_refused_by_key_and_value() {
    for (changes, expected) in [
        (
            change("at = \"1ms\""),
            "topology.fabric: changes[0]: nothing changes; set state",
        ),
        (change("state = \"down\""), "changes[0]: missing field `at`"),
        (
            change("at = \"1ms\"\nstate = \"broken\""),
            "state = \"broken\": unknown variant",
        ),
        (change("at = \"1ms\"\nloss = 2.0"), "changes[0]: "),
        (
            change("at = \"1ms\"\nspeed = 2"),
            "speed = 2: unknown field",
        ),
        (
            change("at = \"1ms\"\nstate = \"up\"").replace("spine0", "spine9"),
            "the topology has no node \"spine9\"",
        ),
        (
            change("at = \"1ms\"\nstate = \"up\"").replace("spine0", "leaf1"),
            "no cable joins \"leaf0\" and \"leaf1\"",
        ),
    ] {
        let why = read(&changing(1, &changes)).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}
