//! Selective repeat at the requester: how NAKs and responses update the scoreboard, and what is
//! retransmitted (IRN, SIGCOMM 2018, section 3).
//!
//! The algorithm works like TCP's recovery with SACK:
//!
//! - A NAK of the responder carries two numbers: the expected packet (a cumulative acknowledgement
//!   of all packets before it) and one packet that arrived after the gap (a selective
//!   acknowledgement). The [`Scoreboard`](crate::scoreboard::Scoreboard) records both.
//! - With IRN, the packets between the oldest unacknowledged one and the highest arrival that have
//!   not arrived are lost. Each packet is checked for this once (`scan_requests`,
//!   `scan_responses`), so it is retransmitted once for a gap. If the retransmission is lost too,
//!   the timeout repairs it.
//! - With trimming switches, packets of one message take several paths, so a gap is not a loss.
//!   Only a packet that the responder reports as trimmed is lost.
//! - With RACK, packets take several paths too, and times of transmission show which ones are lost
//!   (`rack.rs`).
//! - Lost packets go out before new ones (`Requester::poll_transmit`).
//! - After a timeout, IRN retransmits the oldest packet and all gaps below the highest arrival. A
//!   lost tail, above which nothing arrived, therefore costs one timeout per packet, as the rules
//!   of the paper imply. With trimming and RACK, and with IRN's `goes_back`, everything that has not
//!   arrived is retransmitted.

use alloc::collections::VecDeque;
use core::ops::Range;

use farwrite_rate::Loss;

use crate::own_repair::OwnRepair;
use crate::packet::Packet;
use crate::requester::Requester;
use crate::{Completion, Recovery, Repair, Unacknowledged, psn};

impl Requester {
    /// Handles a sequence NAK in selective repeat. `named` is the packet that triggered the NAK: a
    /// packet that arrived after a gap at `expected`, or, if both are equal, a packet that arrived
    /// without its payload.
    pub(crate) fn handle_gap(
        &mut self,
        now_ns: u64,
        expected: u64,
        named: u64,
        completions: &mut VecDeque<Completion>,
    ) {
        if named >= self.sent_end {
            return;
        }
        if named == expected {
            if named >= self.oldest && !self.scoreboard.has_arrived(named) {
                self.scoreboard.lose(named, named + 1);
                self.report_loss(now_ns);
            }
            return;
        }
        self.acknowledge(now_ns, expected, completions);
        if named < self.oldest {
            return;
        }
        let work = self.queue.get(self.work_of(named));
        let Some(work) = work else {
            return;
        };
        let (is_read, first) = (work.request.is_read(), work.first);
        let new = match is_read {
            true => self.scoreboard.read_waits(first),
            false => self.scoreboard.request_arrived(named),
        };
        if new {
            self.retries = 0;
            self.waits_since_ns = Some(now_ns);
            let arrived = if is_read { first } else { named };
            self.rack.on_arrived(now_ns, arrived);
            if let Some(control) = &mut self.control {
                control.on_arrived(arrived);
            }
        }
        match self.config.recovery {
            Recovery::Irn { .. } => {
                let range = self.scoreboard.scan_requests(self.oldest, named);
                self.lose_requests(now_ns, range);
            }
            Recovery::Own if new => self.repair_after(now_ns, |own, sent, start| {
                own.on_arrived(named - start, sent)
            }),
            _ => {}
        }
    }

    /// Repeats what the rules of another crate say.
    pub(crate) fn repair_after(
        &mut self,
        now_ns: u64,
        rule: impl FnOnce(&mut dyn Repair, &Unacknowledged, u64) -> Range<u64>,
    ) {
        let (sent, start) = (self.unacknowledged(now_ns), self.start());
        let Some(OwnRepair(own)) = &mut self.own_repair else {
            return;
        };
        let range = rule(&mut **own, &sent, start);
        let counts = [range.start, range.end].map(|count| {
            let count = count.saturating_add(start);
            count.clamp(self.oldest, self.sent_end)
        });
        self.lose_requests(now_ns, counts[0]..counts[1]);
    }

    /// What the rules of another crate see.
    pub(crate) fn unacknowledged(&self, now_ns: u64) -> Unacknowledged {
        let start = self.start();
        Unacknowledged {
            now_ns,
            oldest: self.oldest - start,
            sent_end: self.sent_end - start,
        }
    }

    /// Count of the first packet of the connection.
    fn start(&self) -> u64 {
        psn::start(self.config.send_psn)
    }

    /// Handles a packet of a READ response, in order or after a gap.
    pub(crate) fn keep_response(
        &mut self,
        now_ns: u64,
        count: u64,
        packet: &Packet,
        completions: &mut VecDeque<Completion>,
    ) {
        let at = self.work_of(count);
        let first = self.queue.get(at).map_or(count, |work| work.first);
        // The response acknowledges all requests before the READ (IBTA 9.7.5.1).
        self.acked_end = self.acked_end.max(first);
        if let Some(control) = &mut self.control {
            control.on_arrived(first);
        }
        if self
            .scoreboard
            .response_arrived(count, packet.payload.clone())
        {
            self.retries = 0;
            self.waits_since_ns = Some(now_ns);
        }
        if let Recovery::Irn { .. } | Recovery::Own = self.config.recovery {
            let range = self.scoreboard.scan_responses(self.oldest, count);
            self.lose_responses(now_ns, range);
        }
        self.settle(now_ns, completions);
        if let Some(control) = &mut self.control {
            control.report(now_ns);
        }
    }

    /// Handles a response packet that arrived without its payload.
    pub(crate) fn handle_trimmed_response(&mut self, now_ns: u64, psn: u32) {
        let count = psn::near(psn, self.oldest);
        if self.config.recovery != Recovery::Trimming
            || !(self.oldest..self.sent_end).contains(&count)
            || self.scoreboard.has_arrived(count)
        {
            return;
        }
        let work = self.queue.get(self.work_of(count));
        if work.is_some_and(|work| work.request.is_read()) {
            self.scoreboard.lose(count, count + 1);
            self.report_loss(now_ns);
        }
    }

    /// Completes requests, oldest first, as far as acknowledgements and responses allow.
    pub(crate) fn settle(&mut self, now_ns: u64, completions: &mut VecDeque<Completion>) {
        while let Some(work) = self.queue.front_mut() {
            let mut to = self.oldest;
            if work.request.is_read() {
                while to < work.end
                    && let Some(payload) = self.scoreboard.take(to)
                {
                    work.read.push(&payload);
                    to += 1;
                }
            } else {
                to = self.acked_end.clamp(self.oldest, work.end);
            }
            if to == self.oldest {
                break;
            }
            self.advance_to(now_ns, to, completions);
        }
        self.scoreboard.advance(self.oldest);
    }

    /// After a timeout: marks packets as lost. With IRN, these are the oldest packet and all gaps
    /// below the highest arrival. With trimming, RACK and IRN's `goes_back`, they are all packets
    /// that have not arrived.
    pub(crate) fn lose_all(&mut self) {
        self.rack.forget_all();
        self.scoreboard.lose_again(self.oldest);
        let oldest = self.oldest;
        for at in 0..self.queue.len() {
            let work = &self.queue[at];
            if work.first >= self.sent_end {
                break;
            }
            let known = self.known_end(at);
            let from = work.first.max(oldest);
            if from < known {
                self.scoreboard.lose_missing(from, known);
            }
        }
    }

    /// End (exclusive) of the packets of a request that a timeout retransmits.
    fn known_end(&self, at: usize) -> u64 {
        let work = &self.queue[at];
        let oldest = at == 0;
        match (self.config.recovery, work.request.is_read()) {
            // Request the whole response again: the peer has the READ, or nothing else shows that
            // it is lost.
            (_, true) if oldest => work.end,
            (
                Recovery::Irn {
                    goes_back: false, ..
                }
                | Recovery::Own,
                _,
            ) => self.scoreboard.highest_arrived().min(work.end),
            (_, true) if self.scoreboard.is_waiting_read(work.first) => work.first,
            (_, true) => work.end,
            (_, false) => self.sent_end.min(work.end),
        }
    }

    /// Marks the request packets of the range as lost, except those that have arrived.
    fn lose_requests(&mut self, now_ns: u64, range: Range<u64>) {
        let mut count = range.start;
        let mut lost = false;
        while count < range.end {
            let Some(work) = self.queue.get(self.work_of(count)) else {
                break;
            };
            let end = work.end;
            let taken = work.first < self.acked_end || self.scoreboard.is_waiting_read(work.first);
            let end = match work.request.is_read() {
                true if taken => {
                    count = end;
                    continue;
                }
                true => end,
                false => end.min(range.end),
            };
            lost |= self.scoreboard.lose_missing(count, end);
            count = end;
        }
        if lost {
            self.report_loss(now_ns);
        }
    }

    /// Marks the response packets of the range as lost, except those that have arrived.
    fn lose_responses(&mut self, now_ns: u64, range: Range<u64>) {
        let mut count = range.start;
        let mut lost = false;
        while count < range.end {
            let Some(work) = self.queue.get(self.work_of(count)) else {
                break;
            };
            let (is_read, end) = (work.request.is_read(), work.end.min(range.end));
            lost |= is_read && self.scoreboard.lose_missing(count, end);
            count = end;
        }
        if lost {
            self.report_loss(now_ns);
        }
    }

    /// Handles a credit grant. `psn` is the low 24 bits of the total of granted packets.
    pub(crate) fn take_grant(&mut self, now_ns: u64, psn: u32) {
        self.granted_packets = self
            .granted_packets
            .max(psn::near(psn, self.granted_packets));
        let granted_bytes = self
            .granted_packets
            .saturating_mul(self.config.packet_bytes());
        if let Some(control) = &mut self.control {
            control.on_grant(now_ns, granted_bytes);
        }
    }

    pub(crate) fn report_loss(&mut self, now_ns: u64) {
        if let Some(control) = &mut self.control {
            control.on_loss(now_ns, Loss::Reported);
        }
    }
}
