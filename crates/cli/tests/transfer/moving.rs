//! Transfers that succeed.

use std::ffi::OsStr;
use std::fs;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::rig::{Rig, Running, V4, V6, farwrite, free_port, list, pattern, tree};

/// Sends paths to a new receiver. Both ends must report success.
#[track_caller]
fn move_files(rig: &Rig, listen: &str, args: &[&str], paths: &[&Path]) {
    let receiver = rig.recv(listen, &["--once"]);
    let sent = rig.send(receiver.addr, args, paths).end();
    sent.assert(0, "");
    receiver.end().assert(0, "");
}

#[test]
fn files_of_awkward_sizes_arrive_over_ipv4_and_ipv6() {
    for (listen, scheme) in [
        (V4, "sr-nack"),
        (V6, "sr-rto"),
        (V4, "gbn"),
        (V4, "ec-mds:32,8"),
        (V6, "ec-xor:32,8"),
        (V4, "ec-mds:3,7"),
    ] {
        let rig = Rig::new();
        let sizes = [0, 1, 4095, 4096, 4097, 65_537, 5_000_001];
        let files = sizes.map(|bytes| rig.file(&format!("file-{bytes}"), bytes));
        let paths = files.each_ref().map(|path| path.as_path());
        move_files(&rig, listen, &["--scheme", scheme], &paths);
        assert_eq!(rig.received().len(), sizes.len());
        for bytes in sizes {
            let came = fs::read(rig.inbox().join(format!("file-{bytes}"))).expect("received");
            assert!(came == pattern(bytes), "{bytes} bytes over {listen} differ");
        }
    }
}

#[test]
fn a_wildcard_takes_both_versions_of_ip() {
    let rig = Rig::new();
    let receiver = rig.recv("[::]:0", &[]);
    for host in ["127.0.0.1", "::1"] {
        let file = rig.file(&host.replace([':', '.'], "-"), 100_000);
        let addr = (
            host.parse::<IpAddr>().expect("address"),
            receiver.addr.port(),
        );
        rig.send(addr.into(), &[], &[&file]).end().assert(0, "");
    }
    assert_eq!(rig.received(), ["--1", "127-0-0-1"]);
}

#[test]
fn one_empty_file_arrives_by_itself() {
    let rig = Rig::new();
    let empty = rig.file("empty", 0);
    move_files(&rig, V4, &[], &[&empty]);
    assert!(
        fs::read(rig.inbox().join("empty"))
            .expect("received")
            .is_empty()
    );
}

#[test]
fn the_smallest_files_arrive_with_parity_too() {
    for scheme in ["ec-mds:32,8", "ec-xor:32,8", "ec-mds:1,254"] {
        for bytes in [0, 1] {
            let rig = Rig::new();
            let file = rig.file("file", bytes);
            move_files(&rig, V4, &["--scheme", scheme], &[&file]);
            let came = fs::read(rig.inbox().join("file")).expect("received");
            assert!(came == pattern(bytes), "{bytes} bytes by {scheme}");
        }
    }
}

#[test]
fn many_small_files_arrive_with_parity() {
    let rig = Rig::new();
    let root = rig.path("tree");
    fs::create_dir(&root).expect("directory");
    for i in 0..300 {
        fs::write(root.join(i.to_string()), pattern(i * 37 % 5000)).expect("write");
    }
    move_files(&rig, V4, &["--scheme", "ec-mds:16,4"], &[&root]);
    for i in 0..300 {
        let came = fs::read(rig.inbox().join("tree").join(i.to_string())).expect("received");
        assert!(came == pattern(i * 37 % 5000), "file {i}");
    }
}

#[test]
fn a_small_mtu_and_little_memory_do() {
    for scheme in ["sr-nack", "ec-mds:32,8", "ec-xor:7,7"] {
        let rig = Rig::new();
        let file = rig.file("file", 3_000_000);
        let args = ["--mtu", "256", "--memory", "1MiB", "--rate", "200Mbit"];
        let args = [&args[..], &["--scheme", scheme]].concat();
        move_files(&rig, V4, &args, &[&file]);
        let came = fs::read(rig.inbox().join("file")).expect("received");
        assert!(came == pattern(3_000_000), "{scheme}");
    }
}

#[test]
fn parity_that_does_not_fit_the_memory_is_refused() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    let receiver = rig.recv(V4, &["--once"]);
    let args = [
        "--memory",
        "1MiB",
        "--scheme",
        "ec-mds:1,254",
        "--mtu",
        "4096",
    ];
    let refused = rig.send(receiver.addr, &args, &[&file]).end();
    refused.assert(2, "takes 2088960 bytes at least");
    receiver.end();
}

#[test]
fn a_tree_keeps_its_names_modes_and_times() {
    let rig = Rig::new();
    let root = rig.path("tree");
    let odd: [&[u8]; 7] = [
        b"a b",
        b"-rf",
        b"new\nline",
        b"\xff\xfe",
        b"...",
        b"\xe2\x80\xaegpj",
        b"\x1b[2J",
    ];
    fs::create_dir_all(root.join("deep/er/st")).expect("directories");
    fs::create_dir(root.join("empty")).expect("directory");
    for name in odd {
        fs::write(root.join("deep").join(OsStr::from_bytes(name)), name).expect("write");
    }
    for (name, mode) in [("private", 0o600), ("script", 0o755), ("read-only", 0o444)] {
        let path = root.join("deep/er").join(name);
        fs::write(&path, name).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
    }
    fs::set_permissions(root.join("deep/er/st"), fs::Permissions::from_mode(0o500)).expect("chmod");
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let script = fs::File::open(root.join("deep/er/script")).expect("open");
    script.set_modified(old).expect("set time");

    let receiver = rig.recv(V4, &["--once"]);
    let sent = rig.send(receiver.addr, &[], &[&root]).end();
    let received = receiver.end();
    sent.assert(0, "");
    received.assert(0, "");
    assert_eq!(rig.received(), ["tree"]);
    assert_eq!(tree(&root), tree(&rig.inbox().join("tree")));
    let told = sent.stderr + &received.stderr + &sent.stdout + &received.stdout;
    assert!(
        !told.contains('\x1b') && !told.contains('\u{202e}'),
        "{told:?}"
    );
}

#[test]
fn two_thousand_small_files_arrive() {
    let rig = Rig::new();
    let root = rig.path("many");
    for directory in 0..20 {
        let directory = root.join(directory.to_string());
        fs::create_dir_all(&directory).expect("directory");
        for file in 0..100 {
            fs::write(directory.join(file.to_string()), pattern(file * 7)).expect("write");
        }
    }
    move_files(&rig, V4, &[], &[&root]);
    assert_eq!(tree(&root), tree(&rig.inbox().join("many")));
}

#[test]
fn the_sender_may_be_first() {
    let rig = Rig::new();
    let file = rig.file("file", 100_000);
    let addr = free_port();
    let sender = rig.send(addr, &[], &[&file]);
    thread::sleep(Duration::from_millis(1200));
    let receiver = rig.recv(&addr.to_string(), &["--once"]);
    sender.end().assert(0, "");
    receiver.end().assert(0, "");
    assert_eq!(rig.received(), ["file"]);
}

#[test]
fn one_receiver_serves_many_senders_and_replaces_files() {
    let rig = Rig::new();
    let receiver = rig.recv(V4, &[]);
    for bytes in [1000, 2000, 10] {
        let file = rig.file("file", bytes);
        rig.send(receiver.addr, &[], &[&file]).end().assert(0, "");
        // The sender learns this when the file has its final name.
        assert!(fs::read(rig.inbox().join("file")).expect("received") == pattern(bytes));
    }
    receiver.running.signal("INT");
    receiver.end().assert(130, "interrupted");
}

#[test]
fn results_for_scripts_are_one_object() {
    let rig = Rig::new();
    let file = rig.file("file", 2_000_000);
    let addr = free_port().to_string();
    let (dir, key) = (rig.inbox(), rig.key());
    let (dir, key) = (dir.to_str().expect("plain"), key.to_str().expect("plain"));
    let args = [
        "recv",
        "--listen",
        &addr,
        "--dir",
        dir,
        "--psk-file",
        key,
        "--once",
        "--json",
    ];
    let receiver = Running::start(&args, &[]);
    let sent = rig
        .send(addr.parse().expect("address"), &["--json"], &[&file])
        .end();
    let received = receiver.end();
    for (ended, command) in [(&sent, "send"), (&received, "recv")] {
        assert_eq!(ended.stdout.lines().count(), 1, "one line a result");
        let object = ended.json();
        assert_eq!(object["command"], command);
        assert_eq!(object["exit_code"], 0);
        assert!(object["error"].is_null(), "{object}");
    }
    let (sent, received) = (sent.result(), received.result());
    for result in [&sent, &received] {
        assert_eq!(result["files"], 1);
        assert_eq!(result["bytes"], 2_000_000);
        assert_eq!(result["scheme"], "auto");
        assert_eq!(result["mtu"], 8912);
        assert_eq!(result["failures"].as_array().expect("list").len(), 0);
        assert_eq!(result["failed_files"], 0);
        for number in ["seconds", "goodput_bps", "rtt_ms"] {
            assert!(result[number].as_f64().expect("a number") > 0.0, "{result}");
        }
    }
    assert!(sent["retransmitted_share"].is_f64() && sent["duplicate_share"].is_null());
    assert!(received["duplicate_share"].is_f64() && received["retransmitted_share"].is_null());
    let messages = sent["auto"]["messages"]
        .as_object()
        .expect("what auto took");
    let messages = messages.values().filter_map(serde_json::Value::as_u64);
    let segment_bytes = sent["segment_bytes"].as_u64().expect("a size");
    assert_eq!(messages.sum::<u64>(), 2_000_000_u64.div_ceil(segment_bytes));
    let reason = sent["auto"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("round trip"), "{reason}");
    assert!(received["auto"].is_null());
    assert_eq!(
        (&sent["rate_control"], &sent["ecn"]),
        (&"adaptive".into(), &"kept".into())
    );
    assert!(sent["max_rate_bps"].is_null() && received["rate_control"].is_null());
    let shares = sent["limited_by"].as_object().expect("shares");
    let shares = shares.values().filter_map(serde_json::Value::as_f64);
    assert!(shares.sum::<f64>() <= 1.000_001, "{sent}");
    assert!(sent["receive_loss"].is_null() && received["send_loss"].is_null());
    for loss in [&sent["send_loss"], &received["receive_loss"]] {
        // There are 489 chunks. The last chunk is not judged, because no later chunk passes it.
        // Chunks before a pause are not judged either.
        let judged = loss["judged_chunks"].as_u64().expect("a count");
        // A machine that stalls also causes pauses.
        assert!((20..489).contains(&judged), "{loss}");
        assert!(loss["loss_chunk"].is_f64(), "{loss}");
    }
}

#[test]
fn links_arrive_as_links_and_a_pipe_is_a_partial_failure() {
    let rig = Rig::new();
    let root = rig.path("tree");
    fs::create_dir(&root).expect("directory");
    fs::write(root.join("file"), "file").expect("write");
    fs::hard_link(root.join("file"), root.join("again")).expect("link");
    symlink("/etc/passwd", root.join("link")).expect("link");
    UnixListener::bind(root.join("socket")).expect("socket");
    let receiver = rig.recv(V4, &[]);
    let sent = rig.send(receiver.addr, &[], &[&root]).end();
    sent.assert(6, "tree/socket: a socket is not sent");
    let sent = rig.send(receiver.addr, &["--skip-special"], &[&root]).end();
    sent.assert(0, "left out");
    let came = rig.inbox().join("tree");
    assert_eq!(list(&came), ["again", "file", "link"]);
    let target = fs::read_link(came.join("link")).expect("a link");
    assert_eq!(target, Path::new("/etc/passwd"));
    let inode = |name| fs::metadata(came.join(name)).expect("metadata").ino();
    assert_eq!(inode("again"), inode("file"));
    receiver.running.signal("INT");
    receiver.end().assert(130, "");
}

#[test]
fn only_an_end_that_allows_it_loses_files() {
    let rig = Rig::new();
    let root = rig.path("tree");
    fs::create_dir_all(rig.inbox().join("tree")).expect("directory");
    fs::create_dir(&root).expect("directory");
    fs::write(root.join("file"), "file").expect("write");
    fs::write(rig.inbox().join("tree/old"), "old").expect("write");
    let receiver = rig.recv(V4, &["--once"]);
    let sent = rig.send(receiver.addr, &["--delete"], &[&root]).end();
    sent.assert(3, "--allow-delete");
    receiver.end();
    assert_eq!(list(&rig.inbox().join("tree")), ["old"]);
    let receiver = rig.recv(V4, &["--once", "--allow-delete"]);
    let options = ["--delete", "--max-delete", "1", "--json"];
    let sent = rig.send(receiver.addr, &options, &[&root]).end();
    sent.assert(0, "");
    let received = receiver.end();
    received.assert(0, "");
    assert!(received.stdout.contains("1 deleted"), "{}", received.stdout);
    assert_eq!(sent.result()["deleted_files"], 1);
    assert_eq!(list(&rig.inbox().join("tree")), ["file"]);
}

#[test]
fn controllers_of_datacenters_move_a_file_and_need_the_rate_of_the_port() {
    let rig = Rig::new();
    let file = rig.file("data", 2_000_000);
    for name in ["dcqcn", "swift"] {
        let args = ["--no-path-cache", "--json", "--rate-control", name];
        rig.send(free_port(), &args, &[&file])
            .end()
            .assert(2, "--rate");
        let receiver = rig.recv(V4, &["--once"]);
        let sent = rig.send(
            receiver.addr,
            &[&args[..], &["--rate", "1Gbit"]].concat(),
            &[&file],
        );
        let sent = sent.end();
        sent.assert(0, "");
        receiver.end().assert(0, "");
        let sent = sent.result();
        assert_eq!(sent["rate_control"], name);
        assert_eq!(sent["max_rate_bps"], 1_000_000_000);
    }
}

#[test]
fn a_sender_remembers_the_path() {
    let rig = Rig::new();
    // The transfer must be long enough to see what limits the rate, which is checked every 10 ms.
    let file = rig.file("data", 64_000_000);
    let cache = rig.path("cache/farwrite/paths.toml");
    let send_file = |args: &[&str], file: &Path| {
        let receiver = rig.recv(V4, &["--once"]);
        let args = [&["--ignore-times"], args].concat();
        let sent = rig.send(receiver.addr, &args, &[file]).end();
        sent.assert(0, "");
        receiver.end().assert(0, "");
        sent.stderr + &sent.stdout
    };
    let send = |args: &[&str]| send_file(args, &file);
    send(&["--no-path-cache"]);
    assert!(!cache.exists());
    send(&["--rate-control", "fixed", "--rate", "1Gbit"]);
    assert!(
        !cache.exists(),
        "nothing is learned of the rate at a fixed rate"
    );
    // A sender without processor time is limited by its pace, and then it keeps nothing. So each of these
    // sends has some trials.
    let learn = |before: Option<&str>| {
        for _ in 0..10 {
            let said = send(&[]);
            assert!(said.contains("limited by "), "{said}");
            let known = fs::read_to_string(&cache).ok();
            if known.as_deref() != before {
                return known.expect("a cache");
            }
        }
        panic!("ten sends kept nothing");
    };
    let known = learn(None);
    assert!(known.contains("127.0.0.1 127.0.9.1"), "{known}");
    // These measure less than the path carries.
    let short = rig.file("short", 20_000);
    send_file(&[], &short);
    send_file(&["--rate", "100Mbit"], &rig.file("slow", 2_000_000));
    assert_eq!(fs::read_to_string(&cache).expect("a cache"), known);
    // An invalid cache is replaced.
    fs::write(&cache, "damaged").expect("write");
    let learned = learn(Some("damaged"));
    assert_eq!(learned.lines().count(), known.lines().count());
}

#[test]
fn a_pattern_of_a_user_is_no_comment() {
    let rig = Rig::new();
    let tree = rig.path("tree");
    fs::create_dir(&tree).expect("directory");
    for name in ["#draft#", "text"] {
        fs::write(tree.join(name), name).expect("write");
    }
    let mut command = farwrite();
    command
        .args(["--json", "send", "--dry-run", "--exclude", "#*#"])
        .arg(&tree);
    let listed = Running::spawn(command).end().result();
    assert_eq!(listed["paths"], serde_json::json!(["tree", "tree/text"]));
}

#[test]
fn a_dry_run_lists_long_paths_whole() {
    let rig = Rig::new();
    let path = [&"a".repeat(200)[..], &"b".repeat(200), &"c".repeat(200)].join("/");
    let root = rig.path("tree");
    fs::create_dir_all(root.join(&path)).expect("directories");
    fs::write(root.join(&path).join("end"), "").expect("write");
    let list = |args: &[&str]| {
        let mut command = farwrite();
        command.args(["send", "--dry-run"]).args(args).arg(&root);
        Running::spawn(command).end()
    };
    let want = format!("tree/{path}/end");
    let paths = list(&["--json"]).result()["paths"].take();
    let last = paths.as_array().and_then(|paths| paths.last());
    assert_eq!(last, Some(&want.as_str().into()));
    let shown = list(&[]).stdout;
    assert!(shown.lines().any(|line| line == want), "{shown}");
}

#[test]
fn a_dry_run_says_what_is_then_removed_and_changes_nothing() {
    let rig = Rig::new();
    let root = rig.path("tree");
    fs::create_dir_all(root.join("sub")).expect("directory");
    for name in ["same", "sub/other", "new"] {
        fs::write(root.join(name), "sent").expect("write");
    }
    symlink("same", root.join("soft")).expect("link");
    fs::hard_link(root.join("same"), root.join("same too")).expect("link");
    let receiver = rig.recv(V4, &["--once"]);
    rig.send(receiver.addr, &[], &[&root]).end().assert(0, "");
    receiver.end();
    let there = rig.inbox().join("tree");
    fs::remove_file(there.join("new")).expect("remove");
    fs::write(there.join("sub/other"), "older").expect("write");
    fs::create_dir_all(there.join("gone/deep")).expect("directory");
    for name in ["gone/deep/x", "sub/\x1b[2J", "sub/twin"] {
        fs::write(there.join(name), "old").expect("write");
    }
    fs::hard_link(there.join("sub/other"), there.join("sub/link")).expect("link");
    symlink("/", there.join("gone/out")).expect("link");
    let before = tree(&rig.inbox());

    // An end that does not allow it says so, and --once is not used up.
    let receiver = rig.recv(V4, &["--once"]);
    let asked = ["--dry-run", "--delete", "--json"];
    let refused = rig.send(receiver.addr, &asked, &[&root]);
    refused.end().assert(3, "--allow-delete");
    drop(receiver);

    let receiver = rig.recv(V4, &["--once", "--allow-delete"]);
    let told = rig.send(receiver.addr, &asked, &[&root]).end();
    told.assert(0, "");
    let found = told.result();
    let sent = ["tree", "tree/new", "tree/sub", "tree/sub/other"];
    assert_eq!(found["paths"], serde_json::json!(sent));
    assert_eq!(found["unchanged_files"], 3);
    assert_eq!(found["deleted_files"], 7);
    let listed = [
        "tree/gone/",
        "tree/gone/deep/",
        "tree/gone/deep/x",
        "tree/gone/out",
        "tree/sub/\u{fffd}[2J",
        "tree/sub/link",
        "tree/sub/twin",
    ];
    assert_eq!(found["deleted_paths"], serde_json::json!(listed));
    let limited = ["--dry-run", "--delete", "--max-delete", "6"];
    let limited = rig.send(receiver.addr, &limited, &[&root]).end();
    limited.assert(
        9,
        "7 files and directories are only at the receiver, at most 6",
    );
    for line in [
        "delete tree/gone/deep/\n",
        "\ntree/new\n",
        "to delete: 7; nothing",
    ] {
        assert!(limited.stdout.contains(line), "{line:?}: {limited:?}");
    }
    assert_eq!(tree(&rig.inbox()), before);

    let sent = rig
        .send(receiver.addr, &["--delete", "--json"], &[&root])
        .end();
    assert_eq!(sent.result()["deleted_files"], 7);
    assert_eq!(sent.result()["unchanged_files"], 3);
    let received = receiver.end();
    received.assert(0, "");
    assert!(
        received.stdout.contains("a dry run: 5 files"),
        "{received:?}"
    );
    assert_eq!(tree(&rig.inbox()).len(), 1 + 6);
}

#[test]
fn a_dry_run_that_asks_a_receiver_needs_its_address() {
    let rig = Rig::new();
    let mut command = farwrite();
    command
        .args(["send", "--dry-run", "--delete"])
        .arg(rig.file("a", 1));
    Running::spawn(command).end().assert(2, "name it with --to");
}
