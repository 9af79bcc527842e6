//! The program at the other machine, started through ssh (P14.1).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use farwrite_keys::Psk;
use farwrite_transfer::Cancel;
use farwrite_units::show::Time;
use rustix::event::PollFlags;
use zeroize::Zeroizing;

use super::place::{from_home, quoted};
use super::{FAR_GREETING, FAR_VERSION, Meeting};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::LOOK;
use crate::standard::is_ready;

/// The most bytes before the greeting, such as those that a shell prints when it starts.
const MAX_NOISE_BYTES: usize = 64 << 10;
/// The time for the greeting without --timeout. A person may type a password meanwhile.
const LOGIN: Duration = Duration::from_secs(300);
/// The time that ssh has to end after a copy.
const LAST: Duration = Duration::from_secs(5);
/// Where `--bootstrap` puts the program, below the home directory.
const BOOTSTRAP: &str = concat!(".cache/farwrite/farwrite-", env!("CARGO_PKG_VERSION"));

/// The options that say how the other machine is reached.
#[derive(Debug, Args)]
pub(crate) struct RemoteArgs {
    /// Command that runs a program on the other machine, with its options
    #[arg(long, short = 'e', value_name = "COMMAND", default_value = "ssh")]
    rsh: String,
    /// The program on the other machine, if its shell does not find `farwrite`
    #[arg(long, value_name = "PATH", conflicts_with = "bootstrap")]
    far_program: Option<OsString>,
    /// Copy this program to ~/.cache/farwrite of the other machine first, and use it
    #[arg(long)]
    bootstrap: bool,
}

/// Refuses a name that ssh would take for an option.
pub(crate) fn check_host(host: &OsStr) -> Result<(), Failure> {
    if host.as_encoded_bytes().starts_with(b"-") {
        let what = "the name of a host cannot begin with `-`; give options of ssh with --rsh, as in --rsh 'ssh -p 2222'";
        return Err(Failure::new(Exit::Usage, what));
    }
    Ok(())
}

/// The running program at the other machine.
pub(crate) struct Far {
    child: Child,
    name: String,
}

/// The standard input and output of the program.
pub(crate) type Pipes = (ChildStdin, BufReader<ChildStdout>);

impl RemoteArgs {
    /// Runs `farwrite far WORDS...` at a machine, which can have the user before its name. Gives the program the key and
    /// what else it must know, waits for its greeting, at most for `timeout`, and returns the rest of that line.
    pub(crate) fn start(
        &self,
        host: &OsStr,
        words: &[OsString],
        (psk, meeting): (&Psk, Option<&Meeting>),
        timeout: Option<Duration>,
        cancel: &Cancel,
    ) -> Result<(Far, String, Pipes), Failure> {
        let mut line: OsString = if self.bootstrap {
            self.copy_program(host, cancel)?;
            BOOTSTRAP.into()
        } else if let Some(path) = &self.far_program {
            quoted(&from_home(path))
        } else {
            "farwrite".into()
        };
        for word in ["--quiet", "far"].map(OsString::from).iter().chain(words) {
            line.push(" ");
            line.push(quoted(word));
        }
        let mut child = self.command(host, &line, Stdio::piped())?;
        let missing = || Failure::new(Exit::Other, "ssh has no standard input or output");
        let mut input = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut head = Zeroizing::new(format!("{}\n", &*psk.to_text()));
        if let Some(meeting) = meeting {
            *head += &format!("{meeting}\n");
        }
        // If ssh has failed, its exit status says more than the broken pipe.
        let _ = input.write_all(head.as_bytes());
        let name = host.to_string_lossy().into_owned();
        let mut far = Far { child, name };
        match far.greeting((input, output), timeout.unwrap_or(LOGIN), cancel) {
            Ok((rest, pipes)) => Ok((far, rest, pipes)),
            Err(failure) => {
                // ssh may still ask for a password, or wait for the other machine.
                far.kill();
                Err(failure)
            }
        }
    }

    fn command(&self, host: &OsStr, line: &OsStr, output: Stdio) -> Result<Child, Failure> {
        let mut words = self.rsh.split_whitespace();
        let shell = words.next().unwrap_or("ssh");
        let mut command = Command::new(shell);
        command.args(words).arg(host).arg(line);
        command.stdin(Stdio::piped()).stdout(output);
        command
            .spawn()
            .or_exit(Exit::Other, format_args!("starting {shell}"))
    }

    /// Copies this program into the cache directory of the user there. It must be able to run there: the
    /// static program of a release can.
    fn copy_program(&self, host: &OsStr, cancel: &Cancel) -> Result<(), Failure> {
        let what = "copying this program to the other machine";
        let mut own = File::open("/proc/self/exe").or_exit(Exit::Files, what)?;
        let bytes = own.metadata().or_exit(Exit::Files, what)?.len();
        let mut line = OsString::from("exec sh -c ");
        line.push(quoted(OsStr::new(&keep_program(bytes))));
        let mut child = self.command(host, &line, Stdio::null())?;
        let input = child.stdin.take();
        let mut input = input.ok_or_else(|| Failure::new(Exit::Other, "ssh has no input"))?;
        let copying = thread::spawn(move || io::copy(&mut own, &mut input));
        let status = loop {
            if cancel.is_set() {
                let _ = child.kill();
            }
            match child.try_wait().or_exit(Exit::Other, what)? {
                Some(status) => break status,
                None => thread::sleep(LOOK),
            }
        };
        // Ctrl-C reaches ssh too, whose end would be reported otherwise.
        cancel.check()?;
        let copied = copying.join();
        let copied = copied.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (copied, status.code()) {
            (Ok(_), Some(0)) => Ok(()),
            (_, Some(255)) => Err(why_it_ended(&host.to_string_lossy(), Some(255))),
            // If the other end has failed, its status says more than the broken pipe.
            (Err(error), Some(0)) => Err(error).or_exit(Exit::Unreachable, what),
            _ => Err(Failure::new(Exit::Unreachable, format!("{what}: {status}"))),
        }
    }
}

/// Returns the script that saves this program at the other machine, from its standard input. `bytes` is the length of
/// the program. The connection can end early, and several scripts can run at the same time. So each script writes to a
/// name of its own, and renames the file only if it has this length.
fn keep_program(bytes: u64) -> String {
    format!(
        "umask 077; new={BOOTSTRAP}.$$; trap \"rm -f $new\" EXIT; trap \"exit 1\" HUP INT TERM; \
         mkdir -p .cache/farwrite && cat > $new && [ $(wc -c < $new) -eq {bytes} ] && \
         chmod 700 $new && mv -f $new {BOOTSTRAP}"
    )
}

impl Far {
    /// Waits for the greeting of the program, and returns the rest of its line.
    fn greeting(
        &mut self,
        mut pipes: Pipes,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<(String, Pipes), Failure> {
        let until = Instant::now() + limit;
        let mut noise_bytes = 0;
        while noise_bytes <= MAX_NOISE_BYTES {
            let line = match read_line(&mut pipes.1, until, cancel)? {
                Line::Whole(line) => line,
                Line::End => {
                    // The program ends when its standard input does.
                    drop(pipes);
                    let status = end_of(&mut self.child).and_then(|status| status.code());
                    // Ctrl-C ends ssh too.
                    cancel.check()?;
                    return Err(why_it_ended(&self.name, status));
                }
                Line::Late => {
                    let (name, limit) = (&self.name, Time(limit));
                    let what = format!("{name} has not answered within {limit} (--timeout)");
                    return Err(Failure::new(Exit::Unreachable, what));
                }
            };
            // What a shell prints may be of any bytes, and need not end with a newline.
            let text = String::from_utf8_lossy(&line);
            if let Some(at) = text.rfind(FAR_GREETING) {
                let found = text[at + FAR_GREETING.len()..].trim_end();
                let (version, rest) = found.split_once(' ').unwrap_or((found, ""));
                self.check_version(version)?;
                return Ok((rest.trim().to_owned(), pipes));
            }
            noise_bytes += line.len();
        }
        let what = format!(
            "{} prints more than {MAX_NOISE_BYTES} bytes before the program starts, and no greeting of farwrite: \
             make its shell silent for commands of ssh",
            self.name
        );
        Err(Failure::new(Exit::Mismatch, what))
    }

    fn check_version(&self, version: &str) -> Result<(), Failure> {
        if version == FAR_VERSION {
            return Ok(());
        }
        let what = format!(
            "{} speaks version {version:?} of copies, and this program {FAR_VERSION}: install the same release at \
             both ends",
            self.name
        );
        Err(Failure::new(Exit::Mismatch, what))
    }

    /// Waits until the program ends by itself. Returns its status; `None` if a signal has ended ssh.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().ok()?.code()
    }

    /// Whether the program has ended by itself. Its status is `None` if a signal has ended ssh.
    pub(crate) fn ended(&mut self) -> Option<Option<i32>> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.code()),
            Err(_) => Some(None),
        }
    }

    /// Why the program or ssh has ended by itself, if it has.
    pub(crate) fn why_it_ended(&mut self) -> Option<Failure> {
        let status = self.ended()?;
        Some(why_it_ended(&self.name, status))
    }

    /// Ends ssh, which may wait for the other machine for ever.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end of the program, whose standard input must have ended. Returns its status, as shells
    /// do if a signal has ended it; `None` if it did not end.
    pub(crate) fn end(mut self) -> Option<i32> {
        let status = end_of(&mut self.child)?;
        status.code().or(status.signal().map(|signal| 128 + signal))
    }
}

/// Waits a short time for the end of ssh, whose pipes must have ended; `None` if it did not end.
fn end_of(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < LAST {
        match child.try_wait() {
            Ok(None) => thread::sleep(Duration::from_millis(10)),
            ended => return ended.ok().flatten(),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// What was read of the output of the program.
enum Line {
    /// A line, or as many bytes as may come before the greeting.
    Whole(Vec<u8>),
    End,
    /// The time is over.
    Late,
}

/// Reads a line, and nothing behind it.
fn read_line(
    output: &mut BufReader<ChildStdout>,
    until: Instant,
    cancel: &Cancel,
) -> Result<Line, Failure> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() <= MAX_NOISE_BYTES {
        cancel.check()?;
        if output.buffer().is_empty() && !is_readable(output.get_ref()) {
            if Instant::now() >= until {
                return Ok(Line::Late);
            }
            continue;
        }
        let bytes = match output.fill_buf() {
            Ok([]) | Err(_) => return Ok(Line::End),
            Ok(bytes) => bytes,
        };
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        line.extend_from_slice(&bytes[..taken]);
        output.consume(taken);
    }
    Ok(Line::Whole(line))
}

/// Waits a short time for output, or its end.
fn is_readable(output: &ChildStdout) -> bool {
    // If this fails, reading says what is wrong.
    is_ready(output, PollFlags::IN, LOOK).unwrap_or(true)
}

/// Whether a status says that ssh failed, or that a signal has ended the program at the other machine.
pub(crate) fn was_killed(status: Option<i32>) -> bool {
    matches!(status, Some(129..=255))
}

/// The reason why the program at the other machine ended. What it has said is on standard error already.
pub(crate) fn why_it_ended(name: &str, status: Option<i32>) -> Failure {
    let exit = match status {
        // sshd reports a signal without a status, and then ssh ends with 255.
        None | Some(0 | 126 | 127) => Exit::Unreachable,
        _ if was_killed(status) => Exit::Unreachable,
        Some(2) => Exit::Mismatch,
        Some(6) => Exit::PeerFiles,
        Some(code) => {
            use Exit::{Busy, Corrupt, Full, Mismatch, Unreachable};
            let known = [Mismatch, Corrupt, Unreachable, Busy, Full];
            let exit = Exit::of_code(code).filter(|exit| known.contains(exit));
            exit.unwrap_or(Exit::Other)
        }
    };
    let what = match status {
        Some(127 | 126) => format!(
            "{name} has no program `farwrite` that it can run: install it there, name it with --far-program, or copy \
             this one with --bootstrap"
        ),
        _ if was_killed(status) => {
            format!("ssh to {name} failed, or the program there was killed")
        }
        Some(2) => {
            format!("the program at {name} refuses its arguments: it may be of another version")
        }
        Some(6) => format!("{name} cannot use its files or directory, as it says above"),
        Some(0) => format!("the program at {name} ended before all data had arrived"),
        Some(code) => format!("the program at {name} ended with status {code}"),
        None => format!("the program at {name} did not end by itself"),
    };
    Failure::new(exit, what)
}
