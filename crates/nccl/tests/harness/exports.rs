//! What the library shows to programs.

use std::process::Command;

use crate::{VERSIONS, plugin, run};

#[test]
fn only_the_tables_are_exported() {
    if Command::new("nm").arg("--version").output().is_err() {
        eprintln!("skipped: NO nm, the exports of the NCCL plugin are not tested");
        return;
    }
    let names = run(Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(plugin()));
    let mut names: Vec<_> = names.lines().map(str::to_owned).collect();
    let mut expected = VERSIONS.map(|version| format!("ncclNetPlugin_v{version}"));
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
}
