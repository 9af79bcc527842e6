//! Boxes in the path between NICs and endpoints.

use std::time::Duration;

use farwrite_experiment::plan::{CaseOutcome, Plan, sweep};
use farwrite_experiment::{Flow, Outcome, Recording, RunError, RunSetup, Transport, Workload, run};
use farwrite_net::{CableConfig, CableId, Options, Shape};

/// Two writes from one site to another, 2 ms away. The cable between the sites loses packets.
const WAN: &str = r#"
loss = [0.002]
[topology.wan]
shape = "dumbbell"
left = 2
right = 2
host_cable = { rate = "10Gbit", delay = "1us" }
middle_cable = { rate = "10Gbit", delay = "1ms" }
#boxes
[switch.deep]
buffer = "1GiB"
alpha = 8
[transport.t]
protocol = "roce-nocc"
mtu = 1024
[workload.writes]
pattern = "flows"
flows = [{ src = 0, dst = 2, size = "2MB" }, { src = 1, dst = 3, size = "2MB" }]
"#;
const LOWAR: &str = "[[topology.wan.boxes]]\nkind = \"lowar\"\nat = [\"left\", \"right\"]\n\
                     coding = \"16,2\"\nhold = \"1ms\"";
const NETRT: &str = "[[topology.wan.boxes]]\nkind = \"netrt\"\nat = \"hosts\"\nmax_held = 4000\n\
                     pool = \"8MB\"\nhold = \"7ms\"";

fn outcomes(text: &str) -> Vec<CaseOutcome> {
    let none = |name: &str| Err(format!("{name}: no such file"));
    let plan = Plan::read(text, &none).unwrap();
    sweep(&plan, 1, None, |_| true)
}

fn outcome(text: &str) -> Outcome {
    outcomes(text).remove(0).outcome.unwrap()
}

fn with(boxes: &str) -> String {
    WAN.replace("#boxes", boxes)
}

/// The loss of the plan applies to all cables. NetRT boxes are beside the hosts, so they see almost
/// all losses.
#[test]
fn boxes_repair_what_nics_would_repeat() {
    let alone = outcome(&with(""));
    assert_eq!((alone.done(), alone.boxes.recovered), (2, 0));
    assert!(alone.repeated() > 500, "{}", alone.repeated());

    let netrt = outcome(&with(NETRT));
    assert_eq!(netrt.done(), 2);
    let lost = netrt.totals.all_dropped();
    assert!(netrt.boxes.recovered > 5, "{:?} of {lost}", netrt.boxes);
    assert!(netrt.boxes.repairs >= netrt.boxes.recovered);
    assert!(netrt.boxes.peak_held > 0);
    assert!(
        10 * netrt.repeated() < alone.repeated(),
        "{}",
        netrt.repeated()
    );
    assert!(netrt.last_done_ns() < alone.last_done_ns());
}

#[test]
fn boxes_at_both_ends_of_a_cable_recover_what_it_loses() {
    // Long enough for several round trips after the first one, in which the boxes find each other.
    let plan = |boxes: &str| {
        let text = with(boxes).replace("loss = [0.002]", "");
        let text = text.replace("\"1ms\" }", "\"1ms\", loss = 0.001 }");
        outcome(&text.replace("2MB", "8MB"))
    };
    let (alone, lowar) = (plan(""), plan(LOWAR));
    assert_eq!((alone.done(), lowar.done()), (2, 2));
    // 15,625 packets in blocks of 16, each with 2 repair packets from the first answer of the other
    // box on.
    let seen = (lowar.boxes, alone.repeated(), lowar.repeated());
    assert!((1000..4000).contains(&lowar.boxes.repairs), "{seen:?}");
    assert!(lowar.boxes.recovered > 5, "{seen:?}");
    assert!(2 * lowar.repeated() < alone.repeated(), "{seen:?}");
}

/// A round trip of 2 ms has room for all packets of both writes.
#[test]
fn boxes_that_know_each_other_protect_the_first_round_trip() {
    let [found, known] = ["", "\npeer_known = true"].map(|key| {
        let text = with(&format!("{LOWAR}{key}")).replace("loss = [0.002]", "");
        let text = text.replace("\"1ms\" }", "\"1ms\", loss = 0.005 }");
        outcome(&text.replace("2MB", "500kB"))
    });
    assert_eq!((found.done(), known.done()), (2, 2));
    // 978 packets in blocks of 16, each with 2 repair packets.
    assert!((120..130).contains(&known.boxes.repairs), "{known:?}");
    assert!(known.boxes.recovered > found.boxes.recovered, "{known:?}");
    assert!(known.last_done_ns() < found.last_done_ns(), "{known:?}");
}

/// Endpoints on the port of RoCEv2, at a fixed rate. The long cable loses packets.
fn endpoints(scheme: &str, boxes: &str, loss: f64, rate: &str) -> Outcome {
    let text = with(boxes)
        .replace("loss = [0.002]", "")
        .replace("\"1ms\" }", &format!("\"1ms\", loss = {loss} }}"))
        .replace("2MB", "20MB")
        .replace(
            "\"roce-nocc\"",
            &format!("\"farwrite-{scheme}\"\nport = 4791\nrate = \"{rate}\""),
        );
    outcome(&text)
}

/// LoWAR groups 8 data packets and a repair packet into a class. A lost packet stays missing if
/// another packet of its class is lost too, so `1 - (1 - p)^8` of the losses are left to the
/// scheme.
#[test]
fn endpoints_repeat_what_the_code_cannot_recover_and_pay_for_repair_packets_only() {
    let loss = 0.01;
    let (alone, lowar) = ["", LOWAR]
        .map(|boxes| endpoints("sr-nack", boxes, loss, "2Gbit"))
        .into();
    assert_eq!((alone.done(), lowar.done()), (2, 2));
    // The boxes find each other in the first round trip, 2 ms of 80, and protect later packets.
    let bare = 2.0 / 80.0;
    let left = bare + (1.0 - bare) * (1.0 - (1.0f64 - loss).powi(8));
    let share = lowar.repeated() as f64 / alone.repeated() as f64;
    let seen = (lowar.boxes, lowar.repeated(), alone.repeated());
    assert!(
        (share / left - 1.0).abs() < 0.3,
        "{share} left, {left} predicted: {seen:?}"
    );
    not_slower_than_repairs(&lowar, &alone);
}

/// Two repair packets for each 16 data packets.
fn not_slower_than_repairs(lowar: &Outcome, alone: &Outcome) {
    for (with, without) in lowar.flows.iter().zip(&alone.flows) {
        let slower = with.time_ns().unwrap() as f64 / without.time_ns().unwrap() as f64;
        assert!(slower < 1.0 + 2.0 / 16.0, "{slower}");
    }
}

/// These schemes repair nearly all losses by parity of their own, so boxes leave little to gain.
#[test]
fn endpoints_with_parity_are_not_slower_than_the_repair_packets() {
    for scheme in ["ec-xor:32,8", "ec-mds:32,8"] {
        let [alone, lowar] = ["", LOWAR].map(|boxes| endpoints(scheme, boxes, 0.01, "2Gbit"));
        assert_eq!((alone.done(), lowar.done()), (2, 2));
        assert!(lowar.boxes.recovered > 100, "{scheme}: {:?}", lowar.boxes);
        assert!(lowar.repeated() <= alone.repeated(), "{scheme}");
        not_slower_than_repairs(&lowar, &alone);
    }
}

/// The worst case for completion times: no loss to repair, and a fully used long cable.
#[test]
fn without_loss_endpoints_are_slower_by_the_share_of_repair_packets_at_most() {
    for scheme in ["sr-nack", "ec-xor:32,8", "ec-mds:32,8"] {
        let [alone, lowar] = ["", LOWAR].map(|boxes| endpoints(scheme, boxes, 0.0, "5Gbit"));
        let seen = (scheme, lowar.boxes, lowar.repeated());
        assert_eq!(
            (lowar.repeated(), lowar.boxes.recovered),
            (0, 0),
            "{seen:?}"
        );
        // Two repair packets for each 16 of the 39,063 packets, except in the first round trip.
        assert!(lowar.boxes.repairs > 4500, "{seen:?}");
        let slower = lowar.last_done_ns().unwrap() as f64 / alone.last_done_ns().unwrap() as f64;
        assert!(slower < 1.0 + 2.0 / 16.0, "{seen:?}: {slower}");
    }
}

/// Endpoints draw their UDP ports unless the plan sets one, so boxes forward their packets
/// unchanged.
#[test]
fn packets_to_other_ports_than_that_of_rocev2_pass() {
    for boxes in [LOWAR, NETRT] {
        let text = with(boxes).replace(
            "protocol = \"roce-nocc\"",
            "protocol = \"farwrite-sr-nack\"",
        );
        let outcome = outcome(&text);
        assert_eq!((outcome.done(), outcome.boxes.repairs), (2, 0), "{boxes}");
    }
}

/// The default pool also covers packets that wait in the box.
#[test]
fn netrt_boxes_without_settings_repair() {
    let plan = |boxes: &str| {
        let text = with(boxes).replace("loss = [0.002]", "");
        let text = text.replace("\"1ms\" }", "\"50us\", loss = 0.005 }");
        // The long cable is fast enough that no queue builds up.
        let text = text.replace(
            "middle_cable = { rate = \"10Gbit\"",
            "middle_cable = { rate = \"40Gbit\"",
        );
        outcome(&text.replace("2MB", "5MB"))
    };
    let netrt = "[[topology.wan.boxes]]\nkind = \"netrt\"\nat = \"hosts\"";
    let (alone, boxes) = (plan(""), plan(netrt));
    assert_eq!((alone.done(), boxes.done()), (2, 2));
    let seen = (boxes.boxes, boxes.repeated(), alone.repeated());
    assert!(2 * boxes.repeated() < alone.repeated(), "{seen:?}");
    assert!(boxes.boxes.recovered > boxes.boxes.given_up, "{seen:?}");
}

#[test]
fn a_hold_time_beyond_the_timeout_of_nics_is_noted() {
    let none = |name: &str| Err(format!("{name}: no such file"));
    let notes = |hold: &str| {
        let text = with(&LOWAR.replace("hold = \"1ms\"", hold));
        Plan::read(&text, &none).unwrap().notes().to_vec()
    };
    assert_eq!(notes(""), Vec::<String>::new());
    let wrong = notes("hold = \"100ms\"");
    assert!(
        wrong[0].contains("boxes hold packets for 100ms, and NICs repeat after"),
        "{wrong:?}"
    );
}

#[test]
fn a_plan_with_boxes_is_repeatable_and_counts_their_memory() {
    for boxes in [LOWAR, NETRT] {
        let (one, other) = (outcome(&with(boxes)), outcome(&with(boxes)));
        assert_eq!(one, other);
        let none = |name: &str| Err(format!("{name}: no such file"));
        let memory = |text: &str| Plan::read(text, &none).unwrap().memory().unwrap().run_bytes;
        // 2048 or 4000 frames of 1 kB per box.
        assert!(memory(&with(boxes)) > memory(&with("")) + 4_000_000);
    }
}

#[test]
fn errors_name_the_box_and_the_key() {
    let none = |name: &str| Err(format!("{name}: no such file"));
    for (from, to, want) in [
        (
            "\"left\", \"right\"",
            "\"left\", \"middle\"",
            "at: the topology has no node \"middle\"",
        ),
        (
            "\"left\", \"right\"",
            "\"left\", \"host2\"",
            "at: no cable joins \"left\" and \"host2\"",
        ),
        (
            "[\"left\", \"right\"]",
            "\"host\"",
            "at = \"host\": \"hosts\", or the two nodes",
        ),
        (
            "at = [\"left\", \"right\"]",
            "",
            "at is missing: \"hosts\", or",
        ),
        (
            "\"lowar\"",
            "\"fec\"",
            "kind = \"fec\": unknown variant `fec`, expected `lowar` or `netrt`",
        ),
        (
            "\"16,2\"",
            "\"16\"",
            "coding = \"16\": write it like 32,1, or adaptive",
        ),
        (
            "\"16,2\"",
            "\"2,16\"",
            "coding = \"2,16\": LoWAR(2, 16) is not possible",
        ),
        ("hold = \"1ms\"", "hold = 1", "hold = 1: "),
        ("hold = \"1ms\"", "hold = \"0s\"", "hold = \"0s\": "),
        (
            "hold = \"1ms\"",
            "pool = \"1MB\"",
            "pool = \"1MB\": unknown field `pool`",
        ),
    ] {
        let text = with(&LOWAR.replace(from, to));
        let error = Plan::read(&text, &none).unwrap_err().to_string();
        let want = format!("topology.wan: boxes[0]: {want}");
        assert!(error.starts_with(&want), "{error}\nand not {want}");
    }
    let text = with("boxes = 3");
    let error = Plan::read(&text, &none).unwrap_err().to_string();
    assert!(
        error.starts_with("topology.wan: boxes = 3: write [[topology"),
        "{error}"
    );
}

#[test]
fn a_box_that_nothing_describes_is_refused() {
    let cable = CableConfig::new(10_000_000_000, Duration::from_micros(1));
    let mut topology = Shape::PointToPoint { cable }.build().unwrap();
    let host = topology.hosts().next().unwrap();
    let at = topology.insert_box(CableId(0), host, "box");
    let workload = Workload::of(vec![Flow::new(0, 1, 1000, 0)]);
    let transport = Transport::new("roce").unwrap();
    let setup = RunSetup {
        topology: &topology,
        options: &Options::default(),
        workload: &workload,
        transport: &transport,
        boxes: &[],
        changes: &[],
        seed: 1,
        until_ns: None,
        recording: Recording::default(),
    };
    assert_eq!(run(&setup).unwrap_err(), RunError::Box { node: at.0 });
}
