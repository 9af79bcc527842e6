//! The requesting half of a queue pair (IBTA, "Requester: Generating Request Packets", "Requester:
//! Receiving Responses").

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use farwrite_net::header::Roce;
use farwrite_net::{Payload, Telemetry};
use farwrite_rate::Loss;

use crate::control::CongestionControl;
use crate::own_repair::OwnRepair;
use crate::packet::{Assembly, Packet, packets};
use crate::rack::Rack;
use crate::scoreboard::Scoreboard;
use crate::send_queue::WorkRequest;
use crate::{
    Completion, Nak, PostError, QpConfig, QpCounters, Recovery, Request, RequestError, Syndrome,
    earliest, psn,
};

/// Longest message of a reliable service (IBTA 9.7).
const MAX_BYTES: u32 = 1 << 31;

/// Sends requests, waits for their acknowledgements, and retransmits lost packets.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) config: QpConfig,
    /// Requests that are not complete, oldest first.
    pub(crate) queue: VecDeque<WorkRequest>,
    /// Count of the oldest unacknowledged packet.
    pub(crate) oldest: u64,
    /// Count of the packet to send next. Go-Back-N sets it back to retransmit.
    next: u64,
    /// End (exclusive) of the counts sent so far.
    pub(crate) sent_end: u64,
    /// End (exclusive) of the counts of all posted requests.
    posted_end: u64,
    /// End (exclusive) of the counts that expect a reply: READs, and packets that ask for an
    /// acknowledgement. The timeout runs while this is above `oldest`.
    asked_end: u64,
    /// Start of the current wait for progress; `None` if nothing is awaited.
    pub(crate) waits_since_ns: Option<u64>,
    /// End of the pause after an RNR NAK.
    not_ready_until_ns: Option<u64>,
    pub(crate) retries: u8,
    not_ready_retries: u8,
    /// Value of `oldest` at the last go-back. Until there is progress, READ responses after a hole
    /// do not cause another go-back.
    went_back_at: Option<u64>,
    /// Largest number of packets in flight since the last go-back, with a slow restart.
    restart_window: u64,
    /// End (exclusive) of the counts that the peer has acknowledged cumulatively. Responses to
    /// READs below it may still be missing.
    pub(crate) acked_end: u64,
    pub(crate) scoreboard: Scoreboard,
    /// Times of transmission, with [`Recovery::Rack`].
    pub(crate) rack: Rack,
    /// Total of packets granted by the peer, unwrapped.
    pub(crate) granted_packets: u64,
    pub(crate) control: Option<CongestionControl>,
    /// Telemetry of the acknowledgement that comes next.
    pub(crate) telemetry: Option<Box<Telemetry>>,
    /// The rules of [`Recovery::Own`].
    pub(crate) own_repair: Option<OwnRepair>,
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
            waits_since_ns: None,
            not_ready_until_ns: None,
            retries: 0,
            not_ready_retries: 0,
            went_back_at: None,
            restart_window: u64::MAX,
            acked_end: start,
            scoreboard: Scoreboard::default(),
            rack: Rack::default(),
            granted_packets: 0,
            control: None,
            telemetry: None,
            own_repair: None,
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
        self.queue.push_back(WorkRequest {
            id,
            request,
            first,
            end: self.posted_end,
            read: Assembly::new(),
        });
        Ok(())
    }

    /// Whether there is a packet to send, and window and credit allow it. Does not consider the
    /// pace.
    pub(crate) fn wants_to_send(&self) -> bool {
        let credit = self
            .control
            .as_ref()
            .is_none_or(CongestionControl::has_credit);
        credit
            && self.not_ready_until_ns.is_none()
            && (self.scoreboard.next_lost().is_some() || self.wants_to_advance())
    }

    /// Whether the packet with the count `next` may be sent.
    fn wants_to_advance(&self) -> bool {
        let window = self
            .control
            .as_ref()
            .is_none_or(CongestionControl::has_window);
        self.next < self.posted_end
            && self.next - self.oldest < self.window()
            && window
            && !self.waits_for_reads()
    }

    /// Largest number of packets in flight.
    fn window(&self) -> u64 {
        u64::from(self.config.window_packets).min(self.restart_window)
    }

    /// Number of packets before the oldest unacknowledged one.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.oldest - psn::start(self.config.send_psn)
    }

    /// Whether requests are in progress or queued.
    pub(crate) fn is_busy(&self) -> bool {
        self.oldest < self.posted_end
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now_ns: u64,
        counters: &mut QpCounters,
    ) -> Option<Packet> {
        if !self.wants_to_send() {
            return None;
        }
        let (count, packet) = match self.scoreboard.next_lost() {
            Some((count, end)) => self.repeat(count, end)?,
            None => self.advance()?,
        };
        counters.sent += 1;
        counters.repeated += u64::from(count < self.sent_end);
        self.note_sent(now_ns, count);
        self.sent_end = self.sent_end.max(self.next);
        if packet.header.bth.ack_request || self.config.recovery.is_selective() {
            self.asked_end = self.next;
            self.waits_since_ns.get_or_insert(now_ns);
        }
        let idle = self.next == self.posted_end && self.scoreboard.next_lost().is_none();
        if let Some(control) = &mut self.control {
            let bytes = packet.ip_bytes() + control.telemetry_bytes();
            control.on_request(now_ns, count, bytes, idle);
        }
        Some(packet)
    }

    /// The packet with the count `next`.
    fn advance(&mut self) -> Option<(u64, Packet)> {
        let count = self.next;
        let work = self.queue.get(self.work_of(count))?;
        self.next = work.after(count);
        let asks = self.asks(work, count);
        Some((count, work.packet(count, work.end, &self.config, asks)))
    }

    /// Retransmits a lost packet, or requests a lost part of a READ response, up to `end`.
    fn repeat(&mut self, count: u64, end: u64) -> Option<(u64, Packet)> {
        let work = self.queue.get(self.work_of(count))?;
        let to = if work.request.is_read() {
            self.scoreboard.next_arrived(count, end.min(work.end))
        } else {
            count + 1
        };
        let packet = work.packet(count, to, &self.config, self.asks(work, count));
        self.scoreboard.repeated(to);
        Some((count, packet))
    }

    /// Whether a packet asks for a reply. With trimming, all packets are acknowledged, and the bit
    /// asks for credit.
    fn asks(&self, work: &WorkRequest, count: u64) -> bool {
        match self.config.recovery {
            Recovery::GoBackN => work.request.is_read() || self.needs_ack(work, count),
            Recovery::Irn { .. } | Recovery::Rack { .. } | Recovery::Own => true,
            Recovery::Trimming => work.request.is_read() || self.posted_end > self.next,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.not_ready_until_ns
            .or_else(|| earliest([self.deadline_ns(), self.next_loss_ns()]))
    }

    pub(crate) fn handle_timeout(&mut self, now_ns: u64, counters: &mut QpCounters) {
        if self.next_timeout().is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        if self.not_ready_until_ns.take().is_some() {
            return;
        }
        self.lose_overdue(now_ns);
        if self.deadline_ns().is_none_or(|at_ns| at_ns > now_ns) || self.probe() {
            return;
        }
        counters.timeouts += 1;
        if let Some(control) = &mut self.control {
            control.on_loss(now_ns, Loss::TimedOut);
        }
        if !self.config.recovery.is_selective() {
            self.go_back();
        } else if self.may_retry() {
            self.waits_since_ns = None;
            match (self.config.recovery, &self.own_repair) {
                (Recovery::Own, Some(_)) => {
                    self.scoreboard.lose_again(self.oldest);
                    self.repair_after(now_ns, |own, sent, _| own.on_timeout(sent));
                }
                _ => self.lose_all(),
            }
        }
    }

    /// Handles an ACK, an RNR NAK or a NAK.
    pub(crate) fn handle_ack(
        &mut self,
        now_ns: u64,
        header: &Roce,
        completions: &mut VecDeque<Completion>,
    ) {
        let telemetry = self.telemetry.take();
        let Some(aeth) = header.aeth else {
            return;
        };
        let count = psn::near(header.bth.psn, self.oldest);
        let syndrome = Syndrome::from_byte(aeth.syndrome);
        let Some(syndrome) = syndrome.filter(|_| count < self.sent_end) else {
            return;
        };
        let selective = self.config.recovery.is_selective();
        if syndrome == Syndrome::Ack {
            self.acknowledge(now_ns, count + 1, completions);
            if self.config.recovery == Recovery::Trimming {
                self.take_grant(now_ns, aeth.msn);
            }
        } else if selective && syndrome == Syndrome::Nak(Nak::Sequence) {
            self.handle_gap(now_ns, count, psn::near(aeth.msn, count), completions);
        } else {
            self.acknowledge(now_ns, count, completions);
            if count == self.oldest {
                self.handle_refusal(now_ns, syndrome);
            }
        }
        self.lose_overdue(now_ns);
        if let Some(control) = &mut self.control {
            control.acknowledge(now_ns, header.bth.becn, telemetry.as_deref());
            control.report(now_ns);
        }
    }

    /// Handles a NAK or an RNR NAK of the oldest packet.
    fn handle_refusal(&mut self, now_ns: u64, syndrome: Syndrome) {
        match syndrome {
            Syndrome::Ack => {}
            Syndrome::Nak(Nak::Sequence) => {
                if let Some(control) = &mut self.control {
                    control.on_loss(now_ns, Loss::Reported);
                }
                match self.config.nak_every_ns {
                    None => self.go_back(),
                    // A repeated NAK is no failed attempt.
                    Some(_) => self.rewind(),
                }
            }
            Syndrome::Nak(nak) => self.failure = Some(RequestError::Refused(nak)),
            Syndrome::NotReady(_) if self.not_ready_until_ns.is_some() => {}
            Syndrome::NotReady(timer) => {
                let limit = self.config.rnr_retry_limit;
                if let Some(retries) = limit.filter(|limit| self.not_ready_retries >= *limit) {
                    self.failure = Some(RequestError::NotReady { retries });
                }
                self.not_ready_retries = self.not_ready_retries.saturating_add(1);
                if self.config.recovery.is_selective() {
                    self.scoreboard.lose_again(self.oldest);
                } else {
                    self.rewind();
                }
                self.not_ready_until_ns = Some(now_ns.saturating_add(timer.wait_ns()));
            }
        }
    }

    /// Handles a packet of a READ response. It acknowledges all requests before the READ (IBTA
    /// 9.7.5.1).
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
        if self.config.recovery.is_selective() {
            self.keep_response(now_ns, count, packet, completions);
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

    /// Fails all requests: the first with `error`, the others as flushed.
    pub(crate) fn fail(&mut self, error: RequestError, completions: &mut VecDeque<Completion>) {
        let mut error = error;
        for WorkRequest { id, .. } in self.queue.drain(..) {
            completions.push_back(Completion::Failed { id, error });
            error = RequestError::Flushed;
        }
        self.oldest = self.posted_end;
        self.sent_end = self.posted_end;
        self.not_ready_until_ns = None;
        self.scoreboard.forget();
        self.rack.forget_all();
        self.control = None;
        self.rewind();
    }

    /// Handles a cumulative acknowledgement of all packets before `end`. A READ is complete only
    /// with its response: if the response of a READ before `end` is incomplete, its missing packets
    /// are lost (an implied NAK).
    pub(crate) fn acknowledge(
        &mut self,
        now_ns: u64,
        end: u64,
        completions: &mut VecDeque<Completion>,
    ) {
        self.acked_end = self.acked_end.max(end);
        if self.config.recovery.is_selective() {
            self.settle(now_ns, completions);
            return;
        }
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

    /// Records progress: all packets before `to` are complete.
    pub(crate) fn advance_to(
        &mut self,
        now_ns: u64,
        to: u64,
        completions: &mut VecDeque<Completion>,
    ) {
        debug_assert!(self.oldest < to && to <= self.sent_end);
        debug_assert!(self.sent_end <= self.posted_end);
        self.restart_window = self.restart_window.saturating_add(to - self.oldest);
        self.oldest = to;
        self.next = self.next.max(to);
        (self.retries, self.not_ready_retries) = (0, 0);
        self.not_ready_until_ns = None;
        let waits = self.asked_end > self.oldest;
        self.waits_since_ns = waits.then_some(now_ns);
        self.rack.on_arrived_before(now_ns, to);
        if let Some(control) = &mut self.control {
            control.on_arrived_before(to);
        }
        if self.queue.front().is_some_and(|work| work.end == to) {
            completions.extend(self.queue.pop_front().map(WorkRequest::complete));
        }
    }

    /// Go-Back-N: retransmits all packets from the oldest one on.
    fn go_back(&mut self) {
        if self.may_retry() {
            self.went_back_at = Some(self.oldest);
            self.rewind();
        }
    }

    /// Counts one more attempt without progress. Fails the requester if the limit is reached.
    fn may_retry(&mut self) -> bool {
        let limit = self.config.retry_limit;
        if let Some(retries) = limit.filter(|limit| self.retries >= *limit) {
            self.failure = Some(RequestError::RetriesExhausted { retries });
            return false;
        }
        self.retries = self.retries.saturating_add(1);
        true
    }

    fn rewind(&mut self) {
        self.next = self.oldest;
        self.asked_end = self.oldest;
        self.waits_since_ns = None;
        if let Some(packets) = self.config.slow_restart_packets {
            self.restart_window = u64::from(packets);
        }
        if let Some(control) = &mut self.control {
            control.on_go_back(self.oldest);
        }
    }

    /// Time at which the wait for progress ends in a timeout.
    fn deadline_ns(&self) -> Option<u64> {
        let few = |packets| self.next - self.oldest <= u64::from(packets);
        let wait_ns = match self.config.recovery {
            Recovery::Irn {
                rto_low_ns,
                rto_low_packets,
                ..
            } if few(rto_low_packets) => rto_low_ns,
            Recovery::GoBackN => self.timeout_ns(),
            Recovery::Own => match &self.own_repair {
                Some(OwnRepair(own)) => {
                    let since_ns = self.waits_since_ns?;
                    own.timeout_ns(&self.unacknowledged(since_ns)).max(1)
                }
                None => self.config.ack_timeout_ns,
            },
            _ => self.config.ack_timeout_ns,
        };
        let wait_ns = self
            .probe_wait_ns()
            .map_or(wait_ns, |probe_ns| probe_ns.min(wait_ns));
        Some(self.waits_since_ns?.saturating_add(wait_ns))
    }

    /// The timeout of Go-Back-N after the retransmissions so far.
    fn timeout_ns(&self) -> u64 {
        let longest_ns = self.config.ack_timeout_ns;
        let doubled = |first_ns: u64| first_ns.saturating_mul(1 << self.retries.min(63));
        let first_ns = self.config.first_timeout_ns;
        first_ns.map_or(longest_ns, |first_ns| doubled(first_ns).min(longest_ns))
    }

    /// Whether a packet asks for an acknowledgement in Go-Back-N.
    fn needs_ack(&self, work: &WorkRequest, count: u64) -> bool {
        let after = count + 1;
        after == work.end
            || after.is_multiple_of(u64::from(self.config.ack_every_packets))
            || after - self.oldest >= self.window()
            || (self.control.as_ref()).is_some_and(CongestionControl::wants_acknowledgements)
    }

    /// Whether the next packet is a READ and the limit of outstanding READs is reached.
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

    /// Index in the queue of the request that a packet belongs to.
    pub(crate) fn work_of(&self, count: u64) -> usize {
        self.queue.partition_point(|work| work.end <= count)
    }
}
