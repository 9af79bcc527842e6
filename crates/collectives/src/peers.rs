//! The state of the other ranks that this rank knows, apart from their data.
//!
//! While operations run and no data moves, a rank asks all others about their progress. So when a
//! timeout passes, the rank can name the rank that caused the delay. The rank that it waits for
//! directly may itself be waiting.

use std::collections::VecDeque;
use std::time::Duration;

use farwrite::{Endpoint, Fabric};

use crate::bounded::record::Record;
use crate::control::{ControlMessage, MAX_RECORDS, WaitingReceive};
use crate::error::{CollectiveError, RankState};
use crate::exact_qp::ExactQp;
use crate::wants::{MOST_WANTS, Match, Wants};

/// The minimum and the maximum time between two questions.
const ASK_NS: [u64; 2] = [10_000_000, 2_000_000_000];
/// When this rank leaves, it does not wait for a rank that has not answered a question for this
/// long. Operations wait longer: see [`GroupOptions::dead_after`](crate::GroupOptions::dead_after).
const SILENCE_NS: u64 = 1_000_000_000;

/// The queue pairs of control messages, and the state that these messages report.
#[derive(Debug)]
pub(crate) struct Peers {
    /// By rank; `None` for this rank.
    peers: Vec<Option<Peer>>,
    /// Why the next collective operation could not start at this rank; empty if nobody tried.
    refusal: String,
    /// When data last moved.
    moved_ns: u64,
    /// When the others were last asked since data moved; `None` if they were not.
    asked_ns: Option<u64>,
    /// A rank that does not answer for this long counts as dead.
    dead_after_ns: u64,
    /// When this rank last looked at what has arrived.
    looked_ns: u64,
}

#[derive(Debug)]
struct Peer {
    qp: ExactQp,
    /// Control messages that wait for a free buffer.
    outgoing: VecDeque<ControlMessage>,
    /// When the rank was asked, if it has sent nothing since then.
    unanswered_ns: Option<u64>,
    /// When a message of the rank last arrived; `None` if none has.
    heard_ns: Option<u64>,
    /// Whether its process has ended.
    is_gone: bool,
    /// The number of collective operations that the rank has started, according to its last
    /// message.
    started: u64,
    /// Why the operation after those could not start there, according to its last answer; empty if
    /// the rank did not try, or if this rank has not started that operation either: the rank may still
    /// start it.
    refusal: String,
    /// Whether the rank starts no more operations.
    has_left: bool,
    /// For a rank that has ended the group: the number of its first collective operation that had not
    /// ended.
    ended_before: Option<u64>,
    /// For a rank that has left, or ended the group: the number of receives of this rank that it has
    /// matched.
    has_served: Option<u64>,
    /// The receives of the rank that wait for sends from this rank.
    wants: Wants,
    /// The receives of this rank from any rank, by their numbers, for which a send of the rank waits.
    offers: Vec<u64>,
    /// The records of the rank that have arrived, in order.
    records: Vec<Record>,
    /// Whether the control messages of the rank can no longer be read.
    is_broken: bool,
}

/// A rank that counts as dead.
#[derive(Debug)]
pub(crate) struct Dead {
    pub(crate) rank: usize,
    /// How long ago a message of it arrived; `None` if none has.
    pub(crate) heard: Option<Duration>,
    /// Whether its host says that its process has ended.
    pub(crate) is_gone: bool,
}

impl Peers {
    pub(crate) fn new(qps: Vec<Option<ExactQp>>, dead_after: Duration) -> Self {
        let peer = |qp| Peer {
            qp,
            outgoing: VecDeque::new(),
            unanswered_ns: None,
            heard_ns: None,
            is_gone: false,
            started: 0,
            refusal: String::new(),
            has_left: false,
            ended_before: None,
            has_served: None,
            wants: Wants::default(),
            offers: Vec::new(),
            records: Vec::new(),
            is_broken: false,
        };
        let peers = qps.into_iter().map(|qp| qp.map(peer)).collect();
        Self {
            peers,
            refusal: String::new(),
            moved_ns: 0,
            asked_ns: None,
            dead_after_ns: u64::try_from(dead_after.as_nanos()).unwrap_or(u64::MAX),
            looked_ns: 0,
        }
    }

    pub(crate) fn qp(&self, peer: usize) -> Option<&ExactQp> {
        self.peers[peer].as_ref().map(|peer| &peer.qp)
    }

    pub(crate) fn qp_mut(&mut self, peer: usize) -> Option<&mut ExactQp> {
        self.peers[peer].as_mut().map(|peer| &mut peer.qp)
    }

    /// Whether a rank can still confirm what it receives, as far as is known.
    pub(crate) fn is_there(&self, peer: usize, now_ns: u64) -> bool {
        let is_silent = |asked_ns: u64| now_ns.saturating_sub(asked_ns) >= SILENCE_NS;
        let is_there = |peer: &Peer| !peer.has_left && !peer.unanswered_ns.is_some_and(is_silent);
        self.peers[peer].as_ref().is_some_and(is_there)
    }

    /// Whether a rank starts no more operations.
    pub(crate) fn has_left(&self, peer: usize) -> bool {
        self.peers[peer].as_ref().is_some_and(|peer| peer.has_left)
    }

    /// For a rank that has ended the group: the number of its first collective operation that had not
    /// ended. `None` for all other ranks.
    pub(crate) fn ended_before(&self, peer: usize) -> Option<u64> {
        self.peers[peer].as_ref().and_then(|peer| peer.ended_before)
    }

    /// For a rank that has left, or ended the group: the number of receives of this rank that it has
    /// matched, without those of 0 bytes. `None` for all other ranks.
    pub(crate) fn has_served(&self, peer: usize) -> Option<u64> {
        self.peers[peer].as_ref().and_then(|peer| peer.has_served)
    }

    /// The number of control messages to a rank that it has not confirmed.
    pub(crate) fn in_flight(&self, peer: usize) -> usize {
        let peer = self.peers[peer].as_ref();
        peer.map_or(0, |peer| peer.outgoing.len() + peer.qp.in_flight())
    }

    /// Removes and returns the first receive of a rank with this tag that waits for a send from
    /// here. If it is a receive from any rank, the send is offered first.
    pub(crate) fn serve(&mut self, peer: usize, tag: u32) -> Option<WaitingReceive> {
        let peer = self.peers[peer].as_mut()?;
        match peer.wants.take(tag) {
            Match::Nothing => None,
            Match::Receive(receive) => Some(receive),
            Match::Offer(number) => {
                peer.outgoing.push_back(ControlMessage::Offer(number));
                None
            }
        }
    }

    /// Asks all ranks for the data of a receive from any rank.
    pub(crate) fn queue_receive_any(&mut self, receive: WaitingReceive) {
        for peer in self.remaining_mut() {
            peer.outgoing.push_back(ControlMessage::AnyReceive(receive));
        }
    }

    /// Gives a receive from any rank to one of them.
    pub(crate) fn queue_choice(&mut self, chosen: usize, receive: WaitingReceive) {
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let message = match rank == chosen {
                true => ControlMessage::WaitingReceive(receive),
                false => ControlMessage::Taken(receive.number),
            };
            if let Some(peer) = peer.as_mut().filter(|peer| !peer.has_left) {
                peer.outgoing.push_back(message);
            }
        }
    }

    /// Removes and returns the offers that have arrived: the rank of each one, and the number of the receive.
    pub(crate) fn take_offers(&mut self) -> Vec<(usize, u64)> {
        let peers = self.peers.iter_mut().enumerate();
        let peers = peers.filter_map(|(rank, peer)| Some((rank, peer.as_mut()?)));
        let offers = peers.flat_map(|(rank, peer)| {
            let offers = peer.offers.drain(..);
            offers.map(move |number| (rank, number))
        });
        offers.collect()
    }

    /// Sends a message to a rank as soon as a buffer is free.
    pub(crate) fn queue_control(&mut self, peer: usize, message: ControlMessage) {
        if let Some(peer) = &mut self.peers[peer] {
            peer.outgoing.push_back(message);
        }
    }

    /// Sends the record of a bounded operation to all ranks. Records that wait for a buffer share
    /// messages.
    pub(crate) fn queue_record(&mut self, record: Record) {
        for peer in self.remaining_mut() {
            match peer.outgoing.back_mut() {
                Some(ControlMessage::Records(records)) if records.len() < MAX_RECORDS => {
                    records.push(record);
                }
                _ => peer
                    .outgoing
                    .push_back(ControlMessage::Records(vec![record])),
            }
        }
    }

    /// Removes and returns the records that have arrived: the rank of each one, and the records of
    /// a rank in order.
    pub(crate) fn take_records(&mut self) -> Vec<(usize, Record)> {
        let peers = self.peers.iter_mut().enumerate();
        let peers = peers.filter_map(|(rank, peer)| Some((rank, peer.as_mut()?)));
        let records = peers.flat_map(|(rank, peer)| {
            let records = peer.records.drain(..);
            records.map(move |record| (rank, record))
        });
        records.collect()
    }

    /// Sends the reason why the group has ended to all ranks. `ended` is the number of the first
    /// collective operation that has not ended, and `unsent` is by rank the number of matched sends
    /// that have not.
    pub(crate) fn queue_end(&mut self, ended: u64, unsent: &[u64], reason: &str) {
        let peers = self.peers.iter_mut().zip(unsent);
        let peers = peers.filter_map(|(peer, unsent)| Some((peer.as_mut()?, unsent)));
        for (peer, unsent) in peers.filter(|(peer, _)| !peer.has_left) {
            let served = peer.wants.served().saturating_sub(*unsent);
            let reason = reason.to_owned();
            peer.outgoing.push_back(ControlMessage::End {
                ended,
                served,
                reason,
            });
        }
    }

    /// Informs all ranks that this rank starts no more operations. `started` is the number of
    /// collective operations that it has started.
    pub(crate) fn queue_leave(&mut self, started: u64) {
        for peer in self.remaining_mut() {
            let served = peer.wants.served();
            peer.outgoing
                .push_back(ControlMessage::Leave { started, served });
        }
    }

    /// The ranks that may start more operations.
    pub(crate) fn remaining(&self) -> impl Iterator<Item = usize> {
        let peers = self.peers.iter().enumerate();
        let remain = |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| !peer.has_left);
        peers.filter_map(move |(rank, peer)| remain(peer).then_some(rank))
    }

    fn remaining_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        let peers = self.peers.iter_mut().flatten();
        peers.filter(|peer| !peer.has_left)
    }

    /// Notes that data of an operation moved, or that the first operation began.
    pub(crate) fn note_moved(&mut self, now_ns: u64) {
        self.moved_ns = now_ns;
        self.asked_ns = None;
    }

    /// When data of an operation last moved.
    pub(crate) fn moved_ns(&self) -> u64 {
        self.moved_ns
    }

    /// Notes that messages of a rank have arrived.
    pub(crate) fn note_heard(&mut self, peer: usize, now_ns: u64) {
        if let Some(peer) = &mut self.peers[peer] {
            peer.heard_ns = Some(now_ns);
        }
    }

    /// The time without progress after which ranks are asked, for operations that may take
    /// `wait_ns`.
    pub(crate) fn ask_every_ns(&self, wait_ns: u64) -> u64 {
        let every_ns = (wait_ns / 8).min(self.dead_after_ns / 4);
        every_ns.clamp(ASK_NS[0], ASK_NS[1])
    }

    /// Asks all others about their progress, if it is time. Returns when to poll again. `wait_ns`
    /// is how long an operation may take.
    pub(crate) fn ask(&mut self, now_ns: u64, wait_ns: u64) -> u64 {
        let every_ns = self.ask_every_ns(wait_ns);
        let last_ns = self.asked_ns.unwrap_or(self.moved_ns);
        let due_ns = last_ns.saturating_add(every_ns);
        if now_ns < due_ns {
            return due_ns;
        }
        // The queue pair repeats a lost question. It is not repeated here.
        let quiet = |peer: &&mut Peer| peer.unanswered_ns.is_none();
        for peer in self.remaining_mut().filter(quiet) {
            peer.unanswered_ns = Some(now_ns);
            peer.outgoing.push_back(ControlMessage::Ask);
        }
        self.asked_ns = Some(now_ns);
        // The next poll sends the questions.
        now_ns
    }

    /// The ranks that delay an operation, and their states: those that do not answer, beginning
    /// with the one that has not answered for the longest time, and those that have not started the
    /// collective operation with this number. `wait_ns` is how long the operation may take: an
    /// answer may need a part of that time.
    pub(crate) fn culprits(
        &self,
        now_ns: u64,
        wait_ns: u64,
        number: Option<u64>,
    ) -> Vec<(usize, RankState)> {
        let peers = self.peers.iter().enumerate();
        let peers = peers.filter_map(|(rank, peer)| Some((rank, peer.as_ref()?)));
        let patience_ns = (wait_ns / 16).clamp(ASK_NS[0], ASK_NS[1] / 2);
        let silent = peers.clone().filter_map(|(rank, peer)| {
            let asked_ns = peer.unanswered_ns.filter(|_| !peer.has_left)?;
            (now_ns.saturating_sub(asked_ns) >= patience_ns).then_some((asked_ns, rank))
        });
        let mut silent: Vec<_> = silent.collect();
        silent.sort_unstable();
        let is_silent = |rank: usize| silent.iter().any(|&(_, other)| other == rank);
        // The state of the others is recent only after a question.
        let number = number.filter(|_| self.asked_ns.is_some());
        let has_not_started = |peer: &Peer| number.is_some_and(|number| peer.started <= number);
        let absent = peers.filter(|(rank, peer)| has_not_started(peer) && !is_silent(*rank));
        let absent = absent.map(|(rank, _)| (rank, RankState::NotStarted));
        let silent = silent.iter().map(|&(_, rank)| (rank, RankState::NoAnswer));
        silent.chain(absent).collect()
    }

    /// The ranks whose processes have ended, or that have not answered for so long that they count as dead, beginning
    /// with the longest time.
    ///
    /// If this rank itself did not run for a while, the answers of that time may have been lost, so
    /// the time counts from now on.
    pub(crate) fn dead(&mut self, now_ns: u64) -> Vec<Dead> {
        let has_paused = now_ns.saturating_sub(self.looked_ns) > self.dead_after_ns / 2;
        self.looked_ns = now_ns;
        let peers = self.peers.iter_mut().enumerate();
        let peers = peers.filter_map(|(rank, peer)| Some((rank, peer.as_mut()?)));
        let mut dead = Vec::new();
        for (rank, peer) in peers.filter(|(_, peer)| !peer.has_left) {
            if let (true, Some(asked_ns)) = (has_paused, &mut peer.unanswered_ns) {
                *asked_ns = now_ns;
            }
            let silent = peer
                .unanswered_ns
                .map(|asked_ns| now_ns.saturating_sub(peer.heard_ns.unwrap_or(0).max(asked_ns)));
            let silent_ns = silent.unwrap_or(0);
            if peer.is_gone || silent_ns >= self.dead_after_ns {
                let heard = peer.heard_ns.map(|ns| now_ns.saturating_sub(ns));
                let is_gone = peer.is_gone;
                let heard = heard.map(Duration::from_nanos);
                dead.push((
                    silent_ns,
                    Dead {
                        rank,
                        heard,
                        is_gone,
                    },
                ));
            }
        }
        dead.sort_by_key(|(silent_ns, dead)| std::cmp::Reverse((*silent_ns, dead.rank)));
        dead.into_iter().map(|(_, dead)| dead).collect()
    }

    /// Notes whether the process of a rank has ended.
    pub(crate) fn set_gone(&mut self, rank: usize, is_gone: bool) {
        if let Some(peer) = &mut self.peers[rank] {
            peer.is_gone = is_gone;
        }
    }

    /// Forgets which ranks have processes that have ended.
    pub(crate) fn forget_gone(&mut self) {
        for peer in self.peers.iter_mut().flatten() {
            peer.is_gone = false;
        }
    }

    /// A rank that has left, if all have.
    pub(crate) fn last_to_leave(&self) -> Option<usize> {
        let place = self.peers.iter().position(Option::is_some);
        place.filter(|_| self.remaining().next().is_none())
    }

    /// A rank that left the group before it started the operation with this number.
    pub(crate) fn left_before(&self, number: u64) -> Option<usize> {
        let has_left = |peer: &Peer| peer.has_left && peer.started <= number;
        let mut peers = self.peers.iter();
        peers.position(|peer| peer.as_ref().is_some_and(has_left))
    }

    /// Notes why the next collective operation could not start at this rank. Ranks that wait for it
    /// learn the reason with the answer to their next question.
    pub(crate) fn refuse(&mut self, reason: String) {
        self.refusal = reason;
    }

    /// Notes that a collective operation starts at this rank.
    pub(crate) fn note_started(&mut self) {
        self.refusal.clear();
    }

    /// A rank at which an operation up to the one with this number could not start, the number of
    /// that operation, and the reason.
    pub(crate) fn refused_by(&self, number: u64) -> Option<(usize, u64, &str)> {
        let peers = self.peers.iter().enumerate();
        let mut peers = peers.filter_map(|(rank, peer)| Some((rank, peer.as_ref()?)));
        let is_refused = |peer: &Peer| !peer.refusal.is_empty() && peer.started <= number;
        let (rank, peer) = peers.find(|(_, peer)| is_refused(peer))?;
        Some((rank, peer.started, &peer.refusal))
    }

    /// Processes control messages and sends those that wait. Returns whether it did anything.
    /// `started` is the number of collective operations that this rank has started. An error of one
    /// rank does not stop control messages to and from the others. The first error is returned.
    ///
    /// # Errors
    /// [`CollectiveError::Ended`] if another rank has ended the group;
    /// [`CollectiveError::Connection`].
    pub(crate) fn progress<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
        started: u64,
    ) -> Result<bool, CollectiveError> {
        let mut moved = false;
        let mut first = None;
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else {
                continue;
            };
            match peer.progress(rank, endpoint, [now_ns, started], &self.refusal) {
                Ok(has_moved) => moved |= has_moved,
                Err(error) => first = first.or(Some(error)),
            }
            if peer.qp.was_heard() {
                peer.heard_ns = Some(now_ns);
            }
        }
        first.map_or(Ok(moved), Err)
    }
}

impl Peer {
    /// Processes the control messages of this peer and sends those to it. Returns whether there
    /// were any.
    fn progress<F: Fabric>(
        &mut self,
        rank: usize,
        endpoint: &mut Endpoint<F>,
        [now_ns, started]: [u64; 2],
        refusal: &str,
    ) -> Result<bool, CollectiveError> {
        let taken = match self.is_broken {
            true => Ok(false),
            false => self.take_all(rank, endpoint, [now_ns, started], refusal),
        };
        // The peer still receives the reason of the end even if its own control messages cannot be
        // read.
        self.is_broken |= taken.is_err();
        let sent = self.send_all(endpoint);
        Ok(taken? | sent?)
    }

    fn take_all<F: Fabric>(
        &mut self,
        rank: usize,
        endpoint: &mut Endpoint<F>,
        [now_ns, started]: [u64; 2],
        refusal: &str,
    ) -> Result<bool, CollectiveError> {
        let broken = |problem| CollectiveError::Connection { rank, problem };
        self.qp.reclaim().map_err(broken)?;
        let mut moved = self.qp.post(endpoint, now_ns)?;
        while let Some(bytes) = self.qp.front(endpoint).map_err(broken)? {
            let message = ControlMessage::decode(bytes);
            let message =
                message.ok_or_else(|| broken("a control message cannot be read".into()))?;
            self.qp.release(endpoint, now_ns)?;
            moved = true;
            self.take(rank, message, started, refusal)?;
        }
        Ok(moved)
    }

    fn send_all<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<bool, CollectiveError> {
        let mut moved = false;
        while let Some(message) = self.outgoing.front() {
            if self.qp.send(endpoint, &message.encode(), &[], 0)?.is_none() {
                break;
            }
            self.outgoing.pop_front();
            moved = true;
        }
        Ok(moved)
    }

    fn take(
        &mut self,
        rank: usize,
        message: ControlMessage,
        started: u64,
        refusal: &str,
    ) -> Result<(), CollectiveError> {
        self.unanswered_ns = None;
        match message {
            ControlMessage::Ask => {
                // One answer is enough, even if the peer asks several times.
                let is_answer =
                    |message: &ControlMessage| matches!(message, ControlMessage::Answer { .. });
                self.outgoing.retain(|message| !is_answer(message));
                let refusal = refusal.to_owned();
                self.outgoing
                    .push_back(ControlMessage::Answer { started, refusal });
            }
            ControlMessage::Answer {
                started: theirs,
                refusal,
            } => {
                self.started = self.started.max(theirs);
                self.refusal = if theirs < started {
                    refusal
                } else {
                    String::new()
                };
            }
            ControlMessage::Leave { started, served } => {
                self.has_left = true;
                self.has_served = Some(served);
                self.started = self.started.max(started);
            }
            ControlMessage::End {
                ended,
                served,
                reason,
            } => {
                self.has_left = true;
                self.has_served = Some(served);
                self.ended_before = Some(ended);
                self.started = ended;
                return Err(CollectiveError::Ended { rank, reason });
            }
            ControlMessage::WaitingReceive(want) if self.wants.add(want) => {}
            ControlMessage::AnyReceive(want) if self.wants.add_any(want) => {}
            ControlMessage::WaitingReceive(_) | ControlMessage::AnyReceive(_) => {
                let problem = format!("it has more than {MOST_WANTS} receives without a send");
                return Err(CollectiveError::Connection { rank, problem });
            }
            ControlMessage::Offer(number) => self.offers.push(number),
            ControlMessage::Taken(number) => self.wants.remove_any(number),
            ControlMessage::Records(records) => self.records.extend(records),
        }
        Ok(())
    }
}
