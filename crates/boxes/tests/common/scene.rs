//! Scenes: a network, and the writes over it.

use std::time::Duration;

use farwrite_boxes::lowar;
use farwrite_boxes::netrt::Config;
use farwrite_net::{CableConfig, Loss, Policy};
use farwrite_rc::PathProfile;

/// How losses are repaired.
#[derive(Clone, Debug)]
pub(crate) enum Repair {
    /// Go-Back-N.
    Gbn,
    /// Go-Back-N over switches that lose nothing.
    GbnPfc,
    /// IRN.
    Irn,
    /// Go-Back-N behind NetRT boxes.
    NetRt(Config),
    /// Go-Back-N behind LoWAR boxes.
    Lowar(lowar::Config),
}

/// The network between the hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Middle {
    /// One core switch.
    Core,
    /// Two leaf switches, with senders at one and the receiver at the other. Each has a cable to
    /// each spine.
    Spines(usize, Policy),
}

/// Senders that write to one receiver.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) senders: usize,
    pub(crate) bytes: u32,
    /// Writes of each sender, one after the other.
    pub(crate) writes: u64,
    /// Time between the starts of two senders.
    pub(crate) gap_ns: u64,
    pub(crate) rate_bps: u64,
    /// Rate of the cables of spines; `None`: as the others.
    pub(crate) spine_rate_bps: Option<u64>,
    /// Delay of each cable, except for cables between boxes and the core.
    pub(crate) delay: Duration,
    /// Delay of the cables between boxes and the core.
    pub(crate) core_delay: Duration,
    pub(crate) middle: Middle,
    /// Share of frames lost on the path to the receiver.
    pub(crate) loss: f64,
    /// Share of frames lost on the cable between the core and the receiver's box, in each
    /// direction.
    pub(crate) cable_loss: f64,
    pub(crate) buffer_bytes: u64,
    /// Whether paths over spines are recorded, for [`Outcome::path_changes`](super::Outcome).
    pub(crate) counts_paths: bool,
    /// Whether NICs use DCQCN.
    pub(crate) control: bool,
    pub(crate) ack_timeout_ns: u64,
    /// Whether NICs have the rules of the RDMA trees of ns-3 for Go-Back-N and DCQCN: a NAK each 4
    /// us, an ACK for each packet, and notifications in ACKs and NAKs.
    pub(crate) has_ns3_nics: bool,
    /// Packets of a sender that may be unacknowledged; `None`: as the transport has it.
    pub(crate) window_packets: Option<u32>,
}

impl Scene {
    /// Returns the incast of the paper's figure 8: 500 KB from each sender, 10 us apart, 50 Gbit/s,
    /// a round trip of about 5 us.
    pub(crate) fn incast(senders: usize) -> Self {
        Self {
            senders,
            bytes: 500_000,
            writes: 1,
            gap_ns: 10_000,
            rate_bps: 50_000_000_000,
            spine_rate_bps: None,
            delay: Duration::from_nanos(500),
            core_delay: Duration::from_nanos(500),
            middle: Middle::Core,
            loss: 0.0,
            cable_loss: 0.0,
            buffer_bytes: 9 << 20,
            counts_paths: false,
            control: true,
            ack_timeout_ns: 4_000_000,
            has_ns3_nics: false,
            window_packets: None,
        }
    }

    /// Figure 9: 15 senders of 1 MB behind one switch, over several spines to one receiver.
    pub(crate) fn spines(spines: usize, policy: Policy) -> Self {
        Self {
            bytes: 1_000_000,
            gap_ns: 0,
            middle: Middle::Spines(spines, policy),
            ..Self::incast(15)
        }
    }

    /// Returns the chain of the paper's testbed: host, box, core, box, host at 10 Gbit/s, with
    /// random losses behind the core, and a bandwidth-delay product of 128 KB.
    pub(crate) fn chain(bytes: u32, loss: f64, writes: u64) -> Self {
        Self {
            bytes,
            writes,
            rate_bps: 10_000_000_000,
            delay: Duration::from_micros(12),
            core_delay: Duration::from_micros(12),
            loss,
            control: false,
            ..Self::incast(1)
        }
    }

    /// The same chain with losses in both directions between the core and the receiver's box.
    pub(crate) fn chain_both_ways(bytes: u32, loss: f64, writes: u64) -> Self {
        Self {
            loss: 0.0,
            cable_loss: loss,
            ..Self::chain(bytes, loss, writes)
        }
    }

    /// The same chain with 30 us of its round trip between the boxes.
    pub(crate) fn chain_of_near_boxes(bytes: u32, loss: f64, writes: u64) -> Self {
        Self {
            delay: Duration::from_nanos(16_500),
            core_delay: Duration::from_nanos(7_500),
            ..Self::chain(bytes, loss, writes)
        }
    }

    /// Returns two data centers with 40 ms between them, and boxes at the ends of the long path.
    pub(crate) fn wan(bytes: u32, loss: f64, writes: u64) -> Self {
        Self {
            delay: Duration::from_nanos(500),
            core_delay: Duration::from_millis(10),
            loss: 0.0,
            cable_loss: loss,
            buffer_bytes: 1 << 30,
            ack_timeout_ns: 160_000_000,
            ..Self::chain(bytes, 0.0, writes)
        }
    }

    /// Returns the cable from a switch to the box of a sender or of the receiver.
    pub(crate) fn cable_to_box(&self, receives: bool) -> CableConfig {
        let delay = match self.middle {
            Middle::Core => self.core_delay,
            Middle::Spines(..) => self.delay,
        };
        let loss = Loss::Iid {
            loss_packet: self.cable_loss,
        };
        let loses = receives && self.cable_loss > 0.0;
        CableConfig {
            loss: if loses { loss } else { Loss::None },
            ..CableConfig::new(self.rate_bps, delay)
        }
    }

    /// Returns the path between two NICs, without queues.
    pub(crate) fn path(&self) -> PathProfile {
        let cables = match self.middle {
            Middle::Core => 4,
            Middle::Spines(..) => 6,
        };
        // Serialization time of a frame of 1106 bytes, and of an acknowledgement of 86 bytes on the
        // way back.
        let frames_ns = (1106 + 86) * 8_000_000_000 / self.rate_bps;
        let core_cables = match self.middle {
            Middle::Core => 2,
            Middle::Spines(..) => 0,
        };
        let delay = self.delay * (cables - core_cables) + self.core_delay * core_cables;
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap();
        PathProfile {
            rate_bps: self.rate_bps,
            rtt_ns: 2 * delay_ns + u64::from(cables) * frames_ns,
            mtu_bytes: 1024,
            framing_bytes: 38,
        }
    }

    /// Returns a box for this path, with a pool of this number of bandwidth-delay products.
    pub(crate) fn netrt(&self, products: u64) -> Config {
        let config = Config::new(self.rate_bps, self.path().rtt_ns);
        let pool_bytes = products * self.path().round_trip_bytes();
        Config {
            key: Some([4; 32].into()),
            pool_bytes: usize::try_from(pool_bytes).unwrap(),
            ..config
        }
    }

    /// The same box, where N has no limit.
    pub(crate) fn netrt_unlimited(&self, products: u64) -> Config {
        let mut config = self.netrt(products);
        config.rate.most_bytes = u64::MAX;
        config
    }
}
