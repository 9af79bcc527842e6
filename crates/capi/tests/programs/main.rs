//! Compiles C programs against the headers and the static library, with the address sanitizer and the
//! undefined-behaviour sanitizer, and runs them. `make asan` and `make tsan` run the same tests with a library
//! that was built with a sanitizer, too.

mod misuse_cases;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use tempfile::TempDir;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const MESSAGES: &str = "../../examples/c/messages.c";

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
    // Programs under ThreadSanitizer are ten times as slow.
    command.arg(if sanitizers().is_some() { "300" } else { "120" });
    command
}

/// Where compiled programs are, until this program ends.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| tempfile::tempdir().expect("a folder"))
        .path()
}

/// A file with a pre-shared key.
fn key() -> &'static Path {
    static KEY: OnceLock<PathBuf> = OnceLock::new();
    KEY.get_or_init(|| {
        let file = folder().join("psk");
        let key = farwrite_keys::Psk::generate().expect("randomness");
        key.save(&file).expect("a file");
        file
    })
}

/// What `make asan` and `make tsan` set: the sanitizers of this build, and their runtime, which the library
/// and the programs share.
fn sanitizers() -> Option<(String, String)> {
    let text = |name| env::var(name).ok();
    text("FARWRITE_SANITIZERS").zip(text("FARWRITE_SANITIZER_RUNTIME"))
}

/// Compiles a program, given by its path from the folder of this crate.
fn compile(source: &str) -> PathBuf {
    let name = Path::new(source).file_stem().expect("a name");
    compile_as(source, name.to_str().expect("text"))
}

fn compile_as(source: &str, name: &str) -> PathBuf {
    let source = Path::new(CRATE).join(source);
    let program = folder().join(name);
    let object = program.with_extension("o");
    // The C compiler links its own runtime where its name of a sanitizer is given.
    let (sanitize, runtime) = match sanitizers() {
        Some((names, runtime)) => (format!("-fsanitize={names}"), runtime),
        None => (
            "-fsanitize=address,undefined".into(),
            "-fsanitize=address,undefined".into(),
        ),
    };
    run(Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-c"])
        .args(["-Wall", "-Wextra", "-Werror"])
        .args([&sanitize, "-fno-sanitize-recover=undefined"])
        .arg("-I")
        .arg(Path::new(CRATE).join("include"))
        .args([&source, Path::new("-o"), &object]));
    run(Command::new("cc")
        .args([&object, &library()])
        .args([&runtime, "-lpthread", "-ldl", "-lm", "-lresolv", "-o"])
        .arg(&program));
    program
}

#[test]
fn every_wrong_argument_is_an_error() {
    if !has_compiler() {
        return;
    }
    let messages = compile("tests/c/misuse.c");
    let connections = compile("tests/c/misuse_connections.c");
    let lifetimes = compile("tests/c/lifetimes.c");
    let check = |command: &mut Command| {
        let output = run(command);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("0 failures"), "{text}");
    };
    // The second time, each packet of the program is several on the wire.
    for mtu in ["1024", "256"] {
        check(limited().arg(&messages).env("FARWRITE_MTU", mtu));
    }
    check(limited().arg(&connections).arg(key()));
    check(limited().arg(&lifetimes).arg(key()));
}

#[test]
fn event_loops_poll_descriptors() {
    if !has_compiler() {
        return;
    }
    let program = compile("tests/c/descriptors.c");
    let output = run(limited().arg(program).arg(key()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("0 failures"), "{text}");
}

/// Starts a program that prints its port at the end of its first line. Returns it, what it prints from
/// then on, and the port.
fn start_server(command: &mut Command) -> (Child, BufReader<ChildStdout>, String) {
    command.stdout(Stdio::piped());
    let mut server = command.spawn().expect("the first end");
    let mut lines = BufReader::new(server.stdout.take().expect("its output"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    let port = line.rsplit(' ').next().expect("a port").trim().to_owned();
    (server, lines, port)
}

/// Waits for the end of a program, and returns what it has printed.
fn finish(mut server: Child, mut lines: BufReader<ChildStdout>) -> String {
    let mut text = String::new();
    lines.read_to_string(&mut text).expect("text");
    let status = server.wait().expect("it ends");
    assert!(status.success(), "{status}: {text}");
    text
}

/// Runs both ends of a program, sealed. The first end prints its TCP port; the second gets it with `-p`, and
/// the host as its last argument. Returns what they print.
fn run_ends(program: &Path, first: &[&str], second: &[&str]) -> [String; 2] {
    let end = |arguments: &[&str]| {
        let mut command = limited();
        command.env("FARWRITE_PSK_FILE", key());
        command.arg(program).args(["-d", "udp:127.0.0.1"]);
        command.args(arguments);
        command
    };
    let (server, lines, port) = start_server(&mut end(&[&["-p", "0"], first].concat()));
    let client = run(&mut end(&[&["-p", &port], second, &["127.0.0.1"]].concat()));
    let text = finish(server, lines);
    [text, String::from_utf8_lossy(&client.stdout).into_owned()]
}

#[test]
fn messages_arrive_at_the_benchmark() {
    if !has_compiler() {
        return;
    }
    let program = compile("../../examples/c/sdr_write_bw.c");
    // The benchmark does not repair losses, so messages may be lost over loopback, on a busy machine many of
    // them. The receiver ends with an error if a byte is wrong.
    for size in ["300000", "65536", "1"] {
        let arguments = ["-s", size, "-n", "40", "-w", "3", "-t", "0.2"];
        let outputs = run_ends(&program, &arguments, &arguments);
        for output in &outputs {
            let row = output.lines().last().unwrap_or_default();
            let fields: Vec<_> = row.split_whitespace().collect();
            assert_eq!(fields[..2], [size, "40"], "{output}");
        }
        let lost = outputs[0].split_whitespace().last();
        let lost = lost.and_then(|lost| lost.parse::<u32>().ok());
        assert!(lost.is_some_and(|lost| lost < 40), "{}", outputs[0]);
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
    // With such a short round trip, many reports come late.
    let first = ["-t", "0.00002", "-o", out];
    let outputs = run_ends(&program, &first, &["-l", "1/4", "-i", sent]);
    assert!(outputs[0].contains("received 2500001 bytes"), "{outputs:?}");
    assert!(!outputs[1].contains(" 0 chunks again"), "{outputs:?}");
    assert!(fs::read(received).expect("a file") == bytes);
}

/// The folder below which the library is installed.
fn installed() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = folder().join("installed");
        let install = Path::new(CRATE).join("../../dist/c/install");
        run(Command::new(install).args([&library(), &root]));
        root
    })
}

#[test]
fn the_shared_library_exports_the_functions_of_the_headers() {
    if !has_compiler() || sanitizers().is_some() {
        return;
    }
    let root = installed();
    let lib = root.join("usr/local/lib");
    let shared = lib.join("libfarwrite.so.0");
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&shared));
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let names = symbols.lines().filter_map(|line| line.split(' ').nth(2));
    let exported: BTreeSet<String> = names
        .filter(|name| !name.starts_with("FARWRITE_0"))
        .map(|name| name.trim_end_matches("@@FARWRITE_0").to_owned())
        .collect();
    let headers = ["sdr.h", "sdr_mr.h", "farwrite.h"].map(|name| {
        let header = root.join("usr/local/include").join(name);
        fs::read_to_string(header).expect("a header")
    });
    let text = headers.concat();
    let before_parens = text.split('(').filter_map(|before| {
        let name = before.rsplit([' ', '*']).next()?;
        let is_function = name.starts_with("sdr_") || name.starts_with("farwrite_");
        is_function.then(|| name.to_owned())
    });
    assert_eq!(exported, before_parens.collect());
    assert_eq!(
        fs::read_dir(root.join("usr/local/share/man/man3"))
            .expect("pages")
            .count(),
        exported.len()
    );
}

/// The example of messages, compiled with the shared library, which it finds with pkg-config.
fn shared_example() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile_with_pkg_config(MESSAGES))
}

fn compile_with_pkg_config(source: &str) -> PathBuf {
    let prefix = installed().join("usr/local");
    let program = folder().join("with_pkg_config");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "--define-variable"])
        .arg(format!("prefix={}", prefix.display()))
        .arg(prefix.join("lib/pkgconfig/farwrite.pc")));
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    run(Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"])
        .arg(Path::new(CRATE).join(source))
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program));
    program
}

#[test]
fn messages_arrive_over_connections() {
    if !has_compiler() {
        return;
    }
    // Sanitizers need the static library.
    let program = match sanitizers() {
        Some(_) => compile(MESSAGES),
        None => shared_example().to_owned(),
    };
    for scheme in ["sr-nack", "ec-mds:8,2"] {
        send_a_message(&[program.as_os_str()], 1_000_001, scheme);
    }
}

/// Sends a message between two ends of the example: `program` with what comes before it on the command line.
fn send_a_message(program: &[&OsStr], bytes: usize, scheme: &str) {
    let sent = folder().join(format!("message of {bytes} bytes"));
    fs::write(&sent, vec![7; bytes]).expect("a file");
    let end = || {
        let mut command = limited();
        let lib = installed().join("usr/local/lib");
        command.env("LD_LIBRARY_PATH", lib).args(program).arg(key());
        command
    };
    let (server, lines, port) = start_server(end().arg("127.0.0.1:0"));
    let to = format!("127.0.0.1:{port}");
    run(end().arg(to).arg(&sent).arg(scheme));
    let text = finish(server, lines);
    let expected = format!("outcome 0, {bytes} of {bytes} bytes");
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn valgrind_finds_nothing_at_both_ends() {
    if !has_compiler() || sanitizers().is_some() {
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: no valgrind");
        return;
    }
    // With this option, valgrind names the functions of the library, as the suppressions do, and no inlined ones.
    let options = [
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--read-inline-info=no",
    ]
    .map(OsStr::new);
    let mut suppressions = OsString::from("--suppressions=");
    suppressions.push(Path::new(CRATE).join("tests/programs/valgrind.supp"));
    let last = [suppressions.as_os_str(), shared_example().as_os_str()];
    let program = [&options[..], &last].concat();
    send_a_message(&program, 100_001, "sr-nack");
}

/// An end with a key and one without do not connect.
#[test]
fn a_peer_without_the_key_is_refused() {
    if !has_compiler() {
        return;
    }
    let program = compile_as("../../examples/c/own_scheme.c", "own_scheme_without_a_key");
    let out = folder().join("unused");
    let mut server = limited();
    server.env("FARWRITE_PSK_FILE", key()).arg(&program);
    server
        .args(["-d", "udp:127.0.0.1", "-p", "0", "-o"])
        .arg(out);
    let (mut server, _lines, port) = start_server(server.stderr(Stdio::null()));
    let mut client = limited();
    client.env("FARWRITE_VERBOSE", "1").arg(&program);
    client.args([
        "-d",
        "udp:127.0.0.1",
        "-p",
        &port,
        "-i",
        "/dev/null",
        "127.0.0.1",
    ]);
    let output = client.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("the peer requires sealed packets"), "{text}");
    assert!(!server.wait().expect("it ends").success());
}
