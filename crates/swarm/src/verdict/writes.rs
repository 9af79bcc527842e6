//! Checks that writes report exactly the packets that have left.

use std::collections::BTreeMap;

use farwrite::{SendHandle, WriteOutcome};

use crate::case::Coverage;
use crate::violation::{Rule, Violation};
use crate::world::{Message, World, Write};

/// When each packet of a message left.
type Left = BTreeMap<u64, Vec<u64>>;

/// Returns what is wrong with the writes of a message, of which the packets in `left` have left.
fn check(message: &Message, left: &Left, mtu: u64) -> Result<(), String> {
    for (number, write) in message.writes.iter().enumerate() {
        let sent_bytes = write.handle.sent_bytes();
        let length = write.bytes.end - write.bytes.start;
        let is_right = match write.handle.outcome() {
            Some(WriteOutcome::Sent) => sent_bytes == length,
            Some(WriteOutcome::Expired) => sent_bytes < length && write.deadline_ns.is_some(),
            Some(WriteOutcome::Closed) => sent_bytes < length,
            _ => false,
        };
        if !is_right {
            let outcome = write.handle.outcome();
            return Err(format!(
                "write {number}: {outcome:?} after {sent_bytes} of {length} bytes"
            ));
        }
    }
    let packets = message.content.len() as u64 / mtu + 1;
    for packet in 0..packets {
        let times = left.get(&packet).map_or(&[][..], |times| times);
        let has_sent = |write: &&Write| {
            let sent = write.bytes.start..write.bytes.start + write.handle.sent_bytes();
            sent.contains(&(packet * mtu))
        };
        let of_packet: Vec<&Write> = message.writes.iter().filter(has_sent).collect();
        if times.len() != of_packet.len() && packet * mtu < message.content.len() as u64 {
            let (left, told) = (times.len(), of_packet.len());
            return Err(format!(
                "packet {packet} has left {left} times, and {told} writes report it"
            ));
        }
        // The times of a packet that several writes have sent are in the order of the writes.
        for (at_ns, write) in times.iter().zip(of_packet) {
            if write.deadline_ns.is_some_and(|end_ns| *at_ns >= end_ns) {
                return Err(format!("packet {packet} has left after its deadline"));
            }
        }
    }
    Ok(())
}

fn cover(message: &Message, coverage: &mut Coverage) {
    for write in &message.writes {
        let some_left = write.handle.sent_bytes() > 0;
        match write.handle.outcome() {
            Some(WriteOutcome::Sent) => coverage.saw("write sent"),
            Some(WriteOutcome::Expired) if some_left => coverage.saw("write cut, some has left"),
            Some(WriteOutcome::Expired) => coverage.saw("write cut, nothing has left"),
            _ => coverage.saw("write ended by its stream"),
        }
    }
}

impl World<'_> {
    /// Checks the writes of a message that is over.
    pub(crate) fn check_writes(&mut self, index: usize) -> Result<(), Violation> {
        let plan = &self.plan.messages[index];
        let message = &self.messages[index];
        let Some(number) = message.send.as_ref().map(SendHandle::message) else {
            return Ok(());
        };
        let mtu = u64::from(self.plan.pairs[plan.pair].options.sdr.mtu);
        let left = self.tap.borrow().left(plan.pair, plan.from, number);
        if !message.writes.is_empty()
            && let Err(what) = check(message, &left, mtu)
        {
            return Err(self.violation(Rule::Write, format!("message {index}: {what}: {plan}")));
        }
        cover(message, &mut self.coverage);
        Ok(())
    }
}
