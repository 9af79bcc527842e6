//! Completion times that someone has published with the ns-3 tree of HPCC, and the input of that run:
//! the repository `1163918605/High-Precision-Congestion-Control` at commit 2b856d84abfb, files
//! `simulation/mix/9node_1switch.txt`, `allreduce_flow.txt` and `fct.txt` (lab/results/sim.md).

use std::fmt::Write;
use std::fs;

use super::result;

/// The all-reduce halves and doubles among eight hosts. Each round begins a second after the one
/// before. In a round, each host exchanges bytes with the host whose number differs in one bit.
const ROUNDS: [(usize, u64); 6] = [
    (1, 1_048_576),
    (2, 524_288),
    (4, 262_144),
    (4, 262_144),
    (2, 524_288),
    (1, 1_048_576),
];
/// Completion and ideal times in nanoseconds. The simulation ended before the third round was done.
const TIMES_NS: [[u64; 2]; 2] = [[418_909, 356_296], [211_374, 180_476]];

/// The hosts of a round in the order of the file: each pair, in both directions.
fn exchanges(distance: usize) -> impl Iterator<Item = (usize, usize)> {
    let low = (0..8).filter(move |host| host & distance == 0);
    low.flat_map(move |host| [(host, host + distance), (host + distance, host)])
}

fn topology() -> String {
    let cables = (0..8).map(|host| format!("8 {host} 25Gbps 0.001ms 0\n"));
    format!("9 1 8\n8\n{}", cables.collect::<String>())
}

fn flows() -> String {
    let mut text = "48\n".to_owned();
    for (round, (distance, bytes)) in ROUNDS.iter().enumerate() {
        for (src, dst) in exchanges(*distance) {
            writeln!(text, "{src} {dst} 3 100 {bytes} {}", round + 2).expect("text");
        }
    }
    text
}

/// `fct.txt`, apart from the order of equal lines.
fn times() -> String {
    let mut text = String::new();
    for (round, [time, ideal]) in TIMES_NS.iter().enumerate() {
        let (distance, bytes) = ROUNDS[round];
        let start = (round + 2) * 1_000_000_000;
        for (src, dst) in exchanges(distance) {
            let line =
                format!("0b00{src:02x}01 0b00{dst:02x}01 10000 100 {bytes} {start} {time} {ideal}");
            writeln!(text, "{line}").expect("text");
        }
    }
    text
}

/// HPCC fills cables to 95%, and its packets have the headers of INT. With headers of this length
/// and an ACK for each packet, 0.95 explains what is left of the difference.
#[test]
fn published_times_of_ns3_are_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let plan = "framing_bytes = 48\n[topology.rack]\nfile = \"9node_1switch.txt\"\n[workload.all]\n\
                file = \"allreduce_flow.txt\"\n[transport.roce-nocc]\nprotocol = \"roce-nocc\"\n\
                mtu = 1024\nack_every = 1\n";
    let files = [
        ("9node_1switch.txt", topology()),
        ("allreduce_flow.txt", flows()),
        ("fct.txt", times()),
        ("same.toml", plan.to_owned()),
    ];
    for (name, content) in files {
        fs::write(at.join(name), content).expect("written");
    }
    let ratio = |args: &[&str]| {
        let json = result(at, &[args, &["--compare", "fct.txt"]].concat());
        let setting = &json["comparison"]["settings"][0];
        let sizes = setting["sizes"].as_array().expect("sizes");
        let all = sizes.last().expect("all flows");
        assert_eq!(all["flows"], 16);
        // The rounds that the file does not have.
        assert_eq!(setting["without_pair"].as_array().map(Vec::len), Some(32));
        let mean = |side: &str| all[side]["mean"].as_f64().expect("a mean");
        assert!((mean("theirs_us") - 315.1415).abs() < 1e-6);
        mean("ours_us") / mean("theirs_us")
    };
    let input = [
        "--flows",
        "allreduce_flow.txt",
        "--topology",
        "9node_1switch.txt",
    ];
    let as_given = ratio(&[&input[..], &["--transport", "roce-nocc", "--mtu", "1024"]].concat());
    assert!((as_given - 0.881).abs() < 0.001, "{as_given}");
    let same_packets = ratio(&["same.toml"]);
    assert!((same_packets - 0.958).abs() < 0.001, "{same_packets}");
}
