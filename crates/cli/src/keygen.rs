//! `farwrite keygen`: generates a pre-shared key or an identity.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use farwrite_keys::Identity;
use serde_json::json;

use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::key;

const EXAMPLES: &str = "\
Examples:
  farwrite keygen far.key        write a key to far.key, which only you may read
  farwrite keygen                print a key
  farwrite keygen --identity host.key    write an identity, and print its public key
  farwrite keygen --public host.key      print the public key of an identity

Copy a pre-shared key to the other machine over a channel that you trust, such as scp: anyone with \
the key can write files in your name. An identity stays on its machine, and the other end must know \
its public key. `farwrite recv --peers` reads it from a table (docs/service.md):

  [NAME]
  key = \"PUBLIC-KEY\"
  dir = \"DIRECTORY\"

Programs that use the connections of the library read known peers from lines `NAME PUBLIC-KEY`.";

/// Makes a key: a pre-shared key, which is 256 random bits that only the two ends of a transfer have,
/// or the identity of a machine for programs that use connections.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KeygenArgs {
    /// File for the key, which only you can read; it must not exist yet. Without it, the key is
    /// printed
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Make the identity of this machine instead: a private key in FILE, whose public key is printed
    #[arg(long, requires = "file")]
    identity: bool,
    /// Print the public key of the identity in this file, and make nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "identity"])]
    public: Option<PathBuf>,
}

pub(crate) fn run(args: &KeygenArgs, console: &Console) -> Result<(), Failure> {
    match (&args.public, &args.file) {
        (Some(file), _) => {
            let identity = Identity::load(file).or_fail("reading the identity")?;
            show_public(&identity, None, console)
        }
        (None, Some(file)) if args.identity => {
            let identity = Identity::generate().or_fail("keygen")?;
            identity.save(file).or_fail("keygen")?;
            show_public(&identity, Some(file), console)
        }
        _ => make_psk(args, console),
    }
}

fn show_public(identity: &Identity, file: Option<&Path>, console: &Console) -> Result<(), Failure> {
    let public = identity.public().to_string();
    if console.is_json() {
        return match file {
            Some(file) => console.json(&json!({ "identity_file": file, "public": public })),
            None => console.json(&json!({ "public": public })),
        };
    }
    writeln!(io::stdout(), "{public}").or_exit(Exit::Files, "printing the public key")
}

fn make_psk(args: &KeygenArgs, console: &Console) -> Result<(), Failure> {
    let key = key::make()?;
    let Some(file) = &args.file else {
        let text = key.to_text();
        return match console.is_json() {
            true => console.json(&json!({ "psk": *text })),
            // The command must not succeed if the key was not delivered.
            false => writeln!(io::stdout(), "{}", &*text).or_exit(Exit::Files, "printing the key"),
        };
    };
    key.save(file).or_fail("keygen")?;
    console.say(format_args!(
        "wrote a fresh key to {0}; the other end needs a copy: `--psk-file {0}`",
        file.display()
    ));
    console.json(&json!({ "psk_file": file }))
}
