//! Compiles C programs against the headers and the static library, with the address sanitizer and that
//! of undefined behaviour, and runs them.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use tempfile::TempDir;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// The static library of this build: the newest one, beside this program.
fn library() -> PathBuf {
    let program = env::current_exe().expect("the path of this program");
    let folder = program.parent().expect("a folder");
    let entries = fs::read_dir(folder).expect("the folder of this program");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let libraries = paths.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libfarwrite_capi-") && name.ends_with(".a")
    });
    let age = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    libraries.max_by_key(age).expect("the static library")
}

/// Whether there is a C compiler. In continuous integration there must be one.
fn has_compiler() -> bool {
    let found = Command::new("cc").arg("--version").output().is_ok();
    if !found {
        assert_ne!(env::var("CI").as_deref(), Ok("true"), "no C compiler");
        eprintln!("skipped: NO C COMPILER (cc), the C interface is not tested");
    }
    found
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A command that runs a program and ends it if it hangs.
fn limited() -> Command {
    let mut command = Command::new("timeout");
    command.arg("60");
    command
}

/// Where compiled programs are, until this program ends.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| tempfile::tempdir().expect("a folder"))
        .path()
}

/// Compiles a program, given by its path from the folder of this crate.
fn compile(source: &str) -> PathBuf {
    let source = Path::new(CRATE).join(source);
    let program = folder().join(source.file_stem().expect("a name"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g"]);
    compiler.args(["-Wall", "-Wextra", "-Werror"]);
    compiler.args([
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
    ]);
    compiler.arg("-I").arg(Path::new(CRATE).join("include"));
    compiler.args([&source, &library()]);
    compiler
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program);
    run(&mut compiler);
    program
}

#[test]
fn every_wrong_argument_is_an_error() {
    if !has_compiler() {
        return;
    }
    let output = run(limited().arg(compile("tests/c/misuse.c")));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("0 failures"), "{text}");
}

/// Runs both ends of a program. The first end prints its TCP port; the second gets it with `-p`, and
/// the host as its last argument. Returns what they print.
fn run_ends(program: &Path, first: &[&str], second: &[&str]) -> [String; 2] {
    let end = |arguments: &[&str]| {
        let mut command = limited();
        command.arg(program).args(["-d", "udp:127.0.0.1"]);
        command.args(arguments);
        command.stdout(Stdio::piped());
        command
    };
    let mut server = end(&[&["-p", "0"], first].concat())
        .spawn()
        .expect("the first end");
    let mut lines = BufReader::new(server.stdout.take().expect("its output"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    let port = line.rsplit(' ').next().expect("a port").trim();
    let client = run(&mut end(&[&["-p", port], second, &["127.0.0.1"]].concat()));
    let mut text = String::new();
    lines.read_to_string(&mut text).expect("text");
    let status = server.wait().expect("it ends");
    assert!(status.success(), "{status}: {text}");
    [text, String::from_utf8_lossy(&client.stdout).into_owned()]
}

#[test]
fn messages_arrive_at_the_benchmark() {
    if !has_compiler() {
        return;
    }
    let program = compile("../../examples/c/sdr_write_bw.c");
    // Messages are not repaired, so over loopback one may be lost, but no byte is wrong.
    for size in ["300000", "65536", "1"] {
        let arguments = ["-s", size, "-n", "40", "-w", "3", "-t", "0.2"];
        for output in run_ends(&program, &arguments, &arguments) {
            assert!(output.contains(size) && output.contains(" 40 "), "{output}");
        }
    }
}

#[test]
fn a_scheme_of_ones_own_repairs_what_was_left_out() {
    if !has_compiler() {
        return;
    }
    let program = compile("../../examples/c/own_scheme.c");
    let [sent, received] = ["in", "out"].map(|name| folder().join(name));
    let bytes: Vec<u8> = (0..2_500_001_u32)
        .map(|at| at.wrapping_mul(0x9e37_79b1).to_be_bytes()[0])
        .collect();
    fs::write(&sent, &bytes).expect("a file");
    let [sent, out] = [&sent, &received].map(|path| path.to_str().expect("a name"));
    let outputs = run_ends(&program, &["-o", out], &["-l", "1/4", "-i", sent]);
    assert!(outputs[0].contains("received 2500001 bytes"), "{outputs:?}");
    assert!(!outputs[1].contains(" 0 chunks again"), "{outputs:?}");
    assert!(fs::read(received).expect("a file") == bytes);
}
