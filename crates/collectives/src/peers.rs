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
/// A rank that has not answered a question for this long is not waited for when this one leaves.
const SILENCE_NS: u64 = 1_000_000_000;

/// The lanes of notes, and what came over them.
#[derive(Debug)]
pub(crate) struct Peers {
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
    /// Of a rank that has left in good order: how many receives of this rank it has matched.
    has_served: Option<u64>,
    /// Its receives that wait for sends from here.
    wants: VecDeque<Want>,
    /// Receives of it that were matched with a send from here, without those of 0 bytes.
    served: u64,
    /// Whether its notes cannot be read any more.
    is_broken: bool,
}

impl Peers {
    pub(crate) fn new(lanes: Vec<Option<Lane>>) -> Self {
        let peer = |lane| Peer {
            lane,
            outgoing: VecDeque::new(),
            unanswered_ns: None,
            started: 0,
            has_left: false,
            has_served: None,
            wants: VecDeque::new(),
            served: 0,
            is_broken: false,
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
    pub(crate) fn is_there(&self, peer: usize, now_ns: u64) -> bool {
        let is_silent = |asked_ns: u64| now_ns.saturating_sub(asked_ns) >= SILENCE_NS;
        let is_there = |peer: &Peer| !peer.has_left && !peer.unanswered_ns.is_some_and(is_silent);
        self.peers[peer].as_ref().is_some_and(is_there)
    }

    /// Whether a rank starts no more operations.
    pub(crate) fn has_left(&self, peer: usize) -> bool {
        self.peers[peer].as_ref().is_some_and(|peer| peer.has_left)
    }

    /// Of a rank that has left in good order: how many receives of this rank it has matched,
    /// without those of 0 bytes. `None` of all other ranks.
    pub(crate) fn has_served(&self, peer: usize) -> Option<u64> {
        self.peers[peer].as_ref().and_then(|peer| peer.has_served)
    }

    /// Notes to a rank that it has not confirmed.
    pub(crate) fn in_flight(&self, peer: usize) -> usize {
        let peer = self.peers[peer].as_ref();
        peer.map_or(0, |peer| peer.outgoing.len() + peer.lane.in_flight())
    }

    /// The first receive of a rank with this tag that waits for a send from here. It waits no more.
    pub(crate) fn serve(&mut self, peer: usize, tag: u32) -> Option<Want> {
        let peer = self.peers[peer].as_mut()?;
        let place = peer.wants.iter().position(|want| want.tag == tag)?;
        let want = peer.wants.remove(place)?;
        peer.served += u64::from(want.bytes > 0);
        Some(want)
    }

    /// Sends a note to a rank as soon as there is room.
    pub(crate) fn say(&mut self, peer: usize, note: Note) {
        if let Some(peer) = &mut self.peers[peer] {
            peer.outgoing.push_back(note);
        }
    }

    /// Says to all ranks why the group has ended.
    pub(crate) fn say_end(&mut self, reason: &str) {
        for peer in self.remaining_mut() {
            let reason = reason.to_owned();
            peer.outgoing.push_back(Note::End { reason });
        }
    }

    /// Says to all ranks that this one starts no more operations. `started`: collective operations
    /// that it has started.
    pub(crate) fn say_leave(&mut self, started: u64) {
        for peer in self.remaining_mut() {
            let served = peer.served;
            peer.outgoing.push_back(Note::Leave { started, served });
        }
    }

    fn remaining_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        let peers = self.peers.iter_mut().flatten();
        peers.filter(|peer| !peer.has_left)
    }

    /// Data of an operation came or went, or the first operation began.
    pub(crate) fn note_moved(&mut self, now_ns: u64) {
        self.moved_ns = now_ns;
        self.asked_ns = None;
    }

    /// Asks all others how far they are, if it is time. Returns when to poll again. `wait_ns` is
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
        for peer in self.remaining_mut().filter(quiet) {
            peer.unanswered_ns = Some(now_ns);
            peer.outgoing.push_back(Note::Ask);
        }
        self.asked_ns = Some(now_ns);
        // The questions leave with the next poll.
        now_ns
    }

    /// The rank that keeps an operation from its end, and what it does: the one that has not answered
    /// for longest, else one that has not started the collective operation with this number.
    /// `wait_ns` is how long the operation may take: an answer may need a share of it.
    pub(crate) fn culprit(
        &self,
        now_ns: u64,
        wait_ns: u64,
        number: Option<u64>,
    ) -> Option<(usize, &'static str)> {
        let peers = self.peers.iter().enumerate();
        let peers = peers.filter_map(|(rank, peer)| Some((rank, peer.as_ref()?)));
        let patience_ns = (wait_ns / 16).clamp(ASK_NS[0], ASK_NS[1] / 2);
        let silent = peers.clone().filter_map(|(rank, peer)| {
            let asked_ns = peer.unanswered_ns.filter(|_| !peer.has_left)?;
            (now_ns.saturating_sub(asked_ns) >= patience_ns).then_some((asked_ns, rank))
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
    /// collective operations that this rank has started. An error of one rank does not keep notes
    /// from the others; the first error is returned.
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
        let mut first = None;
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else {
                continue;
            };
            match peer.progress(rank, endpoint, started) {
                Ok(peer_moved) => moved |= peer_moved,
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(moved), Err)
    }
}

impl Peer {
    /// Takes in its notes and sends those to it. Returns whether there were some.
    fn progress<F: Fabric>(
        &mut self,
        rank: usize,
        endpoint: &mut Endpoint<F>,
        started: u64,
    ) -> Result<bool, CollectiveError> {
        let taken = match self.is_broken {
            true => Ok(false),
            false => self.take_all(rank, endpoint, started),
        };
        // It hears why the group ends even if its own notes cannot be read.
        self.is_broken |= taken.is_err();
        let sent = self.send_all(endpoint);
        Ok(taken? | sent?)
    }

    fn take_all<F: Fabric>(
        &mut self,
        rank: usize,
        endpoint: &mut Endpoint<F>,
        started: u64,
    ) -> Result<bool, CollectiveError> {
        let broken = |problem| CollectiveError::Connection { rank, problem };
        let mut moved = false;
        self.lane.reclaim().map_err(broken)?;
        self.lane.post(endpoint)?;
        while let Some(bytes) = self.lane.front(endpoint).map_err(broken)? {
            let note = Note::decode(bytes);
            let note = note.ok_or_else(|| broken("a control message cannot be read".into()))?;
            self.lane.release(endpoint)?;
            moved = true;
            self.take(rank, note, started)?;
        }
        Ok(moved)
    }

    fn send_all<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, CollectiveError> {
        let mut moved = false;
        while let Some(note) = self.outgoing.front() {
            if !self.lane.send(endpoint, &note.encode(), &[])? {
                break;
            }
            self.outgoing.pop_front();
            moved = true;
        }
        Ok(moved)
    }

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
            Note::Leave { started, served } => {
                self.has_left = true;
                self.has_served = Some(served);
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
