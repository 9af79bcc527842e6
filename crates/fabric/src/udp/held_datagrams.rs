//! Datagrams that leave with the next ones, in one system call.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use super::datagram::OutgoingBatch;
use super::error::SocketError;
use super::routing_table;
use super::sender::UdpSender;
use super::sys::BATCH;
use crate::nic::Burst;

/// Most datagrams that are held. A call has room for as many, and for one batch of data.
const MOST_HELD: usize = BATCH - 1;
/// Most datagrams that could not be sent and whose senders do not know it yet.
const MOST_FAILED: usize = 64;

/// Datagrams of one packet, in the order in which they leave.
#[derive(Debug, Default)]
pub(super) struct HeldDatagrams {
    datagrams: VecDeque<Held>,
    /// Why datagrams to these addresses could not be sent.
    failed: VecDeque<(SocketAddr, SocketError)>,
    /// Buffers of datagrams that have left.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Held {
    src: IpAddr,
    dst: SocketAddr,
    bytes: Vec<u8>,
}

impl HeldDatagrams {
    pub(super) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.datagrams.len() >= MOST_HELD
    }

    /// Adds a packet of a burst. `write` appends the UDP payload.
    pub(super) fn add(&mut self, burst: &Burst<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        write(&mut bytes);
        self.datagrams.push_back(Held {
            src: burst.flow().src().ip(),
            dst: routing_table::canonical(burst.destination()),
            bytes,
        });
    }

    /// Returns the error of an earlier datagram to the address of a burst, once.
    ///
    /// # Errors
    /// That of [`UdpSender::send`].
    pub(super) fn check(&mut self, burst: &Burst<'_>) -> Result<(), SocketError> {
        let dst = routing_table::canonical(burst.destination());
        let failed = self.failed.iter().position(|(to, _)| *to == dst);
        match failed.and_then(|index| self.failed.remove(index)) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Sends what is held, and `messages` behind it. Returns the number of datagrams of `messages` that the
    /// system accepted.
    ///
    /// # Errors
    /// [`SocketError::Io`] of a datagram that is held, and those of [`UdpSender::send`] for the first
    /// of `messages`.
    pub(super) fn send(
        &mut self,
        socket: &mut UdpSender,
        messages: &[OutgoingBatch<'_>],
    ) -> Result<usize, SocketError> {
        loop {
            let sent = self.send_once(socket, messages);
            let held = self.datagrams.len();
            match sent {
                Ok(sent) => {
                    let left = sent.min(held);
                    let bytes = self.datagrams.drain(..left).map(|held| held.bytes);
                    self.spare.extend(bytes.take(MOST_HELD));
                    // If only some have left, the system is full, or the next one has an error.
                    if left == held || left == 0 {
                        return Ok(sent - left);
                    }
                }
                Err(error @ SocketError::Io { .. }) => return Err(error),
                Err(error) => {
                    let Some(first) = self.datagrams.pop_front() else {
                        return Err(error);
                    };
                    socket.give_up(1);
                    if !socket.loses(&error) {
                        self.failed.retain(|(to, _)| *to != first.dst);
                        self.failed.truncate(MOST_FAILED - 1);
                        self.failed.push_front((first.dst, error));
                    }
                }
            }
        }
    }

    fn send_once(
        &self,
        socket: &mut UdpSender,
        messages: &[OutgoingBatch<'_>],
    ) -> Result<usize, SocketError> {
        if self.datagrams.is_empty() {
            return socket.send(messages);
        }
        let held = self.datagrams.iter();
        let parts: Vec<_> = held.map(|held| [IoSlice::new(&held.bytes)]).collect();
        let held = self.datagrams.iter().zip(&parts);
        let held = held.map(|(held, parts)| OutgoingBatch {
            src: Some(held.src),
            dst: held.dst,
            segment_bytes: held.bytes.len(),
            parts,
        });
        let all: Vec<_> = held.chain(messages.iter().copied()).collect();
        socket.send(&all)
    }
}
