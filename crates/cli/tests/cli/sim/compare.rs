//! Comparisons with the results of other simulators.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{
    OF_HTSIM, OF_NS3, TIMES, first_plan, peers_directory, refusal, refusal_with, result, sim, text,
};

#[test]
fn times_of_ns3_are_compared_flow_by_flow() {
    let directory = peers_directory();
    let at = directory.path();
    let args = [&OF_NS3[..], &["--compare", "fct.txt"]].concat();
    let json = result(at, &args);
    let setting = &json["comparison"]["settings"][0];
    let all = &setting["sizes"][1];
    let flows = fs::read_to_string(at.join("out/sim/flows.csv")).expect("flows");
    let ours_us: Vec<f64> = flows
        .lines()
        .skip(1)
        .map(|line| {
            line.split(',')
                .nth(6)
                .expect("fct_ns")
                .parse::<f64>()
                .expect("a time")
                / 1e3
        })
        .collect();
    let close = |value: &Value, want: f64| {
        let value = value.as_f64().expect("a number");
        assert!((value - want).abs() < 1e-9, "{value} and not {want}");
    };
    assert_eq!(
        (&all["flows"], &setting["sizes"][0]["up_to_bytes"]),
        (&Value::from(2), &Value::from(10_000))
    );
    close(&all["ours_us"]["mean"], ours_us.iter().sum::<f64>() / 2.0);
    close(&all["theirs_us"]["mean"], (0.5 + 5.0) / 2.0);
    close(&all["theirs_us"]["p50"], 0.5);
    close(&all["theirs_us"]["p99"], 5.0);
    // The second line of the file is the first flow, ten times as fast as ours.
    assert_eq!(setting["most_apart"][0]["line"], 2);
    assert_eq!(setting["most_apart"][0]["flow"], 0);
    close(&setting["most_apart"][0]["ours_us"], ours_us[0]);
    assert_eq!(setting["without_pair"].as_array().map(Vec::len), Some(1));
    assert_eq!(setting["without_pair"][0]["found"], "only_theirs");
    let csv = fs::read_to_string(at.join("out/sim/compare.csv")).expect("compare.csv");
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 3, "{csv}");
    assert!(lines[1].starts_with("0,0,2,0,1,9000,1.000,1.000,"), "{csv}");
    assert!(
        lines[1].contains(",0.500,") && lines[1].ends_with(",both"),
        "{csv}"
    );
    assert_eq!(lines[3], "0,,3,0,1,77,,1.000,,4.000,,only_theirs");
    let shown = sim(at, &args);
    let shown = text(&shown.stdout);
    for part in [
        "ratio: ours to theirs",
        "furthest apart",
        "Only in fct.txt: line 3 (host 0 to host 1)",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // 9000 bytes take 720 ns at 100 Gbit/s, and two cables 2 us.
    let warned = sim(at, &args);
    let warned = text(&warned.stderr);
    let line = "fct.txt: 1 flow faster than the cables of the topology allow, such as that of line 2: 0.5 us, and \
                the cables take 2.7 us at least";
    assert!(warned.contains(line), "{warned}");
    // The first flow starts at 1 us.
    let last_us = json["runs"][0]["last_done_us"].as_f64().expect("done");
    assert!(
        (last_us - ours_us[1].max(ours_us[0]) - 1.0).abs() < 0.5,
        "{last_us} {ours_us:?}"
    );
}

#[test]
fn a_log_of_htsim_is_compared_for_each_transport() {
    let directory = peers_directory();
    let at = directory.path();
    // The second flow waits for the first. Only the log has its start.
    let log = "startflow Roce_0_3 at 7\nFlow Roce_0_3 17 finished at 9.5 total bytes 9000\n\
               startflow Roce_1_3 at 9.5\nFlow Roce_1_3 18 finished at 12 total bytes 9000\n";
    fs::write(at.join("log.txt"), log).expect("written");
    let args = [
        &OF_HTSIM[..],
        &["--transport", "roce,irn", "--compare", "log.txt"],
    ]
    .concat();
    let json = result(at, &args);
    let settings = json["comparison"]["settings"].as_array().expect("settings");
    assert_eq!(settings.len(), 2);
    for setting in settings {
        let all = setting["sizes"]
            .as_array()
            .and_then(|sizes| sizes.last())
            .expect("all");
        assert_eq!(
            (&all["flows"], &all["theirs_us"]["max"]),
            (&Value::from(2), &Value::from(2.5))
        );
        // The matrix starts the first flow at 0.
        assert_eq!(setting["other_start"][0]["flow"], 0);
        assert_eq!(setting["other_start"].as_array().map(Vec::len), Some(1));
    }
    let shown = sim(at, &args);
    let shown = text(&shown.stdout);
    let line =
        "Started at another time in log.txt than in its input: flow 0 of run 0 (host 0 to host 3)";
    assert!(shown.contains(line), "{shown}");
    // Without its start, the time of the second flow is unknown. The first is gone.
    let log = "Flow Roce_1_3 18 finished at 12 total bytes 9000\n\
               Flow Roce_0_1 19 finished at 12 total bytes 9000\n";
    fs::write(at.join("log.txt"), log).expect("written");
    let shown = sim(at, &args);
    assert!(shown.status.success());
    let shown = text(&shown.stdout);
    for line in [
        "Not in log.txt: flow 0 of run 0 (host 0 to host 3)",
        "Only in log.txt: line 2 (host 0 to host 1)",
        "Without a start in log.txt: flow 1 of run 0 (host 1 to host 3)",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

/// The plan ends before the first packet has arrived.
#[test]
fn a_flow_that_is_not_done_here_is_named() {
    let directory = peers_directory();
    let at = directory.path();
    let plan = "until = \"2us\"\n[topology.t]\nfile = \"t.txt\"\n[workload.f]\nfile = \"f.txt\"\n";
    fs::write(at.join("plan.toml"), plan).expect("written");
    let shown = sim(at, &["plan.toml", "--compare", "fct.txt"]);
    let line =
        "Not done here: flow 0 of run 0 (host 0 to host 1), flow 1 of run 0 (host 1 to host 0)";
    let stdout = text(&shown.stdout);
    assert!(shown.status.success() && stdout.contains(line), "{stdout}");
    let csv = fs::read_to_string(at.join("out/sim/compare.csv")).expect("compare.csv");
    assert_eq!(csv.matches(",,0.500,,not_done").count(), 1, "{csv}");
}

#[test]
fn a_comparison_that_cannot_be_is_refused_before_anything_runs() {
    let directory = peers_directory();
    let at = directory.path();
    let write = |name: &str, content: &str| fs::write(at.join(name), content).expect("written");
    write("bad.txt", &TIMES.replace(" 77 ", " many "));
    write("other.txt", &TIMES.replace(" 9000 ", " 9001 "));
    write(
        "two.toml",
        &format!(
            "{}[workload.more]\npattern = \"permutation\"\nsize = \"1kB\"\n",
            first_plan()
        ),
    );
    let of_ns3 = |file| refusal(at, &[&OF_NS3[..], &["--compare", file]].concat());
    let line = of_ns3("bad.txt");
    assert!(
        line.contains("bad.txt:3: the size is \"many\": completion times are lines"),
        "{line}"
    );
    let line = of_ns3("other.txt");
    assert!(
        line.contains("--compare other.txt: none of its 3 flows is in workload f"),
        "{line}"
    );
    let line = of_ns3("f.txt");
    assert!(line.contains("f.txt:1: 1 words from \"2\" on"), "{line}");
    let line = refusal_with(6, at, &[&OF_NS3[..], &["--compare", "none.txt"]].concat());
    assert!(line.contains("none.txt"), "{line}");
    let line = refusal(at, &["two.toml", "--compare", "fct.txt"]);
    assert!(
        line.contains("several networks or workloads") && line.contains("keep one"),
        "{line}"
    );
}

/// The fenced blocks of a text, each with the file name in backticks that the line before it ends
/// with.
fn blocks(text: &str) -> Vec<(Option<&str>, String)> {
    let mut found = Vec::new();
    let mut name = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let body: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push((name.take(), format!("{}\n", body.join("\n"))));
        } else if !line.is_empty() {
            let named = line
                .strip_suffix("`:")
                .and_then(|line| line.rsplit('`').next());
            name = named.filter(|name| name.contains('.'));
        }
    }
    found
}

/// Runs the commands of docs/sim-compare.md with the files that it prints.
#[test]
fn the_walk_through_a_comparison_prints_what_the_docs_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let docs_directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs_directory.join("sim-compare.md")).expect("the page");
    let blocks = blocks(&page);
    let mut commands = 0;
    for (name, body) in &blocks {
        let Some(command) = body.strip_prefix("$ farwrite sim ") else {
            let name = name.expect("a block is a command or has the name of a file");
            fs::write(at.join(name), body).expect("written");
            continue;
        };
        let command = command.replace("\\\n", " ");
        let (command, want) = command.split_once('\n').expect("output");
        let args: Vec<_> = command.split_whitespace().collect();
        let output = sim(at, &args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout).trim_end(), want.trim_end());
        commands += 1;
    }
    assert_eq!((commands, blocks.len() - commands), (2, 4));
    let picture = |path: PathBuf| fs::read_to_string(path).expect("a picture");
    assert_eq!(
        picture(at.join("out/peer/completion.svg")),
        picture(docs_directory.join("sim-compare.svg")),
        "docs/sim-compare.svg is the picture of the first command"
    );
    // The other seed that the text names.
    let plan = fs::read_to_string(at.join("htsim.toml")).expect("the plan");
    fs::write(at.join("other.toml"), format!("first_seed = 2\n{plan}")).expect("written");
    let other = result(at, &["other.toml", "--compare", "htsim.log"]);
    let longest = &other["comparison"]["settings"][0]["most_apart"][0];
    assert_eq!(
        (&longest["src"], &longest["dst"]),
        (&Value::from(1), &Value::from(9))
    );
    assert!(page.contains(&format!(
        "{:.1} us",
        longest["ours_us"].as_f64().expect("a time")
    )));
}
