//! Runs `farwrite probe` as a user does, over real sockets on loopback.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use farwrite_keys::Psk;
use serde_json::Value;

use crate::{result_of, text};

fn farwrite() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    command.env_remove("FARWRITE_PSK").stdin(Stdio::null());
    command
}

/// A directory with a key.
struct Rig {
    root: tempfile::TempDir,
    psk: Psk,
}

/// An end that listens. It is killed when the test ends.
struct Listening {
    child: Child,
    addr: String,
    rest: BufReader<std::process::ChildStdout>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Rig {
    fn new() -> Self {
        let rig = Self {
            root: tempfile::tempdir().expect("directory"),
            psk: Psk::generate().expect("key"),
        };
        rig.psk.save(&rig.path("key")).expect("key file");
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Starts an end that listens, and waits until it is ready.
    fn listen(&self, args: &[&str]) -> Listening {
        let mut command = farwrite();
        // The sockets of probers have ports of 127.0.0.1.
        command.args(args).args(["--listen", "127.0.7.2:0"]);
        command.arg("--psk-file").arg(self.path("key"));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
        let mut rest = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        rest.read_line(&mut line).expect("a line");
        let addr = line.split_whitespace().nth(2).expect("an address");
        Listening {
            addr: addr.to_owned(),
            child,
            rest,
        }
    }

    fn probe(&self, to: &str, args: &[&str]) -> Output {
        let mut command = farwrite();
        command.args(["probe", to]).args(args);
        command.arg("--psk-file").arg(self.path("key"));
        command.output().expect("the program ends")
    }
}

#[track_caller]
fn assert_refused(output: &Output, code: i32, told: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(told), "{told:?} is not in {stderr}");
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is a number"))
}

const SHORT: [&str; 4] = ["--time", "3s", "--max-rate", "200Mbit"];

#[test]
fn a_probe_measures_draws_and_saves() {
    let rig = Rig::new();
    let there = rig.listen(&["probe"]);
    let (saved, picture) = (rig.path("link.toml"), rig.path("drops.svg"));
    let files = [
        "--save",
        saved.to_str().expect("plain"),
        "--plot",
        picture.to_str().expect("plain"),
        "--json",
    ];
    let args = [
        &SHORT[..],
        &files,
        &["--flows", "4", "--sizes", "512,2KiB", "--trials", "2"],
    ];
    let output = rig.probe(&there.addr, &args.concat());
    let result = result_of(&output, "probe");
    assert_eq!(result["peer"], there.addr.as_str());
    assert!(number(&result["round_trip"]["min_ms"]) < 50.0, "{result}");
    assert!(number(&result["rate"]["bps"]) <= 200e6, "{result}");
    assert_eq!(number(&result["mtu"]["ip_bytes"]), 9216.0);
    assert_eq!(result["ecn"], "kept");
    assert_eq!(result["addresses"]["translated"], false);
    let trials = result["trials"].as_array().expect("trials");
    // Two sizes at two rates, in two rounds.
    assert_eq!(trials.len(), 8);
    for trial in trials {
        let flows = trial["received_by_flow"].as_array().expect("flows");
        assert_eq!(flows.len(), 4);
        let received: f64 = flows.iter().map(number).sum();
        let lost = number(&trial["lost_packets"]) + number(&trial["lost_in_hosts"]);
        assert_eq!(received + lost, number(&trial["packets"]), "{trial}");
        // The probe uses at most a tenth of the path.
        assert!(number(&trial["rate_bps"]) <= 20e6, "{trial}");
    }
    let answers = check_trips(&result["round_trip"]);
    check_picture(&picture, trials.len(), &answers);
    check_saved(&saved);
}

/// Returns the answers in each bin of the histogram.
fn check_trips(trip: &Value) -> Vec<f64> {
    let bins = trip["above_min"].as_array().expect("a histogram");
    let answers: Vec<_> = bins.iter().map(|bin| number(&bin["answers"])).collect();
    assert_eq!(answers.iter().sum::<f64>(), number(&trip["answers"]));
    let last = bins.last().expect("answers");
    let above = number(&trip["max_ms"]) - number(&trip["min_ms"]);
    assert!(above >= number(&last["from_ms"]) - 1e-9, "{trip}");
    assert!(above < number(&last["to_ms"]) + 1e-9, "{trip}");
    assert!(number(&trip["p50_ms"]) <= number(&trip["p90_ms"]), "{trip}");
    answers
}

fn check_picture(path: &Path, trials: usize, answers: &[f64]) {
    let svg = std::fs::read_to_string(path).expect("the picture is there");
    let document = roxmltree::Document::parse(&svg).expect("the picture is XML");
    let is_trial = |node: &roxmltree::Node<'_, '_>| node.attribute("class") == Some("trial");
    let marks: Vec<_> = document.descendants().filter(is_trial).collect();
    assert_eq!(marks.len(), trials);
    for mark in marks {
        let at = |name| mark.attribute(name).and_then(|x| x.parse::<f64>().ok());
        let (x, y) = (at("cx").expect("a number"), at("cy").expect("a number"));
        assert!(
            (0.0..=640.0).contains(&x) && (0.0..=320.0).contains(&y),
            "{x} {y}"
        );
    }
    let heights = document.descendants().filter_map(|node| {
        let is_bar = node.attribute("class") == Some("trips");
        let height = node.attribute("height").filter(|_| is_bar)?;
        height.parse::<f64>().ok()
    });
    let most = answers.iter().copied().fold(0.0, f64::max);
    let heights: Vec<_> = heights.collect();
    assert_eq!(heights.len(), answers.len());
    for (height, answers) in heights.iter().zip(answers) {
        assert!((height - 160.0 * answers / most).abs() < 0.1, "{heights:?}");
    }
    let words: String = document
        .descendants()
        .filter_map(|node| node.text())
        .collect();
    assert!(
        words.contains("512 B") && words.contains("2 KiB"),
        "{words}"
    );
}

/// Other commands accept the saved file.
fn check_saved(path: &Path) {
    let path = path.to_str().expect("plain");
    let plan = farwrite()
        .args(["plan", "--link", path, "--size", "1MiB"])
        .output();
    let plan = plan.expect("the program ends");
    assert!(plan.status.success(), "{}", text(&plan.stderr));
    let directory = Path::new(path).parent().expect("a directory");
    let demo = farwrite()
        .args([
            "demo", "--link", path, "--size", "1MiB", "--scheme", "sr-nack",
        ])
        .args(["--json", "--out"])
        .arg(directory)
        .output()
        .expect("the program ends");
    let demo = result_of(&demo, "demo");
    // The largest packet that was tried, minus the headers of IP and UDP and the overhead of
    // Farwrite.
    assert_eq!(number(&demo["mtu_bytes"]), 9152.0);
    assert!(number(&demo["rate_bps"]) <= 200e6);
}

#[test]
fn a_receiver_of_files_answers_too_and_goes_on() {
    let rig = Rig::new();
    let inbox = rig.path("in");
    std::fs::create_dir(&inbox).expect("directory");
    let there = rig.listen(&["recv", "--once", "--dir", inbox.to_str().expect("plain")]);
    let output = rig.probe(&there.addr, &SHORT);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    for word in [
        "round trip",
        "IP MTU",
        "ECT(0) arrives unchanged",
        "no translation",
        "payload",
    ] {
        assert!(stdout.contains(word), "{word:?} is not in\n{stdout}");
    }
    let width = stdout.lines().map(|line| line.chars().count()).max();
    assert!(width <= Some(120), "{width:?} in\n{stdout}");
    // A probe is not a transfer: --once continues to wait for one.
    let (file, link) = (rig.path("file"), rig.path("link.toml"));
    std::fs::write(&file, [7; 5000]).expect("write");
    std::fs::write(&link, "rate = \"300Mbit\"\nmtu = 1024\n").expect("write");
    let send = farwrite()
        .args(["send", "--json", "--to", &there.addr, "--psk-file"])
        .arg(rig.path("key"))
        .arg("--link")
        .args([&link, &file])
        .output()
        .expect("the program ends");
    let sent = result_of(&send, "send");
    // The mtu of the file bounds a packet with its 24 bytes of counter and tag.
    assert_eq!(number(&sent["mtu"]), 1000.0);
    let said = text(&send.stderr);
    assert!(
        said.contains("link.toml: rate has no effect without rtt"),
        "{said}"
    );
    assert_eq!(
        std::fs::read(inbox.join("file")).expect("received"),
        [7; 5000]
    );
}

#[test]
fn a_sender_is_turned_away_where_only_probes_are_answered() {
    let rig = Rig::new();
    let mut there = rig.listen(&["probe", "--once"]);
    let file = rig.path("file");
    std::fs::write(&file, "x").expect("write");
    let send = farwrite()
        .args(["send", "--timeout", "4s", "--to", &there.addr, "--psk-file"])
        .args([rig.path("key"), file])
        .output()
        .expect("the program ends");
    assert_refused(&send, 3, "serves probes, not files");
    let output = rig.probe(&there.addr, &SHORT);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(there.child.wait().expect("it ends").success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut there.rest, &mut rest).expect("text");
    assert!(rest.contains("farwrite probe 127.0.7.2:"), "{rest}");
}

#[test]
fn what_cannot_be_probed_is_named() {
    let rig = Rig::new();
    // No program listens on this port, and other tests take no ports of this host.
    let free = UdpSocket::bind("127.0.7.1:0").expect("port");
    let addr = free.local_addr().expect("address").to_string();
    drop(free);
    let silent = rig.probe(&addr, &["--timeout", "4s"]);
    assert_refused(&silent, 5, &addr);
    let said = text(&silent.stdout);
    assert!(
        said.contains("do firewalls pass UDP to this port?"),
        "{said}"
    );
    // The other end has another key.
    let (there, other) = (rig.listen(&["probe"]), Rig::new());
    assert_refused(&other.probe(&there.addr, &SHORT), 3, "has other keys");
    // The rate exceeds the permitted share of the path.
    let fast = rig.probe(&there.addr, &[&SHORT[..], &["--rates", "150Mbit"]].concat());
    assert_refused(&fast, 2, "10 % of the path");
    let spot = rig.path("nowhere").join("link.toml");
    let args = ["--save", spot.to_str().expect("plain")];
    assert_refused(&rig.probe(&there.addr, &args), 6, "nowhere does not exist");
}

#[test]
fn ctrl_c_shows_what_is_known() {
    let rig = Rig::new();
    let there = rig.listen(&["probe"]);
    let mut command = farwrite();
    command.args([
        "probe",
        &there.addr,
        "--json",
        "--time",
        "30s",
        "--max-rate",
        "50Mbit",
    ]);
    command.arg("--psk-file").arg(rig.path("key"));
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("started");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let counts = |line: std::io::Result<String>| line.is_ok_and(|line| line.contains("losses"));
    assert!(lines.by_ref().any(counts), "it counts losses");
    let pid = child.id().to_string();
    let signal = Command::new("kill").args(["-INT", &pid]).status();
    assert!(signal.expect("kill runs").success());
    // A full standard error must not block any program.
    let reader = std::thread::spawn(move || lines.for_each(drop));
    let output = child.wait_with_output().expect("it ends");
    reader.join().expect("no panic");
    assert_eq!(output.status.code(), Some(130));
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(object["error"]["kind"], "interrupted");
    let result = &object["result"];
    assert_eq!(result["interrupted"], true);
    assert!(number(&result["rate"]["bps"]) > 0.0 && number(&result["mtu"]["ip_bytes"]) > 0.0);
}

/// A probe measures an idle path, so another one waits for its end, or is told that it would have to.
#[test]
fn one_probe_at_a_time_is_answered() {
    let rig = Rig::new();
    let inbox = rig.path("in");
    std::fs::create_dir(&inbox).expect("directory");
    for args in [
        &["probe"][..],
        &["recv", "--dir", inbox.to_str().expect("plain")],
    ] {
        let there = rig.listen(args);
        let mut first = farwrite();
        first.args(["probe", &there.addr, "--time", "20s", "--psk-file"]);
        first.arg(rig.path("key")).stderr(Stdio::null());
        let mut first = first.stdout(Stdio::piped()).spawn().expect("started");
        let mut said = BufReader::new(first.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert!(line.starts_with("probing the path"), "{line}");
        let second = rig.probe(&there.addr, &[&SHORT[..], &["--timeout", "4s"]].concat());
        assert_refused(&second, 7, "another transfer or probe is under way");
        first.kill().expect("kill");
        first.wait().expect("it ends");
    }
}

#[test]
fn the_udp_port_is_taken_between_probes() {
    let rig = Rig::new();
    let there = rig.listen(&["probe"]);
    for _ in 0..2 {
        let error = UdpSocket::bind(&there.addr).expect_err("the responder holds it");
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        let output = rig.probe(&there.addr, &SHORT);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

#[test]
fn senseless_options_get_exit_code_2_and_one_line() {
    for (args, named) in [
        (&["probe"][..], "<HOST[:PORT]>"),
        (&["probe", "h", "--flows", "0"], "--flows"),
        (&["probe", "h", "--flows", "65"], "1..=64"),
        (&["probe", "h", "--sizes", "71"], "72 to 9168"),
        (&["probe", "h", "--sizes", "1KiB,x"], "not a size"),
        (&["probe", "h", "--rates", "fast"], "not a rate"),
        (&["probe", "h", "--share", "0"], "above 0"),
        (&["probe", "h", "--share", "101%"], "above 0, to 1"),
        (&["probe", "h", "--trials", "0"], "--trials"),
        (&["probe", "h", "--time", "1s"], "2s to 1h"),
        (&["probe", "h:0"], "port 0"),
        (&["probe", "h", "--listen"], "--listen"),
        (&["probe", "h", "--once"], "--once"),
        (&["probe", "h"], "no key"),
    ] {
        let output = farwrite().args(args).output().expect("the program ends");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
    }
}

#[test]
fn an_absurd_link_file_is_refused_by_every_command() {
    let rig = Rig::new();
    let link = rig.path("link.toml");
    let name = link.to_str().expect("plain");
    let commands: [&[&str]; 3] = [
        &["plan", "--size", "1MiB", "--link", name],
        &["demo", "--link", name],
        &["send", "--to", "127.0.0.1:1", "--link", name, "x"],
    ];
    for (file, named) in [
        ("rate = \"-5Gbit\"", "rate = \"-5Gbit\""),
        ("rtt = \"0s\"", "rtt = \"0s\": a round trip lies above 0"),
        (
            "loss_packet = 1.5",
            "loss_packet = 1.5: a loss lies in 0 to 0.99",
        ),
        ("mtu = 3", "mtu = 3: an MTU is a multiple of 4"),
        ("los = 0.1", "unknown field `los`, expected one of `rate`"),
        ("reordering_packets = -2", "reordering_packets = -2"),
        ("measured = \"yesterday\"", "measured = \"yesterday\""),
    ] {
        std::fs::write(&link, file).expect("write");
        for command in commands {
            let output = farwrite()
                .env("FARWRITE_PSK", &rig.psk.to_text()[..])
                .args(command)
                .output()
                .expect("the program ends");
            assert_refused(&output, 2, named);
        }
    }
}

#[test]
fn a_sender_converts_a_loss_of_chunks_or_says_what_it_needs() {
    let rig = Rig::new();
    let link = rig.path("link.toml");
    let send = |file: &str| {
        std::fs::write(&link, file).expect("write");
        farwrite()
            .env("FARWRITE_PSK", &rig.psk.to_text()[..])
            .args(["send", "--to", "127.0.0.1:1", "--timeout", "1s", "--link"])
            .arg(&link)
            .arg(rig.path("key"))
            .output()
            .expect("the program ends")
    };
    let bare = send("loss_chunk = 0.01");
    assert_refused(&bare, 2, "loss_chunk needs chunk and mtu");
    // The description is complete, and only the receiver is missing.
    let whole = send("loss_chunk = 0.01\nchunk = \"64KiB\"\nmtu = 1024");
    assert_refused(&whole, 5, "127.0.0.1:1");
}
