//! Transports by name: presets for a NIC, its queue pairs and the switches.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use farwrite_net::{Pfc, Red, SwitchConfig, Trim};
use farwrite_rate::{
    Dcqcn, DcqcnOptions, Eqds, EqdsOptions, PullPacer, RateControl, Swift, SwiftOptions,
};

use crate::{Nic, QpConfig, Recovery, baselines};

/// An RDMA transport, with presets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdmaTransport {
    /// RoCEv2: Go-Back-N, lossless priorities (PFC), DCQCN.
    Roce,
    /// RoCEv2 without congestion control: Go-Back-N and PFC.
    RoceNocc,
    /// RoCEv2 over switches that drop: Go-Back-N and DCQCN, without PFC.
    RoceLossy,
    /// IRN (SIGCOMM 2018): selective repeat and BDP-FC without PFC; DCQCN.
    Irn,
    /// EQDS (NSDI 2022): receiver-driven credit, trimming switches, and packet spraying.
    Eqds,
    /// A model of SRNIC (NSDI 2023): `irn`, with retransmissions and reordering in host software.
    /// [docs/networks.md](https://github.com/farwrite/farwrite/blob/main/docs/networks.md) has the
    /// assumptions of this model and of the next two.
    Srnic,
    /// A model of Falcon (SIGCOMM 2025): losses found by time, Swift, and 4 paths, all in the NIC.
    Falcon,
    /// A model of UCCL (2025): transport control in host software, by chunks of 32 KB over 256
    /// paths; Swift.
    Uccl,
}

/// Properties of the path between a NIC and its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProfile {
    /// Rate of the NIC's cable in bits per second.
    pub rate_bps: u64,
    /// Round-trip time of a full packet and its acknowledgement with empty queues, in nanoseconds.
    pub rtt_ns: u64,
    /// Bytes of payload in a packet: 256, 512, 1024, 2048 or 4096.
    pub mtu_bytes: u32,
    /// Bytes that a frame takes on a cable beyond its IP datagram.
    pub framing_bytes: u32,
}

/// The name does not belong to a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no transport of this name; choose roce, roce-nocc, roce-lossy, irn, eqds, srnic, \
     falcon or uccl"
)]
pub struct UnknownTransport;

impl PathProfile {
    /// Bytes of a full packet on a cable.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        let config = QpConfig {
            mtu_bytes: self.mtu_bytes,
            ..QpConfig::new(0)
        };
        config.packet_bytes() + u64::from(self.framing_bytes)
    }

    /// Bytes of frames in one round trip at full rate: the bandwidth-delay product.
    #[must_use]
    pub fn round_trip_bytes(&self) -> u64 {
        let bits = u128::from(self.rate_bps) * u128::from(self.rtt_ns);
        u64::try_from(bits.div_ceil(8_000_000_000)).unwrap_or(u64::MAX)
    }

    /// Full packets in [`round_trip_bytes`](Self::round_trip_bytes), at least one.
    #[must_use]
    pub fn round_trip_packets(&self) -> u32 {
        let packets = self.round_trip_bytes().div_ceil(self.frame_bytes()).max(1);
        u32::try_from(packets)
            .unwrap_or(u32::MAX)
            .min(crate::MAX_PACKETS)
    }
}

impl RdmaTransport {
    /// All transports.
    pub const ALL: [Self; 8] = [
        Self::Roce,
        Self::RoceNocc,
        Self::RoceLossy,
        Self::Irn,
        Self::Eqds,
        Self::Srnic,
        Self::Falcon,
        Self::Uccl,
    ];

    /// The name: `roce`, `roce-nocc`, `roce-lossy`, `irn`, `eqds`, `srnic`, `falcon` or `uccl`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Roce => "roce",
            Self::RoceNocc => "roce-nocc",
            Self::RoceLossy => "roce-lossy",
            Self::Irn => "irn",
            Self::Eqds => "eqds",
            Self::Srnic => "srnic",
            Self::Falcon => "falcon",
            Self::Uccl => "uccl",
        }
    }

    /// A description of one line, for people.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Roce => "RoCEv2 with Go-Back-N, PFC and DCQCN",
            Self::RoceNocc => "RoCEv2 with Go-Back-N and PFC, without congestion control",
            Self::RoceLossy => "RoCEv2 with Go-Back-N and DCQCN, without PFC",
            Self::Irn => "selective repeat, a window of one round trip and DCQCN, without PFC",
            Self::Eqds => "credit of the receiver, trimming, any path for each packet",
            Self::Srnic => "irn with repairs in host software",
            Self::Falcon => "losses found by time, Swift, 4 paths, without PFC",
            Self::Uccl => "all control in host software, Swift, 256 paths, without PFC",
        }
    }

    /// Whether DCQCN sets the pace of its senders.
    #[must_use]
    pub fn has_dcqcn(self) -> bool {
        matches!(self, Self::Roce | Self::RoceLossy | Self::Irn | Self::Srnic)
    }

    /// Whether Swift sets the window of its senders.
    #[must_use]
    pub fn has_swift(self) -> bool {
        matches!(self, Self::Falcon | Self::Uccl)
    }

    /// Settings of a queue pair for a path: an acknowledgement for each packet, and a window of
    /// 16,384 packets or two round trips, whichever is more. `roce`, `roce-nocc` and `roce-lossy`
    /// have a timeout of 4 ms. `irn` has the values of its paper: a window of one round trip,
    /// `RTO_low` of 100 us for up to 3 packets, and `RTO_high` of 320 us. `srnic` has the same
    /// window, and timeouts that are 15 us longer. `eqds`, `falcon` and `uccl` have a timeout of 1
    /// ms. Timeouts are at least four round trips, and `RTO_low` is at least two.
    #[must_use]
    pub fn config(self, peer_qpn: u32, path: &PathProfile) -> QpConfig {
        let base = QpConfig {
            mtu_bytes: path.mtu_bytes,
            window_packets: (path.round_trip_packets().saturating_mul(2))
                .clamp(LEAST_WINDOW_PACKETS, crate::MAX_PACKETS),
            ack_every_packets: 1,
            ..QpConfig::new(peer_qpn)
        };
        let at_least = |timeout_ns: u64, round_trips: u64| {
            timeout_ns.max(path.rtt_ns.saturating_mul(round_trips))
        };
        match self {
            Self::Roce | Self::RoceNocc | Self::RoceLossy => QpConfig {
                ack_timeout_ns: at_least(4_000_000, 4),
                ..base
            },
            Self::Irn => QpConfig {
                window_packets: path.round_trip_packets(),
                ack_timeout_ns: at_least(320_000, 4),
                recovery: Recovery::Irn {
                    rto_low_ns: at_least(100_000, 2),
                    rto_low_packets: 3,
                    goes_back: false,
                },
                ..base
            },
            Self::Eqds => QpConfig {
                ack_timeout_ns: at_least(1_000_000, 4),
                recovery: Recovery::Trimming,
                ..base
            },
            Self::Srnic => baselines::srnic(Self::Irn.config(peer_qpn, path)),
            Self::Falcon => baselines::falcon(base, path),
            Self::Uccl => baselines::uccl(base, path),
        }
    }

    /// The congestion controller of a queue pair, if the transport has one: DCQCN, Swift with
    /// `falcon` and `uccl`, or EQDS with a first window of one round trip.
    #[must_use]
    pub fn control(
        self,
        path: &PathProfile,
        dcqcn: DcqcnOptions,
    ) -> Option<Box<dyn RateControl + Send>> {
        match self {
            Self::Roce | Self::RoceLossy | Self::Irn | Self::Srnic => {
                Some(Box::new(Dcqcn::new(dcqcn)))
            }
            Self::RoceNocc => None,
            Self::Eqds => Some(Box::new(Eqds::new(Self::first_window(path)))),
            Self::Falcon | Self::Uccl => {
                let options = baselines::swift(self, path);
                Some(Box::new(Swift::new(options)))
            }
        }
    }

    /// The options of EQDS for a path: a first window of one round trip.
    #[must_use]
    pub fn first_window(path: &PathProfile) -> EqdsOptions {
        EqdsOptions {
            line_rate_bps: path.rate_bps,
            first_window_bytes: path.round_trip_bytes(),
        }
    }

    /// The options of Swift for a path; `None` for a transport with another controller.
    #[must_use]
    pub fn swift(self, path: &PathProfile) -> Option<SwiftOptions> {
        self.has_swift().then(|| baselines::swift(self, path))
    }

    /// Sets up the parts of a NIC that all its queue pairs share. With DCQCN, this is the interval
    /// of congestion notifications. With `eqds`, it is the pull pacer, at 0.99 of the rate of the
    /// cable; `path` then has the round trip of the farthest sender.
    pub fn prepare(self, nic: &mut Nic, path: &PathProfile, dcqcn: DcqcnOptions) {
        match self {
            Self::Roce | Self::RoceLossy | Self::Irn | Self::Srnic => {
                nic.set_notification_interval(dcqcn.notification_interval_ns);
            }
            Self::RoceNocc | Self::Falcon | Self::Uccl => {}
            Self::Eqds => {
                let rate_bps = path.rate_bps / 100 * 99;
                // Grants cover the packets that arrive in two round trips and while a full queue
                // drains.
                let ahead = u64::from(path.round_trip_packets()) * 2 + EQDS_QUEUE_PACKETS;
                nic.set_pull_pacer(PullPacer::new(rate_bps, path.frame_bytes(), ahead));
            }
        }
    }

    /// Settings of switches for the transport, with data in the given priorities. `roce`,
    /// `roce-lossy`, `irn` and `srnic` mark with the thresholds of DCQCN's paper (5 KB, 200 KB, 0.01).
    /// `roce` and `roce-nocc` are lossless. `eqds` trims at 35 full packets, and sends headers
    /// before all other frames.
    #[must_use]
    pub fn switch(self, priorities: &[u8], path: &PathProfile) -> SwitchConfig {
        let red = Red {
            kmin_bytes: 5_000,
            kmax_bytes: 200_000,
            pmax: 0.01,
            at: farwrite_net::MarkAt::Departure,
            rate_bps: None,
        };
        let base = SwitchConfig::default();
        match self {
            Self::Roce => SwitchConfig {
                ecn: Some(red),
                pfc: Some(Pfc::new(priorities)),
                ..base
            },
            Self::RoceNocc => SwitchConfig {
                pfc: Some(Pfc::new(priorities)),
                ..base
            },
            Self::Falcon | Self::Uccl => base,
            Self::RoceLossy | Self::Irn | Self::Srnic => SwitchConfig {
                ecn: Some(red),
                ..base
            },
            Self::Eqds => SwitchConfig {
                trim: Some(Trim {
                    queue_bytes: path.frame_bytes() * EQDS_QUEUE_PACKETS,
                    priority: 7,
                }),
                routing: farwrite_net::Policy::Spray,
                ..base
            },
        }
    }
}

const LEAST_WINDOW_PACKETS: u32 = 1 << 14;
/// Packets in an egress queue of a trimming switch.
const EQDS_QUEUE_PACKETS: u64 = 35;

impl fmt::Display for RdmaTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RdmaTransport {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> Result<Self, UnknownTransport> {
        let mut all = Self::ALL.into_iter();
        all.find(|transport| transport.name() == name)
            .ok_or(UnknownTransport)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_are_read_back_and_others_are_refused() {
        for transport in RdmaTransport::ALL {
            assert_eq!(transport.to_string().parse(), Ok(transport));
        }
        assert_eq!("tcp".parse::<RdmaTransport>(), Err(UnknownTransport));
    }

    #[test]
    fn presets_are_valid_and_irn_has_a_window_of_one_round_trip() {
        let path = PathProfile {
            rate_bps: 50_000_000_000,
            rtt_ns: 4_352,
            mtu_bytes: 1024,
            framing_bytes: 0,
        };
        assert_eq!(path.round_trip_bytes(), 27_200);
        for transport in RdmaTransport::ALL {
            let config = transport.config(2, &path);
            assert_eq!(config.validate(), Ok(()));
            assert_eq!(transport.switch(&[3], &path).validate(), Ok(()));
        }
        assert_eq!(RdmaTransport::Irn.config(2, &path).window_packets, 26);
    }

    #[test]
    fn timeouts_and_windows_grow_with_the_path() {
        let path = PathProfile {
            rate_bps: 400_000_000_000,
            rtt_ns: 25_000_000,
            mtu_bytes: 4096,
            framing_bytes: 38,
        };
        for transport in RdmaTransport::ALL {
            let config = transport.config(2, &path);
            // Software delays only `srnic`'s timeouts.
            let software_ns = match transport {
                RdmaTransport::Srnic => 15_000,
                _ => 0,
            };
            let timeout_ns = 100_000_000 + software_ns;
            assert_eq!(config.ack_timeout_ns, timeout_ns, "{transport}");
            let round_trips = match transport {
                RdmaTransport::Irn | RdmaTransport::Srnic => 1,
                _ => 2,
            };
            assert_eq!(config.window_packets, 299_187 * round_trips, "{transport}");
            if let Recovery::Irn { rto_low_ns, .. } = config.recovery {
                assert_eq!(rto_low_ns, 50_000_000 + software_ns);
            }
        }
    }
}
