//! One receiver that serves several senders at once.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::hostile_sender::{HostileSender, config, file, plan};
use crate::rig::{Rig, Running, V4, free_port, pattern};

/// A sender that stalls in the middle, one that lies about a hash, and one that has the key and says nothing
/// do not stop the others, nor end the receiver.
#[test]
fn senders_that_stall_or_lie_stop_nobody_else() {
    let rig = Rig::new();
    let mut receiver = rig.recv(V4, &["--timeout", "30s"]);
    let mut stalled = HostileSender::meet(&rig, receiver.addr, config());
    let entries = vec![file("stalled", 1 << 20)];
    stalled
        .offer(plan(&entries), entries)
        .expect("the receiver accepts");
    let mut liar = HostileSender::meet(&rig, receiver.addr, config());
    let entries = vec![file("lie", 1)];
    let mut wrong = plan(&entries);
    wrong.entries = 7;
    liar.offer(wrong, entries).expect_err("it is no manifest");
    let names: Vec<_> = (0..4).map(|number| format!("file-{number}")).collect();
    let files = names.iter().map(|name| rig.file(name, 300_000));
    let files: Vec<_> = files.collect();
    let senders = files.iter();
    let senders: Vec<_> = senders
        .map(|file| rig.send(receiver.addr, &[], &[file]))
        .collect();
    for sender in senders {
        sender.end().assert(0, "");
    }
    for name in &names {
        let bytes = fs::read(rig.inbox().join(name)).expect("arrived");
        assert!(bytes == pattern(300_000), "{name}");
    }
    assert!(receiver.running.is_running());
    // A signal ends the one that is under way, and the receiver.
    receiver.running.signal("TERM");
    let ended = receiver.end();
    ended.assert(130, "interrupted");
    assert!(stalled.hear_why().contains("interrupted"));
    assert_eq!(rig.received(), names);
}

/// A receiver whose threads woke often for each sender would have no time for many of them.
#[test]
fn a_sender_that_stalls_wakes_the_receiver_rarely() {
    const WATCHED: Duration = Duration::from_secs(2);
    let rig = Rig::new();
    let receiver = rig.recv(V4, &["--timeout", "60s"]);
    let mut stalled = HostileSender::meet(&rig, receiver.addr, config());
    let entries = vec![file("stalled", 1 << 20)];
    let offered = stalled.offer(plan(&entries), entries);
    offered.expect("the receiver accepts");
    let id = receiver.running.id();
    let start = (Instant::now(), switches(id));
    thread::sleep(WATCHED);
    let seconds = start.0.elapsed().as_secs_f64();
    let rate = (switches(id) - start.1) as f64 / seconds;
    // All threads together: 20 times a second each for cancelling, and four signs of life.
    assert!(rate < 250.0, "{rate} context switches in a second");
}

/// How often the threads of a process have slept so far.
fn switches(id: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("a process");
    let read = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse::<u64>().ok()
    };
    tasks.filter_map(read).sum()
}

/// All senders send a file of one name, and each has it whole: the last one to finish stays.
#[test]
fn a_name_that_several_senders_send_is_whole() {
    let rig = Rig::new();
    let at = free_port();
    let receiver =
        Running::spawn(rig.recv_command(&at.to_string(), &rig.inbox(), &["--json-lines"]));
    let lengths = [400_000, 300_000, 200_000];
    let send = |length: usize| {
        let directory = rig.path(&length.to_string());
        fs::create_dir(&directory).expect("directory");
        let file = directory.join("same");
        fs::write(&file, pattern(length)).expect("write");
        rig.send(at, &["--ignore-times"], &[&file])
    };
    for sender in lengths.map(send) {
        sender.end().assert(0, "");
    }
    let bytes = fs::read(rig.inbox().join("same")).expect("arrived");
    assert!(lengths.contains(&bytes.len()) && bytes == pattern(bytes.len()));
    receiver.signal("INT");
    let ended = receiver.end();
    let lines: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    let results = lines.iter().filter(|line| line["result"].is_object());
    assert_eq!(results.count(), 3, "{ended:?}");
    for number in 1..=3 {
        let of_transfer = |line: &&Value| line["transfer"] == number && line["event"] == "file";
        assert_eq!(lines.iter().filter(of_transfer).count(), 1, "{ended:?}");
        let of_result = |line: &&Value| line["transfer"] == number && line["result"].is_object();
        assert_eq!(lines.iter().filter(of_result).count(), 1, "{ended:?}");
    }
}

#[test]
fn a_sender_beyond_the_limit_is_told_so() {
    let rig = Rig::new();
    let receiver = rig.recv(V4, &["--max-senders", "2"]);
    let occupied = [(); 2].map(|()| HostileSender::meet(&rig, receiver.addr, config()));
    let small = rig.file("small", 1000);
    let refused = rig.send(receiver.addr, &["--timeout", "3s"], &[&small]);
    refused.end().assert(7, "serves 2 senders at once");
    drop(occupied);
    rig.send(receiver.addr, &[], &[&small]).end().assert(0, "");
}

/// Sends files of the same length at once. Returns the seconds that each transfer took.
fn at_once(rig: &Rig, to: SocketAddr, senders: usize, bytes: usize) -> Vec<f64> {
    let send = |number| {
        let file = rig.file(&format!("file-{number}"), bytes);
        rig.send(to, &["--json", "--no-path-cache"], &[&file])
    };
    let running: Vec<_> = (0..senders).map(send).collect();
    let seconds = |sender: Running| {
        let ended = sender.end();
        ended.assert(0, "");
        ended.result()["seconds"].as_f64().expect("a number")
    };
    running.into_iter().map(seconds).collect()
}

/// By default, as many senders as are worth the time of a test. With `FARWRITE_SENDERS=50`, more.
#[test]
fn senders_at_once_all_arrive() {
    let number = |name: &str, default: usize| {
        let text = std::env::var(name).ok();
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let senders = number("FARWRITE_SENDERS", 6);
    let bytes = number("FARWRITE_SENDER_BYTES", 200_000);
    let rig = Rig::new();
    let mut receiver = rig.recv(V4, &["--memory", "256MiB"]);
    let start = Instant::now();
    let seconds = at_once(&rig, receiver.addr, senders, bytes);
    let all = start.elapsed();
    let rates = seconds.iter().map(|seconds| 1.0 / seconds);
    let (sum, squares) = rates.fold((0.0, 0.0), |(sum, squares), rate| {
        (sum + rate, squares + rate * rate)
    });
    let count = u32::try_from(senders).map(f64::from).expect("few");
    let status = fs::read_to_string(format!("/proc/{}/status", receiver.running.id()));
    let peak = status.expect("it runs");
    let peak = peak.lines().find(|line| line.starts_with("VmHWM"));
    println!(
        "{senders} senders of {bytes} bytes: Jain {:.3}, {all:.1?}, {peak:?}",
        sum * sum / (count * squares)
    );
    assert_eq!(rig.received().len(), senders);
    assert!(receiver.running.is_running());
}
