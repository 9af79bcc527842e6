//! Answers probes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farwrite::ReservedPort;
use farwrite_connection::{Connection, ConnectionOptions, Listener, Purpose};
use farwrite_keys::{Proof, Text, shown};
use farwrite_probe::{self as probe, Control};
use farwrite_transfer::{Cancel, Error as TransferError, Places};

use super::{ProbeArgs, failure};
use crate::accepting::{AcceptOptions, Accepting};
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::LOOK;
use crate::recv::reserve;

/// How long a peer that has connected may take to start a probe.
const OPENING: Duration = Duration::from_secs(10);
/// Peers that are served at once: one probes, and others wait for a place.
const PEERS: usize = 16;

/// Answers probes until Ctrl-C.
pub(super) fn run(args: &ProbeArgs, console: &Console) -> Result<(), Failure> {
    let options = AcceptOptions {
        psk_file: args.psk_file.as_deref(),
        ..AcceptOptions::default()
    };
    let (accepting, cancel) = Accepting::prepare(&options, console)?;
    let port = reserve(args.listen.flatten())?;
    let options = ConnectionOptions {
        serves: vec![Purpose::PROBE],
        ..ConnectionOptions::default()
    };
    let listener = Listener::bind_beside(&port, &accepting.keys(), &options);
    let listener = listener.or_fail("listening")?;
    let local = port.local_addr();
    console.say(format_args!("listening on {} (UDP)", shown(&local)));
    let command = |end: &str| format!("farwrite probe {end}");
    accepting.invite(local, command, console);
    let answering = Answering {
        port: &port,
        places: &Places::new(1),
        cancel: &cancel,
        console,
        note: &|_, _| {},
    };
    let is_over = AtomicBool::new(false);
    let next = || -> Result<Option<Connection>, Failure> {
        cancel.check()?;
        listener.accept(LOOK).or_fail("listening")
    };
    if args.once {
        let connection = loop {
            if let Some(connection) = next()? {
                break connection;
            }
        };
        return answering.one(&connection, &is_over);
    }
    answering.all(&is_over, next)
}

/// Answers the probes that come to a port.
pub(crate) struct Answering<'a> {
    pub(crate) port: &'a ReservedPort,
    /// A probe takes all of them.
    pub(crate) places: &'a Arc<Places>,
    pub(crate) cancel: &'a Cancel,
    pub(crate) console: &'a Console,
    /// Notes a probe from an address, or why it was refused.
    pub(crate) note: &'a (dyn Fn(SocketAddr, Option<&TransferError>) + Sync),
}

impl Answering<'_> {
    /// Answers probes until the user interrupts, or until `is_over`. `next` returns the next peer, if one comes soon.
    pub(crate) fn all(
        &self,
        is_over: &AtomicBool,
        next: impl Fn() -> Result<Option<Connection>, Failure>,
    ) -> Result<(), Failure> {
        let served = AtomicUsize::new(0);
        thread::scope(|scope| {
            while !is_over.load(Ordering::Relaxed) {
                let Some(connection) = next()? else {
                    continue;
                };
                // A peer that holds the key, and has no room here, is not worth an answer.
                if served.load(Ordering::Relaxed) >= PEERS {
                    continue;
                }
                served.fetch_add(1, Ordering::Relaxed);
                let served = &served;
                let serve = move || {
                    if let Err(failure) = self.one(&connection, is_over) {
                        self.console.warn(failure);
                    }
                    served.fetch_sub(1, Ordering::Relaxed);
                };
                let thread = thread::Builder::new().name("probe".into());
                thread
                    .spawn_scoped(scope, serve)
                    .or_exit(Exit::Other, "starting a thread")?;
            }
            Ok(())
        })
    }

    /// Answers one peer.
    fn one(&self, connection: &Connection, is_over: &AtomicBool) -> Result<(), Failure> {
        // Identities and codes are for files.
        if connection.peer().proof() != Proof::PreShared {
            return Ok(());
        }
        let ends = || self.cancel.is_set() || is_over.load(Ordering::Relaxed);
        let failed = |error| failure("answering a probe", &error);
        let until = Instant::now() + OPENING;
        let control = loop {
            let control = Control::accept(connection, LOOK);
            match control.map_err(failed)? {
                Some(control) => break control,
                None if ends() || Instant::now() >= until => return Ok(()),
                None => {}
            }
        };
        let from = control.peer_addr();
        let _place = match self.places.take_all() {
            Ok(place) => place,
            Err(error) => {
                control.abort(probe::message::Cause::Busy, Text::new(&error));
                (self.note)(from, Some(&error));
                return Ok(());
            }
        };
        self.console.say(format_args!("a probe from {from}"));
        let answered = probe::answer(control, self.port, &ends);
        (self.note)(from, None);
        let answered = answered.map_err(failed)?;
        self.console.say(format_args!(
            "answered {from}: {} packets of {} trials arrived",
            answered.packets, answered.trials
        ));
        if answered.strangers > 0 {
            self.console.warn(format_args!(
                "{} datagrams that came meanwhile were not of the probe",
                answered.strangers
            ));
        }
        Ok(())
    }
}
