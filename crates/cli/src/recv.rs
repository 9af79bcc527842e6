//! `farwrite recv`: receives files from another machine.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use farwrite::ReservedPort;
use farwrite_connection::{Connection, Keys, Listener, Purpose, reserve_port};
use farwrite_files::PeerKey;
use farwrite_keys::{parse_listen, shown};
use farwrite_transfer::{
    Admission, Cancel, DEFAULT_PORT, Error as TransferError, MemoryPool, Places, ReceiveSettings,
    SETUP, connection_options,
};
use farwrite_units::parse::{parse_memory, parse_rate, parse_timeout};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::accepting::{AcceptOptions, Accepting};
use crate::addresses::at_any;
use crate::audit::Audit;
use crate::console::Console;
use crate::device::DeviceArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::policy::PolicyArgs;
use crate::probe::Answering;
use crate::serving::{Serving, Until};
use crate::supervisor::Supervisor;
use crate::trace::{TraceArgs, Tracing};
use crate::transfer_metrics::{MetricsArgs, Watch};
use crate::{interrupt, pipe};

const EXAMPLES: &str = "\
Examples:
  farwrite recv                     make a key, and print the command for the other machine
  farwrite recv --listen 192.0.2.7:4792 --dir in --psk-file far.key --once
  farwrite recv --listen [::]:4792 --dir in --psk-file far.key --json
  farwrite recv --code              receive once, by a short code that the sender types
  farwrite recv --listen [::]:4792 --dir in --identity host.key \\
    --peers peers.toml --audit audit.jsonl
  farwrite recv --dir in --psk-file far.key --credit-rate 10Gbit
  farwrite recv --dir in --psk-file far.key --metrics 127.0.0.1:9791
  curl http://127.0.0.1:9791/metrics          shows the counters, while recv runs
  farwrite recv --dir in --psk-file far.key --device mlx5_0
  farwrite recv --psk-file far.key - | zfs receive tank/copy
  farwrite recv --code - | tar x    receives one pipe, by a short code that the sender types
  farwrite recv --dir in --psk-file far.key --max-bytes 1TiB --reserve 50GiB --umask 027

The port must be reachable by UDP. A file gets its name when its hash agrees and its bytes are
on the disk, and then replaces an existing file. Nothing is written outside the directory. If a file
cannot be written, only that file fails; a full disk ends the transfer. If several senders send a file of
the same name, the last one to finish has it whole. Between transfers, this program answers
`farwrite probe`.

A `farwrite send --name NAME -` becomes the file NAME, by the same rules.

With -, the standard input of one `farwrite send -` goes to standard output. This program ends with 0 only
if everything has arrived and its BLAKE3 agrees. With --peers, the directories of the file are not used, and
max-bytes is the length of a pipe.

Anyone with the key can put any file into the directory: use a directory only for this purpose.";

/// Receives files and directory trees from `farwrite send` on other machines, several senders at once,
/// until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub(crate) struct RecvArgs {
    /// UDP address to listen on; port 0 selects a free port. Without it, port 4792 of all addresses
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Directory to write into, which must exist
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// File with the pre-shared key of both ends; without it, the key is taken from the environment
    /// variable FARWRITE_PSK, or else a new key is made and shown on the terminal, for the sender
    #[arg(long, value_name = "FILE")]
    psk_file: Option<PathBuf>,
    /// Grant credit to senders with --rate-control eqds: the rate of this machine's port, IP headers
    /// included, 8kbit to 100Gbit. Credit is granted for 99 % of it, to all senders together. Senders
    /// with another rate control are refused
    #[arg(long, value_name = "RATE", value_parser = parse_rate, allow_hyphen_values = true)]
    credit_rate: Option<u64>,
    /// Show a code of one use for the sender, and end after one transfer. One wrong
    /// attempt uses the code up
    #[arg(long, conflicts_with_all = ["psk_file", "identity"])]
    code: bool,
    /// File with the identity of this machine (`farwrite keygen --identity`), for senders with identities
    #[arg(long, value_name = "FILE", requires = "peers")]
    identity: Option<PathBuf>,
    /// File with the peers that may send: a table for each, with its public key, its directory and its limits.
    /// It is read again after SIGHUP
    #[arg(long, value_name = "FILE", requires = "identity")]
    peers: Option<PathBuf>,
    /// Write a JSON object on a line of this file for each transfer, pipe, probe and refusal
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
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
    /// Give a transfer up if the sender is silent for this time: 1s to 1h. Also give it up if too
    /// little new data moves in this time: less than 100 bytes for each of its seconds, or less than 4 KiB if
    /// the time is longer than 41s. Waiting for a slow disk at either end does not count
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_timeout)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Show more about the transfer at its end: losses, repeats, packet size, scheme
    #[arg(long, short)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Write what one `farwrite send -` sends to standard output, instead of files
    #[arg(value_name = "-", value_parser = ["-"], conflicts_with_all = NOT_OF_PIPES)]
    output: Option<String>,
    /// The peer that may go on with interrupted files. Without it, the key of the session says which peer that is. The
    /// key of a copy is used once. Not an option: `farwrite cp` sets it.
    #[arg(skip)]
    pub(crate) peer: Option<PeerKey>,
    /// The names that the sender may send; without it, the sender may send any name. Not an option: `farwrite cp` sets it.
    #[arg(skip)]
    pub(crate) names: Option<Vec<OsString>>,
    /// If a sender wants to remove more than this number, nothing is removed. Not an option: `farwrite cp` sets it.
    #[arg(skip)]
    pub(crate) max_delete: Option<u32>,
    /// Whether the user wants to see what would happen, and nothing may change. Not an option: `farwrite cp` sets it.
    #[arg(skip)]
    pub(crate) dry_run: bool,
}

/// The options that say something about files, or about transfers of files.
const NOT_OF_PIPES: [&str; 15] = [
    "device",
    "dir",
    "credit_rate",
    "once",
    "max_senders",
    "memory",
    "unsealed",
    "umask",
    "max_files",
    "reserve",
    "owner",
    "allow_delete",
    "no_resume",
    "trace",
    "metrics",
];

pub(crate) fn run(args: &RecvArgs, console: &Console) -> Result<ExitCode, Failure> {
    if args.is_pipe() {
        let (accepting, cancel) = Accepting::prepare(&args.accepts(None), console)?;
        return pipe::receive(args, &accepting, &cancel, console);
    }
    check_directory(&args.dir)?;
    warn_if_unwritable(&args.dir, console);
    args.device.check()?;
    let (accepting, cancel) = Accepting::prepare(&args.accepts(Some(&args.dir)), console)?;
    let port = reserve(args.listen)?;
    let listener = listen(&port, &accepting.keys(), args.serves_too())?;
    let outputs = Outputs::start(args, console)?;
    let local = port.local_addr();
    let (at, into) = (shown(&local), args.dir.display());
    console.say(format_args!("listening on {at} (UDP), writing into {into}"));
    let command = |end: &str| format!("farwrite send --to {end} PATH...");
    accepting.invite(local, command, console);
    let until = match args.once || args.code {
        true => Until::First,
        false => Until::Interrupted,
    };
    receive(
        (args, until, outputs),
        (&listener, &port),
        &accepting,
        &cancel,
        console,
    )
}

/// Listens at a port that this program holds, for files and for what else this end serves.
pub(crate) fn listen(
    port: &ReservedPort,
    keys: &Keys,
    others: impl IntoIterator<Item = Purpose>,
) -> Result<Arc<Listener>, Failure> {
    let mut options = connection_options(SETUP);
    options.serves = vec![Purpose::FILES];
    options.serves.extend(others);
    let listener = Listener::bind_beside(port, keys, &options);
    listener.or_fail("listening").map(Arc::new)
}

/// Where a receiver writes what happens, beside the console.
pub(crate) struct Outputs {
    audit: Arc<Audit>,
    trace: Tracing,
    watch: Watch,
}

impl Outputs {
    /// Opens them, so that what is wrong with one of them ends the program before it says that it listens.
    pub(crate) fn start(args: &RecvArgs, console: &Console) -> Result<Self, Failure> {
        Ok(Self {
            audit: Arc::new(Audit::start(args.audit.clone(), console.clone())?),
            trace: args.trace.start()?,
            watch: args.metrics.start("recv")?,
        })
    }
}

/// Receives by a listener at a port that this program holds. Returns the exit code.
pub(crate) fn receive(
    (args, until, outputs): (&RecvArgs, Until, Outputs),
    (listener, port): (&Arc<Listener>, &ReservedPort),
    accepting: &Accepting,
    cancel: &Cancel,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let places = args.places(until);
    let settings = ReceiveSettings {
        memory_bytes: args.memory,
        timeout: args.timeout,
        credit_bps: args.credit_rate,
        sealing: args.device.sealing(),
        max_bytes: args.policy.max_bytes,
        max_file_bytes: None,
        max_files: args.policy.max_files,
        names: args.names.clone(),
        max_delete: args.max_delete,
        policy: args.policy.policy(args.peer.or(accepting.holders())),
    };
    if places > 1 {
        raise_open_files();
    }
    let (audit, trace) = (outputs.audit, outputs.trace);
    let observer = Arc::<Audit>::clone(&audit);
    let limits = match args.peers {
        Some(_) => accepting.peers().limits(places),
        None => places.into(),
    };
    let slots = Places::new(limits);
    let admission = Admission::start(listener, &slots, observer)?;
    let supervisor = Supervisor::of_environment()?;
    let serving = Serving {
        args,
        settings: &settings,
        port,
        memory: MemoryPool::new(args.memory, places),
        places: &slots,
        cancel,
        watch: &outputs.watch,
        trace: &trace,
        console,
        begun: AtomicU64::new(0),
        accepting,
        listener,
        audit: &audit,
        supervisor: &supervisor,
    };
    let note = |from: SocketAddr, refused: Option<&TransferError>| match refused {
        Some(why) => audit.note_busy(None, &from.to_string(), why),
        None => audit.note(json!({ "event": "probe", "address": from.to_string() })),
    };
    let answering = Answering {
        port,
        places: &slots,
        cancel,
        console,
        note: &note,
    };
    supervisor.ready();
    let ended = serve(&serving, admission, until, &answering);
    supervisor.stopping();
    trace.finish(console);
    ended
}

/// Serves senders, and answers probes beside.
fn serve(
    serving: &Serving<'_>,
    mut admission: Admission,
    until: Until,
    answering: &Answering<'_>,
) -> Result<ExitCode, Failure> {
    let is_over = AtomicBool::new(false);
    let others = admission.take_others();
    let next = move || -> Result<Option<Connection>, Failure> {
        serving.cancel.check()?;
        Ok(others.recv_timeout(interrupt::LOOK).ok())
    };
    thread::scope(|scope| {
        let of_thread = &is_over;
        scope.spawn(move || match answering.all(of_thread, next) {
            Err(failure) if failure.exit != Exit::Interrupted => serving.console.warn(failure),
            _ => {}
        });
        let ended = match until {
            Until::Interrupted => serving.all(&admission),
            Until::First | Until::FirstMet => serving.one(&admission, until),
        };
        is_over.store(true, Ordering::Relaxed);
        ended
    })
}

impl RecvArgs {
    /// Whom this end accepts. `root` is where the directories of peers are, if their files go there.
    fn accepts<'a>(&'a self, root: Option<&'a Path>) -> AcceptOptions<'a> {
        AcceptOptions {
            psk_file: self.psk_file.as_deref(),
            identity: self.identity.as_deref(),
            peers: self.peers.as_deref(),
            root,
            code: self.code,
        }
    }

    /// Whether the data go to standard output.
    pub(crate) fn is_pipe(&self) -> bool {
        self.output.is_some()
    }

    /// What a receiver of files serves beside them. A code is for one attempt, which no probe must use up, and the rate of
    /// a pipe does not follow credit.
    fn serves_too(&self) -> impl Iterator<Item = Purpose> {
        let probes = (!self.code).then_some(Purpose::PROBE);
        let pipes = self.credit_rate.is_none().then_some(Purpose::PIPE);
        probes.into_iter().chain(pipes)
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
}

/// Lets this program open as many files as the system allows: each transfer has sockets, and up to some
/// hundred files that wait for their hashes, and each stream of a forward three. Systems give programs a low
/// limit unless they ask.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If the system refuses the higher limit, the program continues with the lower one.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Checks the directory now instead of when a sender connects.
pub(crate) fn check_directory(dir: &Path) -> Result<(), Failure> {
    let what = format!("the directory {}", dir.display());
    let metadata = fs::metadata(dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let what =
                format!("{what} does not exist: make it first (mkdir -p), or name another one");
            Failure::new(Exit::Files, what)
        }
        _ => Failure::caused(Exit::Files, &what, &error),
    })?;
    if metadata.is_dir() {
        Ok(())
    } else {
        Err(Failure::new(Exit::Files, format!("{what}: it is a file")))
    }
}

/// Says now that files will be refused. Those of a directory that exists below this one arrive all the same.
fn warn_if_unwritable(dir: &Path, console: &Console) {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let asked = accessat(CWD, dir, access, AtFlags::EACCESS);
    // Other errors say that it cannot be asked.
    if let Err(error @ (Errno::ACCESS | Errno::ROFS)) = asked {
        console.warn(format_args!(
            "the directory {} cannot be written, so only directories that exist in it can receive files: {error}",
            dir.display()
        ));
    }
}

/// Holds the UDP port at the given address, or otherwise at all addresses.
pub(crate) fn reserve(asked: Option<SocketAddr>) -> Result<ReservedPort, Failure> {
    let port = match asked {
        Some(addr) => reserve_port(addr),
        None => at_any(DEFAULT_PORT, reserve_port),
    };
    port.or_fail("listening")
}
