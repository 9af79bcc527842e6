//! `farwrite cp`: copies files to or from another machine. It starts the other end through ssh.

mod detour;
mod far;
mod file;
pub(crate) mod meeting;
mod place;
pub(crate) mod relay;
pub(crate) mod ssh;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use farwrite::ReservedPort;
use farwrite_files::PeerKey;
use farwrite_stream::SchemeSetting;
use farwrite_transfer::{Error as TransferError, ErrorKind};
use farwrite_units::parse::{parse_rate, parse_timeout};

use crate::accepting::Accepting;
use crate::addresses::at_any;
use crate::args::parse_only;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::recv::{self, Outputs, RecvArgs};
use crate::rsh::SessionArgs;
use crate::send::{self, SendArgs, Sending};
use crate::serving::Until;
use crate::tree_args::TreeArgs;
use crate::{interrupt, key};
pub(crate) use far::{greet, run_far};
use file::Direction;
use meeting::Meeting;
use place::{Place, base_name, from_home};
use relay::{Out, Relay};
use ssh::{RemoteArgs, check_host};

/// What the other end says first, before its [`Meeting`] if it receives (P14.1).
const FAR_GREETING: &str = "farwrite-far-";
/// The version behind it.
const FAR_VERSION: &str = "2";

/// What an end does that fails before a transfer.
const PREPARING: &str = "preparing to carry the transfer through ssh";

/// The time between the end of the other program and the end of this one, if nothing else ends it.
const LINGER: Duration = Duration::from_secs(3);

const EXAMPLES: &str = "\
Examples:
  farwrite cp data.bin photos/ far.example:in      copy to a directory of another machine
  farwrite cp me@far.example:results/run7 .        copy from another machine
  farwrite cp --rsh 'ssh -p 2222' data.bin far.example:
  farwrite cp -X --dry-run --delete source far.example:      list what the next line changes
  farwrite cp -X --delete source far.example:
  farwrite cp --bootstrap data.bin far.example:in  copy this program there first
  zfs send tank@now | farwrite cp - far.example:now.zfs      copy the standard input to a file
  farwrite cp far.example:backup.tar - | tar x               copy a file to the standard output

ssh starts the other end, and carries a key of one use and the addresses. The data go over UDP directly,
encrypted, with the schemes of `farwrite send`. The machine that receives must be reachable at one UDP
port. Where it is not, the data go through ssh, and a warning says what to open. The data also go through
ssh if UDP stops passing later. A pipe tries both directions, and goes through ssh if UDP passes in neither of them.

The destination is a directory that exists. `a/b` and `a/b/` arrive as `b`, `a/b/.` as the contents of
`b`. Directories are copied with all that is in them.";

/// Copies files and directory trees to or from another machine that ssh reaches.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = "farwrite cp [OPTIONS] <PATH>... <DESTINATION>")]
pub(crate) struct CpArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// UDP port of the machine that receives; without it, any free one
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
    /// Has no effect, because directories are always copied; scp needs it
    #[arg(long, short = 'r')]
    recursive: bool,
    /// Maximum bits per second on the wire, as of `farwrite send`
    #[arg(long, value_name = "RATE")]
    rate: Option<OsString>,
    /// How losses are repaired, as of `farwrite send`
    #[arg(long, value_name = "NAME")]
    scheme: Option<OsString>,
    /// Maximum memory for data in flight at each end, as of `farwrite send`
    #[arg(long, value_name = "SIZE")]
    memory: Option<OsString>,
    /// Give up after this time without progress, as of `farwrite send`; ssh has 5 minutes to log in
    #[arg(long, value_name = "TIME")]
    timeout: Option<OsString>,
    #[command(flatten)]
    tree: TreeArgs,
    /// Report files as verified before they survive a power failure, as of `farwrite recv`
    #[arg(long)]
    no_sync: bool,
    /// Permissions that files and directories do not get, in octal, as of `farwrite recv`; without it, those of the
    /// umask of the user at the machine that receives. With 000, they keep all that they have
    #[arg(long, value_name = "MODE")]
    umask: Option<OsString>,
    /// Show more about the transfer at its end
    #[arg(long, short)]
    verbose: bool,
    /// Files and directories to copy, and where to: PATH, or [USER@]HOST:PATH for another machine. Either
    /// the destination or all others are on another machine
    // Options may stand between the paths.
    #[arg(value_name = "PATH", required = true, num_args = 1..)]
    paths: Vec<OsString>,
}

pub(crate) fn run(args: &CpArgs, console: &Console) -> Result<ExitCode, Failure> {
    let [sources @ .., destination] = &args.paths[..] else {
        unreachable!("the options need a path")
    };
    if sources.is_empty() {
        let what = format!(
            "{}: name a path to copy and a destination",
            destination.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    let sources: Vec<_> = sources.iter().map(|source| Place::of(source)).collect();
    let place = Place::of(destination);
    if let Some(pipe) = pipe(&sources, &place) {
        return args.pipe(pipe?, console);
    }
    for Place { host, path } in sources.iter().chain([&place]) {
        let Some(host) = host else { continue };
        check_host(host)?;
        if let Some(what) = place::taken_literally(path) {
            let path = path.display();
            console.warn(format_args!("{path}: {what}"));
        }
    }
    let hosts = sources.iter().filter_map(|source| source.host.as_ref());
    let hosts: Vec<_> = hosts.collect();
    let are_all_there = hosts.len() == sources.len();
    let what = match (&place.host, &hosts[..]) {
        (Some(host), []) => {
            return args.send(host, &place.path, &args.paths[..sources.len()], console);
        }
        (None, [host, others @ ..]) if are_all_there && others.iter().all(|it| it == host) => {
            let paths = sources.iter().map(|source| source.path.clone()).collect();
            return args.receive(host, paths, place.path, console);
        }
        (None, []) => "no path is on another machine; name one as HOST:PATH, or use cp",
        (None, _) if are_all_there => {
            "the sources are on several machines: copy from one at a time"
        }
        (Some(_), _) if are_all_there => {
            "all paths are on other machines: run this at the machine with the files, as in ssh HOST farwrite cp ..."
        }
        _ => "either the destination or all sources must be on another machine, and not both",
    };
    Err(Failure::new(Exit::Usage, what))
}

/// A file of another machine, and what happens to it.
type PipeEnd<'a> = (&'a OsStr, &'a OsStr, Direction);

/// The other end of a pipe, if `-` is the source or the destination.
fn pipe<'a>(sources: &'a [Place], destination: &'a Place) -> Option<Result<PipeEnd<'a>, Failure>> {
    let is_pipe = |place: &Place| place.host.is_none() && place.path == "-";
    let (other, direction) = match sources {
        [source] if is_pipe(source) => (Some(destination), Direction::Write),
        [source] if is_pipe(destination) => (Some(source), Direction::Read),
        _ if sources.iter().chain([destination]).any(is_pipe) => (None, Direction::Read),
        _ => return None,
    };
    let end = other.and_then(|place| Some((place.host.as_deref()?, &*place.path, direction)));
    Some(end.ok_or_else(|| {
        let what = "`-` means the standard input or output, and the other path must name one file of another \
                    machine: `- HOST:FILE` or `HOST:FILE -`; for a file named `-`, write ./-";
        Failure::new(Exit::Usage, what)
    }))
}

impl CpArgs {
    /// Whether a file goes to the standard output.
    pub(crate) fn writes_data(&self) -> bool {
        self.paths.last().is_some_and(|path| path == "-")
    }

    /// Copies the standard input to a file of another machine, or such a file to the standard output.
    fn pipe(
        &self,
        (host, path, direction): PipeEnd<'_>,
        console: &Console,
    ) -> Result<ExitCode, Failure> {
        let unfit = self.tree.given();
        let unfit = unfit.or(self.memory.as_ref().map(|_| "--memory"));
        let unfit = unfit.or(self.umask.as_ref().map(|_| "--umask"));
        if let Some(name) = unfit.or(self.no_sync.then_some("--no-sync")) {
            let what = format!("{name} is not for pipes: leave it out, or copy files");
            return Err(Failure::new(Exit::Usage, what));
        }
        let session = SessionArgs {
            port: self.port,
            rate: parsed("--rate", self.rate.as_deref(), parse_rate)?,
            scheme: parsed("--scheme", self.scheme.as_deref(), str::parse)?
                .unwrap_or(SchemeSetting::Auto),
            timeout: self.patience()?,
        };
        let path = from_home(path);
        let remote = (&self.remote, host, &*path);
        file::carry(remote, direction, &session, console)
    }

    fn patience(&self) -> Result<Option<Duration>, Failure> {
        parsed("--timeout", self.timeout.as_deref(), parse_timeout)
    }

    /// The options of the end that sends.
    fn of_sender(&self) -> Result<Vec<OsString>, Failure> {
        let mut words = self.tree.words_of_sender()?;
        words.extend(given([
            ("--memory", &self.memory),
            ("--timeout", &self.timeout),
            ("--rate", &self.rate),
            ("--scheme", &self.scheme),
        ]));
        Ok(words)
    }

    /// The options of the end that receives.
    fn of_receiver(&self) -> Vec<OsString> {
        let mut words = self.tree.words_of_receiver();
        words.extend(self.no_sync.then(|| "--no-sync".into()));
        words.extend(given([
            ("--memory", &self.memory),
            ("--timeout", &self.timeout),
            ("--umask", &self.umask),
        ]));
        words
    }

    /// Sends files of this machine.
    fn send(
        &self,
        host: &OsString,
        directory: &OsStr,
        paths: &[OsString],
        console: &Console,
    ) -> Result<ExitCode, Failure> {
        let cancel = interrupt::catch()?;
        let sender = sender(&self.of_sender()?, paths)?;
        if self.tree.lists_only() {
            return sender.list(&cancel, console);
        }
        let sending = Sending::prepare(&sender, console)?;
        let psk = key::make()?;
        let mut words: Vec<OsString> = vec!["recv".into(), self.port.to_string().into()];
        words.extend(self.of_receiver());
        words.extend(["--dir".into(), from_home(directory)]);
        let (far, greeting, (input, output)) =
            self.remote
                .start(host, &words, (&psk, None), self.patience()?, &cancel)?;
        let meeting = greeting.parse::<Meeting>()?;
        let out = Out::new(input).or_exit(Exit::Other, PREPARING)?;
        let enter = || {
            let (relay, at) = Relay::enter(out.clone(), meeting.port)?;
            thread::spawn(move || {
                let _ = relay.read(output);
                // The transfer notices the end of its connection.
                relay.close();
            });
            Ok(at)
        };
        let name = host.to_string_lossy();
        let to = (&*name, &meeting);
        let sent = meeting::send(&sending, to, (&psk, &cancel), console, enter);
        out.close();
        let status = far.end();
        let mut sent = sent?;
        if let Err(unfinished) = &mut sent
            && unfinished.kind() == ErrorKind::Unreachable
            && ssh::was_killed(status)
        {
            let why = ssh::why_it_ended(&name, status);
            unfinished.error = TransferError::new(ErrorKind::Unreachable, why);
        }
        send::show(console, sent, self.verbose)
    }

    /// Receives files of another machine.
    fn receive(
        &self,
        host: &OsString,
        paths: Vec<OsString>,
        directory: OsString,
        console: &Console,
    ) -> Result<ExitCode, Failure> {
        let (cancel, flag) = interrupt::catch_with_flag()?;
        let mut words = self.of_receiver();
        words.extend(self.verbose.then(|| "--verbose".into()));
        words.extend(["--dir".into(), directory]);
        let mut receiver = receiver(&words)?;
        receiver.peer = Some(PeerKey::of_remote_shell(host.as_encoded_bytes()));
        recv::check_directory(&receiver.dir)?;
        let outputs = Outputs::start(&receiver, console)?;
        // The other end must not choose what else it writes or removes here.
        receiver.names = paths.iter().map(|path| base_name(path)).collect();
        receiver.max_delete = self.tree.max_delete;
        receiver.dry_run = self.tree.dry_run;
        let port = reserve(self.port)?;
        let meeting = Meeting::here(port.local_addr(), None);
        let psk = key::make()?;
        let accepting = Accepting::of_psk(psk.clone());
        // The other end comes as soon as it knows where.
        let listener = recv::listen(&port, &accepting.keys(), [])?;
        let mut words: Vec<OsString> = vec!["send".into()];
        words.extend(self.of_sender()?);
        words.push("--".into());
        words.extend(paths.iter().map(|path| from_home(path)));
        let known = (&psk, Some(&meeting));
        let (far, _, (input, output)) =
            self.remote
                .start(host, &words, known, self.patience()?, &cancel)?;
        let out = Out::new(input).or_exit(Exit::Other, PREPARING)?;
        let relay = Relay::exit(out.clone(), meeting.port).or_exit(Exit::Other, PREPARING)?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&has_ended);
        thread::spawn(move || {
            let _ = relay.read(output);
            // After a transfer, this end has all messages of the other one, and is about to end.
            thread::sleep(LINGER);
            of_thread.store(true, Ordering::Relaxed);
            flag.store(true, Ordering::Relaxed);
        });
        let received = recv::receive(
            (&receiver, Until::FirstMet, outputs),
            (&listener, &port),
            &accepting,
            &cancel,
            console,
        );
        out.close();
        let status = far.end();
        match received {
            Err(failure)
                if failure.exit == Exit::Interrupted && has_ended.load(Ordering::Relaxed) =>
            {
                Err(ssh::why_it_ended(&host.to_string_lossy(), status))
            }
            received => received,
        }
    }
}

/// The options that have values.
fn given<const N: usize>(
    options: [(&'static str, &Option<OsString>); N],
) -> impl Iterator<Item = OsString> {
    let given = options
        .into_iter()
        .filter_map(|(name, value)| Some([name.into(), value.clone()?]));
    given.flatten()
}

/// The value of an option, if it is given.
fn parsed<T, E: std::fmt::Display>(
    name: &str,
    value: Option<&OsStr>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, Failure> {
    let parse = |value: &OsStr| {
        let text = value.to_string_lossy();
        let parsed = parse(&text);
        parsed.map_err(|why| Failure::new(Exit::Usage, format!("{name} {text}: {why}")))
    };
    value.map(parse).transpose()
}

/// Holds a port of all addresses; 0 selects a free one.
fn reserve(port: u16) -> Result<ReservedPort, Failure> {
    at_any(port, |addr| recv::reserve(Some(addr)))
}

/// The arguments of `farwrite send`, except those that say where to.
fn sender(options: &[OsString], paths: &[OsString]) -> Result<SendArgs, Failure> {
    let to = ["--to", "127.0.0.1:1"].map(OsString::from);
    let words = to.iter().chain(options).cloned();
    parse(words.chain(["--".into()]).chain(paths.iter().cloned()))
}

/// The arguments of `farwrite recv`.
fn receiver(options: &[OsString]) -> Result<RecvArgs, Failure> {
    parse(options.iter().cloned())
}

fn parse<T: Args>(words: impl Iterator<Item = OsString>) -> Result<T, Failure> {
    parse_only(words).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        let line = line.strip_prefix("error: ").unwrap_or(line);
        Failure::new(Exit::Usage, format!("{line}; see farwrite cp --help"))
    })
}
