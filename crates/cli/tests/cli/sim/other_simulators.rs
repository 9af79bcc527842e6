//! Files of other simulators.

use std::fs;

use serde_json::Value;

use super::{MATRIX, OF_HTSIM, OF_NS3, peers_directory, refusal, result};

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

#[test]
fn runs_take_the_settings_of_another_simulator() {
    let directory = peers_directory();
    let at = directory.path();
    for (files, like, transports, keys) in [
        (
            &OF_NS3[..],
            "ns3",
            "roce,irn,roce-nocc",
            &[
                "framing_bytes = 0\n",
                "ns3_timing = true",
                "ns3_timeout = true",
                "alpha = 0.0625",
            ][..],
        ),
        (
            &OF_NS3,
            "ns3-vwin",
            "roce,irn",
            &[
                "preset = \"ns3-vwin\", ns3_timing = true",
                "rate = \"25Gbit\"",
            ],
        ),
        (
            &OF_NS3,
            "ns3",
            "roce-lossy",
            &["nak_every = \"4us\"", "buffer = \"8900608\""],
        ),
        (
            &OF_HTSIM,
            "htsim",
            "roce-nocc",
            &[
                "framing_bytes = 20\n",
                "xoff = { bytes = \"62040\" }",
                "ack_every = 1\n",
            ],
        ),
        (&OF_HTSIM, "htsim", "eqds", &["framing_bytes = 20\n"]),
    ] {
        let args = [files, &["--like", like, "--transport", transports]].concat();
        assert_eq!(result(at, &args)["runs"][0]["done"], 2, "{args:?}");
        let plan = fs::read_to_string(at.join("out/sim/plan.toml")).expect("plan");
        assert!(keys.iter().all(|key| plan.contains(key)), "{plan}");
        fs::remove_dir_all(at.join("out")).expect("removed");
    }
    let line = refusal(at, &[&OF_NS3[..], &["--like", "opnet"]].concat());
    assert!(line.contains("ns3, ns3-vwin, htsim"), "{line}");
}

/// Headroom for a cable of 1.6 Tbit/s and 500 us takes more than the buffer of ns-3. The plan that was refused is
/// there, and `--buffer` is the remedy.
#[test]
fn a_long_cable_needs_a_buffer_and_a_refused_plan_is_written() {
    let directory = peers_directory();
    let at = directory.path();
    let nodes = "3 1 2\n0\n0 1 1600Gbps 500us 0\n0 2 1600Gbps 500us 0\n";
    fs::write(at.join("t.txt"), nodes).expect("written");
    let args = [&OF_NS3[..], &["--like", "ns3"]].concat();
    let line = refusal(at, &args);
    assert!(
        line.contains("bytes of headroom for all ports leave nothing"),
        "{line}"
    );
    assert!(
        line.ends_with("the plan of these options is in out/sim/refused.toml"),
        "{line}"
    );
    // With a larger buffer, both the options and the plan are valid.
    let with_buffer = result(at, &[&args[..], &["--buffer", "1GB"]].concat());
    assert_eq!(with_buffer["runs"][0]["done"], 2);
    assert_eq!(
        with_buffer["settings"][0]["values"]["switch"]["buffer"],
        1_000_000_000
    );
    assert!(!at.join("out/sim/refused.toml").exists());
    fs::remove_dir_all(at.join("out")).expect("removed");
    refusal(at, &args);
    let plan = fs::read_to_string(at.join("out/sim/refused.toml")).expect("the plan");
    fs::write(at.join("plan.toml"), format!("buffer = \"1GB\"\n{plan}")).expect("written");
    let runs = &result(at, &["plan.toml"])["runs"];
    assert_eq!(runs[0]["trace"], with_buffer["runs"][0]["trace"]);
}

/// `fct.txt` has the form of ns-3: a run that is compared with its own file differs nowhere.
#[test]
fn times_are_written_in_the_form_of_ns3() {
    let directory = peers_directory();
    let at = directory.path();
    // A flow that waits for a trigger has no planned start, and so no pair.
    for (files, pairs) in [(&OF_NS3[..], 2), (&OF_HTSIM, 1)] {
        let first = result(at, files);
        assert_eq!(first["runs"][0]["done"], 2);
        let text = fs::read_to_string(at.join("out/sim/fct.txt")).expect("times");
        fs::copy(at.join("out/sim/fct.txt"), at.join("ours.txt")).expect("copied");
        let ends = text.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let numbers: Vec<u64> = words[2..]
                .iter()
                .map(|word| word.parse().expect("a number"))
                .collect();
            assert_eq!(
                (words.len(), words[0].len(), numbers[1]),
                (8, 8, 100),
                "{line}"
            );
            assert!(numbers[5] <= numbers[4], "{line}");
            numbers[3] + numbers[4]
        });
        let ends: Vec<u64> = ends.collect();
        assert!(ends.len() == 2 && ends.is_sorted(), "{text}");
        let again = result(at, &[files, &["--compare", "ours.txt"]].concat());
        let rows = &again["comparison"]["settings"][0]["most_apart"];
        let rows = rows.as_array().expect("flows");
        assert!(
            rows.iter().all(|row| row["ours_us"] == row["theirs_us"]),
            "{rows:?}"
        );
        assert_eq!(rows.len(), pairs);
    }
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
