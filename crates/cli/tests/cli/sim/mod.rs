//! Runs `farwrite sim` as a user does.

mod compare;
mod other_simulators;
mod planned;
mod plans;
mod published;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{result_of, text};

const MATRIX: &str = "Nodes 4\nConnections 2\nTriggers 1\n0->3 id 1 start 0 size 9000 send_done_trigger 1\n\
                      1->3 id 2 trigger 1 size 9000\ntrigger id 1 oneshot\n";
const TREE: &str = "Nodes 4\nTiers 2\nPodsize 4\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 1\n\
                    Oversubscribed 2\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\n\
                    Radix_Down 2\nDownlink_Latency_ns 1000\n";
const FLOWS: &str = "2\n1 2 3 9000 0.000001\n2 1 3 100 9000 0.000002\n";
const NODES: &str = "3 1 2\n0\n0 1 100Gbps 1000ns 0\n0 2 100Gbps 0.001ms 0\n";

/// What HPCC writes for `FLOWS`, with times that are far from ours, and a flow that is not there.
const TIMES: &str = "0b000201 0b000101 10000 100 9000 2000 5000 4900\n\
                     0b000101 0b000201 10000 100 9000 1000 500 4900\n\
                     0b000101 0b000201 10001 100 77 1000 4000 3900\n";

const OF_NS3: [&str; 6] = ["--flows", "f.txt", "--topology", "t.txt", "--mtu", "1024"];
const OF_HTSIM: [&str; 4] = ["--connections", "a.cm", "--topology", "a.topo"];

fn sim(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .current_dir(directory)
        .arg("sim")
        .args(args)
        .output()
        .expect("the program starts")
}

/// Runs the program and returns its result as JSON.
#[track_caller]
fn result(directory: &Path, args: &[&str]) -> Value {
    result_of(&sim(directory, &[args, &["--json"]].concat()), "sim")
}

/// Runs the program and returns the line of its usage error.
#[track_caller]
fn refusal(directory: &Path, args: &[&str]) -> String {
    refusal_with(2, directory, args)
}

/// The same with another exit code.
fn refusal_with(code: i32, directory: &Path, args: &[&str]) -> String {
    let output = sim(directory, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}");
    let results = directory.join("out/sim/results.json");
    assert!(!results.exists(), "nothing has run");
    text(&output.stderr).trim().to_owned()
}

/// Returns the plan that `--help` shows.
fn first_plan() -> String {
    let help = sim(Path::new("."), &["--help"]);
    let help = text(&help.stdout);
    let (_, rest) = help
        .split_once("A plan for a first run:\n")
        .expect("a plan");
    let (plan, _) = rest.split_once("The parts of a plan").expect("more");
    plan.lines()
        .map(|line| format!("{}\n", line.trim()))
        .collect()
}

/// The texts of a picture.
fn texts(svg: &str) -> Vec<String> {
    let picture = roxmltree::Document::parse(svg).expect("XML");
    let texts = picture
        .descendants()
        .filter(|node| node.has_tag_name("text"));
    texts
        .map(|node| node.text().unwrap_or_default().trim().to_owned())
        .collect()
}

/// A directory with files of other simulators.
fn peers_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let files = [
        ("a.cm", MATRIX),
        ("a.topo", TREE),
        ("f.txt", FLOWS),
        ("t.txt", NODES),
        ("fct.txt", TIMES),
    ];
    for (name, content) in files {
        fs::write(directory.path().join(name), content).expect("written");
    }
    directory
}
