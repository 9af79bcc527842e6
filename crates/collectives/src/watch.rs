//! What a rank knows of the others beside their data.
//!
//! While operations run and nothing moves, a rank asks all others how far they are. So when a
//! deadline comes, it can name the rank that is the cause rather than the one that it waits for,
//! which may wait itself.

use std::collections::VecDeque;

use farwrite::{Endpoint, Fabric};

use crate::error::CollectiveError;
use crate::lane::Lane;
use crate::note::{Note, Want};

/// Most receives of one rank whose sends have not been started here.
const MAX_WANTS: usize = 1 << 16;
/// Least and most time between two questions.
const ASK_NS: [u64; 2] = [10_000_000, 2_000_000_000];

/// The lanes of notes, and what came over them.
#[derive(Debug)]
pub(crate) struct Watch {
    /// By rank; `None` for this one.
    peers: Vec<Option<Peer>>,
    /// When the data moved last.
    moved_ns: u64,
    /// When the others were asked last, since the data moved.
    asked_ns: Option<u64>,
}

#[derive(Debug)]
struct Peer {
    lane: Lane,
    /// Notes that wait for room on the lane.
    outgoing: VecDeque<Note>,
    /// When it was asked, if it has said nothing since.
    unanswered_ns: Option<u64>,
    /// Collective operations that it has started, as far as it has said.
    started: u64,
    /// Whether it starts no more.
    has_left: bool,
    /// Its receives that wait for sends from here.
    wants: VecDeque<Want>,
}

impl Watch {
    pub(crate) fn new(lanes: Vec<Option<Lane>>) -> Self {
        let peer = |lane| Peer {
            lane,
            outgoing: VecDeque::new(),
            unanswered_ns: None,
            started: 0,
            has_left: false,
            wants: VecDeque::new(),
        };
        let peers = lanes.into_iter().map(|lane| lane.map(peer)).collect();
        Self {
            peers,
            moved_ns: 0,
            asked_ns: None,
        }
    }

    pub(crate) fn lane(&self, peer: usize) -> Option<&Lane> {
        self.peers[peer].as_ref().map(|peer| &peer.lane)
    }

    pub(crate) fn lane_mut(&mut self, peer: usize) -> Option<&mut Lane> {
        self.peers[peer].as_mut().map(|peer| &mut peer.lane)
    }

    /// Whether a rank is there to confirm what it gets, as far as is known.
    pub(crate) fn is_there(&self, peer: usize) -> bool {
        let is_there = |peer: &Peer| !peer.has_left && peer.unanswered_ns.is_none();
        self.peers[peer].as_ref().is_some_and(is_there)
    }

    /// Notes to a rank that it has not confirmed.
    pub(crate) fn in_flight(&self, peer: usize) -> usize {
        let peer = self.peers[peer].as_ref();
        peer.map_or(0, |peer| peer.outgoing.len() + peer.lane.in_flight())
    }

    /// Receives of a rank that wait for sends from here, in the order of their posting.
    pub(crate) fn wants_mut(&mut self, peer: usize) -> Option<&mut VecDeque<Want>> {
        self.peers[peer].as_mut().map(|peer| &mut peer.wants)
    }

    /// Sends a note to a rank as soon as there is room.
    pub(crate) fn say(&mut self, peer: usize, note: Note) {
        if let Some(peer) = &mut self.peers[peer] {
            peer.outgoing.push_back(note);
        }
    }

    /// Sends a note to all ranks.
    pub(crate) fn say_to_all(&mut self, note: &Note) {
        for peer in self
            .peers
            .iter_mut()
            .flatten()
            .filter(|peer| !peer.has_left)
        {
            peer.outgoing.push_back(note.clone());
        }
    }

    /// Data of an operation came or went, or the first operation began.
    pub(crate) fn note_moved(&mut self, now_ns: u64) {
        self.moved_ns = now_ns;
        self.asked_ns = None;
    }

    /// Asks all others how far they are, if it is time. Returns when it is time again. `wait_ns` is
    /// how long an operation may take.
    pub(crate) fn ask(&mut self, now_ns: u64, wait_ns: u64) -> u64 {
        let every_ns = (wait_ns / 8).clamp(ASK_NS[0], ASK_NS[1]);
        let last_ns = self.asked_ns.unwrap_or(self.moved_ns);
        let due_ns = last_ns.saturating_add(every_ns);
        if now_ns < due_ns {
            return due_ns;
        }
        // A question is repeated by its lane, not here.
        let quiet = |peer: &&mut Peer| peer.unanswered_ns.is_none();
        for peer in self.peers.iter_mut().flatten().filter(quiet) {
            peer.unanswered_ns = Some(now_ns);
            peer.outgoing.push_back(Note::Ask);
        }
        self.asked_ns = Some(now_ns);
        now_ns.saturating_add(every_ns)
    }

    /// The rank that keeps an operation from its end, and what it does: the one that has not answered
    /// for longest, else one that has not started the collective operation with this number.
    pub(crate) fn culprit(
        &self,
        now_ns: u64,
        number: Option<u64>,
    ) -> Option<(usize, &'static str)> {
        let peers = self.peers.iter().enumerate();
        let peers = peers.filter_map(|(rank, peer)| Some((rank, peer.as_ref()?)));
        let silent = peers.clone().filter_map(|(rank, peer)| {
            let asked_ns = peer.unanswered_ns?;
            (now_ns.saturating_sub(asked_ns) >= ASK_NS[0]).then_some((asked_ns, rank))
        });
        if let Some((_, rank)) = silent.min() {
            return Some((rank, "does not answer"));
        }
        // What is known of the others is fresh after a question alone.
        let number = number.filter(|_| self.asked_ns.is_some());
        let has_not_started = |peer: &Peer| number.is_some_and(|number| peer.started <= number);
        let mut absent = peers.filter(|(_, peer)| has_not_started(peer));
        absent.next().map(|(rank, _)| (rank, "has not started it"))
    }

    /// A rank that has left the group before it started the operation with this number.
    pub(crate) fn left_before(&self, number: u64) -> Option<usize> {
        let has_left = |peer: &Peer| peer.has_left && peer.started <= number;
        let mut peers = self.peers.iter();
        peers.position(|peer| peer.as_ref().is_some_and(has_left))
    }

    /// Takes in notes and sends those that wait. Returns whether there were some. `started`:
    /// collective operations that this rank has started.
    ///
    /// # Errors
    /// [`CollectiveError::Ended`] where another rank has ended the group;
    /// [`CollectiveError::Connection`].
    pub(crate) fn progress<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        started: u64,
    ) -> Result<bool, CollectiveError> {
        let mut moved = false;
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else {
                continue;
            };
            let broken = |problem| CollectiveError::Connection { rank, problem };
            peer.lane.reclaim().map_err(broken)?;
            peer.lane.post(endpoint)?;
            while let Some(bytes) = peer.lane.front(endpoint).map_err(broken)? {
                let note = Note::decode(bytes).ok_or_else(|| broken("a note is none".into()))?;
                peer.lane.release(endpoint)?;
                moved = true;
                peer.take(rank, note, started)?;
            }
            while let Some(note) = peer.outgoing.front() {
                if !peer.lane.send(endpoint, &note.encode(), &[])? {
                    break;
                }
                peer.outgoing.pop_front();
                moved = true;
            }
        }
        Ok(moved)
    }
}

impl Peer {
    fn take(&mut self, rank: usize, note: Note, started: u64) -> Result<(), CollectiveError> {
        self.unanswered_ns = None;
        match note {
            Note::Ask => {
                // One answer is enough, however often it asks.
                let is_answer = |note: &Note| matches!(note, Note::Answer { .. });
                self.outgoing.retain(|note| !is_answer(note));
                self.outgoing.push_back(Note::Answer { started });
            }
            Note::Answer { started } => self.started = self.started.max(started),
            Note::Leave { started } => {
                self.has_left = true;
                self.started = self.started.max(started);
            }
            Note::End { reason } => {
                self.has_left = true;
                return Err(CollectiveError::Ended { rank, reason });
            }
            Note::Want(_) if self.wants.len() >= MAX_WANTS => {
                let problem = format!("it has more than {MAX_WANTS} receives without a send");
                return Err(CollectiveError::Connection { rank, problem });
            }
            Note::Want(want) => self.wants.push_back(want),
        }
        Ok(())
    }
}
