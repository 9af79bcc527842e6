//! Serves senders: one, or several at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use farwrite::ReservedPort;
use farwrite_session::Channel;
use farwrite_transfer::{
    self as transfer, Admission, Cancel, Client, ErrorKind, MemoryPool, Place, ReceiveSettings,
    TransferHooks, TransferReport, Unfinished,
};

use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::trace::Tracing;
use crate::transfer_metrics::Watch;
use crate::{outcome, probe};

/// When a receiver ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// When the user interrupts it.
    Interrupted,
    /// After one transfer.
    First,
    /// After one transfer whose ends have met. Others are not reported: the sender tries another way.
    FirstMet,
}

/// Whether the ends of a transfer did not reach each other, so that another way may help.
pub(crate) fn is_unmet(ended: &Result<TransferReport, Unfinished>) -> bool {
    ended.as_ref().is_err_and(|unfinished| {
        unfinished.kind() == ErrorKind::Unreachable && unfinished.arrived_files() == 0
    })
}

/// What all transfers of a receiver use.
pub(crate) struct Serving<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) settings: &'a ReceiveSettings,
    pub(crate) is_verbose: bool,
    pub(crate) port: &'a ReservedPort,
    pub(crate) memory: MemoryPool,
    pub(crate) cancel: &'a Cancel,
    pub(crate) watch: &'a Watch,
    pub(crate) trace: &'a Tracing,
    pub(crate) console: &'a Console,
    /// Transfers that have begun.
    pub(crate) begun: AtomicU64,
}

/// How the service of a client has ended.
enum Served {
    /// No transfer has ended: it was a probe, or the sender tries another way.
    Nothing,
    Transfer(Result<ExitCode, Failure>),
}

impl Serving<'_> {
    /// Serves one sender after the other, until a transfer has ended. Returns its exit code.
    pub(crate) fn one(&self, admission: &Admission, until: Until) -> Result<ExitCode, Failure> {
        loop {
            let (channel, place) = admission.wait(self.cancel)?;
            if let Served::Transfer(ended) = self.serve(channel, place, until, self.console) {
                return ended;
            }
        }
    }

    /// Serves all senders that come, each in a thread of its own, until the user interrupts.
    pub(crate) fn all(&self, admission: &Admission) -> Result<ExitCode, Failure> {
        // A transfer that is interrupted reports that itself.
        let has_reported = AtomicBool::new(false);
        let ended = thread::scope(|scope| -> Result<(), Failure> {
            loop {
                let (channel, place) = admission.wait(self.cancel)?;
                let serve = || self.serve_apart(channel, place, &has_reported);
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
    fn serve_apart(&self, channel: Channel, place: Place, has_reported: &AtomicBool) {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let name = channel.peer_addr().to_string();
        let console = self.console.for_transfer(number, name);
        let serve = || self.serve(channel, place, Until::Interrupted, &console);
        let served = catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|_| {
            let what = "an error of this program has ended this transfer; others go on";
            Served::Transfer(Err(Failure::new(Exit::Other, what)))
        });
        if let Served::Transfer(ended) = served {
            if let Err(failure) = ended {
                console.fail(&failure);
            }
            let is_interrupted = self.cancel.is_set();
            has_reported.fetch_or(is_interrupted, Ordering::Relaxed);
        }
    }

    fn serve(&self, channel: Channel, mut place: Place, until: Until, console: &Console) -> Served {
        let client = match Client::accept(channel, self.cancel) {
            Ok(client) => client,
            Err(error) => return Served::Transfer(Err(error.into())),
        };
        if client.wants_probe() {
            match place.take_all() {
                Ok(()) => {
                    let answered = probe::answer(client, self.port, self.cancel, console);
                    answered.unwrap_or_else(|failure| console.warn(failure));
                }
                Err(error) => client.fail(&error),
            }
            // A probe is not a transfer: --once continues to wait for one.
            return Served::Nothing;
        }
        let watched = self.watch.begin(console);
        let hooks = TransferHooks {
            redirect: &transfer::unchanged,
            cancel: self.cancel,
            observer: &watched,
            port: Some(self.port),
            memory: Some(&self.memory),
            max_rate: None,
        };
        self.trace.begin_run("transfer");
        let ended = transfer::receive(client, self.directory, self.settings, &hooks);
        drop(watched);
        if until == Until::FirstMet && is_unmet(&ended) {
            return Served::Nothing;
        }
        let shown = outcome::show(console, ended, self.is_verbose);
        // The next sender comes after this one was reported.
        drop(place);
        Served::Transfer(shown)
    }
}
