//! Grouping packets into GSO batches.

use super::datagram::{MAX_BATCH_BYTES, MAX_SEGMENTS};
use crate::nic::Packet;

/// Splits packets into runs. Each run can be sent as one batch: its packets have one size, except
/// that the last may be shorter.
pub(super) struct Runs<'a, 'b> {
    rest: &'a [Packet<'b>],
    joined: bool,
}

impl<'a, 'b> Runs<'a, 'b> {
    /// If `joined` is false, every run is one packet.
    pub(super) fn new(packets: &'a [Packet<'b>], joined: bool) -> Self {
        Self {
            rest: packets,
            joined,
        }
    }
}

impl<'a, 'b> Iterator for Runs<'a, 'b> {
    type Item = &'a [Packet<'b>];

    fn next(&mut self) -> Option<Self::Item> {
        let size = self.rest.first()?.udp_bytes();
        let most = if self.joined {
            MAX_SEGMENTS.min(MAX_BATCH_BYTES / size).max(1)
        } else {
            1
        };
        let equal = self.rest.iter().take(most);
        let mut len = equal
            .take_while(|packet| packet.udp_bytes() == size)
            .count();
        if len < most
            && self
                .rest
                .get(len)
                .is_some_and(|next| next.udp_bytes() < size)
        {
            len += 1;
        }
        let (run, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(run)
    }
}
