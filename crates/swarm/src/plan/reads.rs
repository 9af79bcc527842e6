//! Messages that answer reads.

use farwrite::{CriticalRanges, SchemeName};
use farwrite_wire::control::Terms;

use super::{Ending, MessagePlan, Plan, Repair};

impl Plan {
    /// Whether a message answers a read.
    pub(crate) fn is_read(&self, index: usize) -> bool {
        let message = &self.messages[index];
        self.pairs[message.pair].reads[message.from]
    }

    /// Changes the messages that answer reads to what a read can request.
    pub(crate) fn fit_reads(&mut self) {
        for index in 0..self.messages.len() {
            if self.is_read(index) {
                self.messages[index].fit_read();
            }
        }
    }
}

impl MessagePlan {
    /// The user of the sender only exposes `bytes` bytes. The read asks for `capacity` bytes, and
    /// is refused if it asks for more than there are.
    fn fit_read(&mut self) {
        let scheme = match self.scheme {
            Repair::Scheme(scheme) => scheme,
            Repair::Nothing | Repair::Stream => SchemeName::SrNack,
        };
        self.scheme = Repair::Scheme(scheme);
        self.write_limits_ns.clear();
        self.capacity = self.capacity.max(self.bytes);
        self.critical = CriticalRanges::NONE;
        self.immediate = None;
        self.send_limit_ns = None;
        self.send_ns = self.recv_ns;
        self.terms = Terms {
            exact_length: true,
            immediate: false,
            scheme: Some(scheme.tag()),
            accepts_partial: true,
            answers_read: true,
        };
        if matches!(self.ending, Ending::Cancel { .. }) {
            self.ending = Ending::Natural;
        }
    }
}
