//! Sends and receives between two ranks, matched by their tags.
//!
//! When a receive is posted, this rank informs the sender of it, and the send begins after that. So
//! no data arrives without memory that waits for it, and sends can be matched in an order different
//! from the order of posting. A receive from any rank informs all ranks. Those that have a send for it
//! offer the send, and the first offer to arrive gets the receive.

use std::collections::VecDeque;

use farwrite::{Endpoint, Fabric};

use crate::control::{ControlMessage, WaitingReceive};
use crate::error::CollectiveError;
use crate::exact_qp::ExactQp;
use crate::execution::Execution;
use crate::member::OperationId;
use crate::operation::PointEnd;
use crate::peers::Peers;

/// The point-to-point operations of a rank.
#[derive(Debug)]
pub(crate) struct SendsAndReceives {
    /// By rank; `None` for this rank.
    pub(crate) qps: Vec<Option<ExactQp>>,
    /// The running operations, in the order of posting.
    running: VecDeque<Point>,
    next_receive: u64,
    /// By rank: the number of receives from it that are done, without those of 0 bytes.
    received: Vec<u64>,
}

#[derive(Debug)]
struct Point {
    id: OperationId,
    end: PointEnd,
    execution: Execution,
    /// For a send: whether the matching receive is known. For a receive: whether its sender is.
    is_matched: bool,
}

impl SendsAndReceives {
    pub(crate) fn new(qps: Vec<Option<ExactQp>>) -> Self {
        Self {
            received: vec![0; qps.len()],
            qps,
            running: VecDeque::new(),
            next_receive: 0,
        }
    }

    /// Begins a send or a receive.
    pub(crate) fn start(
        &mut self,
        id: OperationId,
        end: PointEnd,
        mut execution: Execution,
        peers: &mut Peers,
    ) {
        if !end.is_send {
            let number = self.next_receive;
            self.next_receive += 1;
            execution.number = number;
            let PointEnd { tag, bytes, .. } = end;
            let receive = WaitingReceive { number, tag, bytes };
            match end.peer {
                Some(peer) => peers.queue_control(peer, ControlMessage::WaitingReceive(receive)),
                None => peers.queue_receive_any(receive),
            }
        }
        self.running.push_back(Point {
            id,
            end,
            execution,
            is_matched: !end.is_send && end.peer.is_some(),
        });
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Execution> {
        self.running.iter().map(|point| &point.execution)
    }

    /// Removes all operations that have not ended.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (OperationId, Execution)> {
        self.running
            .drain(..)
            .map(|point| (point.id, point.execution))
    }

    /// Removes all operations except receives of data that a rank had sent when it ended the group.
    pub(crate) fn drain_after_end(
        &mut self,
        peers: &Peers,
    ) -> impl Iterator<Item = (OperationId, Execution)> {
        let owes = |point: &Point| {
            let Some(peer) = point.end.peer else {
                return false;
            };
            let served = peers.ended_before(peer).and(peers.has_served(peer));
            !point.end.is_send && served.is_some_and(|served| self.received[peer] < served)
        };
        let (kept, drained): (_, VecDeque<_>) = self.running.drain(..).partition(owes);
        self.running = kept;
        drained.into_iter().map(|point| (point.id, point.execution))
    }

    /// The number of matched sends to a rank that have not ended, without those of 0 bytes.
    pub(crate) fn unsent(&self, peer: usize) -> u64 {
        let unsent = self.running.iter().filter(|point| {
            let end = point.end;
            end.peer == Some(peer) && end.is_send && point.is_matched && end.bytes > 0
        });
        unsent.count() as u64
    }

    /// Whether a receive from a rank has not ended.
    pub(crate) fn receives_from(&self, peer: usize) -> bool {
        let mut running = self.running.iter();
        running.any(|point| !point.end.is_send && point.end.peer == Some(peer))
    }

    /// Removes an operation that has ended.
    pub(crate) fn take_done(&mut self) -> Option<(OperationId, Execution)> {
        let is_done = |point: &Point| point.is_matched && point.execution.is_done();
        let place = self.running.iter().position(is_done)?;
        let point = self.running.remove(place)?;
        let PointEnd {
            peer,
            is_send,
            bytes,
            ..
        } = point.end;
        if let Some(peer) = peer {
            self.received[peer] += u64::from(!is_send && bytes > 0);
        }
        Some((point.id, point.execution))
    }

    /// A rank that has left, while a receive still waits for its data. All data that it sent before
    /// has arrived.
    pub(crate) fn waits_for_left(&self, peers: &Peers) -> Option<usize> {
        let receives = self.running.iter().filter(|point| !point.end.is_send);
        let mut senders = receives.clone().filter_map(|point| point.end.peer);
        let left = senders.find(|&peer| {
            let served = peers.has_served(peer);
            served.is_some_and(|served| self.received[peer] >= served)
        });
        let mut receives = receives;
        let waits_for_any = receives.any(|point| point.end.peer.is_none());
        left.or_else(|| peers.last_to_leave().filter(|_| waits_for_any))
    }

    /// Chooses the senders of receives from any rank, by the offers that have arrived.
    pub(crate) fn choose_senders(&mut self, peers: &mut Peers) {
        for (rank, number) in peers.take_offers() {
            let waits =
                |point: &&mut Point| point.end.peer.is_none() && point.execution.number == number;
            // If there is none, another offer came first, and the rank knows or learns it.
            if let Some(point) = self.running.iter_mut().find(waits) {
                point.end.peer = Some(rank);
                point.is_matched = true;
                point.execution.choose_sender(rank);
                let PointEnd { tag, bytes, .. } = point.end;
                peers.queue_choice(rank, WaitingReceive { number, tag, bytes });
            }
        }
    }

    /// Matches sends with the receives that are known.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`] if the two differ in length, [`CollectiveError::Ended`] if no
    /// receive will follow because the rank has left.
    pub(crate) fn match_sends(&mut self, peers: &mut Peers) -> Result<(), CollectiveError> {
        for point in self.running.iter_mut().filter(|point| !point.is_matched) {
            let PointEnd { peer, tag, .. } = point.end;
            let Some(peer) = peer else {
                continue;
            };
            let Some(want) = peers.serve(peer, tag) else {
                if peers.has_left(peer) {
                    return Err(CollectiveError::left(peer));
                }
                continue;
            };
            if want.bytes != point.end.bytes {
                return Err(CollectiveError::Mismatch {
                    operation: want.number,
                    rank: peer,
                    argument: "bytes of the receive",
                    theirs: want.bytes.to_string(),
                    ours: point.end.bytes.to_string(),
                });
            }
            point.execution.number = want.number;
            point.is_matched = true;
        }
        Ok(())
    }

    /// Sends one segment to a rank, if one is ready.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        peer: usize,
        most: u64,
    ) -> Result<bool, CollectiveError> {
        let Some(qp) = self.qps[peer].as_mut().filter(|qp| qp.has_room()) else {
            return Ok(false);
        };
        let mut running = self.running.iter_mut().filter(|point| point.is_matched);
        let Some(point) = running.find(|point| point.execution.sends_to(peer)) else {
            return Ok(false);
        };
        let Some((header, payload)) = point.execution.next_send(peer, most) else {
            return Ok(false);
        };
        let (bytes, left) = (payload.len(), point.execution.left_to(peer));
        let sent = qp.send(endpoint, &header.encode(), payload, left)?;
        if let Some(scheme) = sent {
            point.execution.sent(peer, bytes, scheme);
        }
        Ok(sent.is_some())
    }

    /// Processes one segment from a rank, if it has arrived.
    ///
    /// # Errors
    /// [`CollectiveError::Connection`] if no receive waits for it, [`CollectiveError::Mismatch`].
    pub(crate) fn receive<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        peer: usize,
        now_ns: u64,
    ) -> Result<bool, CollectiveError> {
        let Some(qp) = &mut self.qps[peer] else {
            return Ok(false);
        };
        let broken = |problem| CollectiveError::Connection {
            rank: peer,
            problem,
        };
        let Some((header, payload)) = qp.front_segment(endpoint).map_err(broken)? else {
            return Ok(false);
        };
        let is_its = |point: &&mut Point| {
            let PointEnd {
                peer: from,
                is_send,
                ..
            } = point.end;
            from == Some(peer) && !is_send && point.execution.number == header.number
        };
        let point = self.running.iter_mut().find(is_its);
        let point = point.filter(|point| point.execution.receives_from(peer));
        let point = point.ok_or_else(|| broken("a segment belongs to no receive".into()))?;
        if point.execution.receive(peer, &header, payload)? {
            point.execution.note_arrival(peer, now_ns);
            qp.release(endpoint, now_ns)?;
        }
        Ok(true)
    }
}
