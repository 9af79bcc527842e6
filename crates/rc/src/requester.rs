//! The half of a queue pair that asks (IBTA 9.7.3, 9.7.6).

use alloc::collections::VecDeque;

use farwrite_net::Payload;
use farwrite_net::header::Roce;

use crate::packet::{Assembly, Packet, packets};
use crate::send_queue::Work;
use crate::{
    Completion, Nak, PostError, QpConfig, QpCounters, Request, RequestError, Syndrome, psn,
};

/// Longest message of a reliable service (IBTA 9.7).
const MAX_BYTES: u32 = 1 << 31;

/// Sends requests, waits for their acknowledgements, and goes back when packets are lost.
#[derive(Debug)]
pub(crate) struct Requester {
    config: QpConfig,
    /// Requests that are not done, oldest first.
    queue: VecDeque<Work>,
    /// Count of the oldest packet that is not acknowledged.
    oldest: u64,
    /// Count of the packet to send next; it goes back to repeat.
    next: u64,
    /// One more than the highest count sent.
    sent_end: u64,
    /// One more than the highest count that a request has.
    posted_end: u64,
    /// One more than the highest count that an expected reply is for: of a READ, or of a packet
    /// that asks for an acknowledgement. A timer runs while it is above `oldest`.
    asked_end: u64,
    /// When the wait for progress ends.
    deadline_ns: Option<u64>,
    /// Until when an RNR NAK stops sending.
    not_ready_until_ns: Option<u64>,
    retries: u8,
    not_ready_retries: u8,
    /// The oldest packet when this end last went back. Until there is progress, responses that
    /// lie beyond a hole do not make it go back again.
    went_back_at: Option<u64>,
    pub(crate) failure: Option<RequestError>,
}

impl Requester {
    pub(crate) fn new(config: QpConfig) -> Self {
        let start = psn::start(config.send_psn);
        Self {
            config,
            queue: VecDeque::new(),
            oldest: start,
            next: start,
            sent_end: start,
            posted_end: start,
            asked_end: start,
            deadline_ns: None,
            not_ready_until_ns: None,
            retries: 0,
            not_ready_retries: 0,
            went_back_at: None,
            failure: None,
        }
    }

    pub(crate) fn post(&mut self, id: u64, request: Request) -> Result<(), PostError> {
        if let Request::Send { data, .. } | Request::Write { data, .. } = &request
            && let Payload::Trimmed(bytes) = *data
        {
            return Err(PostError::Trimmed { bytes });
        }
        let mtu_bytes = self.config.mtu_bytes;
        let max_bytes = MAX_BYTES.min(mtu_bytes.saturating_mul(crate::MAX_PACKETS));
        let bytes = request.bytes();
        if bytes > max_bytes {
            return Err(PostError::TooLong { bytes, max_bytes });
        }
        let first = self.posted_end;
        self.posted_end += u64::from(packets(bytes, mtu_bytes));
        self.queue.push_back(Work {
            id,
            request,
            first,
            end: self.posted_end,
            read: Assembly::new(),
        });
        Ok(())
    }

    /// Whether there is a packet to send.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.not_ready_until_ns.is_none()
            && self.next < self.posted_end
            && self.next - self.oldest < u64::from(self.config.window_packets)
            && !self.waits_for_reads()
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now_ns: u64,
        counters: &mut QpCounters,
    ) -> Option<Packet> {
        if !self.wants_to_send() {
            return None;
        }
        let work = self.queue.get(self.work_of(self.next))?;
        let asks = work.request.is_read() || self.needs_ack(work);
        let packet = work.packet(self.next, &self.config, asks);
        counters.sent += 1;
        counters.repeated += u64::from(self.next < self.sent_end);
        self.next = work.after(self.next);
        self.sent_end = self.sent_end.max(self.next);
        if asks {
            self.asked_end = self.next;
            let deadline_ns = now_ns.saturating_add(self.config.ack_timeout_ns);
            self.deadline_ns.get_or_insert(deadline_ns);
        }
        Some(packet)
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.not_ready_until_ns.or(self.deadline_ns)
    }

    pub(crate) fn handle_timeout(&mut self, now_ns: u64, counters: &mut QpCounters) {
        if self.next_timeout().is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        if self.not_ready_until_ns.take().is_none() {
            counters.timeouts += 1;
            self.go_back();
        }
    }

    /// An ACK, RNR NAK or NAK.
    pub(crate) fn handle_ack(
        &mut self,
        now_ns: u64,
        header: &Roce,
        completions: &mut VecDeque<Completion>,
    ) {
        let syndrome = header
            .aeth
            .and_then(|aeth| Syndrome::from_byte(aeth.syndrome));
        let count = psn::near(header.bth.psn, self.oldest);
        let Some(syndrome) = syndrome.filter(|_| count < self.sent_end) else {
            return;
        };
        if syndrome == Syndrome::Ack {
            self.acknowledge(now_ns, count + 1, completions);
            return;
        }
        self.acknowledge(now_ns, count, completions);
        if count != self.oldest {
            return;
        }
        match syndrome {
            Syndrome::Ack => {}
            Syndrome::Nak(Nak::Sequence) => self.go_back(),
            Syndrome::Nak(nak) => self.failure = Some(RequestError::Refused(nak)),
            Syndrome::NotReady(_) if self.not_ready_until_ns.is_some() => {}
            Syndrome::NotReady(timer) => {
                let limit = self.config.rnr_retry_limit;
                if let Some(retries) = limit.filter(|limit| self.not_ready_retries >= *limit) {
                    self.failure = Some(RequestError::NotReady { retries });
                }
                self.not_ready_retries = self.not_ready_retries.saturating_add(1);
                self.rewind();
                self.not_ready_until_ns = Some(now_ns.saturating_add(timer.wait_ns()));
            }
        }
    }

    /// A packet of the response to a READ. It acknowledges all requests before it (IBTA 9.7.5.1).
    pub(crate) fn handle_read_response(
        &mut self,
        now_ns: u64,
        packet: &Packet,
        completions: &mut VecDeque<Completion>,
    ) {
        let count = psn::near(packet.header.bth.psn, self.oldest);
        if count < self.oldest || count >= self.sent_end {
            return;
        }
        let work = self.queue.get(self.work_of(count));
        let expected = work.filter(|work| work.request.is_read());
        let expected = expected.map(|work| work.piece_bytes(count, self.config.mtu_bytes));
        if expected != Some(packet.payload.carried_bytes()) {
            return;
        }
        self.acknowledge(now_ns, count, completions);
        if count != self.oldest {
            return;
        }
        if let Some(work) = self.queue.front_mut() {
            work.read.push(&packet.payload);
            self.advance_to(now_ns, count + 1, completions);
        }
    }

    /// Ends all requests: the first with `error`, the others as flushed.
    pub(crate) fn fail(&mut self, error: RequestError, completions: &mut VecDeque<Completion>) {
        let mut error = error;
        for Work { id, .. } in self.queue.drain(..) {
            completions.push_back(Completion::Failed { id, error });
            error = RequestError::Flushed;
        }
        self.oldest = self.posted_end;
        self.sent_end = self.posted_end;
        self.not_ready_until_ns = None;
        self.rewind();
    }

    /// All packets before `end` are acknowledged, except that only its response acknowledges a
    /// READ. If one is incomplete before `end`, its packets are lost: an implied NAK.
    fn acknowledge(&mut self, now_ns: u64, end: u64, completions: &mut VecDeque<Completion>) {
        while self.oldest < end {
            let Some(work) = self.queue.front() else {
                return;
            };
            if work.request.is_read() {
                if self.went_back_at != Some(self.oldest) {
                    self.go_back();
                }
                return;
            }
            let to = end.min(work.end);
            self.advance_to(now_ns, to, completions);
        }
    }

    /// The oldest request is done up to `to`.
    fn advance_to(&mut self, now_ns: u64, to: u64, completions: &mut VecDeque<Completion>) {
        self.oldest = to;
        self.next = self.next.max(to);
        (self.retries, self.not_ready_retries) = (0, 0);
        self.not_ready_until_ns = None;
        let waits = self.asked_end > self.oldest;
        self.deadline_ns = waits.then(|| now_ns.saturating_add(self.config.ack_timeout_ns));
        if self.queue.front().is_some_and(|work| work.end == to) {
            completions.extend(self.queue.pop_front().map(Work::complete));
        }
    }

    /// Go-Back-N: all packets from the oldest one on are sent again.
    fn go_back(&mut self) {
        let retries = self.config.retry_limit;
        if self.retries >= retries {
            self.failure = Some(RequestError::RetriesExhausted { retries });
            return;
        }
        self.retries += 1;
        self.went_back_at = Some(self.oldest);
        self.rewind();
    }

    fn rewind(&mut self) {
        self.next = self.oldest;
        self.asked_end = self.oldest;
        self.deadline_ns = None;
    }

    /// Whether the next packet asks for an acknowledgement.
    fn needs_ack(&self, work: &Work) -> bool {
        let after = self.next + 1;
        after == work.end
            || after.is_multiple_of(u64::from(self.config.ack_every_packets))
            || after - self.oldest >= u64::from(self.config.window_packets)
    }

    /// Whether the next packet is a READ and as many as allowed are under way.
    fn waits_for_reads(&self) -> bool {
        let at = self.work_of(self.next);
        if !self
            .queue
            .get(at)
            .is_some_and(|work| work.request.is_read())
        {
            return false;
        }
        let reads = self
            .queue
            .iter()
            .take(at)
            .filter(|work| work.request.is_read());
        reads.count() >= usize::from(self.config.max_reads)
    }

    /// The place in the queue of the request that has a packet.
    fn work_of(&self, count: u64) -> usize {
        self.queue.partition_point(|work| work.end <= count)
    }
}
