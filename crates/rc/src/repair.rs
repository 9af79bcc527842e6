//! How a requester learns of single packets and repeats them (IRN, SIGCOMM 2018, section 3).

use alloc::collections::VecDeque;
use core::ops::Range;

use farwrite_rate::Loss;

use crate::packet::Packet;
use crate::requester::Requester;
use crate::{Completion, Recovery, psn};

impl Requester {
    /// A sequence NAK in selective repeat. `named` is the packet that made the peer send it: one
    /// that came after a gap at `expected`, or, if both are the same, one that came without its
    /// payload.
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
            if named >= self.oldest && !self.selective.has_arrived(named) {
                self.selective.lose(named, named + 1);
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
            true => self.selective.read_waits(first),
            false => self.selective.request_arrived(named),
        };
        if new {
            self.retries = 0;
            self.waits_since_ns = Some(now_ns);
            if let Some(control) = &mut self.control {
                control.on_arrived(if is_read { first } else { named });
            }
        }
        if let Recovery::Irn { .. } = self.config.recovery {
            let range = self.selective.scan_requests(self.oldest, named);
            self.lose_requests(now_ns, range);
        }
    }

    /// A packet of a response to a READ, after a gap or not.
    pub(crate) fn keep_response(
        &mut self,
        now_ns: u64,
        count: u64,
        packet: &Packet,
        completions: &mut VecDeque<Completion>,
    ) {
        let at = self.work_of(count);
        let first = self.queue.get(at).map_or(count, |work| work.first);
        // It acknowledges all requests before it (IBTA 9.7.5.1).
        self.acked_end = self.acked_end.max(first);
        if let Some(control) = &mut self.control {
            control.on_arrived(first);
        }
        if self
            .selective
            .response_arrived(count, packet.payload.clone())
        {
            self.retries = 0;
            self.waits_since_ns = Some(now_ns);
        }
        if let Recovery::Irn { .. } = self.config.recovery {
            let range = self.selective.scan_responses(self.oldest, count);
            self.lose_responses(now_ns, range);
        }
        self.settle(now_ns, completions);
        if let Some(control) = &mut self.control {
            control.report(now_ns);
        }
    }

    /// A packet of a response that came without its payload.
    pub(crate) fn handle_trimmed_response(&mut self, now_ns: u64, psn: u32) {
        let count = psn::near(psn, self.oldest);
        if self.config.recovery != Recovery::Trimming
            || !(self.oldest..self.sent_end).contains(&count)
            || self.selective.has_arrived(count)
        {
            return;
        }
        let work = self.queue.get(self.work_of(count));
        if work.is_some_and(|work| work.request.is_read()) {
            self.selective.lose(count, count + 1);
            self.report_loss(now_ns);
        }
    }

    /// Ends requests from the oldest on, as far as they are done.
    pub(crate) fn settle(&mut self, now_ns: u64, completions: &mut VecDeque<Completion>) {
        while let Some(work) = self.queue.front_mut() {
            let mut to = self.oldest;
            if work.request.is_read() {
                while to < work.end
                    && let Some(payload) = self.selective.take(to)
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
        self.selective.advance(self.oldest);
    }

    /// After a timeout. IRN repeats the oldest packet and those that are known to be missing; where
    /// a gap is no loss, all that has not arrived is repeated.
    pub(crate) fn lose_all(&mut self) {
        self.selective.lose_again(self.oldest);
        let oldest = self.oldest;
        for at in 0..self.queue.len() {
            let work = &self.queue[at];
            if work.first >= self.sent_end {
                break;
            }
            let known = self.known_end(at);
            let from = work.first.max(oldest);
            if from < known {
                self.selective.lose_missing(from, known);
            }
        }
    }

    /// One more than the last packet of a request that a timeout repeats.
    fn known_end(&self, at: usize) -> u64 {
        let work = &self.queue[at];
        let oldest = at == 0;
        match (self.config.recovery, work.request.is_read()) {
            // A READ that the peer has, or that nothing else shows to be lost, is asked for whole.
            (_, true) if oldest => work.end,
            (Recovery::Irn { .. }, _) => self.selective.highest_arrived().min(work.end),
            (_, true) if self.selective.is_waiting_read(work.first) => work.first,
            (_, true) => work.end,
            (_, false) => self.sent_end.min(work.end),
        }
    }

    /// Requests with counts in the range are lost, apart from those that have arrived.
    fn lose_requests(&mut self, now_ns: u64, range: Range<u64>) {
        let mut count = range.start;
        let mut lost = false;
        while count < range.end {
            let Some(work) = self.queue.get(self.work_of(count)) else {
                break;
            };
            let end = work.end;
            let taken = work.first < self.acked_end || self.selective.is_waiting_read(work.first);
            let end = match work.request.is_read() {
                true if taken => {
                    count = end;
                    continue;
                }
                true => end,
                false => end.min(range.end),
            };
            lost |= self.selective.lose_missing(count, end);
            count = end;
        }
        if lost {
            self.report_loss(now_ns);
        }
    }

    /// Responses with counts in the range are lost, apart from those that have arrived.
    fn lose_responses(&mut self, now_ns: u64, range: Range<u64>) {
        let mut count = range.start;
        let mut lost = false;
        while count < range.end {
            let Some(work) = self.queue.get(self.work_of(count)) else {
                break;
            };
            let (is_read, end) = (work.request.is_read(), work.end.min(range.end));
            lost |= is_read && self.selective.lose_missing(count, end);
            count = end;
        }
        if lost {
            self.report_loss(now_ns);
        }
    }

    /// The peer has granted packets; `psn` is the low 24 bits of their number.
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

    fn report_loss(&mut self, now_ns: u64) {
        if let Some(control) = &mut self.control {
            control.on_loss(now_ns, Loss::Reported);
        }
    }
}
