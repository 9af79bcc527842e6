//! Tests `--trace` and `farwrite trace`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn farwrite(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .args(args)
        .current_dir(directory)
        .output()
        .expect("the program starts")
}

/// Makes a new directory for this test, below the directory of cargo for tests.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("trace")
        .join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a directory");
    path
}

fn json(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let object = serde_json::from_slice(&output.stdout);
    object.unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a trace");
    let line = |line| serde_json::from_str(line).expect("an object on each line");
    text.lines().map(line).collect()
}

const DEMO: [&str; 13] = [
    "--json",
    "demo",
    "--size",
    "2MiB",
    "--rtt",
    "10ms",
    "--rate",
    "300Mbit",
    "--loss",
    "2%",
    "--scheme",
    "sr-nack,ec-mds:8,4",
    "--trace",
];

#[test]
fn a_demo_is_traced_and_drawn() {
    let directory = directory("demo");
    let demo = json(&farwrite(
        &directory,
        &[&DEMO[..], &["demo.jsonl"]].concat(),
    ));
    let trace = lines(&directory.join("demo.jsonl"));
    let mut times = trace
        .iter()
        .map(|line| line["time"].as_f64().expect("a time"));
    assert!(times.clone().all(|time| (0.0..60_000.0).contains(&time)));
    assert!(times.next_back() > Some(10.0));
    let names = trace
        .iter()
        .map(|line| line["name"].as_str().expect("a name"));
    assert!(names.clone().all(|name| name.starts_with("farwrite:")));
    for event in [
        "send_offered",
        "send_cleared",
        "send_chunks",
        "send_nacked",
        "send_ended",
        "recv_offered",
        "recv_cleared",
        "recv_arrived",
        "recv_nacked",
        "recv_rebuilt",
        "recv_ended",
        "path_feedback",
    ] {
        let wanted = format!("farwrite:{event}");
        assert!(names.clone().any(|name| name == wanted), "{event}");
    }

    let drawn = json(&farwrite(&directory, &["--json", "trace", "demo.jsonl"]));
    let runs = drawn["result"]["runs"].as_array().expect("runs");
    let shown = demo["result"]["runs"].as_array().expect("runs");
    for (run, shown) in runs.iter().zip(shown) {
        assert_eq!(run["title"], shown["scheme"]);
        assert_eq!(run["side"], "sender");
        assert_eq!(run["messages"], 1);
        let sent = run["sent_chunks"].as_u64().expect("a number");
        let repeated = run["repeated_chunks"].as_u64().expect("a number");
        assert_eq!(sent - repeated, (2 << 20) / 4096, "{run}");
    }
    assert!(runs[0]["repeated_chunks"].as_u64() > Some(0));
    assert_eq!(runs[0]["parity_chunks"], 0);
    // Parity that the receiver no longer needs is not sent.
    let parity = runs[1]["parity_chunks"].as_u64().expect("a number");
    assert!((1..=(2 << 20) / 4096 / 2).contains(&parity), "{parity}");

    let picture = fs::read_to_string(directory.join("demo.svg")).expect("a picture");
    let picture = roxmltree::Document::parse(&picture).expect("XML");
    let classes = |class: &str| {
        let nodes = picture.descendants();
        nodes
            .filter(|node| node.attribute("class") == Some(class))
            .count()
    };
    assert_eq!(classes("run"), 2);
    assert_eq!(classes("new"), 2);
    assert_eq!(classes("arrived"), 2);
    assert_eq!(classes("parity"), 1);
    assert!(classes("nack") >= 1 && classes("repeat") >= 1);
}

#[test]
fn people_read_what_messages_waited_for() {
    let directory = directory("words");
    farwrite(&directory, &[&DEMO[..], &["demo.jsonl"]].concat());
    let output = farwrite(&directory, &["trace", "demo.jsonl", "--out", "other.svg"]);
    let text = String::from_utf8(output.stdout).expect("text");
    for words in [
        "sr-nack",
        "ec-mds:8,4",
        "for the receiver's buffer",
        "median",
        "longest pause: no packet left for",
        "picture: other.svg",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(directory.join("other.svg").exists() && !directory.join("demo.svg").exists());
}

#[test]
fn what_is_no_trace_is_refused_with_its_line() {
    let directory = directory("bad");
    let event = r#"{"time":1.5,"name":"farwrite:send_cleared","data":{"qp":0,"message":0}}"#;
    let long = format!("{event}\n{event}\n");
    let cases = [
        ("empty", String::new(), 1),
        ("text", "a trace\nof text\n".to_owned(), 1),
        (
            "foreign",
            r#"{"time":0,"name":"quic:x","data":{}}"#.to_owned(),
            1,
        ),
        ("negative", event.replace("1.5", "-1.5"), 1),
        ("huge", event.replace("1.5", "1e300"), 1),
        (
            "reversed",
            event.replace("\"qp\":0", "\"first_chunk\":2,\"end_chunk\":1"),
            1,
        ),
        (
            "types",
            long.clone() + &event.replace("\"message\":0", "\"message\":\"0\""),
            3,
        ),
        ("middle", long.clone() + "{\"time\"\n" + event, 3),
    ];
    for (name, content, line) in cases {
        fs::write(directory.join(name), content).expect("a file");
        let output = farwrite(&directory, &["trace", name]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{name}: {stderr}");
        assert!(
            stderr.contains(&format!("{name}, line {line}")),
            "{name}: {stderr}"
        );
    }
    // A program that was killed leaves an incomplete line.
    fs::write(directory.join("cut"), long.clone() + "{\"time\"").expect("a file");
    assert!(farwrite(&directory, &["trace", "cut"]).status.success());
    // An event of a later version.
    let later = long.replace("send_cleared", "send_resent");
    fs::write(directory.join("later"), later).expect("a file");
    assert!(farwrite(&directory, &["trace", "later"]).status.success());
    for (args, code) in [
        (&["trace", "missing"][..], 6),
        (&["trace", "cut", "--out", "cut"], 2),
        (&["trace", "cut", "--out", "no/such/directory.svg"], 6),
        (&["demo", "--trace", "no/such/directory.jsonl"], 6),
    ] {
        let output = farwrite(&directory, args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
}
