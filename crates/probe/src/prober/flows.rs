//! The prober's sockets.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use farwrite_fabric::udp::{
    MAX_BATCH_BYTES, MAX_SEGMENTS, OutgoingBatch, SocketConfig, SocketError, UdpSocket, wait,
};

use super::ProbeHooks;
use crate::Error;
use crate::datagram::{Answer, Datagram, DatagramKind, KEY_BYTES, MAX_BYTES, MIN_BYTES};
use crate::message::Trial;

/// Receive buffer of a flow, which receives only answers.
const RECV_BUFFER_BYTES: usize = 256 << 10;
/// A sender that is later than this does not catch up, because a burst would fill a queue on the
/// path.
const MAX_CATCH_UP: Duration = Duration::from_millis(2);
/// Number of packets between two clock reads.
const BATCH: u32 = 64;
/// Shortest sleep, also while a socket is full.
const SLEEP: Duration = Duration::from_micros(50);

/// The prober's sockets, and their destinations.
pub(super) struct Flows {
    sockets: Vec<UdpSocket>,
    to: Vec<SocketAddr>,
    key: [u8; KEY_BYTES],
    start: Instant,
    /// Content of packets after the header: bytes that do not compress.
    padding: Vec<u8>,
}

/// How a trial was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Packets sent. Fewer than the trial has if the user ended it.
    pub(super) packets: u32,
    /// Packets that the host did not put on the network.
    pub(super) unsent: u64,
    /// Number of times that a socket was full.
    pub(super) waits: u64,
    /// Time from the first packet to the last.
    pub(super) elapsed: Duration,
}

impl Flows {
    /// Binds `count` sockets at `local`, on free ports.
    pub(super) fn bind(
        local: SocketAddr,
        count: u16,
        key: [u8; KEY_BYTES],
        to: impl Fn(usize) -> SocketAddr,
    ) -> Result<Self, Error> {
        let mut bind = local;
        bind.set_port(0);
        let config = SocketConfig {
            recv_buffer_bytes: RECV_BUFFER_BYTES,
            ..SocketConfig::new(bind)
        };
        let sockets = (0..count).map(|_| UdpSocket::bind(&config));
        let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
        let mut padding = vec![0; MAX_BYTES - MIN_BYTES];
        blake3::Hasher::new_keyed(&key)
            .finalize_xof()
            .fill(&mut padding);
        Ok(Self {
            to: (0..sockets.len()).map(to).collect(),
            sockets,
            key,
            start: Instant::now(),
            padding,
        })
    }

    pub(super) fn count(&self) -> u16 {
        u16::try_from(self.sockets.len()).unwrap_or(u16::MAX)
    }

    /// Local address of the first socket.
    pub(super) fn local_addr(&self) -> SocketAddr {
        self.sockets[0].local_addr()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sends a trial at a pace in bits of IP packets per second.
    pub(super) fn send_trial(
        &mut self,
        trial: Trial,
        (payload_bytes, ip_bytes): (u32, u32),
        rate_bps: u64,
        host: &ProbeHooks<'_>,
    ) -> Result<Sent, Error> {
        let gap_ns = u64::from(ip_bytes) * 8 * 1_000_000_000 / rate_bps.max(1);
        let gap = Duration::from_nanos(gap_ns);
        let unsent_before: u64 = self.sockets.iter().map(UdpSocket::unsent).sum();
        let start = Instant::now();
        // Send time of the next packet.
        let mut next = start;
        let (mut sent, mut waits) = (0, 0);
        while sent < trial.packets && !(host.cancelled)() {
            let now = Instant::now();
            next = next.max(now.checked_sub(MAX_CATCH_UP).unwrap_or(now));
            let late = now.saturating_duration_since(next);
            if next > now {
                thread::sleep((next - now).max(SLEEP));
                continue;
            }
            let due = late.as_nanos() / u128::from(gap_ns.max(1)) + 1;
            let left = trial.packets - sent;
            let due = u32::try_from(due).unwrap_or(BATCH).min(BATCH).min(left);
            let taken = self.send_packets(trial, sent, due, payload_bytes as usize)?;
            sent += taken;
            next += gap * taken;
            if taken < due {
                waits += 1;
                thread::sleep(SLEEP);
            }
        }
        let unsent_after: u64 = self.sockets.iter().map(UdpSocket::unsent).sum();
        Ok(Sent {
            packets: sent,
            unsent: unsent_after - unsent_before,
            waits,
            elapsed: start.elapsed(),
        })
    }

    /// Returns the number of packets that the sockets accepted.
    fn send_packets(
        &mut self,
        trial: Trial,
        first: u32,
        count: u32,
        payload_bytes: usize,
    ) -> Result<u32, Error> {
        let timestamp_ns = self.now_ns();
        let mut taken = 0;
        while taken < count {
            let sequence = first + taken;
            let flow = sequence % u32::from(trial.flows);
            // All packets of a single flow can leave in one call.
            let run = if trial.flows == 1 { count - taken } else { 1 };
            let headers: Vec<_> = (sequence..sequence + run)
                .map(|sequence| {
                    let datagram = Datagram {
                        kind: DatagramKind::Data,
                        flow: u8::try_from(flow).unwrap_or(u8::MAX),
                        trial: trial.id,
                        sequence,
                        timestamp_ns,
                    };
                    datagram.seal(&self.key, payload_bytes)
                })
                .collect();
            let sent = self.send(flow as usize, &headers, payload_bytes)?;
            taken += sent;
            if sent < run {
                break;
            }
        }
        Ok(taken)
    }

    /// Returns the number of datagrams that the socket accepted.
    fn send(
        &mut self,
        flow: usize,
        headers: &[[u8; MIN_BYTES]],
        payload_bytes: usize,
    ) -> Result<u32, Error> {
        let padding = &self.padding[..payload_bytes - MIN_BYTES];
        let parts: Vec<_> = headers
            .iter()
            .flat_map(|header| [IoSlice::new(header), IoSlice::new(padding)])
            .collect();
        let batch = (MAX_BATCH_BYTES / payload_bytes).clamp(1, MAX_SEGMENTS);
        let messages: Vec<_> = parts
            .chunks(2 * batch)
            .map(|parts| OutgoingBatch {
                src: None,
                dst: self.to[flow],
                segment_bytes: payload_bytes,
                parts,
            })
            .collect();
        let sent = self.sockets[flow].send(&messages)?;
        Ok(u32::try_from(sent).unwrap_or(u32::MAX))
    }

    /// Sends a question of this size. Its number selects the flow. Returns false if this host
    /// cannot send a packet of this size.
    pub(super) fn ask(
        &mut self,
        trial: Trial,
        sequence: u32,
        payload_bytes: usize,
    ) -> Result<bool, Error> {
        let flow = sequence % u32::from(trial.flows);
        let datagram = Datagram {
            kind: DatagramKind::Question,
            flow: u8::try_from(flow).unwrap_or(u8::MAX),
            trial: trial.id,
            sequence,
            timestamp_ns: self.now_ns(),
        };
        let header = datagram.seal(&self.key, payload_bytes);
        match self.send(flow as usize, &[header], payload_bytes) {
            Err(Error::Socket(SocketError::TooLarge { .. })) => Ok(false),
            // A question that does not fit into the socket counts as lost.
            sent => sent.map(|_| true),
        }
    }

    /// Waits up to `patience` for answers to the questions of a trial. Passes the number of the question, the answer
    /// and the round trip to `take`.
    pub(super) fn answers(
        &mut self,
        trial: Trial,
        patience: Duration,
        mut take: impl FnMut(u32, Answer, Duration),
    ) -> Result<(), Error> {
        // A signal ends the wait early, so that Ctrl-C is noticed.
        let sockets = self.sockets.iter().map(|socket| (socket, false));
        let _ = wait(sockets, Some(patience));
        let (start, key) = (self.start, self.key);
        for socket in &mut self.sockets {
            let (batches, _) = socket.recv()?;
            let now_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let datagrams = batches.flat_map(|batch| {
                let segments = batch.segments().map(|bytes| Datagram::open(&key, bytes));
                segments.collect::<Vec<_>>()
            });
            for datagram in datagrams.flatten() {
                let DatagramKind::Answer(answer) = datagram.kind else {
                    continue;
                };
                if datagram.trial != trial.id {
                    continue;
                }
                let round_trip_ns = now_ns
                    .saturating_sub(datagram.timestamp_ns)
                    .saturating_sub(answer.hold_ns);
                let round_trip = Duration::from_nanos(round_trip_ns);
                take(datagram.sequence, answer, round_trip);
            }
        }
        Ok(())
    }
}
