//! What controllers of NICs read, and what the papers of DCTCP, TIMELY and HPCC say of long flows.

use std::sync::{Arc, Mutex};

use farwrite_experiment::extensions::{
    Acknowledged, Detail, Feedback, Hop, Limits, RateControl, Sent,
};
use farwrite_experiment::plan::{Plan, sweep};
use farwrite_experiment::{Extensions, Outcome};

/// Long flows of `senders` hosts to one host.
fn run(transport: &str, senders: usize, gbps: u64, size: &str) -> Outcome {
    let text = format!(
        "{transport}\n[topology.rack]\nshape = \"star\"\nhosts = {}\n\
         cable = {{ rate = \"{gbps}Gbit\", delay = \"2us\" }}\n\
         [workload.long]\npattern = \"incast\"\nsenders = {senders}\nsize = \"{size}\"\n",
        senders + 1
    );
    let plan = Plan::read(&text, &|_| Err(String::new())).unwrap();
    let mut ran = sweep(&plan, 1, None, |_| true);
    let outcome = ran.remove(0).outcome.unwrap();
    assert_eq!(outcome.done(), senders);
    assert_eq!(outcome.repeated(), 0);
    outcome
}

/// Bytes in the deepest queue in the middle of a run: the mean and the most.
fn queue(outcome: &Outcome) -> (f64, u64) {
    let all = &outcome.depths.samples;
    let middle = &all[all.len() * 3 / 10..all.len() * 8 / 10];
    let sum: u64 = middle.iter().map(|depth| depth.deepest).sum();
    let most = middle.iter().map(|depth| depth.deepest).max();
    (sum as f64 / middle.len() as f64, most.unwrap())
}

/// The shortest completion time, as a share of the longest.
fn fairness(outcome: &Outcome) -> f64 {
    let times = outcome.flows.iter().filter_map(|flow| flow.time_ns());
    let (least, most) = (times.clone().min().unwrap(), times.max().unwrap());
    least as f64 / most as f64
}

/// Mean share of the last cable, without headers.
fn goodput(outcome: &Outcome, bytes: u64, gbps: u64) -> f64 {
    let ns = outcome.last_done_ns().unwrap();
    bytes as f64 * 8.0 / (ns as f64 * gbps as f64)
}

/// K is 30 kB at 10 Gbit/s. The queue stays near it, and each flow adds packets that are on their way when it is reached
/// (DCTCP, SIGCOMM 2010, section 3.3).
#[test]
fn dctcp_keeps_the_queue_near_k() {
    for protocol in ["roce", "irn"] {
        let outcome = run(&format!("transport = [\"{protocol}@dctcp\"]"), 4, 10, "8MB");
        let (mean, most) = queue(&outcome);
        assert!(
            (20e3..45e3).contains(&mean) && most < 80_000,
            "{mean} {most}"
        );
        assert!(goodput(&outcome, 32_000_000, 10) > 0.95);
        assert!(fairness(&outcome) > 0.8, "{}", fairness(&outcome));
        assert!(outcome.totals.marked > 0 && outcome.totals.pauses_received == 0);
    }
    // In proportion to the rate of the port.
    let outcome = run("transport = [\"roce@dctcp\"]", 4, 100, "20MB");
    let (mean, most) = queue(&outcome);
    assert!(
        (250e3..350e3).contains(&mean) && most < 450_000,
        "{mean} {most}"
    );
}

/// A round trip holds 110 kB. The queue is nearly empty, and the cable carries 0.95 of its rate, of which payloads of 4096
/// bytes are 0.96 (HPCC, SIGCOMM 2019).
#[test]
fn hpcc_keeps_the_queue_empty_and_shares_fairly() {
    let outcome = run("transport = [\"roce@hpcc\"]", 4, 100, "20MB");
    let (mean, most) = queue(&outcome);
    assert!(mean < 10e3 && most < 30_000, "{mean} {most}");
    let share = goodput(&outcome, 80_000_000, 100);
    assert!((0.87..0.93).contains(&share), "{share}");
    assert!(fairness(&outcome) > 0.8, "{}", fairness(&outcome));
    assert_eq!(outcome.totals.pauses_received, 0);
    // A higher eta leaves less of the cable unused.
    let eager = run(
        "[transport.eager]\nprotocol = \"roce@hpcc\"\nhpcc = { eta = 0.99 }",
        4,
        100,
        "20MB",
    );
    assert!(goodput(&eager, 80_000_000, 100) > share + 0.02);
}

/// The round trip without queues is 9 us, so that round trips from `T_low` to `T_high` are queues of 11 us to 91 us.
#[test]
fn timely_keeps_the_round_trip_between_its_thresholds() {
    let outcome = run(
        "[transport.timely]\nprotocol = \"roce@timely\"\n\
         timely = { T_low = \"20us\", T_high = \"100us\", delta = \"100Mbit\" }",
        4,
        100,
        "40MB",
    );
    let (mean, most) = queue(&outcome);
    let us = |bytes: f64| bytes * 8.0 / 100e3;
    assert!((11.0..91.0).contains(&us(mean)), "{} us", us(mean));
    assert!(us(most as f64) < 91.0);
    assert!(fairness(&outcome) > 0.8, "{}", fairness(&outcome));
}

/// What a controller got.
type Log = Arc<Mutex<Vec<(Acknowledged<'static>, Vec<Hop>)>>>;

/// Sends at the line rate, and writes down all acknowledgements.
struct Probe(Log, Detail, u64);

impl RateControl for Probe {
    fn on_sent(&mut self, _sent: &Sent) {}

    fn on_feedback(&mut self, _feedback: &Feedback) {}

    fn detail(&self) -> Detail {
        self.1
    }

    fn on_acknowledged(&mut self, got: &Acknowledged<'_>) {
        let hops = got.hops.to_vec();
        let got = Acknowledged { hops: &[], ..*got };
        self.0.lock().unwrap().push((got, hops));
    }

    fn on_timeout(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }

    fn limits(&self) -> Limits {
        Limits {
            pace_bps: self.2,
            window_bytes: u64::MAX,
        }
    }
}

/// Two hosts of one leaf write to one host of another. Switches mark each frame that leaves more than 20 kB behind.
fn probed(protocol: &str, detail: Detail) -> Vec<(Acknowledged<'static>, Vec<Hop>)> {
    let log = Log::default();
    let made = Arc::clone(&log);
    let own = Extensions::new().controller("probe", move |path| {
        Probe(Arc::clone(&made), detail, path.rate_bps)
    });
    let text = format!(
        "transport = [\"{protocol}@probe\"]\n[topology.leaves]\nshape = \"leaf-spine\"\nleaves = 2\nspines = 1\n\
         hosts_per_leaf = 2\nhost_cable = {{ rate = \"100Gbit\", delay = \"1us\" }}\n\
         spine_cable = {{ rate = \"400Gbit\", delay = \"1us\" }}\n\
         [switch.step]\necn = {{ kmin = \"20kB\", kmax = \"20kB\", pmax = 1.0 }}\n\
         [workload.two]\npattern = \"flows\"\n\
         flows = [{{ src = 0, dst = 3, size = \"400kB\" }}, {{ src = 1, dst = 3, size = \"400kB\" }}]\n"
    );
    let plan = Plan::read_with(&text, &|_| Err(String::new()), &own).unwrap();
    let mut ran = sweep(&plan, 1, None, |_| true);
    assert_eq!(ran.remove(0).outcome.unwrap().done(), 2);
    log.lock().unwrap().clone()
}

#[test]
fn a_controller_reads_each_packet_with_its_round_trip_its_mark_and_its_hops() {
    for protocol in ["roce", "irn"] {
        let got = probed(protocol, Detail::Telemetry);
        // 98 packets of 4096 bytes for each flow, each acknowledged alone.
        assert_eq!(got.len(), 196, "{protocol}");
        let mut marked = 0;
        for (of, hops) in &got {
            let [first, spine, last] = &hops[..] else {
                panic!("{hops:?}");
            };
            assert!(
                first.at_ns < spine.at_ns && spine.at_ns < last.at_ns && last.at_ns < of.now_ns
            );
            assert_eq!(
                [first, spine, last].map(|hop| hop.rate_bps / 1_000_000_000),
                [400, 400, 100]
            );
            assert_eq!(of.marked, hops.iter().any(|hop| hop.queued_bytes > 20_000));
            marked += u64::from(of.marked);
            // Four cables each way.
            let rtt_ns = of.rtt_ns.unwrap();
            assert!(rtt_ns > 8_000, "{rtt_ns}");
            // The packet left before its first hop, and came back after its last one.
            assert!(of.now_ns - rtt_ns < first.at_ns);
        }
        assert!((20..190).contains(&marked), "{marked}");
        let bytes: u64 = got.iter().map(|(of, _)| of.bytes).sum();
        // Payloads, 44 bytes of headers, 42 of telemetry, and 16 of the first RETH of each flow.
        assert_eq!(bytes, 800_000 + 196 * 86 + 2 * 16);
        // The last port has sent all frames before the last one.
        let sent = got.iter().map(|(_, hops)| hops[2].sent_bytes).max();
        assert!(sent.unwrap() > 800_000);
    }
}

#[test]
fn telemetry_costs_only_those_who_read_it() {
    let got = probed("irn", Detail::Packets);
    assert_eq!(got.len(), 196);
    assert!(got.iter().all(|(_, hops)| hops.is_empty()));
    let bytes: u64 = got.iter().map(|(of, _)| of.bytes).sum();
    assert_eq!(bytes, 800_000 + 196 * 44 + 2 * 16);
    assert_eq!(probed("irn", Detail::Reports), []);
}

#[test]
fn settings_belong_to_their_controller() {
    let refused = |transport: &str| {
        let text = format!(
            "[transport.wrong]\n{transport}\n[topology.rack]\nshape = \"star\"\nhosts = 2\n\
             cable = {{ rate = \"10Gbit\", delay = \"1us\" }}\n\
             [workload.one]\npattern = \"incast\"\nsenders = 1\nsize = \"1MB\"\n"
        );
        Plan::read(&text, &|_| Err(String::new()))
            .unwrap_err()
            .to_string()
    };
    for (transport, want) in [
        (
            "protocol = \"roce\"\nhpcc = { eta = 0.9 }",
            "transport.wrong: hpcc: roce has no such setting",
        ),
        (
            "protocol = \"roce@hpcc\"\ndcqcn = \"paper\"",
            "transport.wrong: dcqcn: roce@hpcc has no such setting",
        ),
        (
            "protocol = \"farwrite-sr-nack\"\ndctcp = { g = 0.5 }",
            "transport.wrong: dctcp: farwrite-sr-nack has no such setting",
        ),
        (
            "protocol = \"irn@timely\"\ntimely = { T_low = \"1ms\" }",
            "transport.wrong: timely.T_low = 1ms is above timely.T_high = 500us",
        ),
        (
            "protocol = \"eqds@dctcp\"",
            "transport.wrong: @ with a controller: eqds has no such setting",
        ),
    ] {
        let got = refused(transport);
        assert!(got.starts_with(want), "{got}");
    }
}
