//! The `farwrite` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    farwrite_cli::main()
}
