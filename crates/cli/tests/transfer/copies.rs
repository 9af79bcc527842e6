//! `farwrite cp`, with a script in place of ssh: it runs the command here, in another directory. The system
//! tests have a real ssh server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use serde_json::Value;

/// A directory with a script `rsh` and the other machine's home directory `far`.
pub(crate) fn machines(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("copies")
        .join(name);
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("far/in")).expect("a directory");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>{root}/commands\nshift\ncd {root}/far && exec sh -c \"$*\"\n",
        root = root.display()
    );
    let rsh = root.join("rsh");
    fs::write(&rsh, script).expect("a script");
    fs::set_permissions(&rsh, fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::write(root.join("data"), vec![7; 100_000]).expect("a file");
    root
}

/// Runs `farwrite cp` in a directory. Returns the output and the JSON object.
fn copy(root: &Path, words: &[&str]) -> (Output, Value) {
    let rsh = root.join("rsh");
    let output = Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .args(["--json", "cp", "--rsh", rsh.to_str().expect("a plain name")])
        .args(words)
        .current_dir(root)
        .output()
        .expect("the program starts");
    let told = serde_json::from_slice(&output.stdout).expect("one JSON object");
    (output, told)
}

#[test]
fn files_go_there_and_back() {
    let root = machines("there-and-back");
    let far = ["--far-program", env!("CARGO_BIN_EXE_farwrite")];
    // Options may stand between the paths.
    let (output, told) = copy(&root, &[&far[..], &["data", "-v", "host:in"]].concat());
    assert!(output.status.success(), "{told}");
    assert_eq!(
        (&told["command"], &told["result"]["files"]),
        (&"cp".into(), &1.into())
    );
    fs::create_dir(root.join("back")).expect("a directory");
    let (output, told) = copy(&root, &[&far[..], &["host:in/data", "back"]].concat());
    assert!(output.status.success(), "{told}");
    assert_eq!(
        fs::read(root.join("back/data")).expect("a file"),
        vec![7; 100_000]
    );
    let commands = fs::read_to_string(root.join("commands")).expect("the commands");
    assert!(!commands.contains("psk"), "a key is in {commands}");
}

#[test]
fn quiet_copies_say_nothing_and_hints_say_what_to_do() {
    let root = machines("quiet");
    let run = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_farwrite"))
            .args(words)
            .current_dir(&root)
            .output();
        let output = output.expect("the program starts");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).expect("text")
    };
    let program = env!("CARGO_BIN_EXE_farwrite");
    let far = [
        "cp",
        "--rsh",
        "./rsh",
        "--far-program",
        program,
        "--no-sync",
    ];
    let copied = run(&[&["-q"], &far[..], &["data", "host:in"]].concat());
    assert_eq!(copied, "");
    for (words, hint) in [
        (["data", "host:new"], "mkdir -p"),
        (["host:in/*", "."], "patterns are not expanded"),
        (["host:~ann/x", "."], "~USER is not expanded"),
        (["a:x", "b:"], "ssh HOST farwrite cp"),
        (
            ["-v", "data"],
            "data: name a path to copy and a destination",
        ),
    ] {
        let told = run(&[&far[..], &words].concat());
        assert!(told.contains(hint), "{told}");
    }
    let told = run(&["rsh", "-p", "2222", "host", "true"]);
    assert!(told.contains("--rsh 'ssh -p 2222'"), "{told}");
}

#[test]
fn write_permissions_of_the_group_can_be_kept() {
    let root = machines("umask");
    let far = ["--far-program", env!("CARGO_BIN_EXE_farwrite"), "--no-sync"];
    let data = root.join("data");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o664)).expect("a mode");
    for (umask, mode) in [("002", 0o664), ("027", 0o640)] {
        let words = [&far[..], &["--umask", umask, "data", "host:in"]].concat();
        let (output, told) = copy(&root, &words);
        assert!(output.status.success(), "{told}");
        let arrived = fs::metadata(root.join("far/in/data")).expect("a file");
        assert_eq!(arrived.permissions().mode() & 0o777, mode);
    }
    let (_, told) = copy(
        &root,
        &[&far[..], &["--umask", "8", "data", "host:in"]].concat(),
    );
    assert_eq!(told["error"]["kind"], "mismatch", "{told}");
}

/// Replaces the first lines of the script that stands for ssh.
fn begin(root: &Path, lines: &str) {
    let rsh = root.join("rsh");
    let script = fs::read_to_string(&rsh).expect("the script");
    let script = script.replacen("#!/bin/sh\n", &format!("#!/bin/sh\n{lines}\n"), 1);
    fs::write(&rsh, script).expect("written");
}

#[test]
fn text_of_the_far_shell_without_a_newline_is_passed_over() {
    let root = machines("title");
    begin(&root, r"printf 'hello\n\033]0;a title\007'");
    let far = ["--far-program", env!("CARGO_BIN_EXE_farwrite"), "--no-sync"];
    let (output, told) = copy(&root, &[&far[..], &["data", "host:in"]].concat());
    assert!(output.status.success(), "{told}");
}

#[test]
fn a_far_shell_that_never_answers_is_given_up() {
    let root = machines("silent");
    begin(&root, "echo $$ >pid; printf 'a title'; exec sleep 1000");
    let sleeps = || {
        let pid = fs::read_to_string(root.join("pid")).expect("the script has begun");
        Path::new("/proc").join(pid.trim()).exists()
    };
    let (output, told) = copy(&root, &["--timeout", "3s", "data", "host:in"]);
    assert_eq!(output.status.code(), Some(5), "{told}");
    let line = told["error"]["message"].as_str().expect("a text");
    assert!(line.contains("has not answered within 3 s"), "{line}");
    assert!(!sleeps(), "ssh is left");
    fs::remove_file(root.join("pid")).expect("removed");

    let mut waits = Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .args(["cp", "--rsh", "./rsh", "host:data", "."])
        .current_dir(&root)
        .spawn()
        .expect("the program starts");
    while fs::read_to_string(root.join("pid")).is_ok_and(|pid| !pid.ends_with('\n'))
        || !root.join("pid").exists()
    {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&waits);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(waits.wait().expect("its end").code(), Some(130));
    assert!(!sleeps(), "ssh is left");
}

/// The options of a tree, in both directions. The file of patterns is on this machine.
#[test]
fn what_is_copied_of_a_tree_can_be_chosen() {
    let root = machines("chosen");
    let far = ["--far-program", env!("CARGO_BIN_EXE_farwrite"), "--no-sync"];
    fs::write(root.join("patterns"), "# objects\n*.o\n!keep.o\n\n").expect("written");
    let tree = |home: &Path, names: &[&str]| {
        fs::create_dir_all(home.join("tree")).expect("a directory");
        for name in names {
            fs::write(home.join("tree").join(name), name).expect("written");
        }
    };
    let names = ["a.o", "b.tmp", "c.tmp", "d", "keep.o"];
    tree(&root, &names);
    let chosen = ["--exclude-from", "patterns", "--exclude", "*.tmp"];
    let chosen = [&chosen[..], &["--include", "c.tmp"]].concat();
    let mut words = [&far[..], &chosen, &["tree", "host:in"]].concat();
    let (_, told) = copy(&root, &[&words[..], &["--dry-run"]].concat());
    assert_eq!(told["result"]["files"], 3, "{told}");
    assert!(crate::rig::list(&root.join("far/in")).is_empty());
    let (output, told) = copy(&root, &words);
    assert!(output.status.success(), "{told}");
    let kept = ["c.tmp", "d", "keep.o"];
    assert_eq!(crate::rig::list(&root.join("far/in/tree")), kept);
    tree(&root.join("far"), &names);
    fs::create_dir(root.join("back")).expect("a directory");
    words.truncate(words.len() - 2);
    words.extend(["host:tree", "back"]);
    let (output, told) = copy(&root, &words);
    assert!(output.status.success(), "{told}");
    assert_eq!(crate::rig::list(&root.join("back/tree")), kept);
    fs::remove_file(root.join("far/tree/d")).expect("removed");
    for (most, left) in [("0", 5 + 1), ("1", 5)] {
        tree(&root.join("back"), &["d", "a.o", "b.tmp"]);
        fs::write(root.join("far/tree/new"), "new").expect("written");
        let words = [&far[..], &["--delete", "--max-delete", most]].concat();
        copy(&root, &[&words[..], &["host:tree", "back"]].concat());
        assert_eq!(crate::rig::list(&root.join("back/tree")).len(), left);
    }
}

#[test]
fn a_dry_run_lists_what_a_copy_would_remove_in_both_directions() {
    let root = machines("dry");
    let far = ["--far-program", env!("CARGO_BIN_EXE_farwrite"), "--delete"];
    for (home, names) in [("far", &["a", "b", "c"][..]), (".", &["c", "d"])] {
        fs::create_dir_all(root.join(home).join("tree")).expect("a directory");
        for name in names {
            fs::write(root.join(home).join("tree").join(name), name).expect("written");
        }
        // The file at both ends is the same one: dry runs compare times.
        let same = fs::File::open(root.join(home).join("tree/c")).expect("a file");
        same.set_modified(SystemTime::UNIX_EPOCH).expect("a time");
    }
    let there = root.join("far/tree");
    let dry = [&far[..], &["--dry-run"]].concat();
    for (paths, removed) in [
        (["tree", "host:"], &["tree/a", "tree/b"][..]),
        (["host:tree", "."], &["tree/d"]),
    ] {
        let before = [
            crate::rig::tree(&root.join("tree")),
            crate::rig::tree(&there),
        ];
        let (output, told) = copy(&root, &[&dry[..], &paths].concat());
        assert!(output.status.success(), "{told}");
        assert_eq!(told["result"]["deleted_paths"], serde_json::json!(removed));
        let (output, told) = copy(&root, &[&dry[..], &["--max-delete", "0"], &paths].concat());
        let line = told["error"]["message"].to_string();
        assert!(
            !output.status.success() && line.contains("at most 0 may be removed"),
            "{line}"
        );
        let after = [
            crate::rig::tree(&root.join("tree")),
            crate::rig::tree(&there),
        ];
        assert_eq!(before, after);
    }
    // Without --delete, a copy from there is listed too.
    let (_, told) = copy(
        &root,
        &[&far[..2], &["--dry-run", "host:tree", "."]].concat(),
    );
    assert_eq!(told["result"]["files"], 2, "{told}");
    assert!(told["result"]["deleted_paths"].is_null(), "{told}");
    let (output, told) = copy(&root, &[&far[..], &["tree", "host:"]].concat());
    assert!(output.status.success(), "{told}");
    assert_eq!(crate::rig::list(&there), ["c", "d"]);
}

/// A program there that sends the files, as one of an older version does.
#[test]
fn the_other_end_changes_nothing_in_a_dry_run() {
    let root = machines("not-dry");
    fs::create_dir(root.join("back")).expect("a directory");
    fs::write(root.join("far/file"), "file").expect("written");
    let evil = root.join("evil");
    let script = format!(
        "#!/bin/sh\nfor word; do shift; case $word in --dry-run) ;; *) set -- \"$@\" \"$word\" ;; esac; \
         done\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_farwrite")
    );
    fs::write(&evil, script).expect("a script");
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).expect("a mode");
    let far = ["--far-program", evil.to_str().expect("plain"), "--dry-run"];
    let (output, told) = copy(&root, &[&far[..], &["host:file", "back"]].concat());
    assert_eq!(output.status.code(), Some(3), "{told}");
    let line = told["error"]["message"].to_string();
    assert!(line.contains("and not only list them"), "{line}");
    assert!(crate::rig::list(&root.join("back")).is_empty());
}

#[test]
fn the_program_can_be_copied_first() {
    let root = machines("bootstrap");
    let (output, told) = copy(&root, &["--bootstrap", "data", "host:in"]);
    assert!(output.status.success(), "{told}");
    assert!(root.join("far/in/data").exists());
    let cache = root.join("far/.cache/farwrite");
    let copied: Vec<_> = fs::read_dir(cache)
        .expect("a directory")
        .flatten()
        .collect();
    assert_eq!(copied.len(), 1, "{copied:?}");
    let mode = copied[0].metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // A program that is cut off replaces nothing, and an interrupt is named as such.
    let before = fs::metadata(copied[0].path()).expect("a file").len();
    for (script, code) in [
        ("head -c 100000 | sh -c \"$*\"", 5),
        ("kill -INT $PPID; exit 255", 130),
    ] {
        let script = format!("#!/bin/sh\nshift\ncd {}/far\n{script}\n", root.display());
        fs::write(root.join("rsh"), script).expect("a script");
        let (output, told) = copy(&root, &["--bootstrap", "data", "host:in"]);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert_eq!(crate::rig::list(&root.join("far/.cache/farwrite")).len(), 1);
        let after = fs::metadata(copied[0].path()).expect("a file").len();
        assert_eq!(after, before);
    }
}

#[test]
fn what_cannot_be_copied_has_its_reason() {
    let root = machines("refused");
    let far = env!("CARGO_BIN_EXE_farwrite");
    for (words, code, reason) in [
        (&["data", "."][..], 2, "no path is on another machine"),
        (&["data", "a:b", "c:d"], 2, "not both"),
        (
            &["--", "data", "-oProxyCommand=x:in"],
            2,
            "cannot begin with",
        ),
        (&["a:b", "c:d", "."], 2, "several machines"),
        (&["--scheme", "none", "data", "host:in"], 2, "none"),
        (
            &["--far-program", far, "data", "host:none"],
            9,
            "cannot use its files or directory",
        ),
        (
            &["--far-program", "/none", "data", "host:in"],
            5,
            "--bootstrap",
        ),
        (
            &["--far-program", "true", "data", "host:in"],
            5,
            "ended before all data had arrived",
        ),
    ] {
        let (output, told) = copy(&root, words);
        let line = told["error"]["message"].to_string();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
        assert!(line.contains(reason), "{words:?}: {line}");
    }
}

/// The data have gone directly until then, so they do not go through ssh.
#[test]
fn a_receiver_that_is_killed_is_named() {
    let root = machines("killed");
    fs::write(root.join("data"), vec![7; 30_000_000]).expect("a file");
    let script = format!(
        "#!/bin/sh\nexec 3<&0\n{} \"$@\" <&3 & far=$!\nwhile kill -0 $far && ! [ \"$(find in -name '.*' -size +1000k)\" ]; do \
         sleep 0.05; done\nsleep 0.2; kill -9 $far; wait $far\n",
        env!("CARGO_BIN_EXE_farwrite")
    );
    let far = root.join("killed");
    fs::write(&far, script).expect("a script");
    fs::set_permissions(&far, fs::Permissions::from_mode(0o755)).expect("a mode");
    let far = ["--far-program", far.to_str().expect("plain")];
    let (output, told) = copy(
        &root,
        &[&far[..], &["--rate", "80Mbit", "data", "host:in"]].concat(),
    );
    assert_eq!(output.status.code(), Some(5), "{told}");
    let line = told["error"]["message"].to_string();
    assert!(line.contains("was killed"), "{line}");
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert!(!warnings.contains("through ssh"), "{warnings}");
}

#[test]
fn the_other_end_writes_only_what_was_asked_for() {
    let root = machines("not-asked");
    fs::create_dir(root.join("back")).expect("a directory");
    for name in [".profile", "wanted"] {
        fs::write(root.join("far").join(name), name).expect("a file");
    }
    // A program there that sends another file too.
    let evil = root.join("evil");
    let far = env!("CARGO_BIN_EXE_farwrite");
    let script = format!("#!/bin/sh\nexec {far} \"$@\" .profile\n");
    fs::write(&evil, script).expect("a script");
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).expect("a mode");
    let evil = ["--far-program", evil.to_str().expect("plain")];
    let (output, told) = copy(&root, &[&evil[..], &["host:wanted", "back"]].concat());
    assert_eq!(output.status.code(), Some(3), "{told}");
    let line = told["error"]["message"].to_string();
    assert!(line.contains("was not asked for"), "{line}");
    assert_eq!(
        fs::read_dir(root.join("back"))
            .expect("it is there")
            .count(),
        0
    );
    // The contents of a directory may have any names.
    let honest = ["--far-program", far];
    let (output, told) = copy(&root, &[&honest[..], &["host:.", "back"]].concat());
    assert!(output.status.success(), "{told}");
    assert!(root.join("back/wanted").exists());
}

/// A program there that sends the contents of `box` instead of what it was asked for, and forgets a limit.
#[test]
fn the_other_end_removes_only_what_was_asked_for() {
    let root = machines("not-removed");
    for directory in ["far/box/tree", "back/tree"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    for name in ["back/mine", "back/tree/a", "back/tree/b"] {
        fs::write(root.join(name), name).expect("a file");
    }
    let evil = root.join("evil");
    let script = format!(
        "#!/bin/sh\nfor word; do shift; case $word in --max-delete=*) ;; tree) set -- \"$@\" box/. ;; \
         *) set -- \"$@\" \"$word\" ;; esac; done\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_farwrite")
    );
    fs::write(&evil, script).expect("a script");
    fs::set_permissions(&evil, fs::Permissions::from_mode(0o755)).expect("a mode");
    let far = ["--far-program", evil.to_str().expect("plain"), "--delete"];
    let (output, told) = copy(&root, &[&far[..], &["host:tree", "back"]].concat());
    assert_eq!(output.status.code(), Some(3), "{told}");
    let line = told["error"]["message"].to_string();
    assert!(line.contains("beside those that were asked for"), "{line}");
    let left = || ["back", "back/tree"].map(|it| crate::rig::list(&root.join(it)));
    let all = [["mine", "tree"], ["a", "b"]];
    assert_eq!(left(), all);
    // The limit of this end holds.
    let limited = ["--max-delete", "1", "host:box/tree", "back"];
    let (output, told) = copy(&root, &[&far[..], &limited].concat());
    assert!(!output.status.success(), "{told}");
    assert_eq!(left(), all);
    let (output, told) = copy(&root, &[&far[..], &["host:box/tree", "back"]].concat());
    assert!(output.status.success(), "{told}");
    assert_eq!(left(), [&all[0][..], &[]]);
}
