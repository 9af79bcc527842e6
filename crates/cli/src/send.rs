//! `farwrite send`: files to another machine.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use farwrite_session::HostPort;
use farwrite_session::files::{Source, Special};
use farwrite_transfer::{self as transfer, Host, SchemeChoice, SendSettings};
use farwrite_units::parse::{parse_memory, parse_mtu, parse_rate, parse_timeout};

use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::{interrupt, key, outcome};

const EXAMPLES: &str = "\
Examples:
  farwrite send --to 192.0.2.7:4792 --psk-file far.key data.bin photos/
  farwrite send --to far.example:4792 --psk-file far.key --rate 9Gbit --scheme sr-nack archive/
  farwrite send --to far.example:4792 --psk-file far.key --scheme ec-mds:32,8 many-small-files/
  FARWRITE_PSK=farwrite-psk-1:... farwrite send --to [2001:db8::7]:4792 archive/.

Either end may be started first. A link-local address needs the name of this machine's interface:
[fe80::7%eth0]:4792. `a/b` and `a/b/` arrive as `b`, `a/b/.` as what `b` contains. TCP
and UDP of the port must reach the other end, and its UDP packets must come back. The sender may be
behind any address translation (NAT), the receiver behind one that keeps the port.

There is no congestion control: the sender paces itself at --rate, and slows down only where the
receiver's own socket overflows. Give the share of the path that is yours.

With --scheme auto the planner decides for each message, from the loss, round trip and rate that are
measured: parity where repairs would take longer than sending it, else sr-nack. It changes its mind
for a tenth of the time that is left; the last line and --json say what it took, and why.

Schemes: sr-nack (selective repeat with NACKs), sr-rto (selective repeat with timeouts), gbn
(go-back-N), ec-xor:K,M and ec-mds:K,M, such as ec-mds:32,8 (erasure coding by XOR or Reed-Solomon:
M parity chunks, which --rate and --memory must cover too, for every K data chunks).

A file that cannot be read, or changes while it is sent, fails by itself; the others go on.";

/// Sends files and directory trees to a `farwrite recv` on another machine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub(crate) struct SendArgs {
    /// The receiver: a name or an address, and the port that it listens on
    #[arg(long, value_name = "HOST:PORT")]
    to: HostPort,
    /// File with the pre-shared key of both ends; without it, the key is taken from the environment
    /// variable FARWRITE_PSK
    #[arg(long, value_name = "FILE")]
    psk_file: Option<PathBuf>,
    /// How losses are repaired: auto, or one of the schemes below
    #[arg(long, value_name = "NAME", default_value = "auto")]
    scheme: SchemeChoice,
    /// Bits a second to put on the wire, headers included: 1Mbit to 100Gbit
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = parse_rate)]
    #[arg(allow_hyphen_values = true)]
    rate: u64,
    /// Payload bytes of a packet: a multiple of 4 from 256 to 65468; without it, as much as the path
    /// carries, which probes find out, but at most 8936
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu, allow_hyphen_values = true)]
    mtu: Option<u32>,
    /// Most memory for what is under way, parity included, at each end: 1MiB to 16GiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory)]
    #[arg(allow_hyphen_values = true)]
    memory: u64,
    /// Give up when the receiver cannot be reached or is silent, or nothing moves, for this long: 1s to
    /// 1h. A slow disk at either end does not count
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_timeout)]
    #[arg(allow_hyphen_values = true)]
    timeout: Duration,
    /// Leave out symbolic links, pipes, sockets and devices in trees, instead of refusing to send
    #[arg(long)]
    skip_special: bool,
    /// Files and directories to send
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// Sends the files; the answer is what the program exits with.
pub(crate) fn run(args: &SendArgs, console: &Console) -> Result<ExitCode, Failure> {
    let cancel = interrupt::catch()?;
    let psk = key::find(args.psk_file.as_deref())?.ok_or_else(|| {
        let what = format!(
            "no key: give --psk-file, or set {} as `farwrite recv` prints it",
            key::VARIABLE
        );
        Failure::new(Exit::Usage, what)
    })?;
    let special = if args.skip_special {
        Special::Skip
    } else {
        Special::Refuse
    };
    let paths = args.paths.clone();
    // A slow disk must not keep Ctrl-C from working.
    let scanned = cancel.run(move || Source::scan(&paths, special))?;
    let source = scanned.or_exit(Exit::Files, "listing the files")?;
    for path in source.skipped() {
        console.warn(format_args!("{path:?} is left out"));
    }
    let settings = SendSettings {
        scheme: args.scheme,
        rate_bps: args.rate,
        mtu: args.mtu,
        memory_bytes: args.memory,
        timeout: args.timeout,
    };
    let channel = transfer::connect(&args.to, &psk, args.timeout, &cancel, console)?;
    let host = Host {
        route: &transfer::unchanged,
        cancel: &cancel,
        observer: console,
    };
    let report = transfer::send(channel, source, &settings, &host)?;
    outcome::show(console, &report)
}
