//! Loads the plugin as NCCL does, and runs cases of `tests/c/harness.c` with it: ranks that are processes, and memory of
//! the host. `make nccl` prints the table of all cases, and runs the long ones whole.

mod exports;
mod layout;
mod path;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;
use std::{env, fs};

use tempfile::TempDir;

/// The versions of the interface.
const VERSIONS: [u32; 5] = [8, 9, 10, 11, 12];
const NEWEST: u32 = 12;

/// Cases with every version: a name, and the number of messages where it counts.
const OF_ALL_VERSIONS: [(&str, u32); 2] = [("basic", 0), ("channel", 40)];

/// Cases with the newest version: a name, and the numbers of messages in `make test` and in `make nccl`.
const OF_THE_NEWEST: [(&str, [u32; 2]); 10] = [
    ("channel", [200, 2000]),
    ("many", [10_000, 10_000]),
    ("sizes", [8, 100]),
    ("ring-2", [40, 400]),
    ("ring-3", [40, 400]),
    ("ring-4", [40, 400]),
    ("all-reduce", [4, 64]),
    ("close", [4, 20]),
    ("death", [0, 0]),
    ("other-listener", [0, 0]),
];

/// Variables with which `init` fails: a name, a value, NCCL's code, and words of the warning.
const REFUSED: [(&str, &str, u32, &str); 3] = [
    ("NCCL_SOCKET_IFNAME", "none", 2, "no interface"),
    ("FARWRITE_PSK_FILE", "/none", 5, "FARWRITE_PSK_FILE=/none: "),
    ("FARWRITE_NCCL_RATE", "fast", 5, "FARWRITE_NCCL_RATE=fast: "),
];

/// Whether the long cases run whole.
fn is_whole() -> bool {
    env::var("FARWRITE_NCCL_WHOLE").as_deref() == Ok("1")
}

/// Whether there is a C compiler. In continuous integration there must be one.
fn has_compiler() -> bool {
    let found = Command::new("cc").arg("--version").output().is_ok();
    if !found {
        assert_ne!(env::var("CI").as_deref(), Ok("true"), "no C compiler");
        eprintln!("skipped: NO C COMPILER (cc), the NCCL plugin is not tested");
    }
    found
}

/// Where compiled programs are, until this program ends.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| tempfile::tempdir().expect("a folder"))
        .path()
}

/// The plugin of this build, which lies beside this program.
fn plugin() -> PathBuf {
    let program = env::current_exe().expect("the path of this program");
    let plugin = program.with_file_name("libnccl_net_farwrite.so");
    assert!(plugin.exists(), "no {}", plugin.display());
    plugin
}

/// The harness, compiled. `make asan` and `make tsan` give the sanitizers of this build, and their runtime, which the
/// plugin and the harness share.
fn harness() -> &'static Path {
    static HARNESS: OnceLock<PathBuf> = OnceLock::new();
    HARNESS.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
        let program = folder().join("harness");
        let text = |name| env::var(name).ok();
        let sanitizers = text("FARWRITE_SANITIZERS").zip(text("FARWRITE_SANITIZER_RUNTIME"));
        let mut compile = Command::new("cc");
        compile
            .args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-g"])
            .args(["-Wall", "-Wextra", "-Werror"])
            .arg(sources.join("harness.c"));
        if let Some((_, runtime)) = sanitizers {
            // The plugin, which is opened later, takes the runtime from the program.
            compile.args(["-rdynamic", "-Wl,--whole-archive", &runtime]);
            compile.args(["-Wl,--no-whole-archive", "-lpthread", "-lm", "-lresolv"]);
        }
        compile.args(["-ldl", "-o"]).arg(&program);
        run(&mut compile);
        program
    })
}

/// Runs a command that must succeed. Returns what it prints.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// A file with a new secret.
fn secret(name: &str) -> PathBuf {
    let file = folder().join(name);
    let key = farwrite_keys::Psk::generate().expect("randomness");
    key.save(&file).expect("a file");
    file
}

/// A case, with a secret. It ends if it hangs.
fn case(version: u32, name: &str, number: u32) -> Command {
    static KEY: OnceLock<PathBuf> = OnceLock::new();
    let key = KEY.get_or_init(|| secret("psk"));
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after", "5", if is_whole() { "300" } else { "60" }])
        .arg(harness())
        .arg(plugin())
        .args([&version.to_string(), name, &number.to_string()])
        .env("NCCL_SOCKET_IFNAME", "lo")
        .env("FARWRITE_NCCL_RATE", "2Gbit")
        .env("FARWRITE_NCCL_RTT", "25ms")
        .env("FARWRITE_PSK_FILE", key);
    command
}

/// Runs a case, and prints a line of the table. Returns whether it has succeeded.
fn row(version: u32, name: &str, number: u32, command: &mut Command) -> bool {
    let start = Instant::now();
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let result = match output.status.success() {
        true => text.trim().replace('\n', ", "),
        false => format!(
            "FAILED after {:.1} s, {}: {}",
            start.elapsed().as_secs_f64(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    };
    let case = if number > 0 {
        format!("{name} {number}")
    } else {
        name.into()
    };
    println!("{version:>7}  {case:<14} {result}");
    output.status.success()
}

/// What a harness says that must fail.
fn refusal(mut command: Command) -> String {
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {text}");
    assert!(!text.contains("signal"), "{command:?}: {text}");
    text
}

#[test]
fn bad_input_is_a_code_and_a_warning() {
    if !has_compiler() {
        return;
    }
    for (name, value, code, words) in REFUSED {
        let mut command = case(NEWEST, "no-secret", 0);
        command.env(name, value);
        let text = refusal(command);
        let failed = format!("net_init(&context, log_line): {code}; ");
        assert!(text.contains(&failed) && text.contains(words), "{text}");
    }
    let text = refusal(case(VERSIONS[0] - 1, "no-secret", 0));
    assert!(text.contains("has no version 7"), "{text}");
}

#[test]
fn all_cases_pass() {
    if !has_compiler() {
        return;
    }
    println!("version  case           result");
    let mut failures = 0;
    let mut check = |passes: bool| failures += u32::from(!passes);
    for version in VERSIONS {
        for (name, number) in OF_ALL_VERSIONS {
            check(row(version, name, number, &mut case(version, name, number)));
        }
    }
    let whole = usize::from(is_whole());
    for (name, numbers) in OF_THE_NEWEST {
        let number = numbers[whole];
        check(row(NEWEST, name, number, &mut case(NEWEST, name, number)));
    }
    let mut secret_of_none = case(NEWEST, "no-secret", 0);
    check(row(
        NEWEST,
        "no-secret",
        0,
        secret_of_none.env_remove("FARWRITE_PSK_FILE"),
    ));
    let mut other_secret = case(NEWEST, "other-secret", 0);
    other_secret.env("HARNESS_OTHER_PSK_FILE", secret("other-psk"));
    check(row(NEWEST, "other-secret", 0, &mut other_secret));
    for name in ["basic", "other-listener"] {
        let mut open = case(NEWEST, name, 0);
        open.env_remove("FARWRITE_PSK_FILE");
        open.env("FARWRITE_NCCL_UNAUTHENTICATED", "1");
        check(row(NEWEST, name, 0, &mut open));
    }
    let number = [50, 200][whole];
    check(path::crosses_a_lossy_path(number));
    assert_eq!(failures, 0, "see the table");
}

/// The lines of a file of this crate that are no comments.
fn lines(file: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&file).expect("a file");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}
