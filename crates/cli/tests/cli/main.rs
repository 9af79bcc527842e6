//! Tests of the program and its subcommands.

mod codes;
mod inputs;
mod plan;
mod probe;
mod program;
mod rings;
mod sim;
mod trace;

use std::process::Output;

use serde_json::Value;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// The result that a program with `--json` printed, which must have succeeded.
#[track_caller]
fn result_of(output: &Output, command: &str) -> Value {
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{command}: {stderr}");
    let object: Value =
        serde_json::from_slice(&output.stdout).expect("standard output is JSON and nothing else");
    assert_eq!(object["command"], command);
    object["result"].clone()
}
