//! How this end proves who it is: options, keys of files and of the environment, and what the user types.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Args;
use farwrite_keys::{Code, Identity, Key, KeyError, Psk, PublicKey};
use farwrite_transfer::Cancel;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::accepting::AcceptOptions;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::LOOK;
use crate::standard::is_ready;

/// The variable that holds the key in text form. Unlike an argument, it is not visible to other
/// users of the machine.
const VARIABLE: &str = "FARWRITE_PSK";
/// The variable that holds a code.
const CODE_VARIABLE: &str = "FARWRITE_CODE";
/// The terminal of this program.
const TERMINAL: &str = "/dev/tty";
/// The maximum length of a line that the user types.
const MAX_LINE_BYTES: usize = 1024;

/// How an end proves who it is that connects.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub(crate) struct ConnectKeyArgs {
    /// File with the pre-shared key of both ends; without it, the key is taken from the environment variable
    /// FARWRITE_PSK, or a code, where the other end shows one, from FARWRITE_CODE, or else the program asks at the
    /// terminal
    #[arg(long, value_name = "FILE")]
    psk_file: Option<PathBuf>,
    /// File with the identity of this machine (`farwrite keygen --identity`), for an end that knows its peers
    #[arg(long, value_name = "FILE", requires = "known")]
    identity: Option<PathBuf>,
    /// Public key of the end that listens, which it prints
    #[arg(long, value_name = "KEY", requires = "identity", group = "known")]
    #[arg(conflicts_with = "psk_file")]
    peer_key: Option<PublicKey>,
}

/// How an end proves who it is, of a command for both ends, and whom it accepts if it listens.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[command(flatten)]
    pub(crate) connecting: ConnectKeyArgs,
    /// At the end that listens, file with the peers that may connect, as of `farwrite recv --peers`
    #[arg(long, value_name = "FILE", requires = "identity", group = "known")]
    pub(crate) peers: Option<PathBuf>,
}

impl ConnectKeyArgs {
    /// The key. Without one in the arguments and the environment, the user may type one, or the code of the other end.
    /// If the standard input is the data, the program asks at its terminal.
    ///
    /// # Errors
    /// As [`needed`].
    pub(crate) fn key_or_code(&self, sends_input: bool, cancel: &Cancel) -> Result<Key, Failure> {
        match self.identities(cancel)? {
            Some(key) => Ok(key),
            None => needed_or_code(self.psk_file.as_deref(), sends_input, cancel),
        }
    }

    /// The key, for an end that shows no codes.
    ///
    /// # Errors
    /// As [`needed`].
    pub(crate) fn key(&self, cancel: &Cancel) -> Result<Key, Failure> {
        match self.identities(cancel)? {
            Some(key) => Ok(key),
            None => needed(self.psk_file.as_deref(), cancel).map(Key::PreShared),
        }
    }

    fn identities(&self, cancel: &Cancel) -> Result<Option<Key>, Failure> {
        let (Some(file), Some(peer)) = (&self.identity, self.peer_key) else {
            return Ok(None);
        };
        let own = identity(file, cancel)?;
        Ok(Some(Key::Identity { own, peer }))
    }
}

impl KeyArgs {
    /// Whom this end accepts.
    pub(crate) fn accepts(&self, code: bool) -> AcceptOptions<'_> {
        AcceptOptions {
            psk_file: self.connecting.psk_file.as_deref(),
            identity: self.connecting.identity.as_deref(),
            peers: self.peers.as_deref(),
            root: None,
            code,
        }
    }
}

/// The key of a file, or otherwise of the environment, if there is one.
///
/// # Errors
/// The file or the text is not a key; [`Exit::Interrupted`] if the user cancels while the file, such as
/// a pipe without a writer, does not answer.
pub(crate) fn find(file: Option<&Path>, cancel: &Cancel) -> Result<Option<Psk>, Failure> {
    if let Some(file) = file {
        let file = file.to_path_buf();
        let key = cancel.run(move || Psk::load(&file))?;
        return key.or_fail("reading the key").map(Some);
    }
    let Some(text) = env::var_os(VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let Some(text) = text.to_str() else {
        return Err(Failure::new(
            Exit::Usage,
            format!("{VARIABLE} is no text, want a key as `farwrite keygen` prints it"),
        ));
    };
    let key = text.parse::<Psk>();
    key.or_fail(format_args!("reading {VARIABLE}")).map(Some)
}

/// The key of a file or of the environment, or otherwise the key that the user types, for a command that
/// requires a key.
///
/// # Errors
/// As [`find`], and [`Exit::Usage`] if there is no key and no terminal to ask at.
pub(crate) fn needed(file: Option<&Path>, cancel: &Cancel) -> Result<Psk, Failure> {
    if let Some(key) = find(file, cancel)? {
        return Ok(key);
    }
    if !io::stdin().is_terminal() {
        let what = format!(
            "no key: give --psk-file, or set {VARIABLE}; at a terminal, this program asks for the key. \
             `farwrite keygen` makes one"
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    let line = ask(io::stdin(), "key", cancel)?;
    line.parse::<Psk>().or_fail("reading the typed key")
}

/// As [`needed`], but the user may also give a code.
fn needed_or_code(file: Option<&Path>, sends_input: bool, cancel: &Cancel) -> Result<Key, Failure> {
    if let Some(psk) = find(file, cancel)? {
        return Ok(Key::PreShared(psk));
    }
    if let Some(text) = env::var_os(CODE_VARIABLE).filter(|text| !text.is_empty()) {
        let code = text.to_string_lossy().parse::<Code>();
        let code = code.or_fail(format_args!("reading {CODE_VARIABLE}"));
        return code.map(Key::Code);
    }
    // Only a program at a terminal has one by this name.
    let terminal = sends_input.then(|| File::options().read(true).write(true).open(TERMINAL));
    let terminal = terminal.and_then(Result::ok);
    if terminal.is_none() && (sends_input || !io::stdin().is_terminal()) {
        let what = format!(
            "no key: give --psk-file or --identity, or set {VARIABLE} or {CODE_VARIABLE}; at a terminal, this \
             program asks for the key or the code. `farwrite keygen` makes a key, --code at the other end a code"
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    let line = match terminal {
        Some(terminal) => ask(terminal, "key or code", cancel)?,
        None => ask(io::stdin(), "key or code", cancel)?,
    };
    if let Ok(code) = line.parse::<Code>() {
        return Ok(Key::Code(code));
    }
    let is_code = |c: char| c.is_ascii_digit() || c == '-' || c.is_whitespace();
    let error = match line.parse::<Psk>() {
        Ok(psk) => return Ok(Key::PreShared(psk)),
        Err(_) if line.chars().all(is_code) => KeyError::Code,
        Err(error) => error,
    };
    Err(Failure::of("reading what was typed", &error))
}

/// The identity in a file.
///
/// # Errors
/// The file is no identity; [`Exit::Interrupted`] if the user cancels while the file does not answer.
pub(crate) fn identity(file: &Path, cancel: &Cancel) -> Result<Identity, Failure> {
    let file = file.to_path_buf();
    let identity = cancel.run(move || Identity::load(&file))?;
    identity.or_fail("reading the identity")
}

/// Generates a new key.
pub(crate) fn make() -> Result<Psk, Failure> {
    Psk::generate().or_fail("making a key")
}

/// Asks for the key at a terminal, which does not show what the user types.
fn ask(input: impl AsFd, what: &str, cancel: &Cancel) -> Result<Zeroizing<String>, Failure> {
    let asked = what;
    let what = "reading the key from the terminal";
    let _hidden = Hidden::start(&input).or_exit(Exit::Other, what)?;
    // If nobody sees the question, the user does not answer, and Ctrl-C ends the program.
    let _ = write!(io::stderr(), "{asked} that the other end shows (hidden): ");
    // All the memory at once: a buffer that grows leaves copies behind.
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_LINE_BYTES));
    while line.last() != Some(&b'\n') && line.len() < MAX_LINE_BYTES {
        cancel.check()?;
        if !is_ready(&input, PollFlags::IN, LOOK).or_exit(Exit::Other, what)? {
            continue;
        }
        let mut byte = [0];
        match rustix::io::read(&input, &mut byte) {
            Ok(0) => break,
            Ok(_) => line.push(byte[0]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(Failure::caused(Exit::Other, what, &error)),
        }
    }
    let text = String::from_utf8_lossy(&line);
    Ok(Zeroizing::new(text.into_owned()))
}

/// A terminal that does not show what the user types, until this is dropped.
struct Hidden<F: AsFd> {
    terminal: F,
    before: Termios,
}

impl<F: AsFd> Hidden<F> {
    fn start(terminal: F) -> Result<Self, Errno> {
        let before = tcgetattr(&terminal)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The end of the line is shown.
        hidden.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(&terminal, OptionalActions::Now, &hidden)?;
        Ok(Self { terminal, before })
    }
}

impl<F: AsFd> Drop for Hidden<F> {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
