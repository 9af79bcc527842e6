//! Runs `farwrite sim` as a user does.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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
    let (plan, _) = rest.split_once("The parts of a plan").expect("more");
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
    let svg =
        fs::read_to_string(directory.path().join("out/sim/completion.svg")).expect("a picture");
    let texts = texts(&svg);
    assert!(
        texts.iter().any(|text| text == "loss 0") && texts.iter().any(|text| text == "loss 0.01")
    );
    // Slowdowns by size have no panel, since all messages have the same size.
    assert!(!texts.iter().any(|text| text == "slowdown"), "{texts:?}");
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

const MATRIX: &str = "Nodes 4\nConnections 2\nTriggers 1\n0->3 id 1 start 0 size 9000 send_done_trigger 1\n\
                      1->3 id 2 trigger 1 size 9000\ntrigger id 1 oneshot\n";
const TREE: &str = "Nodes 4\nTiers 2\nPodsize 4\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 1\n\
                    Oversubscribed 2\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\n\
                    Radix_Down 2\nDownlink_Latency_ns 1000\n";
const FLOWS: &str = "2\n1 2 3 9000 0.000001\n2 1 3 100 9000 0.000002\n";
const NODES: &str = "3 1 2\n0\n0 1 100Gbps 1000ns 0\n0 2 100Gbps 0.001ms 0\n";

#[test]
fn a_number_of_paths_is_part_of_each_transport() {
    let directory = peers_directory();
    let files = ["--connections", "a.cm", "--topology", "a.topo"];
    let line = refusal(directory.path(), &[&files[..], &["--paths", "3"]].concat());
    assert!(
        line.contains("transport.roce: paths: roce has no such setting"),
        "{line}"
    );
    let given = ["--transport", "eqds", "--paths", "0"];
    let line = refusal(directory.path(), &[files, given].concat());
    assert!(
        line.contains("transport.eqds: paths = 0: 1 to 16384"),
        "{line}"
    );
    let given = ["--transport", "eqds,uccl", "--paths", "3"];
    result(directory.path(), &[files, given].concat());
    let plan = fs::read_to_string(directory.path().join("out/sim/plan.toml")).expect("plan");
    assert_eq!(plan.matches("\npaths = 3\n").count(), 2, "{plan}");
}

#[test]
fn peers_files_run_as_they_are() {
    let directory = peers_directory();
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

/// In htsim's `permutation.cm`, flows of size 0 send until the simulation ends.
#[test]
fn flows_without_an_end_run_for_a_given_time() {
    let directory = peers_directory();
    let at = directory.path();
    let sizes = MATRIX.replace("size 9000", "size 0");
    assert_ne!(sizes, MATRIX);
    fs::write(at.join("a.cm"), sizes).expect("written");
    let line = refusal(at, &OF_HTSIM);
    assert!(
        line.contains("has no size") && line.contains("--until 10ms"),
        "{line}"
    );
    for wrong in ["0s", "soon", "10"] {
        let line = refusal(at, &[&OF_HTSIM[..], &["--until", wrong]].concat());
        assert!(line.contains("10ms"), "{line}");
    }
    let until = [&OF_HTSIM[..], &["--until", "300us"]].concat();
    let ended = result(at, &until);
    assert_eq!(ended["settings"][0]["values"]["until"], "300us");
    let flows = fs::read_to_string(at.join("out/sim/flows.csv")).expect("flows");
    assert!(flows.contains("unfinished"), "{flows}");
    fs::copy(at.join("out/sim/plan.toml"), at.join("again.toml")).expect("copied");
    assert_eq!(result(at, &["again.toml"]), ended);
    let of_ns3 = [&OF_NS3[..], &["--until", "2us"]].concat();
    assert_eq!(result(at, &of_ns3)["runs"][0]["done"], 0);
}

/// What HPCC writes for `FLOWS`, with times that are far from ours, and a flow that is not there.
const TIMES: &str = "0b000201 0b000101 10000 100 9000 2000 5000 4900\n\
                     0b000101 0b000201 10000 100 9000 1000 500 4900\n\
                     0b000101 0b000201 10001 100 77 1000 4000 3900\n";

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

const OF_NS3: [&str; 6] = ["--flows", "f.txt", "--topology", "t.txt", "--mtu", "1024"];
const OF_HTSIM: [&str; 4] = ["--connections", "a.cm", "--topology", "a.topo"];

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
    let line = of_ns3("none.txt");
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

/// Runs the commands of the section with the files that it prints.
#[test]
fn the_walk_through_a_comparison_prints_what_the_docs_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let docs_directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let docs = fs::read_to_string(docs_directory.join("sim.md")).expect("docs/sim.md");
    let (_, section) = docs
        .split_once("\n## From a peer's files to a comparison\n")
        .expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let blocks = blocks(section);
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
    assert!(section.contains(&format!(
        "{:.1} us",
        longest["ours_us"].as_f64().expect("a time")
    )));
}

#[test]
fn results_have_the_values_of_their_settings() {
    let directory = tempfile::tempdir().expect("a directory");
    let plan = format!(
        "transport = [\"roce\", \"irn\"]\nframing_bytes = 20\nuntil = \"1s\"\n{}[switch.drill]\n\
         latency = \"300ns\"\nrouting = {{ policy = \"drill\", d = 2, m = 1 }}\n\
         [switch.marks]\necn = {{ kmin = \"5kB\", kmax = \"9kB\", pmax = 0.5 }}\n",
        first_plan()
    );
    fs::write(directory.path().join("plan.toml"), plan).expect("written");
    let of_plan = result(directory.path(), &["plan.toml"]);
    let json = fs::read_to_string(directory.path().join("out/sim/results.json")).expect("JSON");
    assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON"), of_plan);
    let settings = of_plan["settings"].as_array().expect("settings");
    assert_eq!(settings.len(), 4);
    for setting in settings {
        let values = &setting["values"];
        assert_eq!(values["topology"]["cable"]["rate"], "100Gbit");
        assert_eq!(values["workload"]["senders"], 15);
        assert_eq!(
            (&values["framing_bytes"], &values["until"]),
            (&Value::from(20), &Value::from("1s"))
        );
        assert_eq!(values["transport"]["protocol"], setting["transport"]);
        // A default, and one that depends on the protocol.
        assert_eq!(
            (&values["transport"]["mtu"], &values["transport"]["window"]),
            (&Value::from(4096), &Value::Null)
        );
        let switch = &values["switch"];
        assert_eq!(switch["buffer"], 9 << 20);
        if setting["switch"] == "drill" {
            assert_eq!(
                (&switch["routing"]["d"], &switch["latency"]),
                (&Value::from(2), &Value::from("300ns"))
            );
        } else {
            assert_eq!(
                (&switch["ecn"]["kmin"], &switch["ecn"]["at"]),
                (&Value::from(5000), &Value::from("departure"))
            );
        }
    }
    // Without switches in the plan: those that the transport needs.
    fs::write(directory.path().join("first.toml"), first_plan()).expect("written");
    let first = result(directory.path(), &["first.toml"]);
    let switch = &first["settings"][0]["values"]["switch"];
    assert_eq!(switch["pfc"]["xoff"]["alpha"], 1.0 / 16.0);
    assert_eq!(switch["ecn"]["kmax"], 200_000);
}

/// A host that sends a burst in the first 10 us with some seeds only. A run without flows fails.
const RARE: &str = "seeds = 8\nfirst_seed = 2\n[topology.rack]\nshape = \"star\"\nhosts = 2\ncable = { rate = \"100Gbit\", \
                    delay = \"1us\" }\n[workload.rare]\npattern = \"on-off\"\nsenders = 1\nburst = \"1kB\"\n\
                    silence = \"10us\"\nuntil = \"10us\"\n";

#[test]
fn a_run_that_fails_leaves_the_results_of_the_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::write(at.join("rare.toml"), RARE).expect("written");
    let output = sim(at, &["rare.toml"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    let runs = fs::read_to_string(at.join("out/sim/runs.csv")).expect("runs.csv");
    let done = runs.lines().count() - 1;
    assert!((1..8).contains(&done), "{runs}");
    let line = format!("results of {done} of 8 runs are in out/sim");
    assert!(stderr.contains(&line), "{stderr}");
    assert!(
        stderr.contains("with seed") && stderr.contains("has no flows"),
        "{stderr}"
    );
    let json = fs::read_to_string(at.join("out/sim/results.json")).expect("results.json");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(done));
    assert_eq!(json["planned_runs"], 8);
}

/// The second run would take hours.
#[test]
fn an_interrupt_leaves_the_results_of_finished_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let long = "[workload.long]\npattern = \"permutation\"\nsize = \"1TB\"\n";
    fs::write(at.join("plan.toml"), format!("{}{long}", first_plan())).expect("written");
    let stale = at.join("out/sim/compare.csv");
    fs::create_dir_all(at.join("out/sim")).expect("made");
    fs::write(&stale, "of an earlier command").expect("written");
    let mut child = Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .current_dir(at)
        .args(["sim", "plan.toml", "--threads", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut progress = BufReader::new(child.stderr.take().expect("piped")).lines();
    let shows = |line: &String| line.contains("1 of 2 runs");
    let first = progress
        .by_ref()
        .map(|line| line.expect("text"))
        .find(shows);
    assert!(first.is_some(), "the first run ends");
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(sent.expect("kill").success());
    let rest: Vec<_> = progress.map(|line| line.expect("text")).collect();
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{rest:?}");
    let last = rest.last().expect("an error");
    assert!(
        last.contains("interrupted; results of 1 of 2 runs are in out/sim"),
        "{rest:?}"
    );
    let flows = fs::read_to_string(at.join("out/sim/flows.csv")).expect("flows.csv");
    assert_eq!(flows.lines().count(), 1 + 15);
    assert!(at.join("out/sim/timeline.svg").exists());
    assert!(!stale.exists());
}

#[test]
fn the_plan_in_the_results_runs_from_there() {
    let directory = peers_directory();
    let at = directory.path();
    fs::create_dir(at.join("in")).expect("made");
    for name in ["a.cm", "a.topo"] {
        fs::rename(at.join(name), at.join("in").join(name)).expect("moved");
    }
    fs::write(at.join("in/sizes.txt"), "0 0\n1000 100\n").expect("written");
    let plan = "# files of a peer\n[topology.'a.topo']\nfile = 'a.topo'\n[workload.cm]\nfile = \"a.cm\"\n\
                [workload.web]\npattern = \"mix\"\nparts = [{ pattern = \"poisson\", load = 0.3, \
                sizes = \"sizes.txt\", flows = 5 }, { pattern = \"poisson\", load = 0.1, sizes = \"1kB\", \
                flows = 5 }]\n";
    fs::write(at.join("in/plan.toml"), plan).expect("written");
    let first = result(at, &["in/plan.toml"]);
    let kept = fs::read_to_string(at.join("out/sim/plan.toml")).expect("plan.toml");
    assert!(
        kept.starts_with("# files of a peer\n[topology.'a.topo']\nfile = \"/"),
        "{kept}"
    );
    assert!(kept.contains("sizes = \"1kB\""), "{kept}");
    let again = result(&at.join("out/sim"), &["plan.toml"]);
    assert_eq!(again, first);
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
        line.contains("bad.cm:4: size is \"lots\": a whole number of bytes"),
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
    let line = refusal(at, &["many.toml", "--capture", "16"]);
    assert!(
        line.contains("--capture 16: run 0 has hosts 0 to 15"),
        "{line}"
    );
    let output = sim(at, &["many.toml", "--threads", "65535"]);
    let line = text(&output.stderr);
    assert!(line.contains("of memory and this machine has"), "{line}");
    // One run that needs terabytes: a million messages of 2 million packets.
    let huge = first_plan().replace(
        "incast\"\nsenders = 15\nsize = \"500kB\"",
        "poisson\"\nload = 0.5\nsizes = \"128MB\"\nflows = 1000000",
    );
    let huge = format!("{huge}[transport.small]\nprotocol = \"farwrite-sr-rto\"\nmtu = 64\n");
    fs::write(at.join("huge.toml"), huge).expect("written");
    let output = sim(at, &["huge.toml", "--threads", "1"]);
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(
        line.contains("the simulation needs 1") && line.contains(" GiB of memory"),
        "{line}"
    );
    assert!(!at.join("out").exists());
}
