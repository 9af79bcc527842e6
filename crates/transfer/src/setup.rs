//! The set-up before the first byte of a file: hellos, then one message at a time (P8.1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use farwrite::routes::FoundRoute;
use farwrite::{Cipher, QpInfo, Sealing};
use farwrite_files::{
    Hello, Manifest, Message, OfferedSockets, Partial, QpBlob, TransferPlan, due,
};
use farwrite_keys::Text;
use farwrite_units::show::{Bytes, Count};

use crate::channel::{ChannelError, Reader};
use crate::channel_writer::Outbox;
use crate::hooks::{CANCEL_PERIOD, Cancel};
use crate::liveness::{LifeSigns, SlowDisk};
use crate::progress_counts::OwnCounts;
use crate::route::RoutedEndpoint;
use crate::{Error, ErrorKind, TransferHooks};

/// The time limit for connecting with the handshake, for opening the channel, for the hello of a peer that has
/// connected, and for finding the route.
pub const SETUP: Duration = Duration::from_secs(10);

/// The first message of this end, with the capabilities that depend on its settings.
pub(crate) fn hello(capabilities: u64) -> Message {
    Message::Hello(Hello {
        software: Text::new(concat!("farwrite ", env!("CARGO_PKG_VERSION"))),
        capabilities,
    })
}

/// An error of the channel during the set-up.
pub(crate) fn failed(error: &ChannelError) -> Error {
    Error::of_channel("setting the transfer up", error)
}

/// An error for a message that is not due during the set-up.
pub(crate) fn unexpected(message: Message, want: &'static str) -> Error {
    Error::of_message("setting the transfer up", &message.unexpected(want))
}

fn too_late(after: Duration) -> Error {
    failed(&ChannelError::Timeout { after })
}

fn no_route() -> Error {
    Error::new(ErrorKind::Other, "there is no route to the peer")
}

/// Tries again and again what may take [`SETUP`] in all. `attempt` returns `None` after a moment.
pub(crate) fn within_setup<T>(
    cancel: &Cancel,
    mut attempt: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let start = Instant::now();
    loop {
        cancel.check()?;
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        if start.elapsed() >= SETUP {
            return Err(too_late(SETUP));
        }
    }
}

/// Reads the messages of the set-up.
pub(crate) struct Setup<'a> {
    reader: &'a mut Reader,
    hooks: &'a TransferHooks<'a>,
    timeout: Duration,
    slow_disk: SlowDisk,
    /// The endpoint with its route, once it exists; it is maintained while the set-up waits.
    pub(crate) routed: Option<RoutedEndpoint>,
}

impl<'a> Setup<'a> {
    /// `timeout` limits how long the peer may be silent while this end uses its disk. It is also
    /// how long one operation of a disk may take before the user is informed.
    pub(crate) fn new(
        reader: &'a mut Reader,
        hooks: &'a TransferHooks<'a>,
        timeout: Duration,
    ) -> Self {
        Self {
            reader,
            hooks,
            timeout,
            slow_disk: SlowDisk::new(timeout),
            routed: None,
        }
    }

    /// The endpoint with its route, which must exist.
    fn routed(&mut self) -> Result<&mut RoutedEndpoint, Error> {
        self.routed.as_mut().ok_or_else(no_route)
    }

    /// As [`Setup::routed`], and gives it away.
    pub(crate) fn take_routed(&mut self) -> Result<RoutedEndpoint, Error> {
        self.routed.take().ok_or_else(no_route)
    }

    /// Returns the next message, if one comes within a moment. Maintains the route meanwhile.
    fn hear(&mut self) -> Result<Option<Message>, Error> {
        let wait = match &mut self.routed {
            Some(routed) => {
                routed.step(self.reader)?;
                Duration::ZERO
            }
            None => CANCEL_PERIOD,
        };
        self.reader.set_timeout(Some(wait));
        match self.reader.recv() {
            Ok(message) => Ok(Some(message)),
            Err(ChannelError::Timeout { .. }) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// As [`Setup::hear`], while only signs of life are due. Returns whether one has come.
    fn hear_life(&mut self) -> Result<bool, Error> {
        match self.hear()? {
            None => Ok(false),
            Some(Message::Progress(_)) => Ok(true),
            Some(other) => Err(unexpected(other, due::LIFE)),
        }
    }

    /// Waits until the route is known, and returns what was found; `None` with an RDMA NIC. `fixed` is
    /// the MTU that the user requested.
    pub(crate) fn find_route(
        &mut self,
        patience: Duration,
        fixed: Option<u32>,
    ) -> Result<Option<FoundRoute>, Error> {
        let start = Instant::now();
        // The route may have existed before this wait.
        self.until(|routed| routed.found(patience.saturating_sub(start.elapsed()), fixed))
    }

    /// Maintains the route until `done` returns a value, while no message of the peer is due.
    pub(crate) fn until<T>(
        &mut self,
        mut done: impl FnMut(&mut RoutedEndpoint) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        loop {
            self.hooks.cancel.check()?;
            if let Some(result) = done(self.routed()?)? {
                return Ok(result);
            }
            self.hear_life()?;
        }
    }

    /// How long a message of the set-up may take: a slow path is busy with the search for the largest packet.
    pub(crate) fn patience(&self) -> Duration {
        self.timeout.max(SETUP)
    }

    /// Waits up to `patience` for a whole message. Time in which the peer reports a busy disk does
    /// not count.
    ///
    /// A peer, or an attacker between the ends, that delivers a message byte by byte gains no time.
    pub(crate) fn message(&mut self, patience: Duration) -> Result<Message, Error> {
        let mut since = Instant::now();
        loop {
            self.hooks.cancel.check()?;
            match self.hear()? {
                Some(Message::Progress(progress)) => {
                    if progress.disk_ms > 0 {
                        since = Instant::now();
                    }
                    self.warn_of_disk(LifeSigns {
                        peer_disk: Duration::from_millis(progress.disk_ms),
                        ..LifeSigns::default()
                    });
                }
                Some(message) => return Ok(message),
                None => {}
            }
            if since.elapsed() >= patience {
                return Err(too_late(patience));
            }
        }
    }

    /// Runs an operation on this end's disk, while no message of the peer is due. Meanwhile,
    /// listens for the peer's signs of life.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        heartbeat: &Arc<OwnCounts>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let of_thread_too = Arc::clone(heartbeat);
        let work = move || {
            let _operation = of_thread_too.disk_operation();
            work()
        };
        let mut heard_at = Instant::now();
        let cancel = self.hooks.cancel;
        cancel.run_watched(work, || {
            if self.hear_life()? {
                heard_at = Instant::now();
            }
            if heard_at.elapsed() >= self.timeout {
                return Err(too_late(self.timeout));
            }
            self.warn_of_disk(LifeSigns {
                own_disk: heartbeat.disk_busy(Instant::now()),
                ..LifeSigns::default()
            });
            Ok(())
        })
    }

    fn warn_of_disk(&mut self, signs: LifeSigns) {
        if let Some(warning) = self.slow_disk.warning(signs.slow_disk()) {
            self.hooks.warn(warning);
        }
    }

    /// Waits for the peer's hello.
    pub(crate) fn hello(&mut self) -> Result<Hello, Error> {
        match self.message(self.patience())? {
            Message::Hello(hello) => Ok(hello),
            other => Err(unexpected(other, due::HELLO)),
        }
    }

    /// Waits for what the sender plans.
    pub(crate) fn plan(&mut self) -> Result<TransferPlan, Error> {
        match self.message(self.patience())? {
            Message::Plan(plan) => Ok(plan),
            other => Err(unexpected(other, due::PLAN)),
        }
    }

    /// Waits for the addresses of the peer's sockets.
    pub(crate) fn route_offer(&mut self) -> Result<OfferedSockets, Error> {
        match self.message(self.patience())? {
            Message::Route(offer) => Ok(offer),
            other => Err(unexpected(other, due::ROUTE)),
        }
    }
}

/// Warns if data packets are not sealed, though this end would seal them.
pub(crate) fn warn_if_unsealed(cipher: Option<Cipher>, ours: Sealing, hooks: &TransferHooks<'_>) {
    if cipher.is_none() && ours != Sealing::Off {
        hooks.warn(
            "the other end does not seal data packets, so anyone on the path can read them; --sealed \
             refuses such a transfer",
        );
    }
}

/// The UDP ports of both ends, for people.
pub(crate) fn ports(ours: &QpInfo, theirs: &QpInfo) -> String {
    format!("{} and {}", ours.control, theirs.control)
}

/// Decodes the connection data of the peer's queue pair.
pub(crate) fn decode_info(blob: &QpBlob) -> Result<QpInfo, Error> {
    QpInfo::decode(&blob.0)
        .map_err(|error| Error::caused(ErrorKind::Mismatch, "the peer's queue pair", &error))
}

/// Encodes the connection data of this end's queue pair.
pub(crate) fn encode_info(info: &QpInfo) -> Result<QpBlob, Error> {
    let bytes = info.encode();
    bytes
        .map(QpBlob)
        .map_err(|error| Error::caused(ErrorKind::Other, "describing the queue pair", &error))
}

/// Sends the peer the connection data of this end's queue pair.
pub(crate) fn send_qp_info(outbox: &Outbox, info: &QpInfo, cancel: &Cancel) -> Result<(), Error> {
    outbox.send_or_cancel(Message::QpInfo(encode_info(info)?), cancel)
}

/// Shows people where files go on that were interrupted.
pub(crate) fn note_partials(partials: &[Partial], manifest: &Manifest, hooks: &TransferHooks<'_>) {
    const SHOWN: usize = 3;
    for partial in &partials[..partials.len().min(SHOWN)] {
        let entry = manifest.entry(partial.entry);
        let bytes = entry.map_or(0, |entry| entry.kind.length());
        hooks.note(format!(
            "going on with {:?} from byte {} ({} of {})",
            manifest.path(partial.entry),
            partial.bytes,
            Bytes(partial.bytes),
            Bytes(bytes)
        ));
    }
    if partials.len() > SHOWN {
        let more = Count((partials.len() - SHOWN) as u64, "file");
        hooks.note(format!("going on with {more} more"));
    }
}
