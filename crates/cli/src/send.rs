//! `farwrite send`: sends files to another machine.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use farwrite_files::{Delete, ScanOptions, Source, check_name};
use farwrite_keys::{HostPort, Key};
use farwrite_transfer::{
    self as transfer, Cancel, DcqcnOptions, DryRun, EqdsOptions, ErrorKind, MaxRate, RateControl,
    RateControlName, SchemeSetting, Sealing, SendSettings, Start, SwiftOptions, TransferHooks,
    TransferReport, Unfinished, WhenBlocked,
};
use farwrite_units::parse::{parse_memory, parse_mtu, parse_rate, parse_size, parse_timeout};

use crate::addresses::parse_target;
use crate::console::Console;
use crate::device::DeviceArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::key::ConnectKeyArgs;
use crate::known_paths::{KnownPath, KnownPaths};
use crate::link_file::{self, Description};
use crate::trace::TraceArgs;
use crate::transfer_metrics::{MetricsArgs, Watch};
use crate::tree_args::TreeArgs;
use crate::{dry_run, interrupt, outcome, pipe, rate_file};

/// How long to wait before the next attempt while this machine has no network.
const NO_NETWORK: Duration = Duration::from_millis(500);

/// The first window of EQDS if the user gives no `--first-window`.
const FIRST_WINDOW_BYTES: u64 = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  farwrite send --to 192.0.2.7:4792 --psk-file far.key data.bin photos/
  farwrite send --to far.example:4792 --psk-file far.key --rate 200Mbit --scheme sr-nack archive/
  farwrite send --to far.example:4792 --psk-file far.key --scheme ec-mds:32,8 many-small-files/
  farwrite send --to far.example:4792 --psk-file far.key --link link.toml archive/
  farwrite send --to far.example:4792 --psk-file far.key --rate-file rate archive/ &
      later: echo 5Mbit > rate; kill -HUP $!
  farwrite send --to far.example:4792 --psk-file far.key --sealed archive/
      refuses to send data that is not encrypted
  farwrite send --to far.example --psk-file far.key --device mlx5_0 archive/
      over an RDMA device; the other end may have one or not
  farwrite send --to far.example --psk-file far.key -X --exclude '*.o' --exclude /build/ source/
  zfs send tank@now | farwrite send --to far.example --psk-file far.key -
      the other machine: farwrite recv --psk-file far.key - | zfs receive tank/copy
  pg_dump db | farwrite send --to far.example --psk-file far.key --name db.sql -
      becomes the file db.sql of a `farwrite recv --dir DIR`
  tar c photos | farwrite send --to far.example -
      asks at the terminal for the key or the code that `farwrite recv --code - | tar x` shows
  farwrite send --dry-run --exclude '*.o' source/         lists what would be sent
  farwrite send --to far.example --psk-file far.key --dry-run --delete source/
      also lists what the receiver would remove, and changes nothing
  farwrite send --to [2001:db8::7] archive/.     asks for the key or the code that recv shows
  farwrite send --to far.example --identity host.key --peer-key farwrite-public-1:... archive/
      to a receiver with --peers

Either end may be started first. A sender waits, up to --timeout, for a receiver that does not listen
yet or is busy with another sender. A link-local address needs the name of this machine's interface:
[fe80::7%eth0]:4792. `a/b` and `a/b/` arrive as `b`, `a/b/.` as the contents of `b`. UDP
packets to the port must reach the other end, and its answers the sender. The sender may be behind
any address translation (NAT), the receiver behind one that keeps the port.

The sender measures the rate of the path and uses it. It keeps queues short, and leaves a share to
other traffic. --rate is an upper bound. --rate-file can change it while the transfer runs. The
result is stored for a week in ~/.cache/farwrite/paths.toml, so that the next transfer to the same
receiver starts near that rate. The size of packets is stored too, if larger ones were lost.
With --rate-control fixed, the sender sends at --rate, and does not yield to other traffic. It slows
down only if the receiver's own sockets overflow.

The progress line and the last line say what limits the rate: the path, --rate, this machine's
processor, the receiver, a disk at either end, or --memory. --verbose adds round trip, losses, repeats,
packet size and scheme; --json has everything.

With --scheme auto, the planner decides for each message, from the measured loss, round trip and rate:
parity if repairs would take longer than sending the parity, else sr-nack. It changes its choice if
this saves a tenth of the remaining time. --verbose and --json show its choices and the reasons.

Schemes: sr-nack (selective repeat with NACKs), sr-rto (selective repeat with timeouts), gbn
(go-back-N), ec-xor:K,M and ec-mds:K,M, such as ec-mds:32,8 (erasure coding by XOR or Reed-Solomon:
M parity chunks for every K data chunks; --rate and --memory include them).

A file that the receiver has with the same length and time of modification is not sent again; --checksum
compares the bytes instead. Symbolic links are sent as links, and names of one file as names of one file.

If a file or directory cannot be read, or a file changes while it is sent, only that fails, and the others
continue. Of a file that grows, the bytes are sent that it had when it was listed.";

/// Sends files and directory trees to a `farwrite recv` on another machine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SendArgs {
    /// The receiver: a name or an address, and the port that it listens on; without a port, 4792
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_target)]
    #[arg(required_unless_present = "dry_run")]
    to: Option<HostPort>,
    #[command(flatten)]
    key: ConnectKeyArgs,
    /// How losses are repaired: auto, or one of the schemes below
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) scheme: SchemeSetting,
    /// File that describes the path, as `farwrite probe --save` writes it. The transfer starts at its
    /// rate and round trip, tries packets up to its MTU, and expects its losses
    #[arg(long, value_name = "FILE")]
    link: Option<PathBuf>,
    /// Maximum bits per second on the wire, with headers: 8kbit to 100Gbit; without it, as many as
    /// the path carries. With dcqcn, swift and eqds, the rate of the port
    #[arg(long, value_name = "RATE", value_parser = parse_rate, allow_hyphen_values = true)]
    rate: Option<u64>,
    /// File with the value of --rate, such as 10Mbit. It is read again when this program gets the
    /// signal SIGHUP, which then does not end it. With --rate-control adaptive and fixed
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    rate_file: Option<PathBuf>,
    /// How the rate is determined
    #[arg(long, value_name = "NAME", default_value_t = RateControlName::Adaptive)]
    #[arg(value_parser = rate_controls())]
    rate_control: RateControlName,
    /// With eqds, bytes to send before the first credit of the receiver; without it, 64KiB. The
    /// bandwidth-delay product of the path saves a round trip, and less keeps the queue shorter when many
    /// senders start at once
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    first_window: Option<u64>,
    /// Do not use measurements of earlier transfers to this receiver, and store none for later ones
    #[arg(long)]
    no_path_cache: bool,
    /// Payload bytes of a packet: a multiple of 4 from 256 to 65468; without it, as many as the path
    /// carries, which the transfer measures, but at most 8936, the mtu of --link, or the size that was
    /// kept from an earlier transfer; --no-path-cache searches again. Sealing takes 24 bytes of each
    /// packet. If the path starts to carry less, the transfer continues with smaller packets
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu, allow_hyphen_values = true)]
    pub(crate) mtu: Option<u32>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Maximum memory for data in flight, with parity, at each end: 1MiB to 16GiB
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_memory)]
    #[arg(allow_hyphen_values = true)]
    memory: u64,
    /// Give up if the receiver cannot be reached, is silent, or is busy with others for this time:
    /// 1s to 1h. Also give up if too little new data moves in this time: less than 100 bytes for each of
    /// its seconds, or less than 4 KiB if the time is longer than 41s. Waiting for a slow disk at either end
    /// does not count
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_timeout)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    tree: TreeArgs,
    /// Show more about the transfer at its end: losses, repeats, packet size, scheme
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// With `-`: name of the file in which a receiver of files stores the standard input
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Files and directories to send; `-` alone: the standard input, to a `farwrite recv -`, or with --name to a file
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// The values of `--rate-control`, with their help.
fn rate_controls() -> impl TypedValueParser<Value = RateControlName> {
    let values = RateControlName::ALL.map(|name| {
        let help = match name {
            RateControlName::Adaptive => "Adapt to the path, up to --rate",
            RateControlName::Fixed => "Send at --rate",
            RateControlName::Dcqcn => {
                "DCQCN, from --rate down: for datacenters with switches that mark packets (ECN)"
            }
            RateControlName::Swift => {
                "Swift, up to --rate: for datacenters. It keeps the delay near the round trip that \
                 is measured at the start, and each loss slows it down"
            }
            RateControlName::Eqds => {
                "EQDS: the receiver, with --credit-rate, grants credit to all of its senders together, so \
                 that they share its port. For datacenters; --rate is the rate of this machine's port"
            }
        };
        PossibleValue::new(name.as_str()).help(help)
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<RateControlName>())
}

impl SendArgs {
    /// The rate control of a transfer. `rate` is the maximum, and `start` is the stored knowledge about
    /// the path.
    fn rate_control(
        &self,
        rate: Option<u64>,
        start: Option<Start>,
    ) -> Result<RateControl, Failure> {
        use RateControlName::{Adaptive, Dcqcn, Eqds, Fixed, Swift};
        match (self.rate_control, rate) {
            (Adaptive | Fixed | Dcqcn | Swift, _) if self.first_window.is_some() => {
                let what = "--first-window is for --rate-control eqds: choose eqds, or leave out --first-window";
                Err(Failure::new(Exit::Usage, what))
            }
            (Dcqcn, _) if self.device.config().is_some() => {
                let what = "--rate-control dcqcn: RDMA devices show no congestion marks of packets; choose \
                            another one, or leave out --device";
                Err(Failure::new(Exit::Usage, what))
            }
            (Adaptive, max_bps) => Ok(RateControl::Adaptive { max_bps, start }),
            (Fixed, Some(rate_bps)) => Ok(RateControl::Fixed { rate_bps }),
            (Dcqcn, Some(rate_bps)) => Ok(RateControl::Dcqcn(DcqcnOptions::paper(rate_bps))),
            // The path knows the length of its packets, and the transfer the round trip.
            (Swift, Some(rate_bps)) => Ok(RateControl::Swift(SwiftOptions::new(rate_bps, 1, 0))),
            (Eqds, Some(rate_bps)) => Ok(RateControl::Eqds(EqdsOptions {
                line_rate_bps: rate_bps,
                first_window_bytes: self.first_window.unwrap_or(FIRST_WINDOW_BYTES),
            })),
            (Fixed, None) => {
                let what = "--rate-control fixed: give the rate with --rate";
                Err(Failure::new(Exit::Usage, what))
            }
            (name @ (Dcqcn | Swift | Eqds), None) => {
                let what = format!("--rate-control {name}: give the rate of the port with --rate");
                Err(Failure::new(Exit::Usage, what))
            }
        }
    }

    /// The maximum rate of a file, which can change while the transfer runs.
    fn max_rate(&self, console: &Console) -> Result<Option<MaxRate>, Failure> {
        let Some(file) = &self.rate_file else {
            return Ok(None);
        };
        let name = self.rate_control;
        if !matches!(name, RateControlName::Adaptive | RateControlName::Fixed) {
            let what = format!(
                "--rate-file: with {name}, the rate is that of the port, and does not change; give it \
                 with --rate"
            );
            return Err(Failure::new(Exit::Usage, what));
        }
        rate_file::follow(file, console).map(Some)
    }
}

/// Pipes.
impl SendArgs {
    /// Whether the data come from standard input.
    fn is_pipe(&self) -> bool {
        self.paths == [Path::new("-")]
    }

    /// Checks the options of a pipe. Returns where it goes, and how its rate is determined.
    fn pipe(&self) -> Result<(&HostPort, RateControl), Failure> {
        let is_adaptive_or_fixed = matches!(
            self.rate_control,
            RateControlName::Adaptive | RateControlName::Fixed
        );
        let unfit = [
            ("--link", self.link.is_some()),
            ("--rate-file", self.rate_file.is_some()),
            ("--rate-control", !is_adaptive_or_fixed),
            ("--first-window", self.first_window.is_some()),
            ("--device", self.device.config().is_some()),
            ("--unsealed", self.device.sealing() == Sealing::Off),
            ("--trace", self.trace.is_on()),
            ("--metrics", self.metrics.is_given()),
        ];
        let unfit = unfit.iter().find(|(_, is_given)| *is_given);
        if let Some(name) = unfit.map(|(name, _)| *name).or(self.tree.given()) {
            let what = format!("{name} is not for standard input: leave it out, or send files");
            return Err(Failure::new(Exit::Usage, what));
        }
        if let Some(name) = &self.name {
            check_file_name(name).map_err(|what| Failure::new(Exit::Usage, what))?;
        }
        let to = self.to.as_ref().ok_or_else(|| {
            let what = "standard input goes to a receiver: name it with --to";
            Failure::new(Exit::Usage, what)
        })?;
        Ok((to, self.rate_control(self.rate, None)?))
    }
}

/// Checks the name for the file of a pipe.
fn check_file_name(name: &str) -> Result<(), String> {
    let most = pipe::MOST_FILE_NAME_BYTES;
    let is_long = name.len() > most;
    let why = match check_name(name.as_bytes()) {
        Err(why) => why.to_string(),
        Ok(()) if is_long => format!("it has {} bytes, and may have {most}", name.len()),
        Ok(()) if name.contains(char::is_control) => "it contains a control character".into(),
        Ok(()) => return Ok(()),
    };
    Err(format!("--name {name:?}: {why}"))
}

/// Reads the file of `--link`. Returns what it says about the path, and the loss of packets.
fn read_link(file: &Path, console: &Console) -> Result<(Description, Option<f64>), Failure> {
    let (path, name) = (link_file::read(file)?, file.display());
    if path.rate_bps.is_some() && path.start().is_none() {
        console.warn(format_args!(
            "{name}: rate has no effect without rtt or distance"
        ));
    }
    let loss_packet = path.loss_packet();
    let loss_packet =
        loss_packet.map_err(|what| Failure::new(Exit::Usage, format!("{name}: {what}")))?;
    Ok((path, loss_packet))
}

/// Sends the files. Returns the exit code.
pub(crate) fn run(args: &SendArgs, console: &Console) -> Result<ExitCode, Failure> {
    let cancel = match args.rate_file {
        Some(_) => interrupt::catch_but_hang_up()?,
        None => interrupt::catch()?,
    };
    if args.name.is_some() && !args.is_pipe() {
        let what = "--name is for the standard input: give - as the only path, or leave it out";
        return Err(Failure::new(Exit::Usage, what));
    }
    if args.is_pipe() {
        let pipe = args.pipe()?;
        let key = args.key.key_or_code(true, &cancel)?;
        return pipe::send(args, pipe, &key, &cancel, console);
    }
    if args.tree.lists_only() {
        return args.list(&cancel, console);
    }
    let to = args.to.as_ref().ok_or_else(|| {
        let what = "--dry-run --delete asks the receiver what it would remove: name it with --to";
        Failure::new(Exit::Usage, what)
    })?;
    let sending = Sending::prepare(args, console)?;
    let key = args.key.key_or_code(false, &cancel)?;
    let connect = || transfer::connect(to, &key, args.timeout, &cancel, console);
    let mut sent = sending.attempt((to, Through::Network), &key, (&cancel, None), connect)?;
    while let Err(unfinished) = &sent
        && unfinished.kind() == ErrorKind::Moved
        // A code serves one connection.
        && !matches!(key, Key::Code(_))
    {
        console.warn(format_args!(
            "{}; the transfer continues from another address",
            unfinished.error
        ));
        sent = args.go_on(&sending, to, (&key, &cancel), console)?;
    }
    show(console, sent, args.verbose)
}

/// How a command that sends has ended.
pub(crate) enum Sent {
    Transfer(Box<TransferReport>),
    DryRun(Box<(Source, DryRun)>),
}

/// Shows it to people and scripts. Returns the exit code.
pub(crate) fn show(
    console: &Console,
    sent: Result<Sent, Unfinished>,
    is_verbose: bool,
) -> Result<ExitCode, Failure> {
    let ended = match sent {
        Ok(Sent::DryRun(found)) => {
            let (source, run) = &*found;
            return dry_run::show(run, Some(source.unreadable()), Exit::PeerFiles, console);
        }
        Ok(Sent::Transfer(report)) => Ok(*report),
        Err(unfinished) => Err(unfinished),
    };
    outcome::show(console, ended, is_verbose)
}

impl SendArgs {
    /// Lists what would be sent, without a receiver. Returns the exit code.
    pub(crate) fn list(&self, cancel: &Cancel, console: &Console) -> Result<ExitCode, Failure> {
        let source = scan(self, self.tree.options()?, cancel, console)?;
        let listed = DryRun {
            manifest: Arc::clone(source.manifest()),
            unchanged: None,
            removal: None,
            warnings: Vec::new(),
        };
        dry_run::show(&listed, Some(source.unreadable()), Exit::Files, console)
    }

    /// Sends again, and resumes what has arrived. Tries to connect until the timeout, because this machine may
    /// have no network for some time.
    fn go_on(
        &self,
        sending: &Sending<'_>,
        to: &HostPort,
        (key, cancel): (&Key, &Cancel),
        console: &Console,
    ) -> Result<Result<Sent, Unfinished>, Failure> {
        let start = Instant::now();
        let connect = || loop {
            let left = self.timeout.saturating_sub(start.elapsed());
            let connected = transfer::connect(to, key, left.max(NO_NETWORK), cancel, console);
            match &connected {
                Err(error) if error.kind() == ErrorKind::Unreachable && !left.is_zero() => {
                    thread::sleep(NO_NETWORK);
                }
                _ => return connected,
            }
        };
        sending.attempt((to, Through::Network), key, (cancel, None), connect)
    }
}

/// What carries a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Through {
    /// The path between two addresses, of which later transfers use what this one has measured.
    Network,
    /// The pipe of ssh, behind an address of this machine that says nothing about it.
    Ssh,
}

/// The arguments of a transfer, checked, with what outlives an attempt to send.
pub(crate) struct Sending<'a> {
    args: &'a SendArgs,
    console: &'a Console,
    watch: Watch,
    max_rate: Option<MaxRate>,
    described: Description,
    loss_packet: Option<f64>,
}

impl<'a> Sending<'a> {
    /// Checks the arguments before anything is sent.
    pub(crate) fn prepare(args: &'a SendArgs, console: &'a Console) -> Result<Self, Failure> {
        let watch = args.metrics.start("send")?;
        let max_rate = args.max_rate(console)?;
        args.device.check()?;
        args.tree.options()?;
        let described = args.link.as_deref().map(|file| read_link(file, console));
        let (described, loss_packet) = described.transpose()?.unwrap_or_default();
        let sending = Self {
            args,
            console,
            watch,
            max_rate,
            described,
            loss_packet,
        };
        args.rate_control(sending.rate(), None)?;
        Ok(sending)
    }

    /// The maximum rate now, in bits per second.
    fn rate(&self) -> Option<u64> {
        let of_file = self.max_rate.as_ref().map(MaxRate::bps);
        of_file.or(self.args.rate)
    }

    /// The settings from the options. Missing values come from the description of the path, and then from what earlier
    /// transfers have learned.
    fn settings(&self, delete: Option<Delete>, known: KnownPath) -> Result<SendSettings, Failure> {
        let (args, path) = (self.args, &self.described);
        Ok(SendSettings {
            scheme: args.scheme,
            rate_control: args.rate_control(self.rate(), path.start().or(known.start))?,
            expected_loss: self.loss_packet,
            mtu: args.mtu,
            largest_mtu: path.mtu.or(known.mtu),
            sealing: args.device.sealing(),
            memory_bytes: args.memory,
            compare: args.tree.compare(),
            delete,
            timeout: args.timeout,
        })
    }

    /// How long the other end may be silent.
    pub(crate) fn timeout(&self) -> Duration {
        self.args.timeout
    }

    /// Lists the files, connects to the receiver `to`, and sends the files, or asks what that would do.
    ///
    /// # Errors
    /// What is wrong at this end before a transfer begins. How a transfer has ended is in the value.
    pub(crate) fn attempt(
        &self,
        (to, through): (impl fmt::Display, Through),
        key: &Key,
        (cancel, when_blocked): (&Cancel, Option<WhenBlocked<'_>>),
        connect: impl FnOnce() -> Result<transfer::Channel, transfer::Error>,
    ) -> Result<Result<Sent, Unfinished>, Failure> {
        let (args, console) = (self.args, self.console);
        let source = scan(args, args.tree.options()?, cancel, console)?;
        let delete = args.tree.delete(&source)?;
        let channel = match connect() {
            Ok(channel) => channel,
            Err(error) => return Ok(Err(Unfinished::before(error, to, &source))),
        };
        let (from, to) = (channel.local_addr().ip(), channel.peer_addr().ip());
        let uses_known = through == Through::Network && !args.no_path_cache;
        let paths = KnownPaths::of_user().filter(|_| uses_known);
        let known = paths.as_ref().map(|paths| paths.find(from, to));
        let settings = self.settings(delete, known.unwrap_or_default())?;
        let hooks = TransferHooks {
            redirect: &transfer::unchanged,
            cancel,
            observer: &self.watch.begin(console),
            port: None,
            device: args.device.config(),
            memory: None,
            max_rate: self.max_rate.as_ref(),
            when_blocked,
        };
        if args.tree.dry_run {
            let asked = transfer::dry_run(channel, source.manifest(), &settings, &hooks);
            let asked = asked.map(|run| Sent::DryRun(Box::new((source, run))));
            return Ok(asked.map_err(Unfinished::from));
        }
        let trace = args.trace.start()?;
        let sent = transfer::send(channel, key, source, &settings, &hooks);
        trace.finish(console);
        if let (Some(paths), Ok(report)) = (paths, &sent) {
            let learned = KnownPath {
                start: report.learned(),
                mtu: report.narrow_mtu(),
            };
            if let Err(error) = paths.keep(from, to, learned, report.unsealed_mtu()) {
                console.warn(format_args!(
                    "what was learned about the path is not kept for the next transfer: {error}"
                ));
            }
        }
        Ok(sent.map(|report| Sent::Transfer(Box::new(report))))
    }
}

/// Lists the files to send.
fn scan(
    args: &SendArgs,
    options: ScanOptions,
    cancel: &Cancel,
    console: &Console,
) -> Result<Source, Failure> {
    let paths = args.paths.clone();
    // A slow disk must not block Ctrl-C.
    let scanned = cancel.run(move || Source::scan(&paths, &options))?;
    let source = scanned.or_exit(Exit::Files, "listing the files")?;
    let skipped = source.skipped();
    if !skipped.is_empty() {
        let names = skipped.iter().map(|path| format!("{path:?}"));
        console.warn(outcome::counted(skipped.len(), names, "left out"));
    }
    Ok(source)
}
