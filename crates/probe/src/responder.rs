//! The responder: the end that answers.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farwrite_fabric::udp::{OutgoingBatch, ReservedPort, SocketConfig, UdpSocket, wait};
use farwrite_keys::Text;

use crate::Error;
use crate::control::Control;
use crate::datagram::{Datagram, DatagramKind, KEY_BYTES, MIN_BYTES, octets};
use crate::message::{HostDrops, ProbeMessage};
use crate::open_trials::{Incoming, OpenTrials};

/// What the prober may say once a probe has started.
const REQUEST: &str = "trials, or the end of the probe";
/// Timeout for the prober's next message or datagram.
const SILENCE: Duration = Duration::from_secs(30);
/// Interval between checks for messages.
const LOOK: Duration = Duration::from_millis(1);
/// Longest wait for datagrams, so that messages and Ctrl-C are noticed.
const WAIT: Duration = Duration::from_millis(5);

/// Summary of a responder's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderSummary {
    /// Trials counted.
    pub trials: u32,
    /// Packets of these trials that arrived.
    pub packets: u64,
    /// Datagrams at the responder's port that did not belong to this probe. None of them was
    /// answered.
    pub strangers: u64,
}

/// Answers a prober until it is done. `held` is the port of the responder.
///
/// # Errors
/// [`Error::Connection`], [`Error::Message`], [`Error::Silence`], [`Error::Aborted`], [`Error::Unexpected`],
/// [`Error::Trials`], [`Error::Socket`], and [`Error::Interrupted`] once `cancelled` returns true. The peer is informed.
pub fn answer(
    control: Control,
    held: &ReservedPort,
    cancelled: &dyn Fn() -> bool,
) -> Result<ResponderSummary, Error> {
    let result = serve(&control, held, cancelled);
    match &result {
        Ok(_) => control.leave(),
        Err(error) => control.abort(error.cause(), Text::new(error)),
    }
    result
}

fn serve(
    control: &Control,
    held: &ReservedPort,
    cancelled: &dyn Fn() -> bool,
) -> Result<ResponderSummary, Error> {
    let (begun, want) = (Instant::now(), "the start of a probe");
    let key = loop {
        match control.receive(WAIT)? {
            Some(ProbeMessage::Start(key)) => break key.0,
            Some(other) => return Err(other.unexpected(want)),
            None if cancelled() => return Err(Error::Interrupted),
            None if begun.elapsed() < SILENCE => {}
            None => {
                let after = SILENCE;
                return Err(Error::Silence { want, after });
            }
        }
    };
    // Use the port of the connection, so that one firewall rule allows both.
    let config = SocketConfig::new(control.local_addr());
    let socket = UdpSocket::bind_beside(&config, held)?;
    control.send(&ProbeMessage::Ready {
        port: socket.local_addr().port(),
        ip: octets(socket.local_addr().ip()),
        recv_buffer_bytes: socket.granted().recv_buffer_bytes as u64,
    })?;
    let responder = Responder {
        socket,
        held,
        open_trials: OpenTrials::new(key),
        key,
        start: Instant::now(),
        host: HostDrops::in_all(),
        answered: ResponderSummary::default(),
        drops: 0,
    };
    responder.run(control, cancelled)
}

struct Responder<'a> {
    socket: UdpSocket,
    held: &'a ReservedPort,
    open_trials: OpenTrials,
    key: [u8; KEY_BYTES],
    start: Instant,
    /// Drops of the host before the probe.
    host: HostDrops,
    answered: ResponderSummary,
    /// Drops of the socket that were passed to the open trials.
    drops: u64,
}

impl Responder<'_> {
    fn run(
        mut self,
        control: &Control,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<ResponderSummary, Error> {
        let mut heard_at = Instant::now();
        let mut looked_at = heard_at;
        loop {
            if cancelled() {
                return Err(Error::Interrupted);
            }
            if wait([(&self.socket, false)], Some(WAIT)).is_ok_and(|ready| ready) {
                let before = self.open_trials.accepted;
                while self.receive()? {
                    if looked_at.elapsed() > LOOK {
                        break;
                    }
                }
                // Datagrams of others must not keep a probe alive whose prober is gone.
                if self.open_trials.accepted > before {
                    heard_at = Instant::now();
                }
            }
            looked_at = Instant::now();
            match control.receive(Duration::ZERO)? {
                Some(ProbeMessage::Done) => {
                    self.answered.strangers = self.open_trials.strangers;
                    return Ok(self.answered);
                }
                Some(message) => {
                    let reply = self.reply(message)?;
                    control.send(&reply)?;
                    heard_at = Instant::now();
                }
                None if heard_at.elapsed() < SILENCE => {}
                None => {
                    let (want, after) = (REQUEST, SILENCE);
                    return Err(Error::Silence { want, after });
                }
            }
        }
    }

    /// Returns whether more datagrams may be waiting.
    fn receive(&mut self) -> Result<bool, Error> {
        let start = self.start;
        let now_ns = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut answers: Vec<(SocketAddr, Datagram, u64)> = Vec::new();
        let (batches, more) = self.socket.recv()?;
        let at_ns = now_ns();
        for batch in batches {
            // The kernel prefers this socket to that of the listener, which strangers may mean.
            self.held.pass(&batch);
            for bytes in batch.segments() {
                let answer = self.open_trials.take(Incoming {
                    bytes,
                    from: batch.src,
                    at_ns,
                    ecn_bits: batch.ecn.bits(),
                });
                answers.extend(answer.map(|answer| (batch.src, answer, at_ns)));
            }
        }
        let drops = self.socket.drops();
        self.open_trials.note_drops(drops - self.drops);
        self.drops = drops;
        for (to, mut answer, at_ns) in answers {
            if let DatagramKind::Answer(answer) = &mut answer.kind {
                answer.hold_ns = now_ns() - at_ns;
            }
            let bytes = answer.seal(&self.key, MIN_BYTES);
            // An answer that does not fit into the socket counts as lost.
            let _ = self.socket.send(&[OutgoingBatch {
                src: None,
                dst: to,
                segment_bytes: MIN_BYTES,
                parts: &[IoSlice::new(&bytes)],
            }])?;
        }
        Ok(more)
    }

    fn reply(&mut self, message: ProbeMessage) -> Result<ProbeMessage, Error> {
        match message {
            ProbeMessage::Trials(trials) => {
                self.open_trials.open(&trials)?;
                Ok(ProbeMessage::Open)
            }
            ProbeMessage::Close(ids) => {
                let mut all = Vec::new();
                for id in ids {
                    let counts = self.open_trials.close(id)?;
                    self.answered.trials += 1;
                    self.answered.packets += u64::from(counts.received);
                    all.push(counts);
                }
                Ok(ProbeMessage::Counts(all))
            }
            ProbeMessage::Host(_) => Ok(ProbeMessage::Host(HostDrops::since(self.host))),
            other => Err(other.unexpected(REQUEST)),
        }
    }
}
