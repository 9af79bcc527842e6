//! `farwrite forward`: a port of this machine leads to a TCP port that another machine reaches (P16). Each TCP
//! connection crosses the network on a byte stream of its own.

mod carry;
mod far;
mod near;
mod opening;
mod ports;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use farwrite_keys::{HostPort, parse_listen};
use farwrite_stream::{SchemeSetting, StreamOptions};

use crate::addresses::{parse_destination, parse_target};
use crate::console::Console;
use crate::cp::ssh::RemoteArgs;
use crate::exit::Failure;
use crate::key::KeyArgs;
use crate::recv::raise_open_files;
use crate::rsh::SessionArgs;
pub(crate) use far::run_far;
use ports::Forward;

/// The name of the streams, with the version of P16.
const NAME: &str = "farwrite-forward-1";
/// The most TCP connections at a time that a near end forwards, and that a far end makes for it.
pub(crate) const MOST_STREAMS: usize = 256;
/// How long a stream may take to be opened, and then to name its destination.
const OPENING: Duration = Duration::from_secs(30);
/// How long an end takes to tell the other one that it ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  farwrite forward -L 8080:localhost:80 me@far.example
      http://127.0.0.1:8080 is then port 80 of far.example
  farwrite forward -L 2222:git.internal:22 -L 5432:db.internal:5432 far.example
      hosts that far.example reaches; here: git clone ssh://git@127.0.0.1:2222/project
  farwrite forward --rsh 'ssh -p 2222' -L 8080:localhost:80 far.example

Without ssh, with a key of `farwrite keygen far.key` on both machines:
  farwrite forward --listen [::]:4792 --psk-file far.key --allow-forward localhost:80
  farwrite forward -L 8080:localhost:80 --to far.example --psk-file far.key

For several others, each with destinations of its own (allow-forward in the file of peers):
  farwrite forward --listen [::]:4792 --identity host.key --peers peers.toml --audit audit.jsonl
  farwrite forward -L 8080:localhost:80 --to far.example --identity my.key \\
    --peer-key farwrite-public-1:...

The other machine makes the TCP connections, and looks names up. The data go over UDP, encrypted, with the
repair of `farwrite send`. One of the two machines must be reachable by UDP at one port. If ssh has started
the other end and neither is, the data go through ssh, and a warning says what to open. Programs connect to
127.0.0.1 of this machine, unless BIND is another address of it; `*` is all of them. With --to and --listen,
--rate and --scheme are about what this end sends. Ctrl-C ends it.";

/// Forwards ports of this machine to TCP ports that another machine reaches.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ForwardArgs {
    /// As of ssh: connections to PORT of this machine go to HOST:PORT, as the other machine sees it. May be
    /// repeated
    #[arg(short = 'L', value_name = "[BIND:]PORT:HOST:PORT")]
    #[arg(required_unless_present = "listen")]
    forwards: Vec<Forward>,
    /// Connect to a `farwrite forward --listen`, without ssh; without a port, 4792
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_target)]
    #[arg(conflicts_with_all = ["listen", "host", "peers", "port", "rsh", "far_program", "bootstrap"])]
    to: Option<HostPort>,
    /// Be the other end: wait for others at this UDP address
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen)]
    #[arg(conflicts_with_all = ["forwards", "host", "peer_key", "port", "rsh", "far_program", "bootstrap"])]
    listen: Option<SocketAddr>,
    /// With --listen, a destination that the others may name, written as they write it. May be repeated
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_destination, requires = "listen")]
    allow_forward: Vec<HostPort>,
    /// With --listen, write a JSON object on a line of this file for each TCP connection, and each refused destination
    #[arg(long, value_name = "FILE", requires = "listen")]
    audit: Option<PathBuf>,
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    session: SessionArgs,
    /// [USER@]HOST: the other machine, which ssh reaches
    #[arg(value_name = "HOST", required_unless_present_any = ["to", "listen"])]
    #[arg(conflicts_with_all = ["psk_file", "identity"])]
    host: Option<OsString>,
}

/// Forwards until the user ends it. Returns the exit code.
pub(crate) fn run(args: &ForwardArgs, console: &Console) -> Result<ExitCode, Failure> {
    // A TCP connection takes three.
    raise_open_files();
    match args.listen {
        Some(addr) => far::listen(args, addr, console),
        None => near::run(args, console),
    }
}

/// How a stream divides its bytes, which both ends must know: 8 MiB in each direction. The system gives memory for
/// buffers of this length only where bytes have arrived.
fn stream_options(scheme: SchemeSetting) -> StreamOptions {
    StreamOptions {
        message_bytes: 256 << 10,
        messages: 32,
        scheme,
    }
}
