//! Whole messages over a queue pair: received into buffers of its own, and sent in order.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use farwrite::{
    Endpoint, Error, MemoryRegion, Outcome, QpOptions, QueuePair, RealTime, RecvHandle, Refusal,
    SendHandle, SendOptions, UdpFabric,
};

use crate::cutover::{EndedMessages, Numbers};
use crate::ticket::{Ticket, TooLong};

pub(crate) struct MessageQueue {
    pub(crate) qp: QueuePair,
    /// The longest message of the queue pair.
    limit: u64,
    /// Buffers in the order in which they were posted.
    posted: VecDeque<(MemoryRegion, RecvHandle)>,
    /// Buffers that are not posted.
    idle: Vec<MemoryRegion>,
    /// Messages that have arrived. Their buffers are posted again only when the user has taken them, so
    /// this list is no longer than the number of buffers.
    arrived: VecDeque<Vec<u8>>,
    /// Buffers whose messages wait in `arrived`.
    held: VecDeque<MemoryRegion>,
    waiting: VecDeque<(Vec<u8>, Arc<Ticket>)>,
    /// Messages with registered memory, which are sent when a slot is free.
    next: VecDeque<(MemoryRegion, Arc<Ticket>)>,
    sent: VecDeque<(MemoryRegion, SendHandle, Arc<Ticket>)>,
    options: SendOptions,
    /// Messages that have arrived or have left, and have ended.
    pub(crate) ended: u64,
    /// Bytes of messages that are queued or under way.
    pub(crate) unsent_bytes: u64,
    buffers: Buffers,
    /// Messages that were received into buffers of this queue pair, or sent over it.
    counts: Counts,
    /// The messages that were open when the queue pair before was cut, until this end goes on over `qp`.
    cut: Option<Open>,
}

/// The most numbers of failed messages that are kept. The peer learns of each by itself before as many others are
/// under way, where a queue pair has at most as many slots.
const MOST_FAILED: usize = 512;

/// Messages of a queue pair.
#[derive(Default)]
struct Counts {
    sent: u64,
    received: u64,
    /// The last ones that were received, and were not whole.
    failed: VecDeque<u64>,
}

impl Counts {
    fn note_failed(&mut self, number: u64) {
        self.failed.push_back(number);
        if self.failed.len() > MOST_FAILED {
            self.failed.pop_front();
        }
    }
}

/// Messages of a queue pair that had not ended.
struct Open {
    qp: QueuePair,
    sent: BTreeSet<u64>,
    received: BTreeSet<u64>,
}

/// How many buffers there are, and may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Bytes of each.
    pub(crate) bytes: usize,
    pub(crate) count: usize,
    pub(crate) most: usize,
    /// Messages that have arrived since a time.
    arrived: usize,
    since_ns: u64,
}

impl Buffers {
    pub(crate) fn new(bytes: usize, count: usize, most: usize) -> Self {
        Self {
            bytes,
            count: count.max(1),
            most,
            arrived: 0,
            since_ns: 0,
        }
    }

    /// Counts messages that have arrived. Returns how many buffers to add: a buffer serves one message in two
    /// round trips, so there must be twice as many as messages arrive in one. `unread` of them wait for the
    /// user, who would take no more of them with more buffers.
    fn note(&mut self, now_ns: u64, rtt_ns: u64, arrived: usize, unread: usize) -> usize {
        self.arrived += arrived;
        if now_ns < self.since_ns.saturating_add(rtt_ns) {
            return 0;
        }
        let is_short = 2 * self.arrived > self.count && 2 * unread < self.count;
        (self.arrived, self.since_ns) = (0, now_ns);
        let more = self.count.min(self.most.saturating_sub(self.count));
        let more = if is_short { more } else { 0 };
        self.count += more;
        more
    }
}

impl MessageQueue {
    /// Registers the buffers. Messages of the peer must fit into them.
    pub(crate) fn new(
        endpoint: &mut Endpoint<UdpFabric>,
        qp: QueuePair,
        buffers: Buffers,
        options: SendOptions,
    ) -> Result<Self, Error> {
        let limit = endpoint.qp_info(qp)?.config.max_message_bytes;
        let idle = (0..buffers.count).map(|_| endpoint.register(vec![0_u8; buffers.bytes]));
        Ok(Self {
            qp,
            limit,
            posted: VecDeque::new(),
            idle: idle.collect::<Result<_, _>>()?,
            arrived: VecDeque::new(),
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            next: VecDeque::new(),
            sent: VecDeque::new(),
            options,
            ended: 0,
            unsent_bytes: 0,
            buffers,
            counts: Counts::default(),
            cut: None,
        })
    }

    pub(crate) fn send(&mut self, message: Vec<u8>) -> Arc<Ticket> {
        let ticket = Arc::<Ticket>::default();
        self.unsent_bytes += message.len() as u64;
        self.waiting.push_back((message, Arc::clone(&ticket)));
        ticket
    }

    /// Messages that are queued or under way.
    pub(crate) fn unsent(&self) -> usize {
        self.waiting.len() + self.next.len() + self.sent.len()
    }

    /// Whether all messages have left this end at least once.
    pub(crate) fn has_left(&self) -> bool {
        let is_waiting = !self.waiting.is_empty() || !self.next.is_empty();
        !is_waiting && self.sent.iter().all(|(_, send, _)| send.is_injected())
    }

    /// Whether the fabric still holds memory of a message that has ended.
    pub(crate) fn holds_memory(&self) -> bool {
        self.sent
            .iter()
            .any(|(_, send, _)| send.outcome().is_some())
    }

    /// Posts no more buffers.
    #[cfg(test)]
    pub(crate) fn take_no_more(&mut self) {
        self.posted.clear();
        self.idle.clear();
    }

    /// The next message that has arrived.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let message = self.arrived.pop_front()?;
        self.idle.extend(self.held.pop_front());
        Some(message)
    }

    /// Takes what has arrived, and posts what can be posted. Returns whether the endpoint must be polled
    /// again at once.
    ///
    /// # Errors
    /// The queue pair is gone or broken, or the peer has sent a message that does not fit. All messages
    /// fail.
    pub(crate) fn poll(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> Result<bool, Error> {
        if self.cut.is_some() {
            // The connection may end before this end goes on.
            endpoint.qp_info(self.qp)?;
            return Ok(false);
        }
        let before = self.ended;
        self.take_arrivals(endpoint)?;
        let arrived = usize::try_from(self.ended - before).unwrap_or(0);
        // Before anything that fails when the queue pair is gone: what has an outcome keeps it.
        self.take_departures(endpoint);
        self.add_buffers(endpoint, arrived)?;
        let has_posted = self.post_buffers(endpoint)?;
        Ok(self.post_messages(endpoint)? || has_posted)
    }

    fn take_arrivals(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> Result<(), Error> {
        while let Some((region, recv)) = self.posted.front() {
            match recv.outcome() {
                None => break,
                Some(Outcome::Whole) => {
                    let length = recv.length().unwrap_or(0);
                    let mut message = vec![0; usize::try_from(length).unwrap_or(0)];
                    endpoint.read_memory(*region, 0, &mut message)?;
                    self.arrived.push_back(message);
                    self.held.push_back(*region);
                }
                // The sender has given the message up, or it is longer than the buffer. The next one takes
                // the next buffer.
                Some(_) => {
                    self.idle.push(*region);
                    // What failed before a cutover has been said in it.
                    if recv.queue_pair() == self.qp {
                        self.counts.note_failed(recv.message());
                    }
                }
            }
            self.posted.pop_front();
            self.ended += 1;
        }
        Ok(())
    }

    /// Makes more buffers where the peer uses all of them within a round trip.
    fn add_buffers(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        arrived: usize,
    ) -> Result<(), Error> {
        if arrived == 0 {
            return Ok(());
        }
        let rtt_ns = endpoint.qp_stats(self.qp)?.rtt_ns;
        let now_ns = endpoint.fabric().now_ns();
        let more = self.buffers.note(
            now_ns,
            rtt_ns,
            arrived,
            self.arrived.len().saturating_sub(arrived),
        );
        for _ in 0..more {
            self.idle
                .push(endpoint.register(vec![0_u8; self.buffers.bytes])?);
        }
        Ok(())
    }

    fn take_departures(&mut self, endpoint: &mut Endpoint<UdpFabric>) {
        self.sent.retain(|(region, send, ticket)| {
            let Some(outcome) = send.outcome() else {
                return true;
            };
            if ticket.outcome().is_none() {
                match send.refusal() {
                    Some(Refusal::TooLong { length, capacity }) => {
                        let limit = capacity;
                        ticket.fail(TooLong::ForPeer { length, limit });
                    }
                    _ => ticket.finish(outcome),
                }
                self.ended += 1;
            }
            // The fabric can hold packets of the region for a moment.
            let freed = endpoint.deregister(*region);
            if let Ok(region) = &freed {
                self.unsent_bytes -= region.length();
            }
            freed.is_err()
        });
    }

    fn post_buffers(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> Result<bool, Error> {
        let before = self.posted.len();
        while let Some(region) = self.idle.pop() {
            match self.post_buffer(endpoint, region) {
                Ok(recv) => self.posted.push_back((region, recv)),
                Err(error) => {
                    self.idle.push(region);
                    match error {
                        Error::Retry { .. } => break,
                        error => return Err(error),
                    }
                }
            }
        }
        Ok(self.posted.len() > before)
    }

    /// Posts as much of a buffer as a message can fill.
    fn post_buffer(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        region: MemoryRegion,
    ) -> Result<RecvHandle, Error> {
        let buffer = region.slice(0..region.length().min(self.limit));
        let recv = endpoint.post_recv(self.qp, buffer)?;
        self.counts.received = recv.message() + 1;
        Ok(recv)
    }

    fn post_messages(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> Result<bool, Error> {
        let mut has_posted = false;
        loop {
            if self.next.is_empty() {
                let Some((message, ticket)) = self.waiting.pop_front() else {
                    return Ok(has_posted);
                };
                self.next.push_back((endpoint.register(message)?, ticket));
            }
            let Some((region, ticket)) = self.next.pop_front() else {
                return Ok(has_posted);
            };
            match endpoint.post_send(self.qp, region.whole(), self.options) {
                Ok(send) => {
                    self.counts.sent = send.message() + 1;
                    self.sent.push_back((region, send, ticket));
                }
                // It fails alone.
                Err(Error::TooLong { length, limit }) => {
                    ticket.fail(TooLong::ForPath { length, limit });
                    self.ended += 1;
                    self.unsent_bytes -= endpoint.deregister(region)?.length();
                }
                Err(error) => {
                    self.next.push_front((region, ticket));
                    match error {
                        Error::Retry { .. } => return Ok(has_posted),
                        error => return Err(error),
                    }
                }
            }
            has_posted = true;
        }
    }

    /// As [`GoesOn::cut`](crate::GoesOn::cut).
    pub(crate) fn cut(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        options: QpOptions,
    ) -> Result<(QueuePair, EndedMessages), Error> {
        let old = self.qp;
        let sent = self.sent.iter().map(|(_, send, _)| send);
        let sent = sent.filter(|send| send.outcome().is_none());
        let sent = sent.map(SendHandle::message).collect();
        let mut open = Vec::new();
        for (_, recv) in &self.posted {
            match recv.outcome() {
                None => open.push(recv),
                Some(Outcome::Whole) => {}
                // This receive waits behind an open one.
                Some(_) if recv.queue_pair() == old => self.counts.note_failed(recv.message()),
                Some(_) => {}
            }
        }
        self.limit = options.sdr.max_message_bytes;
        self.qp = endpoint.replace_qp(old, options)?;
        // Messages that were being closed are whole by now.
        open.retain(|recv| recv.outcome() != Some(Outcome::Whole));
        let received = open.into_iter().map(RecvHandle::message).collect();
        let counts = std::mem::take(&mut self.counts);
        let ended = EndedMessages {
            received: Numbers::ended(counts.received, &received),
            failed: counts.failed.into(),
            sent: Numbers::ended(counts.sent, &sent),
        };
        self.cut = Some(Open {
            qp: old,
            sent,
            received,
        });
        Ok((self.qp, ended))
    }

    /// As [`GoesOn::go_on`](crate::GoesOn::go_on).
    ///
    /// # Errors
    /// Those of [`MessageQueue::poll`], and [`Error::TooLong`] if a message has begun that is too long now. Later ones may
    /// have arrived, so it cannot fail alone.
    pub(crate) fn go_on(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        theirs: &EndedMessages,
    ) -> Result<(), Error> {
        let Some(open) = self.cut.take() else {
            return Ok(());
        };
        let mut again = Vec::new();
        self.sent.retain(|(region, send, ticket)| {
            let number = send.message();
            if send.queue_pair() != open.qp || !open.sent.contains(&number) {
                return true;
            }
            if !theirs.received.contains(number) {
                again.push((*region, Arc::clone(ticket)));
                return false;
            }
            ticket.finish(match theirs.failed.contains(&number) {
                true => Outcome::Failed,
                false => Outcome::Whole,
            });
            self.ended += 1;
            true
        });
        let (mut is_too_long, limit) = (None, self.limit);
        for (region, ticket) in again.into_iter().rev() {
            let length = region.length();
            is_too_long = is_too_long.or((length > limit).then_some(length));
            self.next.push_front((region, ticket));
        }
        if let Some(length) = is_too_long {
            return Err(Error::TooLong { length, limit });
        }
        for (region, recv) in std::mem::take(&mut self.posted) {
            let number = recv.message();
            if recv.queue_pair() != open.qp || !open.received.contains(&number) {
                self.posted.push_back((region, recv));
            } else if theirs.sent.contains(number) {
                // The peer has given it up.
                self.idle.push(region);
                self.ended += 1;
            } else {
                let recv = self.post_buffer(endpoint, region)?;
                self.posted.push_back((region, recv));
            }
        }
        Ok(())
    }

    /// Fails all messages, and returns the buffers. The queue pair must be destroyed before.
    pub(crate) fn end(&mut self, endpoint: &mut Endpoint<UdpFabric>) {
        let posted = self.posted.drain(..).map(|(region, _)| region);
        let sent = self.sent.drain(..).map(|(region, _, ticket)| {
            ticket.finish(Outcome::Failed);
            region
        });
        let next = self.next.drain(..).map(|(region, ticket)| {
            ticket.finish(Outcome::Failed);
            region
        });
        let regions = posted.chain(sent).chain(next).chain(self.idle.drain(..));
        for region in regions.chain(self.held.drain(..)) {
            // What the fabric still holds goes with the endpoint.
            let _ = endpoint.deregister(region);
        }
        for (_, ticket) in self.waiting.drain(..) {
            ticket.finish(Outcome::Failed);
        }
        self.unsent_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of buffers after a second in which `a_rtt` messages arrive in each round trip.
    fn after_a_second(a_rtt: usize, unread: usize, most: usize) -> usize {
        let rtt_ns = 50_000_000;
        let mut buffers = Buffers::new(1 << 20, 8, most);
        for number in 0..20 * a_rtt {
            let now_ns = rtt_ns * number as u64 / a_rtt as u64;
            buffers.note(now_ns, rtt_ns, 1, unread);
        }
        buffers.count
    }

    #[test]
    fn buffers_grow_with_the_messages_of_a_round_trip() {
        assert_eq!(after_a_second(3, 0, 256), 8);
        assert_eq!(after_a_second(6, 0, 256), 16);
        assert_eq!(after_a_second(50, 0, 256), 128);
        assert_eq!(after_a_second(50, 0, 20), 20, "the user's bound");
        assert_eq!(after_a_second(50, 6, 256), 8, "the user takes none");
    }
}
