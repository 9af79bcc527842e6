//! `farwrite recv`: receives files from another machine.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::Args;
use farwrite::ReservedPort;
use farwrite::fabric::udp::SocketError;
use farwrite_session::files::PeerKey;
use farwrite_session::{Listener, Psk, parse_listen, shown};
use farwrite_transfer::{
    self as transfer, Admission, Cancel, DEFAULT_PORT, MemoryPool, ReceiveSettings,
};
use farwrite_units::parse::{parse_memory, parse_rate, parse_timeout};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::addresses::Targets;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::pipe::{self, PipeReceiver};
use crate::policy::PolicyArgs;
use crate::sealing::SealingArgs;
use crate::serving::{Serving, Until};
use crate::trace::TraceArgs;
use crate::transfer_metrics::MetricsArgs;
use crate::{interrupt, key};

/// The number of ports that are tried before the search for a free port fails.
const FREE_PORT_ATTEMPTS: u32 = 16;

const EXAMPLES: &str = "\
Examples:
  farwrite recv                     make a key, and print the command for the other machine
  farwrite recv --listen 192.0.2.7:4792 --dir in --psk-file far.key --once
  farwrite recv --listen [::]:4792 --dir in --psk-file far.key --json
  farwrite recv --dir in --psk-file far.key --credit-rate 10Gbit
  farwrite recv --dir in --psk-file far.key --metrics 127.0.0.1:9791
  curl http://127.0.0.1:9791/metrics          shows the counters, while recv runs
  farwrite recv --psk-file far.key - | zfs receive tank/copy
  farwrite recv --dir in --psk-file far.key --max-bytes 1TiB --reserve 50GiB --umask 027

The port must be reachable by TCP and UDP. A file gets its name when its hash agrees and its bytes are
on the disk, and then replaces an existing file. Nothing is written outside the directory. If a file
cannot be written, only that file fails; a full disk ends the transfer. If several senders send a file of
the same name, the last one to finish has it whole. Between transfers, this program answers
`farwrite probe`.

With -, the standard input of one `farwrite send -` goes to standard output. This program ends with 0 only
if everything has arrived and its BLAKE3 agrees.

Anyone with the key can put any file into the directory: use a directory only for this purpose.";

/// Receives files and directory trees from `farwrite send` on other machines, several senders at once,
/// until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub(crate) struct RecvArgs {
    /// Address to listen on, for TCP and UDP; port 0 selects a free port. Without it, port 4792 of all
    /// addresses
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// Directory to write into, which must exist
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// File with the pre-shared key of both ends; without it, the key is taken from the environment
    /// variable FARWRITE_PSK, or else a new key is made and shown on the terminal, for the sender
    #[arg(long, value_name = "FILE")]
    psk_file: Option<PathBuf>,
    /// Grant credit to senders with --rate-control eqds: the rate of this machine's port, IP headers
    /// included, 8kbit to 100Gbit. Credit is granted for 99 % of it, to all senders together. Senders
    /// with another rate control are refused
    #[arg(long, value_name = "RATE", value_parser = parse_rate, allow_hyphen_values = true)]
    credit_rate: Option<u64>,
    /// End after one transfer
    #[arg(long)]
    once: bool,
    /// Senders that are served at once, 1 to 1000; others wait, and try again. One at a time with --once,
    /// --trace and --credit-rate
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_senders: u16,
    /// Maximum memory for data in flight, with parity, of all senders together: 1MiB to 16GiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory)]
    #[arg(allow_hyphen_values = true)]
    memory: u64,
    /// Give a transfer up if the sender is silent for this time: 1s to 1h. Also give it up if less than
    /// 4 KiB of new data moves in this time, or less than a tenth of what a path of 8 kbit/s carries in
    /// it, if that is less. Waiting for a slow disk at either end does not count
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_timeout)]
    #[arg(allow_hyphen_values = true)]
    timeout: Duration,
    #[command(flatten)]
    sealing: SealingArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Show more about the transfer at its end: losses, repeats, packet size, scheme
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Write what one `farwrite send -` sends to standard output, instead of files
    #[arg(value_name = "-", value_parser = ["-"], conflicts_with_all = NOT_OF_PIPES)]
    output: Option<String>,
    /// Whoever can go on with interrupted files, if it is not known by the key.
    #[arg(skip)]
    peer: Option<PeerKey>,
}

/// The options that say something about files, or about transfers of files.
const NOT_OF_PIPES: [&str; 15] = [
    "dir",
    "credit_rate",
    "once",
    "max_senders",
    "memory",
    "unsealed",
    "umask",
    "max_bytes",
    "max_files",
    "reserve",
    "owner",
    "allow_delete",
    "no_resume",
    "trace",
    "metrics",
];

/// Receives files. Returns the exit code.
pub(crate) fn run(args: &RecvArgs, console: &Console) -> Result<ExitCode, Failure> {
    let cancel = interrupt::catch()?;
    if !args.is_pipe() {
        check_directory(&args.dir)?;
    }
    let (psk, is_fresh) = match key::find(args.psk_file.as_deref(), &cancel)? {
        Some(psk) => (psk, false),
        None if !console.says_to_terminal() => {
            let what = "no key: a new key is shown on a terminal only, so that no log keeps it; give \
                        --psk-file (`farwrite keygen` makes a key), or set FARWRITE_PSK";
            return Err(Failure::new(Exit::Usage, what));
        }
        None => (key::make()?, true),
    };
    let announce = |local: SocketAddr, targets: &Targets| {
        let local = shown(&local);
        match args.is_pipe() {
            true => console.say(format_args!("listening on {local} (UDP)")),
            false => console.say(format_args!(
                "listening on {local} (TCP and UDP), writing into {}",
                args.dir.display()
            )),
        }
        let command = command(args, targets);
        console.say(format_args!("on the other machine:\n\n  {command}\n"));
        targets.show_others(console);
        if is_fresh {
            let key = psk.to_text();
            console.say(format_args!("it asks for this key:\n\n  {}\n", &*key));
        }
    };
    if args.is_pipe() {
        let receiver = PipeReceiver {
            listen: args.listen,
            timeout: args.timeout,
            sync: args.policy.policy().sync,
        };
        return pipe::receive(&receiver, &psk, &cancel, console, announce);
    }
    let (listener, port) = listen(args.listen)?;
    let local = listener.local_addr();
    announce(local, &Targets::of(local));
    let until = match args.once {
        true => Until::First,
        false => Until::Interrupted,
    };
    receive(args, until, (listener, &port), psk, &cancel, console)
}

/// Receives over a listener. Returns the exit code.
pub(crate) fn receive(
    args: &RecvArgs,
    until: Until,
    (listener, port): (Listener, &ReservedPort),
    psk: Psk,
    cancel: &Cancel,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let places = args.places(until);
    let settings = ReceiveSettings {
        memory_bytes: args.memory,
        timeout: args.timeout,
        credit_bps: args.credit_rate,
        sealing: args.sealing.choice(),
        max_bytes: args.policy.max_bytes,
        max_files: args.policy.max_files,
        policy: args
            .policy
            .resuming(args.peer.unwrap_or_else(|| PeerKey::of_psk(&psk))),
    };
    if places > 1 {
        raise_open_files();
    }
    let admission = Admission::start(listener, psk, places, Arc::new(console.clone()))?;
    let trace = args.trace.start()?;
    let watch = args.metrics.start("recv")?;
    let serving = Serving {
        directory: &args.dir,
        settings: &settings,
        is_verbose: args.verbose,
        port,
        memory: MemoryPool::new(args.memory, places),
        cancel,
        watch: &watch,
        trace: &trace,
        console,
        begun: AtomicU64::new(0),
    };
    let ended = match until {
        Until::Interrupted => serving.all(&admission),
        Until::First | Until::FirstMet => serving.one(&admission, until),
    };
    trace.finish(console);
    ended
}

impl RecvArgs {
    /// Whether the data go to standard output.
    pub(crate) fn is_pipe(&self) -> bool {
        self.output.is_some()
    }

    /// How many senders may come at once.
    fn places(&self, until: Until) -> usize {
        // A trace is of one endpoint, and credit is granted by one endpoint for the whole port.
        let is_alone = self.trace.is_on() || self.credit_rate.is_some();
        match until {
            Until::Interrupted if !is_alone => usize::from(self.max_senders),
            _ => 1,
        }
    }

    /// The same for a transfer through a remote shell, whose key is used once. `name` is what this end knows of
    /// the other one.
    pub(crate) fn through_remote_shell(self, name: &[u8]) -> Self {
        Self {
            peer: Some(PeerKey::of_remote_shell(name)),
            ..self
        }
    }

    /// The directory to write into.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Lets this program open as many files as the system allows: each transfer has sockets, and up to some
/// hundred files that wait for their hashes. Systems give programs a low limit unless they ask.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If this fails, transfers fail that find no room, as they would without it.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Checks the directory now instead of when a sender connects.
pub(crate) fn check_directory(dir: &Path) -> Result<(), Failure> {
    let what = format!("the directory {}", dir.display());
    let metadata = fs::metadata(dir).or_exit(Exit::Files, &what)?;
    if metadata.is_dir() {
        Ok(())
    } else {
        Err(Failure::new(Exit::Files, format!("{what}: it is a file")))
    }
}

/// Listens at the given address, or otherwise on all addresses, and holds the UDP port with the same
/// number, at which data will arrive. A free port (0) must be free for TCP and for UDP.
pub(crate) fn listen(asked: Option<SocketAddr>) -> Result<(Listener, ReservedPort), Failure> {
    let mut attempts = 1;
    loop {
        let listener = listen_tcp(asked)?;
        let local = listener.local_addr();
        match ReservedPort::bind(local) {
            Ok(held) => return Ok((listener, held)),
            Err(SocketError::Bind { source, .. })
                if source.kind() == io::ErrorKind::AddrInUse
                    && asked.is_some_and(|addr| addr.port() == 0)
                    && attempts < FREE_PORT_ATTEMPTS =>
            {
                attempts += 1;
            }
            Err(error) => {
                let what = format_args!("listening on UDP {}", shown(&local));
                return Err(Failure::caused(Exit::Unreachable, what, &error));
            }
        }
    }
}

fn listen_tcp(asked: Option<SocketAddr>) -> Result<Listener, Failure> {
    let listener = match asked {
        Some(addr) => Listener::bind(addr),
        // The wildcard of IPv6 also accepts IPv4. A machine without IPv6 uses the wildcard of IPv4.
        None => Listener::bind((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT))
            .or_else(|_| Listener::bind((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT))),
    };
    listener.map_err(|error| transfer::Error::of_session("starting", &error).into())
}

/// The command for the other end.
fn command(args: &RecvArgs, targets: &Targets) -> String {
    let mut line = format!("farwrite send --to {}", targets.first);
    if let Some(file) = &args.psk_file {
        line += &format!(" --psk-file {}", file.display());
    }
    line + if args.is_pipe() { " -" } else { " PATH..." }
}
