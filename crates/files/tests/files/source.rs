//! The sender's end: which files are not sent, and which files change during a transfer.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use farwrite_files::{FileRead, Message, ScanError, ScanOptions, Source, Special, SpecialKind};
use rustix::fs::CWD;

use crate::place::{Place, hand_over, new_sink, scan, transfer};

#[test]
fn what_cannot_be_sent_is_refused_by_name() {
    let from = Place::new();
    from.write("a/same", "1");
    from.write("b/same", "2");
    let twice = [from.path("a/same"), from.path("b/same/../same")];
    let error = Source::scan(&twice[..1], &ScanOptions::default());
    assert!(error.is_ok());
    let error = Source::scan(
        &[from.path("a/same"), from.path("b/same")],
        &ScanOptions::default(),
    );
    let error = error.expect_err("one name for two");
    assert!(matches!(error, ScanError::SameName { .. }), "{error}");
    let error = Source::scan(
        &[from.path("a/."), from.path("b/.")],
        &ScanOptions::default(),
    );
    let error = error.expect_err("one name for two");
    assert!(error.to_string().contains("same"), "{error}");
    let error =
        Source::scan(&[from.path("missing")], &ScanOptions::default()).expect_err("not there");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn pipes_are_reported_or_left_out() {
    let from = Place::new();
    from.write("tree/file", "file");
    symlink("file", from.path("tree/link")).expect("link");
    let pipe = from.path("tree/sub/pipe");
    fs::create_dir(from.path("tree/sub")).expect("directory");
    rustix::fs::mkfifoat(CWD, &pipe, rustix::fs::Mode::RUSR).expect("pipe");
    let source = scan(&[from.path("tree")]);
    assert_eq!(source.manifest().files(), 2, "the file and the link");
    let [left_out] = source.unreadable() else {
        panic!("{:?}", source.unreadable());
    };
    assert_eq!(left_out.path, Path::new("tree/sub/pipe"));
    assert_eq!(left_out.reason(), "a named pipe is not sent");

    let source = Source::scan(&[from.path("tree")], &skipping()).expect("the rest");
    assert_eq!(source.skipped(), [pipe.as_path()]);
    assert!(source.unreadable().is_empty());

    let error = Source::scan(&[pipe], &ScanOptions::default()).expect_err("only a pipe");
    let what = SpecialKind::Pipe;
    assert!(
        matches!(&error, ScanError::Special { what: it, .. } if *it == what),
        "{error}"
    );
}

fn skipping() -> ScanOptions {
    ScanOptions {
        special: Special::Skip,
        ..ScanOptions::default()
    }
}

/// Returns the source's message about one file that changes after the scan. Two other files stay
/// whole.
fn after(change: impl FnOnce(&Place)) -> String {
    let from = Place::new();
    for name in ["a", "b", "c"] {
        from.write(name, name.repeat(1000));
    }
    let to = Place::new();
    let mut source = scan(&["a", "b", "c"].map(|name| from.path(name)));
    let mut sink = new_sink(&to, source.manifest());
    let mut segment = [0xee; 1500];
    // The first half of `b` has been read.
    assert_eq!(source.read(&mut segment), 1500);
    hand_over(&mut source, &mut sink);
    sink.write(&segment).expect("write");
    change(&from);
    transfer(&mut source, &mut sink, 700);
    let verdicts: Vec<_> = std::iter::from_fn(|| sink.poll_verdict()).collect();
    let failed: Vec<_> = verdicts
        .iter()
        .map(|verdict| verdict.failure.is_some())
        .collect();
    assert_eq!(failed, [false, true, false], "{verdicts:?}");
    sink.finish().expect("all ended");
    assert_eq!(to.list().keys().collect::<Vec<_>>(), ["a", "c"]);
    let failure = verdicts[1].failure.as_ref().expect("of b");
    failure.to_string()
}

#[test]
fn file_that_changes_while_being_read_is_given_up() {
    let shrunk = after(|from| {
        from.write("b", "b".repeat(600));
    });
    assert!(shrunk.contains("1000 bytes became 600"), "{shrunk}");
    let written = after(|from| {
        from.write("b", "B".repeat(1000));
    });
    assert!(written.contains("written to"), "{written}");
}

/// A log is written to while it is sent.
#[test]
fn file_that_grows_is_sent_as_it_was_listed() {
    let (from, to) = (Place::new(), Place::new());
    for (name, bytes) in [("a", 1000), ("b", 1000), ("c", 0), ("d", 1000)] {
        from.write(name, name.repeat(bytes));
    }
    let append = |name: &str| {
        let path = from.path(name);
        let mut file = fs::File::options().append(true).open(path).expect("open");
        file.write_all(b"more").expect("append");
    };
    let mut source = scan(&["a", "b", "c", "d"].map(|name| from.path(name)));
    let mut sink = new_sink(&to, source.manifest());
    let mut segment = [0xee; 1500];
    assert_eq!(source.read(&mut segment), 1500);
    hand_over(&mut source, &mut sink);
    sink.write(&segment).expect("write");
    assert!(source.warnings().is_empty());
    // One before it is opened, one in the middle, and one that was empty.
    ["b", "c", "d"].into_iter().for_each(append);
    transfer(&mut source, &mut sink, 700);
    assert_eq!(sink.finish().expect("all ended").verified_files, 4);
    for (name, bytes) in [("a", 1000), ("b", 1000), ("c", 0), ("d", 1000)] {
        let arrived = fs::read_to_string(to.path(name)).expect("read");
        assert_eq!(arrived, name.repeat(bytes));
    }
    let [warning] = &source.warnings()[..] else {
        panic!("{:?}", source.warnings())
    };
    assert!(warning.starts_with("3 files grew"), "{warning}");
    assert!(warning.contains("/b\""), "{warning}");
}

/// What the other end will not have causes one warning with counts.
#[test]
fn what_is_not_sent_is_counted() {
    let from = Place::new();
    for name in ["t/a", "t/sub/b", "t/c"] {
        from.write(name, name);
    }
    fs::hard_link(from.path("t/a"), from.path("t/sub/a")).expect("link");
    let with = |path: &str, name: &str, value: &[u8]| {
        let path = from.path(path);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(path, name, value, flags).is_ok()
    };
    if !with("t/c", "user.note", b"x") || !with("t/sub", "user.note", b"y") {
        eprintln!("skipped: this file system has no extended attributes");
        return;
    }
    let mut source = scan(&[from.path("t")]);
    while source.read(&mut [0; 100]) > 0 {}
    let warnings = source.warnings();
    assert_eq!(
        warnings,
        ["not sent: extended attributes of 2 files and directories"]
    );
    // Version 2, then the entries of owner, one user, group, mask and others, each with its
    // permissions and its number.
    let none = u32::MAX.to_le_bytes();
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, number) in [
        (0x01_u16, 6_u16, none),
        (0x02, 4, 1_u32.to_le_bytes()),
        (0x04, 4, none),
        (0x10, 4, none),
        (0x20, 0, none),
    ] {
        list.extend([tag, permissions].map(u16::to_le_bytes).concat());
        list.extend(number);
    }
    if with("t/a", "system.posix_acl_access", &list) {
        let mut source = scan(&[from.path("t/a")]);
        while source.read(&mut [0; 100]) > 0 {}
        let warnings = source.warnings().concat();
        let want = "access control lists of 1 file or directory";
        assert!(warnings.contains(want), "{warnings}");
    }
}

/// Runs a test as a user who may not read everything. Root may read everything.
fn as_nobody(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65534);
            if rustix::process::geteuid().is_root() {
                // Of this thread only.
                rustix::thread::set_thread_uid(nobody).expect("root may");
            }
            test();
        });
    });
}

#[test]
fn what_cannot_be_listed_does_not_stop_the_rest() {
    let from = Place::new();
    for name in ["t/a", "t/no/hidden", "t/z", "t/names/only"] {
        from.write(name, name);
    }
    let mode = |path: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(from.path(path), permissions).expect("chmod");
    };
    mode("", 0o755);
    mode("t/no", 0o000);
    mode("t/names", 0o444);
    as_nobody(|| {
        let to = Place::new();
        let mut source = scan(&[from.path("t")]);
        let unreadable: Vec<_> = source.unreadable().iter().collect();
        let paths: Vec<_> = unreadable.iter().map(|it| it.path.to_str()).collect();
        assert_eq!(paths, [Some("t/names"), Some("t/no")]);
        for it in unreadable {
            let text = it.error.to_string();
            assert!(text.contains("Permission denied"), "{text}");
        }
        let mut sink = new_sink(&to, source.manifest());
        transfer(&mut source, &mut sink, 700);
        assert_eq!(sink.finish().expect("all ended").verified_files, 2);
        assert!(to.path("t/a").exists() && to.path("t/z").exists());
        // A path that the user named must be readable.
        let error = Source::scan(&[from.path("t/no")], &ScanOptions::default());
        let error = error.expect_err("not readable").to_string();
        assert!(error.contains("/no\""), "{error}");
    });
    mode("t/no", 0o755);
    mode("t/names", 0o755);
}

/// Replaces a file with another one of the same length and modification time.
fn put_twin(path: &Path) {
    let time = fs::metadata(path).and_then(|it| it.modified());
    let twin = path.with_file_name("twin");
    fs::write(&twin, "c".repeat(10)).expect("write");
    let file = fs::File::options().write(true).open(&twin).expect("open");
    file.set_modified(time.expect("time")).expect("set time");
    fs::rename(twin, path).expect("rename");
}

#[test]
fn file_that_is_gone_when_its_turn_comes_is_given_up() {
    let outside = Place::new();
    outside.write("secret", "s".repeat(10));
    type Change = Box<dyn Fn(&Path)>;
    let secret = outside.path("secret");
    let link = move |path: &Path| {
        fs::remove_file(path).expect("remove");
        symlink(&secret, path).expect("link");
    };
    let named_link = link.clone();
    let changes: [(&str, &str, Change); 5] = [
        (
            "b",
            "No such file",
            Box::new(|path| fs::remove_file(path).expect("remove")),
        ),
        // A path that the user named may become a link, but only to the same file.
        (
            "b",
            "another file has taken its place",
            Box::new(named_link),
        ),
        ("t/b", "symbolic link", Box::new(link)),
        (
            "t/b",
            "another file has taken its place",
            Box::new(put_twin),
        ),
        (
            "b",
            "no file any more",
            Box::new(|path| {
                fs::remove_file(path).expect("remove");
                rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR).expect("pipe");
            }),
        ),
    ];
    for (name, why, change) in changes {
        let from = Place::new();
        from.write("a", "a");
        let path = from.write(name, "b".repeat(10));
        from.write("z", "z");
        let tops = ["a", name.split('/').next().expect("first"), "z"];
        let mut source = scan(&tops.map(|name| from.path(name)));
        change(&path);
        let mut all = [0xee; 20];
        assert_eq!(source.read(&mut all), 2);
        assert_eq!(all[..2], *b"az", "the next file follows directly");
        let reads: Vec<FileRead> = std::iter::from_fn(|| source.poll_file()).collect();
        let [a, b, z] = &reads[..] else {
            panic!("{reads:?}")
        };
        assert!(a.result.is_ok() && z.result.is_ok(), "{reads:?}");
        let error = b.result.as_ref().expect_err("changed").to_string();
        assert!(error.contains(why), "want {why}: {error}");
        let Message::FileAbandoned {
            index,
            sent_bytes: 0,
            ..
        } = b.message()
        else {
            panic!("{b:?}")
        };
        assert_eq!(index, b.index);
    }
}

/// A directory of the tree is replaced by another one with the same appearance, after the scan.
#[test]
fn directory_that_is_swapped_after_the_scan_is_not_entered() {
    type Swap = fn(&Place);
    let swaps: [(&str, Swap); 2] = [
        ("cannot read", |from| {
            symlink(from.path("other"), from.path("t/sub")).expect("link");
        }),
        ("another file has taken its place", |from| {
            fs::rename(from.path("other"), from.path("t/sub")).expect("rename");
        }),
    ];
    for (why, swap) in swaps {
        let from = Place::new();
        from.write("t/a", "a");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for (path, text) in [("t/sub/file", "public"), ("other/file", "secret")] {
            let path = from.write(path, text);
            let file = fs::File::options().write(true).open(path).expect("open");
            file.set_modified(time).expect("set time");
        }
        let mut source = scan(&[from.path("t")]);
        fs::rename(from.path("t/sub"), from.path("former")).expect("rename");
        swap(&from);
        let mut all = [0xee; 20];
        assert_eq!(source.read(&mut all), 1);
        let reads: Vec<FileRead> = std::iter::from_fn(|| source.poll_file()).collect();
        let error = reads[1].result.as_ref().expect_err("swapped").to_string();
        assert!(error.contains(why) && error.contains("t/sub"), "{error}");
    }
}

/// A directory and a link are exchanged repeatedly while a tree is scanned.
#[test]
fn directory_that_is_swapped_during_the_scan_is_not_entered() {
    let from = Place::in_memory();
    from.write("t/sub/public", "public");
    from.write("other/secret", "secret");
    symlink(from.path("other"), from.path("link")).expect("link");
    // The scan looks at these files after it has looked at the directory and before it enters it.
    // This gives time for an exchange.
    for index in 0..300 {
        from.write(&format!("t/then {index}"), "");
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (link, sub) = (from.path("link"), from.path("t/sub"));
            while !done.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &link, CWD, &sub, exchange).expect("exchange");
            }
        });
        let (mut listed, mut followed) = (0, 0);
        for _ in 0..300 {
            // The scan fails if it sees the link, or if it enters the directory and finds another
            // one.
            if let Ok(source) = Source::scan(&[from.path("t")], &skipping()) {
                for entry in source.manifest().entries() {
                    followed += u32::from(entry.name == b"secret");
                    listed += u32::from(entry.name == b"public");
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(followed, 0, "the link was followed");
        assert!(listed > 0, "the directory was never seen");
    });
}

#[test]
fn file_that_holds_more_than_it_says_is_given_up() {
    let from = Place::new();
    from.write("a", "a");
    // Their metadata have length 0, but they have contents.
    let paths = [
        from.path("a"),
        "/proc/self/status".into(),
        "/proc/version".into(),
    ];
    let mut source = scan(&paths);
    let mut all = [0xee; 20];
    assert_eq!(source.read(&mut all), 1);
    let reads: Vec<FileRead> = std::iter::from_fn(|| source.poll_file()).collect();
    assert!(reads[0].result.is_ok());
    for (read, path) in reads[1..].iter().zip(&paths[1..]) {
        let error = read.result.as_ref().expect_err("not empty").to_string();
        let text = format!("{path:?} holds more than the 0 bytes it said");
        assert!(error.contains(&text), "{error}");
    }
    assert_eq!(reads.len(), 3);
}

#[test]
fn what_cannot_be_listed_does_not_keep_the_rest_back() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let from = Place::new();
    from.write("t/a", "a");
    from.write("t/z", "z");
    // A path of more than 4095 bytes, which no call takes as a whole.
    let name = "d".repeat(255);
    let mut around = openat(CWD, from.path("t"), OFlags::RDONLY, Mode::empty()).expect("open");
    for _ in 0..17 {
        mkdirat(&around, &name, Mode::RWXU).expect("directory");
        around = openat(&around, &name, OFlags::RDONLY, Mode::empty()).expect("open");
    }
    let paths = ["missing", "t", "gone"].map(|name| from.path(name));
    let source = scan(&paths);
    let left_out: Vec<_> = source.unreadable().iter().collect();
    assert_eq!(left_out.len(), 3, "{left_out:?}");
    assert!(left_out[0].reason().contains("bytes"), "{left_out:?}");
    assert_eq!(left_out[1].path.to_str(), Some("missing"));
    assert!(
        left_out[2].reason().contains("No such file"),
        "{left_out:?}"
    );
    assert_eq!(source.manifest().files(), 2);
    assert_eq!(source.delete(None), None);
    for paths in [&paths[..1], &[from.path("missing"), from.path("gone")]] {
        let error = Source::scan(paths, &ScanOptions::default()).expect_err("nothing is there");
        assert!(error.to_string().contains("missing"), "{error}");
    }
}

#[test]
fn deep_and_wide_trees_need_few_open_files() {
    let from = Place::in_memory();
    for wide in 0..300 {
        from.write(&format!("t/{wide}/a/b/c/d/e/file"), "x");
    }
    let mut source = scan(&[from.path("t")]);
    let mut out = [0; 100];
    let mut read = 0;
    while read < 300 {
        read += source.read(&mut out);
        let open = fs::read_dir("/proc/self/fd").expect("proc").count();
        assert!(open < 400, "{open} open files");
    }
    let files = std::iter::from_fn(|| source.poll_file());
    assert_eq!(files.filter(|read| read.result.is_ok()).count(), 300);
}
