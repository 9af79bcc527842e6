//! The other end of `farwrite cp`. ssh starts it; its standard input and output are its pipe to the end
//! that the user has started (P14).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use farwrite_files::PeerKey;
use farwrite_keys::Psk;
use zeroize::Zeroizing;

use super::meeting::{self, Meeting};
use super::relay::{Out, Relay};
use super::{FAR_GREETING, FAR_VERSION, PREPARING, file, receiver, reserve, sender};
use crate::accepting::Accepting;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::send::{self, Sending};
use crate::serving::Until;
use crate::{interrupt, recv, rsh};

/// The other end of `farwrite cp`, with the arguments of the command `far`.
pub(crate) fn run_far(words: &[OsString], console: &Console) -> Result<ExitCode, Failure> {
    if let [file, direction, path] = words
        && file == "file"
    {
        return file::run(direction, path.as_ref());
    }
    let pipe = take_standard_output()?;
    let usage = || Failure::new(Exit::Usage, "farwrite cp starts this command, and no user");
    let (what, words) = words.split_first().ok_or_else(usage)?;
    let key = Zeroizing::new(rsh::line()?);
    let psk = key.trim().parse::<Psk>();
    let psk = psk.map_err(|error| Failure::caused(Exit::Usage, "reading the key", &error))?;
    match what.to_str() {
        Some("recv") => {
            let (port, words) = words.split_first().ok_or_else(usage)?;
            let port = port.to_str().and_then(|port| port.parse().ok());
            receive(port.ok_or_else(usage)?, words, psk, pipe, console)
        }
        Some("send") => {
            let options = words.iter().position(|word| word == "--");
            let (options, paths) = words.split_at(options.ok_or_else(usage)?);
            send_files((options, &paths[1..]), &psk, pipe, console)
        }
        Some("rsh" | "write" | "read" | "forward") => rsh::run_far(what, words, psk, pipe, console),
        _ => Err(usage()),
    }
}

/// Listens, says where, and receives until the pipe ends.
fn receive(
    port: u16,
    words: &[OsString],
    psk: Psk,
    mut pipe: File,
    console: &Console,
) -> Result<ExitCode, Failure> {
    // ssh does not say which person started this end. Everyone who can start it has the rights of this
    // user, so each may resume the files of another.
    let mut receiver = receiver(words)?;
    receiver.peer = Some(PeerKey::of_remote_shell(b""));
    recv::check_directory(&receiver.dir)?;
    let outputs = recv::Outputs::start(&receiver, console)?;
    let held = reserve(port)?;
    let accepting = Accepting::of_psk(psk);
    // The other end comes as soon as it knows where.
    let listener = recv::listen(&held, &accepting.keys(), [])?;
    let meeting = Meeting::of_far(held.local_addr());
    greet(&mut pipe, Some(&meeting))?;
    let (cancel, flag) = interrupt::catch_with_flag()?;
    let relay = Out::new(pipe).and_then(|out| Relay::exit(out, meeting.port));
    let relay = relay.or_exit(Exit::Other, PREPARING)?;
    let of_thread = Arc::clone(&flag);
    thread::spawn(move || {
        let _ = relay.read(io::stdin().lock());
        of_thread.store(true, Ordering::Relaxed);
    });
    // From now on, the end that the user has started says what happens.
    silence_standard_error()?;
    let ended = recv::receive(
        (&receiver, Until::Interrupted, outputs),
        (&listener, &held),
        &accepting,
        &cancel,
        console,
    );
    match flag.load(Ordering::Relaxed) {
        true => Ok(ExitCode::SUCCESS),
        false => ended,
    }
}

/// Sends to where the other end says that it listens.
fn send_files(
    (options, paths): (&[OsString], &[OsString]),
    psk: &Psk,
    mut pipe: File,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let meeting = Meeting::told_by_near(&rsh::line()?)?;
    let sender = sender(options, paths)?;
    let sending = Sending::prepare(&sender, console)?;
    let (cancel, flag) = interrupt::catch_with_flag()?;
    greet(&mut pipe, None)?;
    let relay = Arc::new(OnceLock::<Arc<Relay>>::new());
    read_input(Arc::clone(&relay), flag);
    let enter = || {
        let (entrance, at) = Relay::enter(Out::new(pipe)?, meeting.port)?;
        let _ = relay.set(entrance);
        Ok(at)
    };
    let sent = meeting::send(
        &sending,
        ("the other end", &meeting),
        (psk, &cancel),
        console,
        enter,
    )?;
    send::show(console, sent, false)
}

/// Gives frames of the pipe to the relay, which must exist when the first one comes. The end of the pipe
/// ends the transfer.
fn read_input(relay: Arc<OnceLock<Arc<Relay>>>, flag: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        if input.fill_buf().is_ok_and(|bytes| !bytes.is_empty())
            && let Some(relay) = relay.get()
        {
            let _ = relay.read(input);
        }
        flag.store(true, Ordering::Relaxed);
    });
}

/// Begins the conversation (P14.1). `meeting` is where this end listens.
pub(crate) fn greet(pipe: &mut File, meeting: Option<&Meeting>) -> Result<(), Failure> {
    let rest = meeting.map(|meeting| format!(" {meeting}"));
    let greeting = format!("{FAR_GREETING}{FAR_VERSION}{}\n", rest.unwrap_or_default());
    let written = pipe.write_all(greeting.as_bytes());
    written.or_exit(Exit::Unreachable, "answering through ssh")
}

/// Takes the standard output for the pipe. What this program would print there goes nowhere.
fn take_standard_output() -> Result<File, Failure> {
    let what = "taking the standard output";
    let pipe = rustix::io::dup(io::stdout()).or_exit(Exit::Other, what)?;
    let null = null().or_exit(Exit::Other, what)?;
    rustix::stdio::dup2_stdout(&null).or_exit(Exit::Other, what)?;
    Ok(File::from(pipe))
}

fn silence_standard_error() -> Result<(), Failure> {
    let what = "closing the standard error";
    let null = null().or_exit(Exit::Other, what)?;
    rustix::stdio::dup2_stderr(&null).or_exit(Exit::Other, what)
}

fn null() -> io::Result<File> {
    File::options().write(true).open("/dev/null")
}
