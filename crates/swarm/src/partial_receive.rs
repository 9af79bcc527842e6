//! Checks partial outcomes: they must name exactly the data in the buffer.

use farwrite::{QpConfig, RecvHandle};

use crate::plan::{MessagePlan, Repair};

pub(crate) struct PartialReceive<'a> {
    pub(crate) plan: &'a MessagePlan,
    pub(crate) sdr: &'a QpConfig,
    pub(crate) recv: &'a RecvHandle,
    /// For each packet with bytes, whether these are in memory; empty if nothing was sent.
    pub(crate) there: &'a [bool],
}

impl PartialReceive<'_> {
    /// # Errors
    /// A text that describes the wrong part of the outcome.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(partial) = self.recv.partial() else {
            return Err("the outcome is partial, and nothing says what arrived".into());
        };
        let (named, found) = (partial.bytes(), self.bytes());
        if named != found && named + self.doubtful_bytes() != found {
            return Err(format!(
                "the buffer holds {found} bytes, the outcome names {named}"
            ));
        }
        let (named, possible) = (partial.chunks(), self.possible_chunks());
        if !possible.contains(&named) {
            return Err(format!("{named} chunks are named, not one of {possible:?}"));
        }
        self.check_chunks()?;
        let (bits, live) = (partial.bits(), self.recv.bitmap().to_bytes());
        match bits == live {
            true => Ok(()),
            false => Err(format!("bits {bits:?}, in the bitmap {live:?}")),
        }
    }

    /// Bytes of the message that are in memory.
    fn bytes(&self) -> u64 {
        let mtu = self.sdr.mtu as usize;
        let filled = self.plan.bytes.min(self.plan.capacity);
        let starts = (0..filled).step_by(mtu);
        let packets = starts.map(|at| mtu.min(filled - at));
        let arrived = packets.zip(self.there).filter(|(_, there)| **there);
        arrived.map(|(bytes, _)| bytes as u64).sum()
    }

    /// Bytes of a last packet that may be in memory without being counted. A stream may write
    /// before its length shows that it does not meet the terms of its receive. Then the short
    /// packet at its end does not count, if the exact length is known (P3.7).
    fn doubtful_bytes(&self) -> u64 {
        let plan = self.plan;
        let differs = plan.terms.exact_length && plan.bytes != plan.capacity;
        let has_last = self.there.last() == Some(&true);
        match plan.scheme == Repair::Stream && differs && has_last {
            true => plan.bytes as u64 % u64::from(self.sdr.mtu),
            false => 0,
        }
    }

    /// The possible numbers of chunks: of the message if its length is known, otherwise of the
    /// buffer. A length from the terms may be known or not.
    fn possible_chunks(&self) -> Vec<u32> {
        let MessagePlan {
            bytes,
            capacity,
            immediate,
            terms,
            ..
        } = self.plan;
        let of_buffer = self.chunks(*capacity, true);
        let of_message = self.chunks(*bytes, immediate.is_some());
        let of_terms = self.chunks(*capacity, terms.immediate);
        match (self.recv.length(), terms.exact_length) {
            (None, _) => vec![of_buffer],
            (Some(_), false) => vec![of_message],
            (Some(_), true) => vec![of_buffer, of_message, of_terms],
        }
    }

    /// Chunks of `bytes` bytes (P3.2).
    fn chunks(&self, bytes: usize, has_immediate: bool) -> u32 {
        let user_bits = self.sdr.split.user_bits;
        let fragments = match has_immediate && user_bits > 0 {
            true => 32_u32.div_ceil(user_bits.into()),
            false => 0,
        };
        let packets = bytes.div_ceil(self.sdr.mtu as usize).max(1);
        let packets = u32::try_from(packets).expect("short");
        packets.max(fragments).div_ceil(self.sdr.packets_per_chunk)
    }

    /// Checks that the named chunks are exactly the chunks in memory.
    fn check_chunks(&self) -> Result<(), String> {
        let partial = self.recv.partial().expect("the receive ended as partial");
        let packets_per_chunk = self.sdr.packets_per_chunk as usize;
        for (chunk, packets) in (0..).zip(self.there.chunks(packets_per_chunk)) {
            let is_there = packets.iter().all(|&packet| packet);
            let is_named = partial.has_chunk(chunk);
            // Packets without bytes leave no trace in memory. Only a full chunk is certain to have
            // none of them.
            let is_last = (chunk as usize + 1) * packets_per_chunk >= self.there.len();
            let is_doubtful = is_last && self.doubtful_bytes() > 0;
            let is_certain = packets.len() == packets_per_chunk && !is_doubtful;
            if is_named && !is_there {
                return Err(format!("chunk {chunk} is named, and not there"));
            }
            if is_there && is_certain && !is_named {
                return Err(format!("chunk {chunk} is there, and not named"));
            }
        }
        Ok(())
    }
}
