//! `farwrite keygen`: generates a pre-shared key.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use farwrite_session::{KeyError, Psk};
use serde_json::json;

use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};

const EXAMPLES: &str = "\
Examples:
  farwrite keygen far.key        write a key to far.key, which only you may read
  farwrite keygen                print a key

Copy the key to the other machine over a channel that you trust, such as scp: anyone with the key \
can write files in your name.";

/// Makes a pre-shared key: 256 random bits that only the two ends of a transfer have.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KeygenArgs {
    /// File for the key, which only you can read; it must not exist yet. Without it, the key is
    /// printed
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Generates a key, and writes or prints it.
pub(crate) fn run(args: &KeygenArgs, console: &Console) -> Result<(), Failure> {
    let key = Psk::generate().or_exit(Exit::Other, "making a key")?;
    let Some(file) = &args.file else {
        let text = key.to_text();
        return if console.is_json() {
            console.json(&json!({ "psk": *text }))
        } else {
            // The command must not succeed if the key was not delivered.
            writeln!(io::stdout(), "{}", &*text).or_exit(Exit::Files, "printing the key")
        };
    };
    let saved = key.save(file);
    saved.map_err(|error| {
        let exit = match error {
            KeyError::Exists(_) | KeyError::Write { .. } => Exit::Files,
            _ => Exit::Other,
        };
        Failure::caused(exit, "keygen", &error)
    })?;
    console.say(format_args!(
        "wrote a fresh key to {0}; the other end needs a copy: `--psk-file {0}`",
        file.display()
    ));
    console.json(&json!({ "psk_file": file }))
}
