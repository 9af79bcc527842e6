//! Whom an end that listens accepts: those who hold a key, the peers of a file, or one who knows a code.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use farwrite_connection::{Connection, Keys, Listener};
use farwrite_files::PeerKey;
use farwrite_keys::{Code, Identity, Psk};
use farwrite_transfer::{Cancel, Refused};
use farwrite_units::show::Count;
use serde_json::json;

use crate::addresses::Targets;
use crate::audit::Audit;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::peers::{Peers, SharedPeers};
use crate::{interrupt, key};

/// What the user says about it.
#[derive(Debug, Default)]
pub(crate) struct AcceptOptions<'a> {
    pub(crate) psk_file: Option<&'a Path>,
    pub(crate) identity: Option<&'a Path>,
    pub(crate) peers: Option<&'a Path>,
    /// Where the directories of peers are; `None`: they need none.
    pub(crate) root: Option<&'a Path>,
    /// Whether this end shows a code.
    pub(crate) code: bool,
}

/// Whom an end accepts.
#[derive(Debug, Default)]
pub(crate) struct Accepting {
    psk: Option<Psk>,
    identity: Option<Identity>,
    code: Option<Code>,
    reload: Option<Reload>,
    /// Those of the file of peers.
    peers: SharedPeers,
    /// The options of the command for the other end.
    options: String,
    /// What a person has to type there.
    secret: Option<String>,
}

impl Accepting {
    /// Accepts those who hold this pre-shared key.
    pub(crate) fn of_psk(psk: Psk) -> Self {
        Self {
            psk: Some(psk),
            ..Self::default()
        }
    }

    /// Reads the keys and the peers, or makes a key or a code. Ctrl-C sets the flag from now on, and a hang-up, too,
    /// unless there is a file of peers.
    ///
    /// # Errors
    /// What is wrong with a file; a new secret, and no terminal that could show it.
    pub(crate) fn prepare(
        options: &AcceptOptions<'_>,
        console: &Console,
    ) -> Result<(Self, Cancel), Failure> {
        if options.identity.is_some() && options.peers.is_none() {
            let what = "--identity: give --peers, the file with the peers that may connect";
            return Err(Failure::new(Exit::Usage, what));
        }
        let peers = SharedPeers::default();
        let reload = Reload::prepare(options, &peers, console)?;
        let cancel = match &reload {
            Some(_) => interrupt::catch_but_hang_up()?,
            None => interrupt::catch()?,
        };
        let mut accepting = Self {
            reload,
            peers,
            ..Self::default()
        };
        accepting.read_keys(options, &cancel, console)?;
        Ok((accepting, cancel))
    }

    fn read_keys(
        &mut self,
        options: &AcceptOptions<'_>,
        cancel: &Cancel,
        console: &Console,
    ) -> Result<(), Failure> {
        if options.code {
            check_shown(console, "a code", "run this at a terminal")?;
            let code = Code::generate().or_fail("making a code")?;
            let text = &*code.to_text();
            let text = format!("it asks for this code, which can be used once:\n\n  {text}\n");
            (self.code, self.secret) = (Some(code), Some(text));
            return Ok(());
        }
        if let Some(file) = options.psk_file {
            self.options = format!(" --psk-file {}", file.display());
        }
        if let Some(file) = options.identity {
            let own = key::identity(file, cancel)?;
            self.options = format!(" --identity FILE --peer-key {}", own.public());
            self.identity = Some(own);
        }
        // An end with a file of peers ignores FARWRITE_PSK. Only a key that the user names with --psk-file admits others.
        if self.identity.is_none() || options.psk_file.is_some() {
            self.psk = key::find(options.psk_file, cancel)?;
        }
        if self.psk.is_none() && self.identity.is_none() {
            let advice = "give --psk-file (`farwrite keygen` makes a key), or set FARWRITE_PSK";
            check_shown(console, "a new key", advice)?;
            let psk = key::make()?;
            self.secret = Some(format!("it asks for this key:\n\n  {}\n", &*psk.to_text()));
            self.psk = Some(psk);
        }
        Ok(())
    }

    /// The keys, with the peers that are known now.
    pub(crate) fn keys(&self) -> Keys {
        let own = self.identity.as_ref();
        let mut keys = own.map_or_else(Keys::default, |own| {
            Keys::of_identity(own.clone(), self.peers.get().known().clone())
        });
        if let Some(psk) = &self.psk {
            keys = keys.with_psk(psk);
        }
        if let Some(code) = &self.code {
            keys = keys.with_code(code.clone());
        }
        keys
    }

    pub(crate) fn peers(&self) -> &SharedPeers {
        &self.peers
    }

    /// Those who hold the pre-shared key, for files that they go on with.
    pub(crate) fn holders(&self) -> Option<PeerKey> {
        self.psk.as_ref().map(PeerKey::of_psk)
    }

    /// Shows what to do at the other machine, for a listener that is bound at `local`. `command` makes a command of the
    /// address of this end and the options of its key.
    pub(crate) fn invite(
        &self,
        local: SocketAddr,
        command: impl Fn(&str) -> String,
        console: &Console,
    ) {
        let targets = Targets::of(local);
        let command = command(&format!("{}{}", targets.first(), self.options));
        console.say(format_args!("on the other machine:\n\n  {command}\n"));
        targets.show_others(console);
        if let Some(secret) = &self.secret {
            console.say(secret);
        }
    }

    /// Reads the file of peers again if a hang-up has come. A file that is wrong changes nothing, and neither does a
    /// blank one: a file that is being written looks like that.
    pub(crate) fn look(&self, listener: &Listener, console: &Console) {
        let Some(reload) = &self.reload else { return };
        if !reload.hung_up.swap(false, Ordering::Relaxed) {
            return;
        }
        let file = reload.file.display();
        match reload.read() {
            Ok(peers) if peers.len() == 0 && is_blank(&reload.file) => console.warn(format_args!(
                "{file}: the file is blank; the peers stay as they were (to let nobody connect, leave a comment in it)"
            )),
            Ok(peers) => {
                let count = Count(peers.len() as u64, "peer");
                self.peers.set(peers);
                if let Err(error) = listener.reload(&self.keys()) {
                    return console.warn(Failure::of("taking the new peers", &error));
                }
                console.say(format_args!("{file}: {count} may connect from now on"));
            }
            Err(what) => console.warn(format_args!("{what}; the peers stay as they were")),
        }
    }

    /// Waits for a peer for which `open` has a value. Notes those that were refused.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`Exit::Interrupted`]; why `open` fails.
    pub(crate) fn first<T>(
        &self,
        listener: &Listener,
        audit: &Arc<Audit>,
        (cancel, console): (&Cancel, &Console),
        open: impl Fn(&Connection) -> Result<Option<T>, Failure>,
    ) -> Result<(Connection, T), Failure> {
        let mut refused = Refused::new(Arc::<Audit>::clone(audit));
        loop {
            cancel.check()?;
            if let Some(connection) = self.next(listener, (&mut refused, audit), console)?
                && let Some(opened) = open(&connection)?
            {
                return Ok((connection, opened));
            }
        }
    }

    /// Waits a short time for a peer. Notes those that were refused.
    ///
    /// # Errors
    /// The port has failed; a peer has used the code up for nothing.
    pub(crate) fn next(
        &self,
        listener: &Listener,
        (refused, audit): (&mut Refused, &Audit),
        console: &Console,
    ) -> Result<Option<Connection>, Failure> {
        self.look(listener, console);
        let accepted = listener.accept(interrupt::LOOK);
        if let Err(error) = refused.look(listener, Instant::now()) {
            audit.note(json!({ "event": "refused", "message": error.to_string() }));
            return Err(error.into());
        }
        accepted.or_fail("listening")
    }
}

/// Checks that only a terminal shows a secret.
fn check_shown(console: &Console, what: &str, advice: &str) -> Result<(), Failure> {
    if console.says_to_terminal() {
        return Ok(());
    }
    let what =
        format!("no key: {what} is shown on a terminal only, so that no log keeps it; {advice}");
    Err(Failure::new(Exit::Usage, what))
}

/// The file of peers, which is read again after a hang-up.
#[derive(Debug)]
struct Reload {
    file: PathBuf,
    root: Option<PathBuf>,
    hung_up: Arc<AtomicBool>,
}

impl Reload {
    /// Reads the file, if there is one, into `shared`. From then on, a hang-up does not end the program.
    fn prepare(
        options: &AcceptOptions<'_>,
        shared: &SharedPeers,
        console: &Console,
    ) -> Result<Option<Self>, Failure> {
        let Some(file) = options.peers else {
            return Ok(None);
        };
        let reload = Self {
            file: file.to_owned(),
            root: options.root.map(Path::to_owned),
            hung_up: interrupt::catch_hang_ups()?,
        };
        // A wrong file ends the program before it says that it listens.
        let peers = reload.read()?;
        if peers.len() == 0 {
            console.warn(format_args!(
                "{}: there are no peers in it, so no peer may connect",
                file.display()
            ));
        }
        shared.set(peers);
        Ok(Some(reload))
    }

    fn read(&self) -> Result<Peers, Failure> {
        Peers::load(&self.file, self.root.as_deref())
    }
}

/// Whether nothing stands in a file.
fn is_blank(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.trim().is_empty())
}
