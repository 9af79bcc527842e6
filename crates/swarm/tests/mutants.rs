//! Checks that the patches of `make mutants` apply to the current code.

use std::path::Path;
use std::process::Command;

#[test]
fn every_mutant_still_applies() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2).expect("the workspace");
    let files = std::fs::read_dir(package.join("mutants")).expect("patches");
    let paths = files.map(|file| file.expect("a file").path());
    let is_patch = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "patch");
    let mut count = 0;
    for patch in paths.filter(is_patch) {
        let mut command = Command::new("git");
        command
            .current_dir(root)
            .args(["apply", "--check"])
            .arg(&patch);
        let output = command.output().expect("git is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", patch.display());
        count += 1;
    }
    assert!(count > 0, "no patches");
}
