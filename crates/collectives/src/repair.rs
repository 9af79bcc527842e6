//! What repairs the segments to one rank: one scheme, or the choice of the planner.
//!
//! The sender of a segment chooses, and the offer of the segment names the scheme. So ranks need no
//! agreement, and the result of an operation does not depend on the choice.

use farwrite::{Endpoint, Error, Fabric, QueuePair, SchemeName};
use farwrite_choice::{Chooser, Packets, SchemeSetting};

use crate::options::GroupOptions;

/// What repairs the segments to one rank.
#[derive(Debug)]
pub(crate) enum Repair {
    /// This scheme.
    Named(SchemeName),
    /// The planner chooses for each segment.
    Auto(Box<Auto>),
}

/// The choice for each segment.
#[derive(Debug)]
pub(crate) struct Auto {
    chooser: Chooser,
    packet_bytes: u64,
    /// The maximum number of bytes of a segment.
    segment_bytes: u64,
    segments_in_flight: u32,
}

impl Repair {
    /// What repairs segments in a group with these options.
    pub(crate) fn new(options: &GroupOptions) -> Self {
        if let SchemeSetting::Named(scheme) = options.scheme {
            return Self::Named(scheme);
        }
        let packets = Packets {
            mtu: options.packet_bytes,
            chunk_bytes: options.packet_bytes.into(),
        };
        let rate_bps = options.rate_control.max_rate_bps().unwrap_or(0);
        let (candidates, loss) = (options.candidates(), options.expected_loss);
        let chooser = Chooser::new(candidates, packets, options.initial_rtt, rate_bps, loss);
        Self::Auto(Box::new(Auto {
            chooser,
            packet_bytes: options.packet_bytes.into(),
            segment_bytes: options.segment_bytes().into(),
            segments_in_flight: options.segments_in_flight,
        }))
    }

    /// The scheme for a segment of `bytes` bytes on this queue pair, if `left` bytes are left to be
    /// sent of the data that it belongs to.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn scheme<F: Fabric>(
        &mut self,
        endpoint: &Endpoint<F>,
        qp: QueuePair,
        bytes: u64,
        left: u64,
    ) -> Result<SchemeName, Error> {
        match self {
            Self::Named(scheme) => Ok(*scheme),
            Self::Auto(auto) => {
                let (stats, peer) = (endpoint.qp_stats(qp)?, endpoint.peer_stats(qp)?);
                auto.chooser.look(&stats, &peer);
                Ok(auto.choose(bytes, left))
            }
        }
    }
}

impl Auto {
    fn choose(&mut self, bytes: u64, left: u64) -> SchemeName {
        // Few classes of sizes, so that few plans are needed: powers of two of packets.
        let packets = bytes.div_ceil(self.packet_bytes).max(1).next_power_of_two();
        let class_bytes = (packets * self.packet_bytes).min(self.segment_bytes);
        let messages = left.div_ceil(self.segment_bytes);
        let choice = self
            .chooser
            .choose(class_bytes, messages, self.segments_in_flight);
        choice.scheme
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farwrite_choice::parity_bytes;

    use super::*;

    fn auto(expected_loss: f64, rtt_ms: u64, packets_per_segment: u32) -> Auto {
        let options = GroupOptions {
            scheme: SchemeSetting::Auto,
            expected_loss: Some(expected_loss),
            initial_rtt: Duration::from_millis(rtt_ms),
            rate_control: farwrite::RateControl::Fixed {
                rate_bps: 1_000_000_000,
            },
            packets_per_segment,
            ..GroupOptions::default()
        };
        match Repair::new(&options) {
            Repair::Auto(auto) => *auto,
            Repair::Named(scheme) => panic!("{scheme} in place of a choice"),
        }
    }

    #[test]
    fn a_long_lossy_path_gets_parity_and_others_do_not() {
        for (loss, rtt_ms, has_parity) in [(0.0, 100, false), (0.02, 100, true), (0.001, 1, false)]
        {
            let mut auto = auto(loss, rtt_ms, 512);
            let scheme = auto.choose(auto.segment_bytes, auto.segment_bytes);
            let what = format!("{loss}, {rtt_ms} ms: {scheme}");
            assert_eq!(matches!(scheme, SchemeName::Ec(_)), has_parity, "{what}");
        }
    }

    #[test]
    fn parity_that_is_longer_than_a_segment_is_not_chosen() {
        // A group of an MDS code has 4 packets of parity at least. XOR has one for each packet here.
        let mut auto = auto(0.1, 1000, 2);
        let scheme = auto.choose(auto.segment_bytes, 1);
        let parity = parity_bytes(scheme, auto.segment_bytes, auto.packet_bytes);
        assert!(parity <= auto.segment_bytes, "{scheme}: {parity}");
        let mds = "ec-mds:32,4".parse().expect("a scheme");
        assert!(parity_bytes(mds, auto.segment_bytes, auto.packet_bytes) > auto.segment_bytes);
    }
}
