//! Runs the built program as a user does.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::{result_of, text};

fn farwrite(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .args(args)
        .output()
        .expect("the program starts")
}

/// Makes a new directory for this test, below the directory of cargo for tests.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn demo(directory: &Path, args: &[&str]) -> Value {
    let out = directory.to_str().expect("a plain name");
    let args = [&["demo", "--json", "--out", out], args].concat();
    let output = farwrite(&args);
    println!("{}{}", text(&output.stderr), text(&output.stdout));
    result_of(&output, "demo")
}

#[test]
fn demo_moves_a_message_with_every_scheme() {
    let directory = directory("demo/every-scheme");
    let result = demo(
        &directory,
        &[
            "--size", "4MiB", "--rtt", "5ms", "--rate", "500Mbit", "--loss", "1%",
        ],
    );
    assert_eq!(result["size_bytes"], 4 << 20);
    assert_eq!(result["wire_bytes"], (4 << 20) + 1024 * 64);
    let ideal_s = result["ideal_s"].as_f64().expect("a number");
    assert!((ideal_s - (f64::from((4 << 20) + 1024 * 64) * 8.0 / 5e8 + 5e-3)).abs() < 1e-6);
    let runs = result["runs"].as_array().expect("runs");
    let names: Vec<_> = runs
        .iter()
        .map(|run| run["scheme"].as_str().expect("a name"))
        .collect();
    let all = ["sr-rto", "sr-nack", "gbn", "ec-xor:32,8", "ec-mds:32,8"];
    assert_eq!(names, all);
    for run in runs {
        assert_eq!(run["verified"], true);
        // The sender may start with a burst, which saves half a millisecond of seventy.
        assert!(run["ratio"].as_f64().expect("a number") > 0.98, "{run}");
        let sent = run["sent_chunks"].as_u64().expect("a count");
        let again = run["retransmitted_chunks"].as_u64().expect("a count");
        let count = |name: &str| run[name].as_u64().expect("a count");
        let (parity, rebuilt) = (count("parity_chunks"), count("rebuilt_chunks"));
        assert_eq!(sent - again - parity, 1024, "{run}");
        assert!(count("lost_packets") > 0, "{run}");
        if run["scheme"]
            .as_str()
            .is_some_and(|name| name.starts_with("ec-"))
        {
            // Parity is a quarter of the data, without the chunks that were no longer needed.
            assert!((1..=256).contains(&parity) && rebuilt > 0, "{run}");
        } else {
            assert!(parity + rebuilt == 0 && again > 0, "{run}");
        }
        for end in ["send_loss", "receive_loss"] {
            let loss = &run[end];
            let judged = loss["judged_chunks"].as_u64().expect("a count");
            let lost = loss["lost_chunks"].as_u64().expect("a count");
            let share = loss["loss_chunk"].as_f64().expect("a share");
            // Chunks before a pause of a busy machine are not judged. The sockets of a busy machine
            // may lose additional chunks.
            assert!((100..=1280).contains(&judged), "{run}");
            if judged < 1000 {
                // So few packets may have no loss at all: with 1000, the probability is 4e-5.
                continue;
            }
            assert!(lost > 0 && (0.001..0.1).contains(&share), "{run}");
            assert!(loss["bursts"].as_u64().expect("a count") <= lost, "{run}");
            assert!(
                loss["longest_burst_chunks"].as_u64().expect("a count") > 0,
                "{run}"
            );
            assert!(
                loss["mean_burst_chunks"].as_f64().expect("a mean") >= 1.0,
                "{run}"
            );
            for probability in ["p_good_to_bad", "p_bad_to_good"] {
                assert!(loss[probability].as_f64().expect("losses") > 0.0, "{run}");
            }
        }
    }
    check_picture(
        Path::new(result["picture"].as_str().expect("a path")),
        &names,
    );
}

fn check_picture(path: &Path, schemes: &[&str]) {
    let svg = std::fs::read_to_string(path).expect("the picture is there");
    assert!(svg.len() < 500_000, "{} bytes", svg.len());
    let document = roxmltree::Document::parse(&svg).expect("the picture is XML");
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let is_panel = |node: &roxmltree::Node<'_, '_>| node.attribute("class") == Some("panel");
    let panels: Vec<_> = document.descendants().filter(is_panel).collect();
    assert_eq!(panels.len(), schemes.len());
    for (panel, scheme) in panels.iter().zip(schemes) {
        let words: String = panel.descendants().filter_map(|node| node.text()).collect();
        assert!(words.contains(scheme), "{words}");
        assert!(words.contains("ideal"), "{words}");
        let paths = panel.descendants().filter(|node| node.has_tag_name("path"));
        assert!(paths.count() >= 3, "cells and two lines");
    }
}

#[test]
fn demo_splits_what_exceeds_a_message() {
    let directory = directory("demo/split");
    // 2^18 packets of 256 bytes are 64 MiB.
    let args = [
        "--size", "65MiB", "--mtu", "256", "--chunk", "16", "--rtt", "1ms", "--rate", "2Gbit",
    ];
    let result = demo(
        &directory,
        &[&args[..], &["--loss", "0", "--scheme", "sr-nack"]].concat(),
    );
    let run = &result["runs"][0];
    assert_eq!(run["verified"], true);
    let first_time = run["sent_chunks"].as_u64().expect("a count")
        - run["retransmitted_chunks"].as_u64().expect("a count");
    assert_eq!(first_time, (65 << 20) / 4096);
}

#[test]
fn options_without_an_effect_are_refused() {
    let send = ["send", "--to", "host.example:1", "--psk-file", "key"];
    let window = ["--first-window", "1MiB", "file"];
    let to = ["forward", "-L", "1:a:1", "--to", "host.example"];
    let listen = ["forward", "--listen", "127.0.0.1:1"];
    for (args, told) in [
        ([&send[..], &window].concat(), "--first-window"),
        ([&send[..], &window[..2], &["-"]].concat(), "--first-window"),
        ([&to[..], &["--port", "9"]].concat(), "--port"),
        ([&to[..], &["-e", "ssh"]].concat(), "--rsh"),
        ([&to[..], &["--bootstrap"]].concat(), "--bootstrap"),
        ([&listen[..], &["--port", "9"]].concat(), "--port"),
        (
            vec!["rsh", "--json", "host", "true"],
            "--json: standard output",
        ),
    ] {
        let output = farwrite(&args);
        let text = text(&output.stderr);
        assert!(!output.status.success(), "{args:?}: {text}");
        assert!(text.contains(told), "{args:?}: {text}");
    }
}

#[test]
fn help_names_what_people_can_use() {
    let output = farwrite(&["rsh", "--help"]);
    let help = text(&output.stdout);
    assert!(
        help.contains("--scheme") && !help.contains("--json-lines"),
        "{help}"
    );
    let output = farwrite(&["--json"]);
    let told = text(&output.stderr);
    assert!(told.contains("forward") && !told.contains("far,"), "{told}");
}

#[test]
fn best_effort_is_refused_by_name_where_data_must_be_whole() {
    for scheme in ["best-effort", "best-effort+sr", "best-effort+ec-mds:32,8"] {
        let link = ["--rtt", "25ms", "--loss", "0.01", "--rate", "1Gbit"];
        let send = [
            "--to",
            "host.example:1",
            "--psk-file",
            "key",
            "--scheme",
            scheme,
        ];
        let plans = ["--size", "1MiB", "--scheme", scheme];
        for args in [
            vec!["demo", "--scheme", scheme],
            [&["plan"][..], &link, &plans].concat(),
            [&["send"][..], &send, &["file"]].concat(),
        ] {
            let output = farwrite(&args);
            let text = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
            assert!(text.contains(scheme), "{args:?}: {text}");
            assert!(text.contains("whole"), "{args:?}: {text}");
        }
    }
}

#[test]
fn demo_survives_bursts_and_takes_a_list_of_schemes() {
    let directory = directory("demo/bursts");
    let args = [
        "--size", "1000001", "--rtt", "2ms", "--rate", "200Mbit", "--loss", "5%", "--burst", "10",
    ];
    let result = demo(
        &directory,
        &[&args[..], &["--scheme", "sr-rto,gbn", "--seed", "7", "-q"]].concat(),
    );
    assert_eq!(result["burst_packets"], 10.0);
    assert_eq!(result["seed"], 7);
    let verified = |run: &Value| run["verified"] == true;
    assert!(
        result["runs"]
            .as_array()
            .expect("runs")
            .iter()
            .all(verified)
    );
}

#[test]
fn demo_shows_people_a_table() {
    let directory = directory("demo/table");
    let out = directory.to_str().expect("a plain name");
    let output = farwrite(&[
        "demo", "--size", "1MiB", "--rtt", "2ms", "--rate", "200Mbit", "--scheme", "sr-nack",
        "--out", out,
    ]);
    assert!(output.status.success());
    let stdout = text(&output.stdout);
    for word in [
        "1 MiB",
        "2 ms",
        "200 Mbit/s",
        "seed 1",
        "0.10 %",
        "x ideal",
        "retransmitted",
        "goodput",
        "parity",
        "sr-nack",
        "farwrite-demo.svg",
    ] {
        assert!(stdout.contains(word), "{word:?} is not in\n{stdout}");
    }
    let width = stdout.lines().map(|line| line.chars().count()).max();
    assert!(
        width <= Some(100) || out.len() > 40,
        "{width:?} in\n{stdout}"
    );
}

#[test]
fn demo_says_why_the_loss_of_one_chunk_is_not_measured() {
    let directory = directory("demo/one");
    let out = directory.to_str().expect("a plain name");
    let output = farwrite(&[
        "demo", "--size", "4KiB", "--rtt", "2ms", "--rate", "200Mbit", "--scheme", "sr-nack",
        "--out", out,
    ]);
    let stdout = text(&output.stdout);
    for word in ["  not measured  ", "(not measured: the receiver judges"] {
        assert!(stdout.contains(word), "{word:?} is not in\n{stdout}");
    }
}

#[test]
fn the_shortest_messages_have_more_parity_than_data() {
    let directory = directory("demo/short");
    for size in ["1", "4097"] {
        let args = [
            "--size",
            size,
            "--rtt",
            "2ms",
            "--rate",
            "200Mbit",
            "--loss",
            "0",
            "--scheme",
            "ec-mds:4,8,ec-xor:4,4",
        ];
        let result = demo(&directory, &args);
        let runs = result["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 2);
        assert!(runs.iter().all(|run| run["verified"] == true), "{result}");
    }
}

#[test]
fn an_interrupt_ends_the_demo_cleanly() {
    let directory = directory("demo/interrupt");
    let out = directory.to_str().expect("a plain name");
    // At this rate, the transfer would take half a minute.
    let args = ["demo", "--size", "4MiB", "--rate", "1Mbit", "--out", out];
    let mut child = Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // The program handles signals before its first output.
    let mut first = [0];
    let stdout = child.stdout.as_mut().expect("piped");
    stdout.read_exact(&mut first).expect("an introduction");
    let kill = format!("kill -INT {}", child.id());
    let killed = Command::new("sh").args(["-c", &kill]).status();
    assert!(killed.expect("a shell").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let stderr = text(&output.stderr);
    assert!(stderr.ends_with("farwrite: interrupted\n"), "{stderr}");
    assert!(!directory.join("farwrite-demo.svg").exists());
}

/// Invalid arguments, and the words that the error message must contain.
const SENSELESS: [(&[&str], &str); 30] = [
    (&["dance"], "dance"),
    (&["demo", "--size", "-1"], "--size"),
    (&["demo", "--size", "0"], "16GiB"),
    (&["demo", "--size", "17GiB"], "16GiB"),
    (&["demo", "--size", "NaN"], "256MiB"),
    (&["demo", "--rtt", "25"], "25ms"),
    (&["demo", "--rtt", "-25ms"], "--rtt"),
    (&["demo", "--rtt", "1h"], "10s"),
    (&["demo", "--loss", "-1"], "--loss"),
    (&["demo", "--loss", "NaN"], "0 to 0.5"),
    (&["demo", "--loss", "2"], "0 to 0.5"),
    (&["demo", "--loss", "a few"], "1e-3"),
    (&["demo", "--burst", "0"], "--burst"),
    (&["demo", "--rate", "0"], "8kbit"),
    (&["demo", "--rate", "-2Gbit"], "--rate"),
    (&["demo", "--rate", "2GB/s"], "bits"),
    (&["demo", "--rate", "1Tbit"], "2Gbit"),
    (&["demo", "--mtu", "1001"], "multiple of 4"),
    (&["demo", "--mtu", "70000"], "65468"),
    (&["demo", "--chunk", "65"], "64"),
    (&["demo", "--seed", "-3"], "--seed"),
    (&["demo", "--scheme", "tcp"], "sr-nack"),
    (&["demo", "--scheme", "sr-nack,tcp"], "\"tcp\""),
    (&["demo", "--scheme", "tcp"], "ec-mds:32,8"),
    (&["demo", "--scheme", "ec-mds:200,56"], "255"),
    (&["demo", "--scheme", "ec-xor:4,5"], "at most k"),
    (&["demo", "--scheme", "gbn,ec-mds:4"], "ec-mds:32,8"),
    (&["send", "--scheme", "ec-mds:0,8"], "at least 1"),
    (&["demo", "--sead", "3"], "--seed"),
    (&["demo", "--size"], "--size"),
];

#[test]
fn senseless_arguments_get_exit_code_2_and_one_line() {
    for (args, named) in SENSELESS {
        let output = farwrite(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.starts_with("farwrite: "), "{stderr}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
        assert!(stderr.contains("--help"), "{stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
        let output = farwrite(&[args, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(object["error"]["kind"], "usage", "{args:?}: {object}");
    }
}

#[test]
fn a_picture_that_cannot_be_written_is_a_matter_of_files() {
    let output = farwrite(&["demo", "--json", "--out", "/dev/null/pictures"]);
    assert_eq!(output.status.code(), Some(6));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("/dev/null/pictures"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let object: Value = serde_json::from_str(text(&output.stdout)).expect("JSON");
    assert_eq!(
        (&object["exit_code"], &object["command"]),
        (&6.into(), &"demo".into())
    );
    assert_eq!(object["error"]["kind"], "files");
    assert!(object["result"].is_null(), "{object}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_result_that_cannot_be_written_is_a_failure() {
    let plan = [
        "plan", "--rate", "1Gbit", "--rtt", "10ms", "--loss", "1%", "--size", "1MiB",
    ];
    for (arguments, code) in [(&plan[..], 6), (&["codes", "--json"], 2)] {
        let full = std::fs::File::create("/dev/full").expect("a device of Linux");
        let output = Command::new(env!("CARGO_BIN_EXE_farwrite"))
            .args(arguments)
            .stdout(full)
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
    // A reader that has seen enough is no failure.
    let (reader, writer) = std::io::pipe().expect("room for a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .args(plan)
        .stdout(writer)
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn help_has_examples_and_exit_codes() {
    for (args, wanted) in [
        (
            &["--help"][..],
            &["Examples:", "farwrite demo", "Exit codes:"][..],
        ),
        (
            &["plan", "--help"],
            &[
                "Examples:",
                "farwrite plan --",
                "link.toml",
                "[default: mean]",
            ],
        ),
        (
            &["demo", "--help"],
            &["Examples:", "farwrite demo --", "[default: 256MiB]"],
        ),
    ] {
        let output = farwrite(args);
        assert!(output.status.success());
        for word in wanted {
            assert!(
                text(&output.stdout).contains(word),
                "{word} is not in the help of {args:?}"
            );
        }
    }
    let output = farwrite(&["--version"]);
    assert_eq!(
        text(&output.stdout).trim(),
        concat!("farwrite ", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(farwrite(&[]).status.code(), Some(2));
}

#[test]
fn a_file_that_cannot_be_read_has_one_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    let key = key.to_str().expect("plain");
    assert!(farwrite(&["keygen", key]).status.success());
    let none = &format!("{key}-none")[..];
    for line in [
        format!("send --to [::1]:9 --psk-file {none} {key}"),
        format!("send --to [::1]:9 --psk-file {key} {none}"),
        format!("send --to [::1]:9 --psk-file {key} --link {none} {key}"),
        format!("send --to [::1]:9 --psk-file {key} --rate-file {none} {key}"),
        format!("send --to [::1]:9 --psk-file {key} --exclude-from {none} {key}"),
        format!("recv --identity {key} --peers {none}"),
        format!("plan --link {none} --size 1MiB"),
        format!("sim {none}"),
        format!("trace {none}"),
        format!("link --namespaces a b --trace {none}"),
    ] {
        let output = farwrite(&line.split(' ').collect::<Vec<_>>());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{line}: {stderr}");
        assert!(
            stderr.contains(none) && stderr.contains("No such file"),
            "{stderr}"
        );
    }
}

#[test]
fn a_name_in_an_error_cannot_control_the_terminal() {
    let name = "a\u{1b}[31mname";
    for line in [["trace", name], ["sim", name]] {
        let output = farwrite(&line);
        let stderr = text(&output.stderr);
        assert!(stderr.contains("[31mname"), "{stderr}");
        assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
    }
}

#[test]
fn keygen_writes_a_key_that_only_its_owner_reads_and_never_twice() {
    use std::os::unix::fs::PermissionsExt;

    let directory = directory("keygen");
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("far.key");
    let name = file.to_str().expect("a plain name");
    assert!(farwrite(&["keygen", name]).status.success());
    let mode = std::fs::metadata(&file)
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let key = std::fs::read_to_string(&file).expect("a key");

    let output = farwrite(&["keygen", name]);
    assert_eq!(output.status.code(), Some(6));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains(name) && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert_eq!(std::fs::read_to_string(&file).expect("a key"), key);
}

#[test]
fn keygen_prints_the_public_key_of_an_identity_and_names_a_key_of_another_kind() {
    use std::os::unix::fs::PermissionsExt;

    let directory = directory("identity");
    std::fs::create_dir_all(&directory).expect("a directory");
    let [host, psk] = ["host.key", "far.key"].map(|name| directory.join(name));
    let [host, psk] = [&host, &psk].map(|file| file.to_str().expect("a plain name"));
    let made = farwrite(&["keygen", "--identity", host]).stdout;
    assert!(text(&made).starts_with("farwrite-public-1:"), "{made:?}");
    assert_eq!(farwrite(&["keygen", "--public", host]).stdout, made);
    let again = farwrite(&["keygen", "--identity", host]);
    assert_eq!(again.status.code(), Some(6));
    assert!(farwrite(&["keygen", psk]).status.success());
    // A redirected public key is open to others, and `chmod` would not make an identity of it.
    let [public, missing] = ["host.pub", "missing.key"].map(|name| directory.join(name));
    std::fs::write(&public, made).expect("a file");
    let [public, missing] = [&public, &missing].map(|file| file.to_str().expect("a plain name"));
    for (file, exit_code, want) in [
        (psk, 2, "this is a pre-shared key, want an identity"),
        (public, 2, "this is a public key, want an identity"),
        (missing, 6, "reading the identity: cannot read"),
    ] {
        let other = farwrite(&["keygen", "--public", file]);
        let stderr = text(&other.stderr);
        assert_eq!(other.status.code(), Some(exit_code), "{stderr}");
        assert!(
            stderr.contains(want) && stderr.contains(file) && stderr.lines().count() == 1,
            "{stderr}"
        );
    }
    // An identity that others can read is refused.
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(host, open).expect("the owner may");
    let exposed = farwrite(&["keygen", "--public", host]);
    assert_eq!(exposed.status.code(), Some(6));
    assert!(text(&exposed.stderr).contains("chmod 600"), "{exposed:?}");
}

#[test]
fn each_manual_page_has_its_examples_under_that_heading() {
    let directory = directory("man");
    let name = directory.to_str().expect("a plain name");
    let made = farwrite(&["man", name, "--json"]).stdout;
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    let pages = made["result"]["pages"].as_array().expect("pages");
    assert!(!pages.is_empty());
    for page in pages {
        let path = page.as_str().expect("a path");
        let page = std::fs::read_to_string(path).expect("a page");
        assert!(page.contains("\n.SH EXAMPLES\n.nf\n  "), "{path}");
        assert!(!page.contains(".SH EXTRA"), "{path}");
    }
}

#[test]
fn keygen_prints_another_key_each_time() {
    let printed = farwrite(&["keygen"]).stdout;
    let again = farwrite(&["keygen", "--json"]).stdout;
    let again: Value = serde_json::from_slice(&again).expect("JSON");
    let (printed, again) = (
        text(&printed),
        again["result"]["psk"].as_str().expect("a key"),
    );
    assert!(printed.starts_with("farwrite-psk-1:") && printed.lines().count() == 1);
    assert!(again.starts_with("farwrite-psk-1:"));
    assert_ne!(printed.trim(), again);
}
