//! Sends and receives between two ranks, matched by their tags.
//!
//! A receive says what it wants when it is posted; its send begins when it knows. So nothing comes
//! that no memory waits for, and sends can be matched in another order than they were posted.

use std::collections::VecDeque;

use farwrite::{Endpoint, Fabric};

use crate::error::CollectiveError;
use crate::execution::Execution;
use crate::lane::Lane;
use crate::member::OperationId;
use crate::note::{Note, Want};
use crate::peers::Peers;
use crate::segment::{HEADER_BYTES, Header};

/// The point-to-point operations of a rank.
#[derive(Debug)]
pub(crate) struct SendsAndReceives {
    /// By rank; `None` for this one.
    pub(crate) lanes: Vec<Option<Lane>>,
    /// In the order of posting.
    running: VecDeque<Point>,
    next_receive: u64,
    /// By rank: receives from it that are done, without those of 0 bytes.
    received: Vec<u64>,
}

#[derive(Debug)]
struct Point {
    id: OperationId,
    end: PointEnd,
    execution: Execution,
    /// Of a send: whether the receive is known.
    is_matched: bool,
}

/// One end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointEnd {
    pub(crate) peer: usize,
    pub(crate) tag: u32,
    pub(crate) is_send: bool,
    pub(crate) bytes: u64,
}

impl SendsAndReceives {
    pub(crate) fn new(lanes: Vec<Option<Lane>>) -> Self {
        Self {
            received: vec![0; lanes.len()],
            lanes,
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
            peers.say(end.peer, Note::Want(Want { number, tag, bytes }));
        }
        self.running.push_back(Point {
            id,
            end,
            execution,
            is_matched: !end.is_send,
        });
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Execution> {
        self.running.iter().map(|point| &point.execution)
    }

    /// All operations that are not over.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (OperationId, Execution)> {
        self.running
            .drain(..)
            .map(|point| (point.id, point.execution))
    }

    /// An operation that is over.
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
        self.received[peer] += u64::from(!is_send && bytes > 0);
        Some((point.id, point.execution))
    }

    /// A rank that has left, and whose data a receive waits for. What it sent before has come.
    pub(crate) fn waits_for_left(&self, peers: &Peers) -> Option<usize> {
        let receives = self.running.iter().filter(|point| !point.end.is_send);
        let mut senders = receives.map(|point| point.end.peer);
        senders.find(|&peer| {
            let served = peers.has_served(peer);
            served.is_some_and(|served| self.received[peer] >= served)
        })
    }

    /// Matches sends with the receives that are known.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`] where the two differ in length, [`CollectiveError::Ended`]
    /// where no receive will come, since the rank has left.
    pub(crate) fn match_sends(&mut self, peers: &mut Peers) -> Result<(), CollectiveError> {
        for point in self.running.iter_mut().filter(|point| !point.is_matched) {
            let PointEnd { peer, tag, .. } = point.end;
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
        let Some(lane) = self.lanes[peer].as_mut().filter(|lane| lane.has_room()) else {
            return Ok(false);
        };
        let mut running = self.running.iter_mut().filter(|point| point.is_matched);
        let Some(point) = running.find(|point| point.execution.sends_to(peer)) else {
            return Ok(false);
        };
        let Some((header, payload)) = point.execution.next_send(peer, most) else {
            return Ok(false);
        };
        let bytes = payload.len();
        let sent = lane.send(endpoint, &header.encode(), payload)?;
        if sent {
            point.execution.sent(peer, bytes);
        }
        Ok(sent)
    }

    /// Takes in one segment from a rank, if it is there.
    ///
    /// # Errors
    /// [`CollectiveError::Connection`] where nobody waits for it, [`CollectiveError::Mismatch`].
    pub(crate) fn receive<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        peer: usize,
    ) -> Result<bool, CollectiveError> {
        let Some(lane) = &mut self.lanes[peer] else {
            return Ok(false);
        };
        let broken = |problem| CollectiveError::Connection {
            rank: peer,
            problem,
        };
        let Some(bytes) = lane.front(endpoint).map_err(broken)? else {
            return Ok(false);
        };
        let header = Header::decode(bytes);
        let header = header.ok_or_else(|| broken("a segment has no header".into()))?;
        let is_its = |point: &&mut Point| {
            let PointEnd {
                peer: from,
                is_send,
                ..
            } = point.end;
            from == peer && !is_send && point.execution.number == header.number
        };
        let point = self.running.iter_mut().find(is_its);
        let point = point.filter(|point| point.execution.receives_from(peer));
        let point = point.ok_or_else(|| broken("a segment belongs to no receive".into()))?;
        let payload = &bytes[HEADER_BYTES..];
        if point.execution.receive(peer, &header, payload)? {
            lane.release(endpoint)?;
        }
        Ok(true)
    }
}
