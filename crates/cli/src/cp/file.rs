//! A file at the other end of a pipe: `farwrite cp - HOST:FILE` and `farwrite cp HOST:FILE -` (P14.5).

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ExitCode, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use blake3::Hash;
use farwrite_connection::Connection;
use farwrite_files::new_name;
use farwrite_stream::{Error as StreamError, SchemeSetting, WriteHalf};
use farwrite_transfer::Cancel;
use rustix::fs::fsync;
use tempfile::{Builder, NamedTempFile};

use super::ssh::{Far, Pipes, RemoteArgs};
use crate::console::{Console, Passing};
use crate::exit::{Exit, Failure, OrExit};
use crate::files::directory_of;
use crate::interrupt::{self, LOOK};
use crate::pipe::{Cut, Passed, decode, encode};
use crate::policy::own_umask;
use crate::rsh::{self, SessionArgs};
use crate::standard::{own_input, own_output};

/// How long this end may take to say why it failed, after the far end has ended.
const LAST: Duration = Duration::from_secs(1);
/// How long the far end may take to end, after this end has failed: it says why through ssh, if that still lives.
const FAR_LAST: Duration = Duration::from_secs(5);
/// Permissions of a new file, before the umask takes some away.
const MODE: u32 = 0o666;

/// What the far end does with its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Writes what comes to it.
    Write,
    /// Reads it.
    Read,
}

impl Direction {
    /// What the far end does, what this end shows while it does its part, and when it has done that.
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::Write => ["write", "sending", "sent"],
            Self::Read => ["read", "receiving", "received"],
        }
    }
}

/// Carries the standard input to a file of the other machine, or such a file to the standard output. Returns
/// the exit code.
pub(crate) fn carry(
    (remote, host, path): (&RemoteArgs, &OsStr, &OsStr),
    direction: Direction,
    session: &SessionArgs,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let start_time = Instant::now();
    let [far_does, doing, done] = direction.words();
    // Ctrl-C ends this program at once.
    let cancel = Cancel::default();
    let started = rsh::start((remote, host), (far_does, path), session, &cancel, console)?;
    let count = Arc::<AtomicU64>::default();
    let way = started.connection;
    let moving = start(way, started.pipes, direction, (session.scheme, &count))?;
    let mut passing = Passing::new(console, doing);
    let show = || passing.show(count.load(Ordering::Relaxed));
    let ended = wait_for_both(&moving, started.far, show, direction);
    let bytes = count.load(Ordering::Relaxed);
    passing.finish(bytes);
    let peer = host.to_string_lossy().into_owned();
    let passed = Passed::new(peer, bytes, ended?, start_time.elapsed());
    console.say(passed.line(done));
    if direction == Direction::Write {
        console.json(&passed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The failure that has caused the other one. `None` is an end that has not failed, or has not said so.
fn cause(direction: Direction, here: Option<Cut>, there: Option<Failure>) -> Failure {
    use Direction::{Read, Write};
    match (direction, here, there) {
        (Read, Some(own @ Cut::Write(_)), _) | (Write, Some(own @ Cut::Read(_)), _) => own.into(),
        (_, _, Some(there)) => there,
        // The path to the other machine has failed, which has not said why.
        (_, Some(Cut::Read(error) | Cut::Write(error)), None) => {
            Failure::caused(Exit::Unreachable, "copying", &error)
        }
        (_, Some(corrupt @ Cut::Corrupt(_)), None) => corrupt.into(),
        (_, None, None) => Failure::new(Exit::Other, "the copy has ended without a reason"),
    }
}

/// Waits until both ends have ended. If this end fails, the other one has a limited time: the whole path may be gone.
fn wait_for_both(
    moving: &Receiver<Here>,
    mut far: Far,
    mut show: impl FnMut(),
    direction: Direction,
) -> Result<Hash, Failure> {
    // How this end has ended, and when. It keeps the pipe to the far end, which may still say why.
    let mut here = None;
    let status = loop {
        show();
        if let Some(status) = far.ended() {
            break Some(status);
        }
        here = here.or_else(|| Some((moving.try_recv().ok()?, Instant::now())));
        if let Some((here, since)) = &here
            && (here.moved.is_err() || here.lost.is_some())
            && since.elapsed() >= FAR_LAST
        {
            far.kill();
            break None;
        }
        thread::sleep(LOOK);
    };
    let is_ended = status.is_some();
    let there = status.and_then(|status| check(status).err());
    let here = match (here, &there) {
        (Some((here, _)), _) => Some(here),
        // If the far end has ended because this end failed, the reason is about to come. But this end may wait for its
        // input for ever.
        (None, Some(_)) => moving.recv_timeout(LAST).ok(),
        (None, None) => moving.recv().ok(),
    };
    let (moved, lost) = match here {
        Some(here) => (here.moved.map_err(Some), here.lost),
        None => (Err(None), None),
    };
    match (moved, there) {
        // The far end has verified the bytes, whatever became of the connection then.
        (Ok(hash), None) if is_ended => Ok(hash),
        (Ok(_), there) => {
            let lost = lost.map(|why| Failure::of("copying", &why));
            Err(cause(direction, None, there.or(lost)))
        }
        (Err(cut), there) => Err(cause(direction, cut, there)),
    }
}

/// How the bytes of a pipe were moved.
struct Here {
    moved: Result<Hash, Cut>,
    /// Why this end does not know that the other one has everything.
    lost: Option<StreamError>,
    /// The pipe to the far end, if nothing was written to it. When it is dropped, the far end ends.
    _input: Option<ChildStdin>,
}

/// Starts a thread that moves the bytes. The thread may block for ever. The returned channel receives the result of the
/// thread.
fn start(
    way: Option<Connection>,
    (mut input, mut output): Pipes,
    direction: Direction,
    (scheme, count): (SchemeSetting, &Arc<AtomicU64>),
) -> Result<Receiver<Here>, Failure> {
    let count = Arc::clone(count);
    let (mut stdin, mut stdout) = (own_input()?, own_output()?);
    let (tell, told) = channel();
    match way {
        Some(connection) => {
            let (mut reader, mut writer) = rsh::open(&connection, scheme)?.split();
            thread::spawn(move || {
                let (moved, lost) = match direction {
                    Direction::Write => send(&mut stdin, &mut writer, &count),
                    Direction::Read => {
                        writer.finish();
                        (decode(&mut reader, &mut stdout, &count), None)
                    }
                };
                // If nobody reads the output, the other end is not needed any more. If the other end takes no more
                // input, it is about to say why.
                let is_unread = direction == Direction::Read && matches!(moved, Err(Cut::Write(_)));
                drop(connection);
                let _ = tell.send(Here {
                    moved,
                    lost,
                    _input: Some(input).filter(|_| !is_unread),
                });
            });
        }
        None => {
            thread::spawn(move || {
                let moved = match direction {
                    Direction::Write => encode(&mut stdin, &mut input, &count),
                    Direction::Read => decode(&mut output, &mut stdout, &count),
                };
                let _ = tell.send(Here {
                    moved,
                    lost: None,
                    _input: None,
                });
            });
        }
    }
    Ok(told)
}

/// Sends the standard input. The far end must not take a part for the whole. Returns also why it is not known that
/// everything has arrived.
fn send(
    input: &mut impl Read,
    writer: &mut WriteHalf,
    count: &AtomicU64,
) -> (Result<Hash, Cut>, Option<StreamError>) {
    let sent = encode(input, writer, count);
    match &sent {
        Ok(_) => writer.finish(),
        Err(Cut::Read(_)) => writer.reset(0),
        Err(Cut::Write(_) | Cut::Corrupt(_)) => {}
    }
    let delivered = writer.wait_delivered();
    (sent, delivered.err())
}

/// What the status of the far end says. It has given its reason on the standard error.
fn check(status: Option<i32>) -> Result<(), Failure> {
    let is = |exit: Exit| status == Some(exit as i32);
    let (exit, what) = match status {
        Some(0) => return Ok(()),
        _ if is(Exit::Files) => (Exit::PeerFiles, "the other end cannot use its file"),
        _ if is(Exit::Full) => (Exit::Full, "the disk of the other end is full"),
        _ if is(Exit::Corrupt) => (Exit::Corrupt, "the data did not verify at the other end"),
        _ => (
            Exit::Unreachable,
            "the other end has ended before all data had arrived",
        ),
    };
    Err(Failure::new(exit, what))
}

/// At this end of a pipe.
impl From<Cut> for Failure {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::Read(error) => Self::caused(Exit::Files, "reading what is copied", &error),
            Cut::Write(error) => Self::caused(exit_of(&error), "writing what is copied", &error),
            Cut::Corrupt(what) => Self::new(Exit::Corrupt, what),
        }
    }
}

/// The exit code for an error of a file that is written.
fn exit_of(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::Full,
        _ => Exit::Files,
    }
}

/// At the far end, a process of its own: reads a file, or writes what the standard input has into a file.
pub(crate) fn run(direction: &OsStr, path: &Path) -> Result<ExitCode, Failure> {
    let count = AtomicU64::new(0);
    match direction.to_str() {
        Some("read") => {
            let mut file = open_file(path, File::options().read(true))?;
            encode(&mut file, &mut own_output()?, &count)?;
        }
        Some("write") => write(path, &count)?,
        _ => {
            let what = "farwrite cp starts this command, and no user";
            return Err(Failure::new(Exit::Usage, what));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn open_file(path: &Path, options: &fs::OpenOptions) -> Result<File, Failure> {
    let what = format!("opening {}", path.display());
    if path.is_dir() {
        let what = format!("{what}: it is a directory; name a file");
        return Err(Failure::new(Exit::Files, what));
    }
    options.open(path).or_exit(Exit::Files, what)
}

/// Removes a file when a signal ends this process. The far end also sends one to itself when the near end is
/// gone.
fn remove_when_ended(path: PathBuf) -> Result<(), Failure> {
    let cancel = interrupt::catch()?;
    thread::spawn(move || {
        while !cancel.is_set() {
            thread::sleep(LOOK);
        }
        let _ = fs::remove_file(path);
        exit(Exit::Interrupted as i32);
    });
    Ok(())
}

/// Writes a file under a temporary name, makes it durable, and gives it its name. A device or a pipe is written
/// in place.
fn write(path: &Path, count: &AtomicU64) -> Result<(), Failure> {
    let mut stdin = own_input()?;
    let what = |step: &str| format!("{step} {}", path.display());
    if path.exists() && !path.is_file() {
        let mut file = open_file(path, File::options().write(true))?;
        decode(&mut stdin, &mut file, count)?;
        // Pipes cannot be synced.
        let _ = fsync(&file);
        return Ok(());
    }
    // A link stays, and leads to the new file.
    let path: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let directory = directory_of(&path);
    let failed = |step: &str, error: &io::Error| Failure::caused(exit_of(error), what(step), error);
    let mut file = temporary(directory).map_err(|error| failed("creating", &error))?;
    remove_when_ended(file.path().into())?;
    decode(&mut stdin, &mut file, count)?;
    let former = fs::metadata(&path).map(|former| former.permissions().mode() & 0o777);
    let mode = former.unwrap_or_else(|_| MODE & !u32::from(own_umask()));
    let set = file.as_file().set_permissions(Permissions::from_mode(mode));
    set.map_err(|error| failed("setting the permissions of", &error))?;
    // A file system may find only now that it has no room.
    fsync(file.as_file()).map_err(|error| failed("syncing", &error.into()))?;
    let named = file.persist(&path);
    named.map_err(|error| failed("naming", &error.error))?;
    let synced = File::open(directory).and_then(|directory| Ok(fsync(directory)?));
    synced.map_err(|error| failed("syncing the directory of", &error))
}

/// Makes a file that only its owner can read, under a name as receivers give to new files.
fn temporary(directory: &Path) -> io::Result<NamedTempFile> {
    let name = OsString::from_vec(new_name()?);
    Builder::new()
        .prefix(&name)
        .rand_bytes(0)
        .tempfile_in(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_an_exit_code_of_its_own() {
        for (kind, exit) in [
            (io::ErrorKind::StorageFull, Exit::Full),
            (io::ErrorKind::QuotaExceeded, Exit::Full),
            (io::ErrorKind::PermissionDenied, Exit::Files),
        ] {
            assert_eq!(exit_of(&kind.into()), exit);
        }
    }
}
