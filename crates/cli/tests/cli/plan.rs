//! Runs `farwrite plan` as a user does.

use std::process::{Command, Output};

use serde_json::Value;

use crate::{result_of, text};

fn plan(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .arg("plan")
        .args(args)
        .output()
        .expect("the program starts")
}

#[track_caller]
fn answer(args: &[&str]) -> Value {
    result_of(&plan(&[args, &["--json"]].concat()), "plan")
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is a number"))
}

/// The path of section 5.2 of the paper, and the cores of its Fig. 11.
const PATH: [&str; 6] = ["--rate", "400Gbit", "--rtt", "25ms", "--cores", "8"];

#[test]
fn the_answer_is_the_papers_on_its_path() {
    // Fig. 9: erasure coding is best in the middle, selective repeat if losses are rare.
    for (size, loss, coded) in [
        ("128MiB", "1e-4", true),
        ("128MiB", "1%", true),
        ("128MiB", "1e-9", false),
        ("128KiB", "1e-8", false),
    ] {
        let told = answer(&[&PATH[..], &["--size", size, "--loss", loss]].concat());
        let best = told["best"]["scheme"].as_str().expect("a name");
        assert_eq!(best.starts_with("ec-"), coded, "{size} {loss}: {best}");
        assert!(coded || best == "sr-nack", "{best}");
    }
}

#[test]
fn alternatives_are_in_order_and_within_the_budget() {
    let args = ["--size", "64MiB", "--loss", "1e-3", "--objective", "p99"];
    let told = answer(&[&PATH[..], &args, &["--parity-budget", "12.5%"]].concat());
    let all = told["alternatives"].as_array().expect("alternatives");
    assert!(all.len() > 10, "{}", all.len());
    let best = number(&told["best"]["objective_s"]);
    let mut last = 0.0;
    for at in all {
        let objective = number(&at["objective_s"]);
        assert!(objective >= last, "{at}");
        last = objective;
        assert_eq!(objective, number(&at["p99_s"]));
        assert!(
            (number(&at["relative_cost"]) - objective / best).abs() < 1e-9,
            "{at}"
        );
        assert!(number(&at["parity_overhead"]) <= 0.125, "{at}");
    }
    assert_eq!(told["question"]["objective"], "p99");
    let inputs = told["sensitivity"].as_array().expect("inputs");
    let names: Vec<_> = inputs
        .iter()
        .map(|of| of["input"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        names,
        ["loss_chunk", "rtt_s", "bandwidth_bps", "message_bytes"]
    );
    for of in inputs {
        let stakes = of["stakes"].as_array().expect("stakes");
        let factors: Vec<_> = stakes
            .iter()
            .map(|stake| number(&stake["factor"]))
            .collect();
        assert_eq!(factors, [0.1, 0.5, 2.0, 10.0]);
        assert!(
            stakes.iter().all(|stake| number(&stake["cost"]) >= 1.0),
            "{of}"
        );
    }
    // Without cores, the planner selects no coding.
    let told = answer(&[&PATH[..4], &args, &["--cores", "0"]].concat());
    assert_eq!(
        told["alternatives"].as_array().expect("alternatives").len(),
        3
    );
    // What endpoints use: the thread that sends.
    let told = answer(&[&PATH[..4], &args].concat());
    assert_eq!(number(&told["question"]["cores"]), 1.0);
}

#[test]
fn a_border_is_where_another_scheme_is_better() {
    let schemes = ["--scheme", "sr-nack,ec-mds:32,8"];
    let at =
        |loss: &str| answer(&[&PATH[..], &["--size", "128MiB", "--loss", loss], &schemes].concat());
    let told = at("1e-4");
    assert_eq!(told["best"]["scheme"], "ec-mds:32,8");
    let below = &told["sensitivity"][0]["below"];
    assert_eq!(below["scheme"], "sr-nack", "{told}");
    let border = number(&below["value"]);
    assert!((1e-7..1e-4).contains(&border), "{border}");
    assert_eq!(
        at(&format!("{:e}", border / 1.1))["best"]["scheme"],
        "sr-nack"
    );
    assert_eq!(
        at(&format!("{:e}", border * 4.0))["best"]["scheme"],
        "ec-mds:32,8"
    );
}

#[test]
fn people_get_a_table() {
    let output = plan(&[&PATH[..], &["--size", "128MiB", "--loss", "1e-3"]].concat());
    assert!(output.status.success());
    let stdout = text(&output.stdout);
    for word in [
        "128 MiB at 400 Gbit/s, round trip 25 ms, loss 1e-3 of chunks of 4 KiB, each by itself",
        "Best: ec-mds:",
        "p99.9",
        "x best",
        "sr-rto",
        "gbn",
        "--all",
        "round trip",
        "x10",
    ] {
        assert!(stdout.contains(word), "{word:?} is not in\n{stdout}");
    }
    let width = stdout.lines().map(|line| line.chars().count()).max();
    assert!(width <= Some(100), "{width:?} in\n{stdout}");
    let args = ["--size", "128MiB", "--loss", "1e-3", "--all"];
    let all = plan(&[&PATH[..], &args].concat());
    assert!(text(&all.stdout).lines().count() > stdout.lines().count() + 20);
}

#[test]
fn senders_share_the_rate_equally() {
    let message = ["--rtt", "25ms", "--size", "64MiB", "--loss", "1e-4"];
    let shared = ["--rate", "400Gbit", "--senders", "4"];
    let mut told = answer(&[&message[..], &shared].concat());
    let alone = answer(&[&message[..], &["--rate", "100Gbit"]].concat());
    assert_eq!(number(&told["question"]["senders"].take()), 4.0);
    assert_eq!(number(&alone["question"]["senders"]), 1.0);
    told["question"]["senders"] = Value::from(1);
    assert_eq!(told, alone);
    let shown = plan(&[&message[..], &shared].concat());
    let lines = text(&shown.stdout);
    assert!(lines.starts_with("64 MiB at 100 Gbit/s"), "{lines}");
    assert!(
        lines.contains("\n4 senders share 400 Gbit/s: each has"),
        "{lines}"
    );
    let refused = plan(&[&message[..], &["--rate", "1Gbit", "--senders", "0"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--senders"));
}

#[test]
fn the_answer_says_what_to_use_with_unmodified_nics() {
    let ask = |rtt: &'static str, loss: &'static str| {
        let path = ["--rate", "10Gbit", "--rtt", rtt, "--loss", loss];
        [&path[..], &["--chunk", "1KiB", "--size", "5MB"]].concat()
    };
    for (rtt, loss, name, words, queues) in [
        ("9s", "1e-4", "gbn", "no boxes: both kinds are left out", 0),
        (
            "40ms",
            "1e-4",
            "lowar",
            "LoWAR boxes (farwrite lowar), mean 44.4 ms in place of 63.8 ms",
            0,
        ),
        (
            "100us",
            "5%",
            "netrt",
            "NetRT boxes (farwrite netrt), mean 4.67 ms",
            3,
        ),
        ("40ms", "0", "gbn", "no boxes, which save less than 1 %", 0),
        (
            "5us",
            "1e-4",
            "gbn",
            "no boxes, which save less than 1 %",
            3,
        ),
    ] {
        let answer = answer(&ask(rtt, loss));
        let unmodified = &answer["nics"]["unmodified"];
        assert_eq!(unmodified["use"], name, "{rtt} {loss}");
        let helps = unmodified["in_full_queues"].as_array().expect("a list");
        assert_eq!(helps.len(), queues, "{rtt} {loss}");
        let speedup = number(&unmodified["speedup"]);
        assert_eq!(speedup > 1.01, name != "gbn", "{rtt} {loss}: {speedup}");
        let output = plan(&ask(rtt, loss));
        let stdout = text(&output.stdout);
        let line = format!("With unmodified NICs: {words}");
        assert!(stdout.contains(&line), "{line:?} is not in\n{stdout}");
        let width = stdout.lines().map(|line| line.chars().count()).max();
        assert!(width <= Some(100), "{width:?} in\n{stdout}");
    }
}

#[test]
fn a_link_file_says_what_the_options_do() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("link.toml");
    let link = "rate = \"10Gbit\"\nrtt = \"80ms\"\nloss_chunk = 1e-3\nmean_burst_chunks = 4\n";
    std::fs::write(&file, link).expect("write");
    let file = file.to_str().expect("plain");
    let schemes = ["--size", "1GiB", "--scheme", "sr-nack,gbn"];
    let by_file = answer(&[&["--link", file][..], &schemes].concat());
    let options = [
        "--rate", "10Gbit", "--rtt", "80ms", "--loss", "0.1%", "--burst", "4",
    ];
    assert_eq!(by_file, answer(&[&options[..], &schemes].concat()));
    assert_eq!(number(&by_file["question"]["p_bad_to_good"]), 0.25);
    // An option has priority. The other values come from the file.
    let other = answer(&[&["--link", file, "--distance", "3750km"][..], &schemes].concat());
    assert_eq!(number(&other["question"]["rtt_s"]), 0.025);
    assert_eq!(number(&other["question"]["rate_bps"]), 1e10);
    // A sealed packet over IPv4 has 88 bytes beside its payload of 4096.
    let payload_bps = number(&other["question"]["bandwidth_bps"]);
    assert!((payload_bps / 1e10 - 4096.0 / 4184.0).abs() < 1e-9);
}

/// Interleaving spreads bursts over 32 groups, so codes repair them. The times of single messages are
/// drawn, and the answer says so.
#[test]
fn bursts_are_drawn_with_the_shipped_interleaving() {
    let path = ["--rate", "100Gbit", "--rtt", "30ms", "--loss", "1e-2"];
    let args = ["--burst", "20", "--size", "64MiB", "--cores", "8"];
    let args = [
        &path[..],
        &args,
        &["--scheme", "sr-nack,gbn,ec-mds:32,8,ec-mds:200,55"],
    ]
    .concat();
    let told = answer(&args);
    let best = &told["best"];
    assert_eq!(best["scheme"], "ec-mds:32,8", "{told}");
    let mean_s = number(&best["mean_s"]);
    assert!((0.036..0.039).contains(&mean_s), "{told}");
    assert!(number(&best["objective_low_s"]) < mean_s);
    assert!(number(&best["objective_high_s"]) > mean_s);
    assert!(number(&best["draws"]) >= 64.0);
    let alternatives = told["alternatives"].as_array().expect("alternatives");
    let exact = alternatives.iter().filter(|at| at["draws"].is_null());
    let exact: Vec<_> = exact.map(|at| at["scheme"].as_str()).collect();
    assert_eq!(exact, [Some("gbn")], "{told}");
    let left_out = &told["left_out"][0];
    assert_eq!(left_out["scheme"], "ec-mds:200,55");
    let shown = plan(&args);
    let stdout = text(&shown.stdout);
    for word in [
        " draws), 1.",
        "exact: a value of the model; draws: that many simulated messages",
        "RoCE: a value of the model, for a receiver that discards what follows a loss",
        "ec-mds:200,55 is left out: parity = 0.275 of the data: must be at most the parity budget, 0.25",
        "from few draws)",
    ] {
        assert!(stdout.contains(word), "{word:?} is not in\n{stdout}");
    }
}

#[test]
fn a_burst_that_is_longer_than_the_message_gets_a_warning() {
    let path = [
        "--rate", "1Gbit", "--rtt", "25ms", "--scheme", "gbn", "--size", "1MiB",
    ];
    for (loss, burst, warned) in [
        (
            "--loss",
            "257",
            Some("of 257.0 chunks is longer than the message, which has 256 chunks"),
        ),
        ("--loss-packet", "1e6", Some("at most 256")),
        // A chunk takes 33 us.
        ("--loss", "1s", Some("chunks is longer")),
        ("--loss", "256", None),
        ("--loss", "1ms", None),
    ] {
        let output = plan(&[&path[..], &[loss, "1e-3", "--burst", burst]].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        match warned {
            Some(words) => assert!(stderr.contains(words), "{words:?} is not in {stderr:?}"),
            None => assert_eq!(stderr, ""),
        }
    }
    // 1 / (1 / 49) is more than 49.
    let exact = [
        "--rate", "1Gbit", "--rtt", "25ms", "--scheme", "gbn", "--size", "196KiB",
    ];
    let output = plan(&[&exact[..], &["--loss", "1e-3", "--burst", "49"]].concat());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_bad_link_file_is_told_with_file_field_and_value() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("link.toml");
    let name = file.to_str().expect("plain");
    let ask = || plan(&["--link", name, "--size", "1MiB"]);
    let missing = ask();
    assert_eq!(missing.status.code(), Some(6));
    for (link, named) in [
        ("rate = \"fast\"", "rate = \"fast\": not a rate"),
        ("rtt = 25", "rtt = 25: not a time"),
        (
            "loss = 1e-3",
            "unknown field `loss`, expected one of `rate`",
        ),
        ("rate = \"1Gbit\"\nrtt = ", "line 2: "),
        ("rate = \"1Gbit\"\nrtt = \"1ms\"", "no loss: give --loss"),
    ] {
        std::fs::write(&file, link).expect("write");
        let output = ask();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{link:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains(named), "{named:?} is not in {stderr}");
    }
}

#[test]
fn senseless_questions_get_exit_code_2_and_one_line() {
    let good = [
        "--rate", "1Gbit", "--rtt", "1ms", "--loss", "0.1", "--size", "1MiB",
    ];
    let spoilt = |option: &'static str, value: &'static str| {
        let mut args = good.to_vec();
        match args.iter().position(|arg| *arg == option) {
            Some(at) => args[at + 1] = value,
            None => args.extend([option, value]),
        }
        args
    };
    for (option, value, named) in [
        ("--rate", "-1Gbit", "1kbit to 1000Tbit"),
        ("--rate", "NaN", "not a rate"),
        ("--rate", "1GB/s", "bits a second"),
        ("--rtt", "0s", "above 0"),
        ("--rtt", "-1ms", "--rtt"),
        ("--rtt", "25", "25ms"),
        ("--distance", "1km", "--rtt"),
        ("--signal", "copper", "fibre"),
        ("--loss", "1", "0 to 0.99"),
        ("--loss", "-0.1", "--loss"),
        ("--loss", "inf", "0 to 0.99"),
        ("--loss-packet", "0.1", "--loss"),
        ("--burst", "0", "1 to 1e6"),
        ("--size", "0", "1 byte"),
        ("--size", "-1", "--size"),
        ("--size", "4EiB", "4PiB"),
        ("--chunk", "0", "1 byte"),
        ("--mtu", "1001", "multiple of 4"),
        ("--objective", "p100", "p99.9"),
        ("--objective", "median", "mean"),
        ("--parity-budget", "-1%", "1000%"),
        ("--parity-budget", "lots", "25%"),
        ("--cores", "NaN", "0 to 1e6"),
        ("--scheme", "tcp", "sr-nack"),
        ("--scheme", "ec-mds:0,8", "k = 0"),
        ("--link", "/dev/null/link.toml", "/dev/null/link.toml"),
    ] {
        let args = spoilt(option, value);
        let output = plan(&args);
        let stderr = text(&output.stderr);
        let code = if option == "--link" { 6 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let incomplete = plan(&["--rate", "1Gbit", "--size", "1MiB"]);
    assert_eq!(incomplete.status.code(), Some(2));
    assert!(text(&incomplete.stderr).contains("--rtt or --distance"));
}
