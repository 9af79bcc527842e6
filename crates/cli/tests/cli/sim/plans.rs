//! Plans, from the plan of the help to results.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{
    MATRIX, TREE, first_plan, peers_directory, refusal, refusal_with, result, sim, text, texts,
};

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
    let queues = read("queues.csv");
    let deepest = queues.lines().skip(1).map(|line| {
        let cells: Vec<u64> = line
            .split(',')
            .map(|cell| cell.parse().expect("a number"))
            .collect();
        assert_eq!((cells[0], cells[1] % 100), (0, 0), "{line}");
        cells[2]
    });
    let deepest = deepest.max().expect("samples");
    let peak = result["runs"][0]["queue_peak_bytes"]
        .as_u64()
        .expect("bytes");
    assert!(0 < deepest && deepest <= peak, "{deepest} of {peak}");
    for name in ["flows.csv", "queues.csv", "runs.csv", "sizes.csv"] {
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

/// Compares the rows below the first plan in docs/sim.md with those that the program prints.
#[test]
fn the_first_tables_of_the_docs_are_those_of_the_program() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sim.md");
    let docs = fs::read_to_string(docs).expect("docs/sim.md");
    let (_, section) = docs.split_once("\n## A first run\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let line = "transport = [\"roce\", \"roce-nocc\", \"irn\", \"eqds\"]";
    assert!(section.contains(line));
    let directory = tempfile::tempdir().expect("a directory");
    let plan = format!("{line}\n{}", first_plan());
    fs::write(directory.path().join("plan.toml"), plan).expect("written");
    let shown = sim(directory.path(), &["plan.toml"]);
    let rows = |text: &str| -> Vec<Vec<String>> {
        let of_rack = text
            .lines()
            .filter(|line| line.starts_with("  rack incast"));
        let words = of_rack.map(|line| line.split_whitespace().map(str::to_owned));
        words.map(Iterator::collect).collect()
    };
    let (printed, wanted) = (rows(text(&shown.stdout)), rows(section));
    assert_eq!((&printed[..], &printed[0]), (&wanted[1..], &wanted[0]));
}

/// After a warm-up of 100 us, of three flows at 0, 100 and 200 us, the second one counts.
#[test]
fn statistics_count_the_flows_that_start_within_measure() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let flows = "[topology.rack]\nshape = \"star\"\nhosts = 4\ncable = { rate = \"100Gbit\", delay = \"1us\" }\n\
                 [workload.three]\npattern = \"flows\"\nflows = [{ src = 0, dst = 3, size = \"9kB\" }, \
                 { src = 1, dst = 3, size = \"90kB\", start = \"100us\" }, { src = 2, dst = 3, size = \"9kB\", \
                 start = \"200us\" }]\n";
    let run_of = |measure: &str| {
        fs::write(at.join("plan.toml"), format!("{measure}\n{flows}")).expect("written");
        result(at, &["plan.toml"])
    };
    let all = run_of("");
    assert_eq!(all["settings"][0]["sizes"][2]["flows"], 3);
    let one = run_of("measure = { from = \"100us\", until = \"200us\" }");
    assert_eq!(
        (&one["runs"][0]["done"], &one["runs"][0]["trace"]),
        (&Value::from(3), &all["runs"][0]["trace"])
    );
    assert_eq!(one["settings"][0]["values"]["measure"]["from"], "100us");
    let [of_class, of_all] = &one["settings"][0]["sizes"].as_array().expect("sizes")[..] else {
        panic!("one class");
    };
    assert_eq!(
        (&of_class["flows"], &of_all["flows"]),
        (&Value::from(1), &Value::from(1))
    );
    let rows = fs::read_to_string(at.join("out/sim/flows.csv")).expect("flows");
    let measured: Vec<&str> = rows
        .lines()
        .map(|line| line.rsplit(',').nth(2).expect("a cell"))
        .collect();
    assert_eq!(measured, ["measured", "0", "1", "0"]);
    assert_eq!(
        fs::read_to_string(at.join("out/sim/fct.txt"))
            .expect("times")
            .lines()
            .count(),
        1
    );
    let late = run_of("measure = { from = \"1s\" }");
    assert_eq!(late["runs"][0]["fct_us"], Value::Null);
    fs::remove_dir_all(at.join("out")).expect("removed");
    fs::write(
        at.join("plan.toml"),
        format!("measure = {{ from = \"2ms\", until = \"1ms\" }}\n{flows}"),
    )
    .expect("written");
    let line = refusal(at, &["plan.toml"]);
    assert!(
        line.contains("measure: from = 2ms is not before until = 1ms"),
        "{line}"
    );
    fs::write(at.join("plan.toml"), format!("measure = \"2ms\"\n{flows}")).expect("written");
    let line = refusal(at, &["plan.toml"]);
    assert!(
        line.contains("a table such as { from = \"1ms\", until = \"9ms\" }"),
        "{line}"
    );
}

#[test]
fn links_and_flows_are_written_over_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::write(at.join("plan.toml"), first_plan()).expect("written");
    let run = &result(at, &["plan.toml", "--series"])["runs"][0];
    let table = |name: &str| -> Vec<Vec<String>> {
        let text = fs::read_to_string(at.join("out/sim").join(name)).expect(name);
        let rows = text
            .lines()
            .map(|line| line.split(',').map(str::to_owned).collect());
        rows.collect()
    };
    let number = |cell: &str| cell.parse::<f64>().expect("a number");
    let links = table("links.csv");
    let head = "time_ns,from,to,queue_bytes,use,sent_bytes,pfc_frames,pfc_stopped_ns";
    assert_eq!(links[0].join(","), head);
    // The cable to the receiver is busy, and its queue the deepest.
    let last: Vec<_> = links
        .iter()
        .filter(|row| row[1..3] == ["\"switch0\"", "\"host15\""])
        .collect();
    assert!(last.iter().any(|row| number(&row[4]) > 0.99), "{last:?}");
    assert!(last.iter().all(|row| number(&row[4]) < 1.1), "{last:?}");
    let deepest = last.iter().map(|row| number(&row[3])).fold(0.0, f64::max);
    assert!(deepest > 0.5 * run["queue_peak_bytes"].as_f64().expect("bytes"));
    assert!(number(&last.last().expect("rows")[5]) > 15.0 * 490_000.0);
    let stopped = links[1..]
        .iter()
        .filter(|row| row[1] == "\"host0\"")
        .map(|row| number(&row[7]));
    assert!(stopped.fold(0.0, f64::max) > 0.0);
    let rates = table("rates.csv");
    assert_eq!(
        rates[0].join(","),
        "time_ns,flow,rate_bps,packets,repeated,notifications"
    );
    let of_flows = (0..15).map(|flow| {
        let rows = rates[1..].iter().filter(|row| row[1] == flow.to_string());
        let rows: Vec<_> = rows.collect();
        assert!(rows.iter().any(|row| number(&row[2]) > 5e9), "flow {flow}");
        number(&rows.last().expect("rows")[5])
    });
    assert!(of_flows.sum::<f64>() > 15.0);
    let picture = fs::read_to_string(at.join("out/sim/series.svg")).expect("a picture");
    let texts = texts(&picture);
    for text in [
        "Use of the links that carry the most",
        "switch0 to host15",
        "Links that PFC stops for longest",
        "Rates of the flows that send the most",
        "flow 6",
        "not drawn: 8 more, which the files have",
        "Flows with the most congestion notifications",
    ] {
        assert!(
            texts.iter().any(|line| line == text),
            "no {text:?} in {texts:?}"
        );
    }
    result(at, &["plan.toml"]);
    for name in ["links.csv", "rates.csv", "events.csv", "series.svg"] {
        assert!(!at.join("out/sim").join(name).exists(), "{name}");
    }
}

#[test]
fn single_pauses_and_notifications_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::write(at.join("plan.toml"), first_plan()).expect("written");
    let run = &result(at, &["plan.toml", "--series"])["runs"][0];
    let text = fs::read_to_string(at.join("out/sim/events.csv")).expect("events");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0].join(","), "time_ns,event,from,to,priority,flow");
    let times = rows[1..]
        .iter()
        .map(|row| row[0].parse::<u64>().expect("a time"));
    assert!(times.is_sorted());
    let of = |event: &str| -> Vec<&[&str]> {
        let rows = rows.iter().filter(|row| row[1] == event);
        rows.map(|row| &row[2..]).collect()
    };
    // The switch stops the priority of the flows at hosts, and resumes it.
    let (pauses, resumes) = (of("pause"), of("resume"));
    assert!(!pauses.is_empty() && !resumes.is_empty());
    let mut changes = pauses.iter().chain(&resumes);
    assert!(changes.all(|row| row[1..] == ["\"switch0\"", "3", ""]));
    // A frame may say what the one before it has said.
    let frames = run["pfc_frames"].as_u64().expect("a number");
    assert!((pauses.len() + resumes.len()) as u64 <= frames);
    let notified = of("cnp");
    assert!(notified.len() > 15);
    let flow = |row: &&[&str]| {
        row[..3] == ["", "", ""] && row[3].parse::<u8>().is_ok_and(|flow| flow < 15)
    };
    assert!(notified.iter().all(flow), "{notified:?}");
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
    let line = refusal_with(6, at, &["no.toml"]);
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
    assert!(!at.join("out/sim/results.json").exists());
}

#[test]
fn wrong_names_and_files_in_place_of_a_plan_are_explained() {
    let directory = peers_directory();
    let at = directory.path();
    for (name, why) in [
        ("farwrite-ec-mds:0,8", "(0,8): a code has at least 1"),
        ("farwrite-ec-mds:k,8", "\"k\" is not a number of chunks"),
        ("farwrite-ec-mds:32,m", "\"m\" is not a number of chunks"),
    ] {
        let named = [
            "--connections",
            "a.cm",
            "--topology",
            "a.topo",
            "--transport",
        ];
        let line = refusal(at, &[&named[..], &[&format!("roce,{name},irn")]].concat());
        assert!(
            line.contains(&format!("protocol = {name:?}: {why}")),
            "{line}"
        );
    }
    let line = refusal(at, &["a.cm"]);
    assert!(
        line.contains("files of htsim: --connections FILE"),
        "{line}"
    );
}

#[test]
fn results_replace_no_plan_but_that_of_results() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    fs::write(at.join("plan.toml"), first_plan()).expect("written");
    let error = refusal(at, &["plan.toml", "--out", "."]);
    assert!(
        error.contains("the results would replace plan.toml"),
        "{error}"
    );
    let plan = fs::read_to_string(at.join("plan.toml")).expect("the plan");
    assert_eq!(plan, first_plan());
    let error = refusal(at, &["plan.toml", "--out", "plan.toml"]);
    assert!(error.contains("it is not a directory"), "{error}");
    // Results replace earlier results, also when the plan is theirs.
    result(at, &["plan.toml", "--out", "kept"]);
    result(at, &["kept/plan.toml", "--out", "kept"]);
}

#[test]
fn failed_flows_are_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    let lossy = first_plan().replace("delay = \"1us\"", "delay = \"1us\", loss = 1.0");
    fs::write(at.join("plan.toml"), lossy).expect("written");
    let output = sim(at, &["plan.toml", "--quiet"]);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("15 flows failed"), "{stderr}");
}
