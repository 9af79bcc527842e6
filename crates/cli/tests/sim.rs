//! Runs `farwrite sim` as a user does.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn sim(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .current_dir(directory)
        .arg("sim")
        .args(args)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Runs the program and returns its result as JSON.
#[track_caller]
fn result(directory: &Path, args: &[&str]) -> Value {
    let output = sim(directory, &[args, &["--json"]].concat());
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(object["command"], "sim");
    object["result"].clone()
}

/// Runs the program and returns the line of its usage error.
#[track_caller]
fn refusal(directory: &Path, args: &[&str]) -> String {
    let output = sim(directory, args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(!directory.join("out").exists(), "nothing has run");
    text(&output.stderr).trim().to_owned()
}

/// Returns the plan that `--help` shows.
fn first_plan() -> String {
    let help = sim(Path::new("."), &["--help"]);
    let help = text(&help.stdout);
    let (_, rest) = help
        .split_once("A plan for a first run:\n")
        .expect("a plan");
    let (plan, _) = rest.split_once("A plan has").expect("more");
    plan.lines()
        .map(|line| format!("{}\n", line.trim()))
        .collect()
}

#[test]
fn the_plan_of_the_help_is_short_and_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let plan = first_plan();
    assert!(plan.trim().lines().count() <= 10, "{plan}");
    fs::write(directory.path().join("plan.toml"), &plan).expect("written");
    let result = result(directory.path(), &["plan.toml"]);
    assert_eq!(result["runs"][0]["done"], 15);
    let out = directory.path().join("out/sim");
    let read = |name: &str| fs::read_to_string(out.join(name)).expect(name);
    assert_eq!(read("plan.toml"), plan);
    assert_eq!(read("flows.csv").lines().count(), 1 + 15);
    assert_eq!(read("runs.csv").lines().count(), 1 + 1);
    assert_eq!(read("sizes.csv").lines().count(), 1 + 2);
    for name in ["flows.csv", "runs.csv", "sizes.csv"] {
        let text = read(name);
        let columns = |line: &str| line.split(',').count();
        let head = text.lines().next().map(columns);
        assert!(
            text.lines().all(|line| Some(columns(line)) == head),
            "{name}"
        );
    }
    let json: Value = serde_json::from_str(&read("results.json")).expect("JSON");
    assert_eq!(json, result);
    let svg = read("timeline.svg");
    let picture = roxmltree::Document::parse(&svg).expect("XML");
    let class = |name| {
        let nodes = picture.descendants();
        nodes
            .filter(|node| node.attribute("class") == Some(name))
            .count()
    };
    // All flows wait in the queue before the receiver.
    assert_eq!((class("flow"), class("queue")), (15, 1));
}

#[test]
fn confidence_intervals_come_with_seeds() {
    let directory = tempfile::tempdir().expect("a directory");
    let plan = format!("seeds = 4\nloss = [0, 0.01]\n{}", first_plan());
    fs::write(directory.path().join("plan.toml"), plan).expect("written");
    let result = result(directory.path(), &["plan.toml", "--picture", "7"]);
    assert_eq!(result["runs"].as_array().map(Vec::len), Some(8));
    let settings = result["settings"].as_array().expect("settings");
    assert_eq!(settings.len(), 2);
    let all = &settings[1]["sizes"][1];
    assert_eq!(
        (&all["up_to_bytes"], &all["flows"]),
        (&Value::Null, &Value::from(60))
    );
    assert!(all["fct_mean_us"]["ci95"].as_f64().expect("a width") > 0.0);
    assert!(
        result["runs"][7]["dropped_cable"]
            .as_u64()
            .expect("a count")
            > 0
    );
}

const MATRIX: &str = "Nodes 4\nConnections 2\nTriggers 1\n0->3 id 1 start 0 size 9000 send_done_trigger 1\n\
                      1->3 id 2 trigger 1 size 9000\ntrigger id 1 oneshot\n";
const TREE: &str = "Nodes 4\nTiers 2\nPodsize 4\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 1\n\
                    Oversubscribed 2\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\n\
                    Radix_Down 2\nDownlink_Latency_ns 1000\n";
const FLOWS: &str = "2\n1 2 3 9000 0.000001\n2 1 3 100 9000 0.000002\n";
const NODES: &str = "3 1 2\n0\n0 1 100Gbps 1000ns 0\n0 2 100Gbps 0.001ms 0\n";

#[test]
fn peers_files_run_as_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = [
        ("a.cm", MATRIX),
        ("a.topo", TREE),
        ("f.txt", FLOWS),
        ("t.txt", NODES),
    ];
    for (name, content) in files {
        fs::write(directory.path().join(name), content).expect("written");
    }
    let args = [
        "--connections",
        "a.cm",
        "--topology",
        "a.topo",
        "--transport",
        "roce,eqds,farwrite-ec-mds:8,2",
    ];
    let of_htsim = result(directory.path(), &args);
    let transports = [0, 1, 2].map(|run| of_htsim["runs"][run]["transport"].clone());
    let names = ["eqds", "farwrite-ec-mds:8,2", "roce"];
    assert_eq!(transports, names.map(Value::from));
    assert!(
        [0, 1, 2]
            .iter()
            .all(|run| of_htsim["runs"][*run]["done"] == 2)
    );
    assert_eq!(of_htsim["runs"][0]["workload"], "a");
    let flows = fs::read_to_string(directory.path().join("out/sim/flows.csv")).expect("flows");
    let cells: Vec<Vec<_>> = flows
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    // The second flow starts when the first ends: columns start_ns and fct_ns.
    assert_eq!(cells[2][5], cells[1][6]);
    let args = [
        "--flows",
        "f.txt",
        "--topology",
        "t.txt",
        "--mtu",
        "1024",
        "--seeds",
        "2",
    ];
    let of_ns3 = result(directory.path(), &args);
    assert_eq!(
        (&of_ns3["runs"][0]["done"], &of_ns3["runs"][1]["seed"]),
        (&Value::from(2), &Value::from(2))
    );
    // A run of the plan that the options describe gives the same result.
    let plan = directory.path().join("again.toml");
    fs::copy(directory.path().join("out/sim/plan.toml"), plan).expect("copied");
    assert_eq!(result(directory.path(), &["again.toml"]), of_ns3);
}

#[test]
fn what_cannot_run_is_refused_before_anything_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::write(at.join("bad.cm"), MATRIX.replace("size 9000", "size lots")).expect("written");
    fs::write(at.join("a.topo"), TREE).expect("written");
    fs::write(
        at.join("plan.toml"),
        first_plan().replace("senders = 15", "senders = 16"),
    )
    .expect("written");
    fs::write(
        at.join("many.toml"),
        format!("seeds = 99999\n{}", first_plan()),
    )
    .expect("written");
    let line = refusal(at, &["--connections", "bad.cm", "--topology", "a.topo"]);
    assert!(
        line.contains("bad.cm:4: size is \"lots\": a whole number from 1 on"),
        "{line}"
    );
    let line = refusal(at, &["plan.toml"]);
    assert!(
        line.contains("workload.incast: senders = 16: 1 to 15"),
        "{line}"
    );
    fs::write(
        at.join("tcp.toml"),
        format!("transport = [\"irn\", \"tcp\"]\n{}", first_plan()),
    )
    .expect("written");
    let line = refusal(at, &["tcp.toml"]);
    assert!(
        line.contains(
            "\"tcp\": choose one of roce, roce-nocc, roce-lossy, irn, eqds, srnic, falcon, uccl"
        ),
        "{line}"
    );
    let line = refusal(at, &["no.toml"]);
    assert!(line.contains("no.toml"), "{line}");
    let line = refusal(at, &["--connections", "bad.cm"]);
    assert!(line.contains("--topology"), "{line}");
    let line = refusal(at, &["many.toml", "--picture", "99999"]);
    assert!(line.contains("runs 0 to 99998"), "{line}");
    let output = sim(at, &["many.toml", "--threads", "65535"]);
    let line = text(&output.stderr);
    assert!(line.contains("of memory and this machine has"), "{line}");
    assert!(!at.join("out").exists());
}
