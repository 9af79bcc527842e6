//! Checks the buffer of every message: its bytes, its bitmap, its label.

use farwrite::{Outcome, QpConfig, RecvHandle};

use crate::partial_receive::PartialReceive;
use crate::plan::MessagePlan;
use crate::violation::{Rule, Violation};
use crate::world::{Message, World};

/// The value of memory that was not written. No message contains this byte.
pub(crate) const UNTOUCHED: u8 = 0xee;
/// Guard bytes on both sides of a buffer.
pub(crate) const GUARD: usize = 96;

/// A buffer, and its possible contents.
struct Buffer<'a> {
    plan: &'a MessagePlan,
    /// The bytes sent so far; empty before the send is posted.
    content: &'a [u8],
    memory: &'a [u8],
    sdr: &'a QpConfig,
}

type Broken = (Rule, String);

pub(crate) fn is_untouched(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == UNTOUCHED)
}

impl<'a> Buffer<'a> {
    /// The part of the buffer that the message may fill.
    fn filled(&self) -> &'a [u8] {
        &self.memory[GUARD..GUARD + self.content.len().min(self.plan.capacity)]
    }

    fn check_guards(&self) -> Result<(), Broken> {
        let (before, rest) = self.memory.split_at(GUARD);
        let (spare, after) =
            rest[self.filled().len()..].split_at(rest.len() - self.filled().len() - GUARD);
        for (name, bytes) in [
            ("before", before),
            ("after", after),
            ("at the end of", spare),
        ] {
            if !is_untouched(bytes) {
                return Err((Rule::Guard, format!("bytes were written {name} the buffer")));
            }
        }
        Ok(())
    }

    /// Checks that each packet's bytes are those of the message, or untouched. Returns which
    /// packets arrived.
    fn check_packets(&self) -> Result<Vec<bool>, Broken> {
        let mut there = Vec::new();
        let mtu = self.sdr.mtu as usize;
        let packets = self.filled().chunks(mtu).zip(self.content.chunks(mtu));
        for (packet, (found, sent)) in packets.enumerate() {
            let is_right = found == &sent[..found.len()];
            if !is_right && !is_untouched(found) {
                let at = found
                    .iter()
                    .zip(sent)
                    .position(|(found, sent)| found != sent);
                let at = at.unwrap_or(0) + packet * mtu;
                return Err((Rule::Bytes, format!("byte {at} is not that of the message")));
            }
            there.push(is_right);
        }
        Ok(there)
    }

    /// Checks that the chunks of all set bits are in memory. Once the length is known, also checks
    /// that no other chunk is.
    fn check_bitmap(&self, recv: &RecvHandle, there: &[bool]) -> Result<(), Broken> {
        let bitmap = recv.bitmap();
        let packets_per_chunk = self.sdr.packets_per_chunk as usize;
        for (chunk, packets) in (0..).zip(there.chunks(packets_per_chunk)) {
            let is_there = packets.iter().all(|&packet| packet);
            if bitmap.get(chunk) && !is_there {
                return Err((
                    Rule::Bitmap,
                    format!("chunk {chunk} is not there, its bit is set"),
                ));
            }
            // The last chunk can contain packets without bytes.
            let is_last = (chunk as usize + 1) * packets_per_chunk >= there.len();
            if is_there && !bitmap.get(chunk) && !is_last && recv.length().is_some() {
                return Err((
                    Rule::Bitmap,
                    format!("chunk {chunk} is there, its bit is not set"),
                ));
            }
        }
        Ok(())
    }

    fn check_label(&self, recv: &RecvHandle) -> Result<(), Broken> {
        let (length, immediate) = (recv.length(), recv.immediate());
        // A receive for an exact length knows the length from the start, and keeps it if the
        // message is refused.
        let demanded = self.plan.capacity as u64;
        let is_demanded = self.plan.terms.exact_length && length == Some(demanded);
        if !is_demanded && length.is_some_and(|length| length != self.plan.bytes as u64) {
            return Err((
                Rule::Label,
                format!("length {length:?}, not {}", self.plan.bytes),
            ));
        }
        if immediate.is_some() && immediate != self.plan.immediate {
            let expected = self.plan.immediate;
            return Err((
                Rule::Label,
                format!("immediate {immediate:?}, not {expected:?}"),
            ));
        }
        Ok(())
    }

    fn check_whole(&self, recv: &RecvHandle, there: &[bool]) -> Result<(), Broken> {
        if self.content.len() != self.plan.bytes || there.contains(&false) {
            return Err((
                Rule::Bytes,
                "the message is whole, but bytes are missing".into(),
            ));
        }
        if !recv.bitmap().is_complete() {
            return Err((
                Rule::Bitmap,
                "the message is whole, its bitmap is not".into(),
            ));
        }
        let is_labelled = recv.length().is_some() && recv.immediate() == self.plan.immediate;
        if !is_labelled {
            let label = (recv.length(), recv.immediate());
            return Err((
                Rule::Label,
                format!("the message is whole, with label {label:?}"),
            ));
        }
        Ok(())
    }

    fn check_partial(&self, recv: &RecvHandle, there: &[bool]) -> Result<(), Broken> {
        let remains = PartialReceive {
            plan: self.plan,
            sdr: self.sdr,
            recv,
            there,
        };
        remains.check().map_err(|what| (Rule::Partial, what))
    }

    fn check(&self, recv: &RecvHandle, outcome: Option<Outcome>) -> Result<(), Broken> {
        self.check_guards()?;
        let there = self.check_packets()?;
        self.check_bitmap(recv, &there)?;
        self.check_label(recv)?;
        match outcome {
            Some(Outcome::Whole) => self.check_whole(recv, &there)?,
            Some(Outcome::Partial) => self.check_partial(recv, &there)?,
            Some(Outcome::Failed) | None => {}
        }
        if outcome != Some(Outcome::Partial) && recv.partial().is_some() {
            return Err((
                Rule::Partial,
                format!("outcome {outcome:?}, and yet {:?}", recv.partial()),
            ));
        }
        Ok(())
    }
}

impl World<'_> {
    /// Checks the buffer of a posted receive. Returns its contents.
    fn check_buffer(&self, index: usize, outcome: Option<Outcome>) -> Result<Vec<u8>, Violation> {
        let plan = &self.plan.messages[index];
        let Message {
            content,
            recv,
            target,
            ..
        } = &self.messages[index];
        let recv = recv.as_ref().expect("it is posted");
        let target = target.expect("it has a buffer");
        let memory = self.memory(self.plan.host(plan.pair, 1 - plan.from), target)?;
        let sdr = &self.plan.pairs[plan.pair].options.sdr;
        let buffer = Buffer {
            plan,
            content,
            memory: &memory,
            sdr,
        };
        let broken = |(rule, what)| self.violation(rule, format!("message {index}: {what}"));
        buffer.check(recv, outcome).map_err(broken)?;
        Ok(memory)
    }

    /// Checks an open receive.
    pub(crate) fn glance(&mut self, index: usize) -> Result<(), Violation> {
        let Message { recv, received, .. } = &self.messages[index];
        if recv.is_some() && received.is_none() {
            self.check_buffer(index, None)?;
        }
        Ok(())
    }

    /// Checks the buffer of a receive that has its outcome, and records the contents, which must
    /// not change any more.
    pub(crate) fn take_snapshot(&mut self, index: usize) -> Result<(), Violation> {
        let outcome = self.messages[index].received;
        self.messages[index].snapshot = self.check_buffer(index, outcome)?;
        let recv = self.messages[index].recv.as_ref().expect("it is posted");
        let nothing = recv.bitmap().count() == 0;
        let what = match outcome {
            Some(Outcome::Whole) => "received whole",
            Some(Outcome::Partial) if nothing => "received partial, none there",
            Some(Outcome::Partial) => "received partial, some there",
            _ => "received failed",
        };
        self.coverage.saw(what);
        Ok(())
    }

    /// Deregisters the buffer of a receive, and checks that it has not changed since the outcome.
    pub(crate) fn give_target_back(&mut self, index: usize) -> Result<(), Violation> {
        let plan = &self.plan.messages[index];
        let host = self.plan.host(plan.pair, 1 - plan.from);
        let Some(region) = self.messages[index].target.take() else {
            return Ok(());
        };
        let memory = self.memory(host, region)?;
        let snapshot = &self.messages[index].snapshot;
        let is_same = memory == *snapshot;
        if self.messages[index].received.is_some() && !is_same {
            let what = format!("message {index}: its memory changed after its outcome");
            return Err(self.violation(Rule::Afterwards, what));
        }
        let back = self.hosts[host].endpoint().deregister(region);
        let why = |error| {
            let what = format!("the memory of receive {index} does not come back: {error}");
            self.violation(Rule::Leak, what)
        };
        back.map_err(why)?;
        Ok(())
    }
}
