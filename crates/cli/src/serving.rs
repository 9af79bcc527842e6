//! Serves senders: one, or several at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farwrite::ReservedPort;
use farwrite_connection::{Connection, Listener, Purpose};
use farwrite_files::PeerKey;
use farwrite_keys::Proof;
use farwrite_transfer::{
    self as transfer, Admission, Cancel, Client, Error as TransferError, ErrorKind, MemoryPool,
    Place, Places, ReceiveSettings, TransferHooks, Unfinished,
};

use crate::accepting::Accepting;
use crate::addresses::address_of;
use crate::audit::Audit;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::peers::Peer;
use crate::pipe::{Store, keep};
use crate::recv::RecvArgs;
use crate::supervisor::Supervisor;
use crate::trace::Tracing;
use crate::transfer_metrics::Watch;
use crate::{dry_run, outcome};

/// Why a peer is refused that was removed from the file of peers.
const NOT_KNOWN: &str = "the receiver does not know this peer any more";

/// How long packets of a transfer must not have passed before it gives way to the same sender, which has come again.
const BLOCKED_BEFORE_YIELD: Duration = Duration::from_secs(3);
/// The time for a sender to come again, after packets of its transfer no longer passed.
const RETURN_LIMIT: Duration = Duration::from_secs(10);

/// When a receiver ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// When the user interrupts it.
    Interrupted,
    /// After one transfer.
    First,
    /// After one transfer whose ends have met. A transfer that was lost is reported only if its sender does not come
    /// again in time.
    FirstMet,
}

/// Whether the ends of a transfer did not reach each other, so that another way may help.
pub(crate) fn is_unmet<T>(ended: &Result<T, Unfinished>) -> bool {
    ended.as_ref().is_err_and(|unfinished| {
        unfinished.kind() == ErrorKind::Unreachable && !unfinished.has_met()
    })
}

/// What all transfers of a receiver use.
pub(crate) struct Serving<'a> {
    pub(crate) args: &'a RecvArgs,
    pub(crate) settings: &'a ReceiveSettings,
    pub(crate) port: &'a ReservedPort,
    pub(crate) memory: MemoryPool,
    pub(crate) places: &'a Places,
    pub(crate) cancel: &'a Cancel,
    pub(crate) watch: &'a Watch,
    pub(crate) trace: &'a Tracing,
    pub(crate) console: &'a Console,
    /// Transfers that have begun.
    pub(crate) begun: AtomicU64,
    pub(crate) accepting: &'a Accepting,
    pub(crate) listener: &'a Listener,
    pub(crate) audit: &'a Audit,
    pub(crate) supervisor: &'a Supervisor,
}

/// How the service of a client has ended.
enum Served {
    /// No transfer has ended: it was a dry run, for example.
    Nothing,
    /// Packets of a transfer did not pass, or they no longer pass. The sender may come again.
    Lost(Unfinished),
    Transfer(Result<ExitCode, Failure>),
}

impl Serving<'_> {
    /// Serves one sender after the other, until a transfer has ended. Returns its exit code.
    pub(crate) fn one(&self, admission: &Admission, until: Until) -> Result<ExitCode, Failure> {
        let mut lost = None;
        loop {
            let limit = lost.as_ref().map(|lost: &Unfinished| match lost.has_met() {
                true => RETURN_LIMIT,
                // It may try several addresses first.
                false => self.settings.timeout,
            });
            let (connection, place) = match (self.wait(admission, limit), lost.take()) {
                (Err(error), Some(lost)) if error.kind() != ErrorKind::Interrupted => {
                    return outcome::show(self.console, Err(lost), self.args.verbose);
                }
                (come, before) => {
                    lost = before;
                    come?
                }
            };
            match self.serve(&connection, place, until, self.console) {
                Served::Nothing => {}
                Served::Lost(unfinished) => lost = Some(unfinished),
                Served::Transfer(ended) => return ended,
            }
        }
    }

    /// Waits for a sender, at most for `limit`, and does what is due meanwhile.
    fn wait(
        &self,
        admission: &Admission,
        limit: Option<Duration>,
    ) -> Result<(Connection, Place), TransferError> {
        let start = Instant::now();
        admission.wait_while(self.cancel, || {
            self.supervisor.alive();
            self.accepting.look(self.listener, self.console);
            match limit.is_some_and(|limit| start.elapsed() >= limit) {
                true => Err(TransferError::new(
                    ErrorKind::Unreachable,
                    "the sender does not come again",
                )),
                false => Ok(()),
            }
        })
    }

    /// Ends a transfer whose packets do not pass, if its sender has come again by another way.
    fn give_way(&self, blocked: Duration) -> Result<(), TransferError> {
        match blocked >= BLOCKED_BEFORE_YIELD && self.places.are_awaited() {
            true => Err(TransferError::new(
                ErrorKind::Unreachable,
                "packets no longer pass, and the sender has come again by another way",
            )),
            false => Ok(()),
        }
    }

    /// Serves all senders that come, each in a thread of its own, until the user interrupts.
    pub(crate) fn all(&self, admission: &Admission) -> Result<ExitCode, Failure> {
        // A transfer that is interrupted reports that itself.
        let has_reported = AtomicBool::new(false);
        let ended = thread::scope(|scope| -> Result<(), Failure> {
            loop {
                let (connection, place) = self.wait(admission, None)?;
                let has_reported = &has_reported;
                let serve = move || self.serve_apart(&connection, place, has_reported);
                let thread = thread::Builder::new().name("transfer".into());
                let started = thread.spawn_scoped(scope, serve);
                if let Err(failure) = started.or_exit(Exit::Other, "starting a transfer") {
                    self.console.fail(&failure);
                }
            }
        });
        match ended {
            Err(failure)
                if failure.exit == Exit::Interrupted && has_reported.load(Ordering::Relaxed) =>
            {
                Ok(Exit::Interrupted.into())
            }
            ended => ended.map(|()| ExitCode::SUCCESS),
        }
    }

    /// Serves a client. Whatever happens to it ends only its own service.
    fn serve_apart(&self, connection: &Connection, place: Place, has_reported: &AtomicBool) {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let name = match self.accepting.peers().of(connection.peer().proof()) {
            Some(peer) => peer.name,
            None => address_of(connection),
        };
        let console = self.console.for_transfer(number, name);
        let serve = || self.serve(connection, place, Until::Interrupted, &console);
        let served = catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|_| {
            let what = "an error of this program has ended this transfer; others go on";
            Served::Transfer(Err(Failure::new(Exit::Other, what)))
        });
        if let Served::Transfer(ended) = served {
            if let Err(failure) = &ended {
                console.fail(failure);
            }
            let is_interrupted = match ended {
                Ok(code) => code == Exit::Interrupted.into(),
                Err(failure) => failure.exit == Exit::Interrupted,
            };
            has_reported.fetch_or(is_interrupted, Ordering::Relaxed);
        }
    }

    fn serve(
        &self,
        connection: &Connection,
        place: Place,
        until: Until,
        console: &Console,
    ) -> Served {
        if connection.purpose() == Purpose::PIPE {
            let kept = self.keep_pipe(connection, console);
            // The next sender comes after this one was reported.
            drop(place);
            return kept.transpose().map_or(Served::Nothing, Served::Transfer);
        }
        let client = match Client::accept(connection, self.cancel) {
            Ok(client) => client,
            // The ends have met, but nothing has come since then: the other end tries another way.
            Err(error) if until == Until::FirstMet && error.kind() == ErrorKind::Unreachable => {
                return Served::Nothing;
            }
            Err(error) => return Served::Transfer(Err(error.into())),
        };
        let address = client.addr().to_string();
        let peer = self.accepting.peers().of(client.proof());
        if peer.is_none() && matches!(client.proof(), Proof::Identity(_)) {
            let error = client.refuse(NOT_KNOWN);
            self.audit.note_refusal(None, &address, &error);
            return Served::Transfer(Err(error.into()));
        }
        let served = self.receive(client, peer.as_ref(), until, console);
        // The next sender comes after this one was reported.
        drop(place);
        served
    }

    fn keep_pipe(
        &self,
        connection: &Connection,
        console: &Console,
    ) -> Result<Option<ExitCode>, Failure> {
        let proof = connection.peer().proof();
        let peer = self.accepting.peers().of(proof);
        if peer.is_none() && matches!(proof, Proof::Identity(_)) {
            let address = address_of(connection);
            connection.close();
            self.audit.note_refusal(None, &address, &NOT_KNOWN);
            return Err(Failure::new(Exit::Mismatch, NOT_KNOWN));
        }
        let (directory, settings) = self.place_of(peer.as_ref());
        let store = Store {
            directory,
            settings: &settings,
            memory: &self.memory,
            audit: self.audit,
            peer: peer.as_ref().map(|peer| peer.name.as_str()),
        };
        keep(connection, &store, self.cancel, console)
    }

    /// Where files of a peer go, and what holds for them.
    fn place_of<'s>(&'s self, peer: Option<&'s Peer>) -> (&'s Path, ReceiveSettings) {
        match peer {
            Some(peer) => (peer.directory(), peer.settings(self.settings)),
            None => (&self.args.dir, self.settings.clone()),
        }
    }

    fn receive(
        &self,
        client: Client,
        peer: Option<&Peer>,
        until: Until,
        console: &Console,
    ) -> Served {
        let (directory, mut settings) = self.place_of(peer);
        match client.proof() {
            Proof::PreShared => {}
            // The next code is another one.
            Proof::Code => settings.policy.resume = None,
            Proof::Identity(key) => {
                let peer = self.args.policy.resumes().then(|| PeerKey::of_public(&key));
                settings.policy.resume = peer;
            }
        }
        let address = client.addr().to_string();
        let watched = self.watch.begin(console);
        let give_way = |blocked| self.give_way(blocked);
        let hooks = TransferHooks {
            redirect: &transfer::unchanged,
            cancel: self.cancel,
            observer: &watched,
            port: Some(self.port),
            device: self.args.device.config(),
            memory: Some(&self.memory),
            max_rate: None,
            // Others than this sender may wait for the place of one that is only silent.
            when_blocked: (until == Until::FirstMet).then_some(&give_way),
        };
        if client.wants_dry_run() {
            return self.answer_dry_run(client, (directory, &settings), peer, &hooks, console);
        }
        // Nothing else may come.
        if self.args.dry_run {
            let error = client.refuse(
                "the other end would send files, and not only list them: update the program there, or leave out \
                 --dry-run",
            );
            return Served::Transfer(Err(error.into()));
        }
        self.trace.begin_run("transfer");
        let ended = transfer::receive(client, directory, &settings, &hooks);
        drop(watched);
        let ended = match ended {
            Err(lost) if until == Until::FirstMet && lost.kind() == ErrorKind::Unreachable => {
                return Served::Lost(lost);
            }
            ended => ended,
        };
        let name = peer.map(|peer| peer.name.as_str());
        self.audit.note_transfer((name, &address), &ended);
        Served::Transfer(outcome::show(console, ended, self.args.verbose))
    }

    /// Answers a dry run. If the user of this end asked for it, this end shows the result. Otherwise the sender gets it.
    fn answer_dry_run(
        &self,
        client: Client,
        (directory, settings): (&Path, &ReceiveSettings),
        peer: Option<&Peer>,
        hooks: &TransferHooks<'_>,
        console: &Console,
    ) -> Served {
        let (address, proof) = (client.addr().to_string(), client.proof());
        let is_own = self.args.dry_run;
        let ended = transfer::answer_dry_run(client, directory, settings, is_own, hooks);
        let name = peer.map(|peer| peer.name.as_str());
        self.audit.note_dry_run((name, &address), &ended);
        match ended {
            Ok(run) if is_own => Served::Transfer(dry_run::show(&run, None, Exit::Files, console)),
            Err(error) if is_own && error.kind() == ErrorKind::Unreachable => Served::Nothing,
            Err(error) if is_own => Served::Transfer(Err(error.into())),
            // A dry run is not a transfer: --once continues to wait for one. But a code serves one sender.
            Err(error) if proof == Proof::Code => Served::Transfer(Err(error.into())),
            Err(error) => {
                console.warn(format_args!("a dry run has failed: {error}"));
                Served::Nothing
            }
            Ok(run) => {
                console.say(dry_run::line_of_receiver(&run));
                match proof == Proof::Code {
                    true => Served::Transfer(console.json(&()).map(|()| ExitCode::SUCCESS)),
                    false => Served::Nothing,
                }
            }
        }
    }
}
