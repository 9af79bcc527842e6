//! Files that a user names by mistake, or that have no end.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::text;

const PLAN: &str = "[topology.star]\nshape = \"star\"\nhosts = 2\n\
                    cable = { rate = \"1Gbit\", delay = \"1us\" }\n[workload.w]\n";

/// The line of the error, and the exit code, of a command in a directory with some files.
fn refusal(command: &str, stdin: Stdio) -> (String, Option<i32>) {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        fs::write(directory.path().join(name), text).expect("written");
    };
    for (name, bytes) in [("long", 257 << 20), ("zeros", 1 << 20)] {
        let file = File::create(directory.path().join(name)).expect("a file");
        file.set_len(bytes).expect("a length");
    }
    write("flows.toml", &format!("{PLAN}file = \"/dev/zero\"\n"));
    write("long.toml", &format!("{PLAN}file = \"long\"\n"));
    let sizes = "pattern = \"poisson\"\nload = 0.5\nflows = 1\nsizes = \"/dev/zero\"\n";
    write("sizes.toml", &format!("{PLAN}{sizes}"));
    write(
        "plan.toml",
        &format!("{PLAN}pattern = \"permutation\"\nsize = \"1kB\"\n"),
    );
    let output = Command::new(env!("CARGO_BIN_EXE_farwrite"))
        .current_dir(directory.path())
        .args(command.split_whitespace())
        .stdin(stdin)
        .output()
        .expect("the program starts");
    (text(&output.stderr).trim().to_owned(), output.status.code())
}

#[test]
fn inputs_without_an_end_are_refused() {
    const DEVICE: &str = "/dev/zero: this is a device; want a regular file or a pipe";
    for (command, code, want) in [
        ("sim /dev/zero", 6, DEVICE),
        ("sim flows.toml", 2, DEVICE),
        ("sim sizes.toml", 2, DEVICE),
        (
            "sim long",
            6,
            "long: it has more than 16 MiB: is this the right file?",
        ),
        (
            "sim long.toml",
            2,
            "long: it has more than 256 MiB: is this the right file?",
        ),
        ("sim plan.toml --compare /dev/zero", 6, DEVICE),
        ("sim --flows /dev/zero --topology /dev/zero", 2, DEVICE),
        ("plan --size 1MB --link /dev/zero", 6, DEVICE),
        (
            "plan --size 1MB --link .",
            6,
            "reading .: this is a directory; want a regular file or a pipe",
        ),
        (
            "plan --size 1MB --link zeros",
            6,
            "zeros: it has more than 64 KiB: is this the right file?",
        ),
        ("send --to 127.0.0.1:9 --link /dev/zero zeros", 6, DEVICE),
        ("trace /dev/zero", 6, DEVICE),
        (
            "trace zeros",
            6,
            "zeros, line 1: this is no event of a trace",
        ),
        ("codes encode --in /dev/zero --out parity", 6, DEVICE),
        (
            "codes decode --in /dev/zero --parity zeros --out data",
            6,
            DEVICE,
        ),
    ] {
        let (error, exit) = refusal(command, Stdio::null());
        assert!(error.contains(want), "{command}: {error}");
        assert_eq!(exit, Some(code), "{command}: {error}");
        assert!(error.len() < 5000, "{command}: {} bytes", error.len());
    }
}

#[test]
fn a_pipe_is_read_up_to_the_limit() {
    for (command, code, want) in [
        ("sim /dev/stdin", 6, "/dev/stdin: it has more than 16 MiB"),
        (
            "plan --size 1MB --link /dev/stdin",
            6,
            "/dev/stdin: it has more than 64 KiB",
        ),
        (
            "trace /dev/stdin",
            6,
            "/dev/stdin, line 1: this is no event of a trace",
        ),
    ] {
        let mut endless = Command::new("cat");
        let endless = endless.arg("/dev/zero").stdout(Stdio::piped());
        let mut endless = endless.spawn().expect("it starts");
        let pipe = endless.stdout.take().expect("a pipe");
        let (error, exit) = refusal(command, pipe.into());
        assert!(error.contains(want), "{command}: {error}");
        assert_eq!(exit, Some(code), "{command}: {error}");
        // The pipe has lost its reader.
        let _ = endless.wait();
    }
}
