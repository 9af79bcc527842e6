//! `farwrite perf`: both ends over loopback, and what is wrong with its arguments.

use serde_json::Value;

use crate::json_page::check_perf;
use crate::rig::{Ended, Rig, Running, farwrite};

/// Starts a server, and returns it with its address.
fn server(rig: &Rig, test: &str, args: &[&str]) -> (Running, String) {
    let mut command = farwrite();
    command.args([
        "perf",
        test,
        "--bind",
        "127.0.9.1",
        "--port",
        "0",
        "--psk-file",
    ]);
    command.arg(rig.key()).args(args);
    let mut running = Running::spawn(command);
    let line = running.line("farwrite perf");
    let addr = line.split_whitespace().nth(3).expect("an address");
    (running, addr.to_owned())
}

fn client(rig: &Rig, test: &str, addr: &str, args: &[&str]) -> Ended {
    start_client(rig, test, addr, args).end()
}

fn start_client(rig: &Rig, test: &str, addr: &str, args: &[&str]) -> Running {
    let mut command = farwrite();
    command
        .args(["perf", test, addr, "--psk-file"])
        .arg(rig.key());
    command.args(args);
    Running::spawn(command)
}

/// Runs both ends, and returns the object of the client and the last line of the server.
fn measured(rig: &Rig, test: &str, args: &[&str], there_args: &[&str]) -> (Value, String) {
    let (there, addr) = server(rig, test, there_args);
    let ended = client(rig, test, &addr, &[&["--json"], args].concat());
    ended.assert(0, "");
    let there = there.end();
    there.assert(0, "");
    let last = there.stdout.lines().last().expect("a line").to_owned();
    (ended.json(), last)
}

#[test]
fn each_test_moves_what_it_says() {
    let (rig, mut objects) = (Rig::new(), Vec::new());
    for (test, args, whole, bytes) in [
        (
            "write_bw",
            &["-s", "5000", "-n", "20", "-q", "2"][..],
            40,
            5000,
        ),
        (
            "write_bw",
            &["-s", "64", "-n", "20", "--scheme", "ec-mds:8,2"],
            20,
            64,
        ),
        (
            "send_bw",
            &["-s", "70000", "-n", "10", "-t", "4", "-c", "uc"],
            10,
            70_000,
        ),
        (
            "read_bw",
            &["-s", "70000", "-n", "10", "-t", "4"],
            0,
            70_000,
        ),
        ("write_lat", &["-n", "10"], 10, 2),
    ] {
        let (object, last) = measured(&rig, test, args, &[]);
        let result = &object["result"];
        let row = &result["rows"][0];
        assert_eq!(row["MsgSize"], bytes, "{result}");
        let messages = row["n_iterations"].as_u64().expect("a number");
        assert_eq!(result["arrived"]["whole"], whole, "{result}");
        if test == "read_bw" {
            assert_eq!(messages, 10, "{result}");
            assert!(last.ends_with("has read"), "{last}");
        } else {
            assert_eq!(messages, whole, "{result}");
            assert_eq!(result["arrived"]["bytes"], whole * bytes, "{result}");
            let want = format!("received {whole} whole messages; {} bytes", whole * bytes);
            assert!(last.starts_with(&want), "{last}");
        }
        if test == "write_lat" {
            let times = ["t_min", "t_typical", "t_99_percent", "t_max"];
            let times = times.map(|name| row[name].as_f64().expect("a number"));
            assert!(times[0] > 0.0 && times.is_sorted(), "{result}");
        } else {
            let average = row["BW_average"].as_f64().expect("a number");
            assert!(
                average > 0.0 && row["BW_peak"].as_f64() >= Some(average),
                "{result}"
            );
        }
        objects.push(object);
    }
    check_perf(&objects);
}

#[test]
fn sizes_chunks_and_limits_are_in_the_table_and_in_the_file() {
    let rig = Rig::new();
    let (there, addr) = server(&rig, "write_bw", &[]);
    let file = rig.path("out.json");
    let file = file.to_str().expect("plain");
    let args = [
        "-a",
        "-n",
        "5",
        "-t",
        "4",
        "--chunk",
        "1,16",
        "--report_gbits",
        "-y",
        "1e9",
    ];
    let out = ["--out_json", "--out_json_file", file];
    let ended = client(&rig, "write_bw", &addr, &[&args[..], &out].concat());
    ended.assert(1, "less than 1000000000 of --limit_msgrate");
    there.end().assert(0, "");
    let heading = "#bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]";
    assert!(ended.stdout.contains(heading), "{ended:?}");
    let rows = ended.stdout.lines().filter(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.len() == 5 && words.iter().all(|word| word.parse::<f64>().is_ok())
    });
    assert_eq!(rows.count(), 2 * 23, "{ended:?}");
    let written = std::fs::read_to_string(file).expect("a report");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(written["test_info"]["test"], "RDMA_Write_BW_Test");
    let results = written["results"].as_array().expect("several results");
    assert_eq!(results.len(), 2 * 23);
    assert_eq!(results[45]["MsgSize"], 1 << 23);
    assert_eq!(results[45]["packets_per_chunk"], 16);
}

#[test]
fn channels_and_threads_carry_all_tests() {
    let rig = Rig::new();
    let threads = ["--receive-threads", "--coding-threads", "2"];
    let channels = ["--channels", "3"];
    let codes = ["--scheme", "ec-mds:8,2"];
    let both = [&threads[..], &channels].concat();
    for (test, here, there, received) in [
        ("write_bw", [&both[..], &codes].concat(), &threads[..], 20),
        ("write_bw", threads.to_vec(), &[], 20),
        ("write_bw", Vec::new(), &threads, 20),
        ("send_bw", channels.to_vec(), &[], 20),
        ("read_bw", both.clone(), &threads, 0),
        ("write_lat", both.clone(), &threads, 10),
    ] {
        let sized = ["-s", "70000", "-n", "10", "-t", "4", "-q", "2"];
        let (object, _) = measured(&rig, test, &[&sized, &here[..]].concat(), there);
        let result = &object["result"];
        assert_eq!(result["arrived"]["whole"], received, "{result}");
        assert_eq!(result["arrived"]["bytes"], received * 70_000, "{result}");
        assert_eq!(result["sealed"], true, "{result}");
        let (channels, threads) = (here.contains(&"3"), here.contains(&"--receive-threads"));
        let channels = if channels { 3 } else { 1 };
        assert_eq!(result["channels"], channels, "{result}");
        let receive_threads = if threads { channels } else { 0 };
        assert_eq!(result["receive_threads"], receive_threads, "{result}");
        if threads {
            assert_eq!(result["coding_threads"], 2, "{result}");
        }
    }
}

/// The names of the threads of a process.
fn threads_of(running: &Running) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", running.id())).expect("a process");
    let name = |thread: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(thread.ok()?.path().join("comm")).ok()?;
        Some(name.trim().to_owned())
    };
    threads.filter_map(name).collect()
}

#[test]
fn threads_are_at_the_end_that_has_the_option() {
    let rig = Rig::new();
    let (there, addr) = server(&rig, "write_bw", &["--receive-threads"]);
    let args = ["-D", "60", "-t", "4", "--channels", "2"];
    let mut here = start_client(&rig, "write_bw", &addr, &args);
    let heading = here.line("BW average");
    let received_there = threads_of(&there);
    for thread in ["farwrite-rx-0", "farwrite-rx-1"] {
        assert!(
            received_there.iter().any(|name| name == thread),
            "{heading}: {received_there:?}"
        );
    }
    let here_too = threads_of(&here);
    assert!(
        !here_too.iter().any(|name| name.starts_with("farwrite-rx")),
        "{here_too:?}"
    );
    // The client learns that the connection is over, not only that its queue pairs are gone.
    there.signal("TERM");
    here.end().assert(5, "the connection is over");
    there.end().assert(130, "interrupted");
}

#[test]
fn a_server_warns_of_options_that_it_does_not_follow() {
    let rig = Rig::new();
    // The depth is that of the client too. A thread is of one end.
    let args = ["-s", "64", "-t", "128", "--receive-threads"];
    for (args, warned) in [(&args[..], true), (&args[4..], false)] {
        let (there, addr) = server(&rig, "write_bw", args);
        client(&rig, "write_bw", &addr, &["-n", "5"]).assert(0, "");
        let there = there.end();
        there.assert(0, "");
        let warning = "without effect here: --size, --tx-depth";
        assert_eq!(there.stderr.contains(warning), warned, "{there:?}");
    }
}

#[test]
fn ends_that_do_not_fit_say_why() {
    let rig = Rig::new();
    let (there, addr) = server(&rig, "read_bw", &[]);
    let why = "the server measures read_bw, and the client write_bw";
    client(&rig, "write_bw", &addr, &["-n", "5"]).assert(3, why);
    there.end().assert(3, why);
    for (args, code, told) in [
        (&["-q", "33"][..], 2, "1..=32"),
        (&["-m", "66"], 2, "multiple of 4"),
        (&["--channels", "65"], 2, "1..=64"),
        (
            &["--channels", "2", "-d", "mlx5_0"],
            2,
            "cannot be used with",
        ),
        (&["--coding-threads", "2000"], 2, "from 0 to 1024"),
        (&["-m", "64", "-s", "20000000"], 2, "at most 16777216"),
        (&["-s", "1073741824", "-q", "5"], 2, "too much memory"),
        (
            &["--out_json", "--out_json_file", "/proc/none/x"],
            6,
            "writing /proc/none/x",
        ),
    ] {
        client(&rig, "write_bw", "127.0.9.1", args).assert(code, told);
    }
}

/// A server that knows its clients refuses a stranger, and measures with one that it knows.
#[test]
fn a_known_client_measures_and_a_stranger_does_not() {
    let rig = Rig::new();
    let [host, own, _] = ["host", "own", "stranger"].map(|name| rig.identity(name));
    let peers = rig.peers(&format!("[own]\nkey = \"{own}\"\n"));
    let mut there = farwrite();
    there.args(["perf", "write_bw", "--bind", "127.0.9.1", "--port", "0"]);
    there.arg("--identity").arg(rig.path("host")).arg("--peers");
    there.arg(peers);
    let mut there = Running::spawn(there);
    let line = there.line("farwrite perf");
    let addr = line.split_whitespace().nth(3).expect("an address");
    let host = host.to_string();
    assert!(line.contains(&format!("--peer-key {host}")), "{line}");
    for (name, code, told) in [
        ("stranger", 3, "does not know this end's public key"),
        ("own", 0, ""),
    ] {
        let mut command = farwrite();
        command.args(["perf", "write_bw", addr, "-n", "5", "--peer-key", &host]);
        command.arg("--identity").arg(rig.path(name));
        Running::spawn(command).end().assert(code, told);
    }
    there
        .end()
        .assert(0, "the public key of the last peer that is not known");
}
