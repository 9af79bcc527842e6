//! Settings of a queue pair.

use farwrite_rate::{Parameter, Parameters, Quantity};

use crate::{RnrTimer, Software};

/// Largest window of a requester, and largest number of packets of one message. Twice this stays
/// within the half of the PSN space in which a responder can tell new packets from old ones (IBTA,
/// "Packet Sequence Numbers").
pub const MAX_PACKETS: u32 = 1 << 22;

/// Settings of a queue pair. [`QpConfig::new`] gives settings for a datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Number of the peer's queue pair (24 bits).
    pub peer_qpn: u32,
    /// First PSN of the requests that this end sends. Equals the peer's
    /// [`recv_psn`](Self::recv_psn).
    pub send_psn: u32,
    /// First PSN of the requests that this end receives. Equals the peer's
    /// [`send_psn`](Self::send_psn).
    pub recv_psn: u32,
    /// Bytes of payload in each packet of a message except the last: 256, 512, 1024, 2048 or 4096.
    /// Both ends must have the same value.
    pub mtu_bytes: u32,
    /// Largest number of unacknowledged packets, 1 to [`MAX_PACKETS`]. A READ counts as the packets
    /// of its response. A READ that begins within the window may exceed it.
    pub window_packets: u32,
    /// The requester asks for an acknowledgement with the last packet of each message, with the
    /// last packet of the window, and with each packet whose PSN plus 1 is a multiple of this
    /// value; at least 1. Under a congestion controller with a window, it asks with each packet.
    pub ack_every_packets: u32,
    /// Largest number of outstanding READs in each direction; 1 to 255.
    pub max_reads: u8,
    /// The retransmission timeout: how long the requester waits for a reply, from its request or
    /// from the last progress, before it retransmits from the oldest unacknowledged packet on
    /// (IBTA, "Detecting Lost Acknowledge Messages and Timeouts").
    pub ack_timeout_ns: u64,
    /// With Go-Back-N, the first timeout. After each retransmission without progress, the timeout doubles, up to
    /// [`ack_timeout_ns`](Self::ack_timeout_ns). `None`: all timeouts are `ack_timeout_ns`. This is a model of the
    /// adaptive retransmission of NVIDIA's NICs ("Adaptive Retransmission: Parameters Control", algorithm).
    pub first_timeout_ns: Option<u64>,
    /// With Go-Back-N, the window after a retransmission, in packets. It grows by each packet that is acknowledged
    /// since, so it doubles in a round trip. `None`: the whole window. NVIDIA's NICs have a slow restart
    /// (`roce_slow_restart` in the register `ROCE_ACCL`), but its algorithm is not public. This is the slow start
    /// of TCP (RFC 5681).
    pub slow_restart_packets: Option<u32>,
    /// Largest number of consecutive retransmissions without progress, after timeouts and sequence
    /// errors; `None` for no limit. Sequence errors do not count if [`nak_every_ns`](Self::nak_every_ns) is
    /// set.
    pub retry_limit: Option<u8>,
    /// With Go-Back-N, how often this end repeats the sequence NAK of a gap while packets after the
    /// gap arrive, in nanoseconds; 0: for each of them. `None`: one NAK for a gap (IBTA 9.7.5). Both
    /// ends must have the same value. The RDMA trees of ns-3 repeat NAKs.
    pub nak_every_ns: Option<u64>,
    /// Whether a packet after a gap counts as a congestion notification, with or without a mark, if it
    /// is answered with a NAK, and not at all otherwise. In the RDMA trees of ns-3, notifications are
    /// parts of ACKs and NAKs. RoCEv2 has no such rule.
    pub gap_is_cnp: bool,
    /// Largest number of consecutive retransmissions of a request after RNR NAKs; `None` for no
    /// limit (the value 7 of verbs).
    pub rnr_retry_limit: Option<u8>,
    /// Wait that this end requests with its RNR NAKs.
    pub rnr_timer: RnrTimer,
    /// How losses are repaired. Both ends must have the same value.
    pub recovery: Recovery,
    /// Which packets host software handles, and how long it takes; `None`: the NIC handles all of
    /// them at once.
    pub software: Option<Software>,
    /// The paths of the packets that this end sends.
    pub paths: Paths,
}

/// How many paths a queue pair uses. Switches with ECMP choose a path by the UDP source port, so a
/// path is a source port here. Ports that hash to the same link share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Number of source ports, at least 1. They follow each other from
    /// [`Connection::src_port`](crate::Connection::src_port) on.
    pub ports: u16,
    /// Number of consecutive packets with the same port, at least 1. The ports take turns.
    pub packets_each: u32,
}

impl Paths {
    /// One path for all packets.
    pub const ONE: Self = Self {
        ports: 1,
        packets_each: 1,
    };

    /// The source port of a packet, from its number among the packets sent.
    pub(crate) fn port(self, first: u16, number: u64) -> u16 {
        let turn = number / u64::from(self.packets_each.max(1)) % u64::from(self.ports.max(1));
        // Below `ports`.
        let path = u16::try_from(turn).unwrap_or(0);
        // Beyond the last port, the ports continue below the first one.
        first.checked_add(path).unwrap_or(first - path)
    }
}

/// The parameters of IRN. `RTO_low` and `N` change nothing in another recovery.
impl Parameters for QpConfig {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        Parameter::new("RTO_low", Quantity::Wait, |to, value| {
            if let Recovery::Irn { rto_low_ns, .. } = &mut to.recovery {
                *rto_low_ns = value;
            }
        }),
        Parameter::new("RTO_high", Quantity::Wait, |to, value| {
            to.ack_timeout_ns = value;
        }),
        Parameter::new("N", Quantity::Count, |to, value| {
            if let Recovery::Irn {
                rto_low_packets, ..
            } = &mut to.recovery
            {
                *rto_low_packets = u32::try_from(value).unwrap_or(u32::MAX);
            }
        }),
        Parameter::new("ns3_timeout", Quantity::Flag, |to, value| {
            if let Recovery::Irn { goes_back, .. } = &mut to.recovery {
                *goes_back = value != 0;
            }
        }),
    ];
}

/// The retransmission scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Go-Back-N, as in RoCE NICs (IBTA 9.7.5): the responder drops packets after a gap, and the
    /// requester retransmits everything from the gap on.
    #[default]
    GoBackN,
    /// Selective repeat as in IRN (SIGCOMM 2018): the responder keeps packets after a gap and names
    /// each of them in a NAK, and the requester retransmits only the missing packets. In this mode,
    /// `window_packets` limits the packets in flight (BDP-FC), and `ack_timeout_ns` is `RTO_high`.
    Irn {
        /// `RTO_low`: the timeout while few packets are in flight, in nanoseconds; at least 1.
        rto_low_ns: u64,
        /// `N`: the largest number of packets in flight for which `RTO_low` applies.
        rto_low_packets: u32,
        /// Whether a timeout retransmits all packets that are not known to have arrived, as in the
        /// RDMA trees of ns-3. Without it, a timeout retransmits the oldest packet and the gaps
        /// below the highest arrival, as in the paper.
        goes_back: bool,
    },
    /// Selective repeat for switches that trim (NDP, EQDS). It works like [`Irn`](Self::Irn),
    /// except that a gap does not mean a loss, since packets may take any path. Instead, the
    /// responder names each packet that arrives without its payload.
    Trimming,
    /// Selective repeat for packets that take several paths. It works like [`Irn`](Self::Irn),
    /// except that losses are found by time of transmission (RACK-TLP, RFC 8985).
    Rack {
        /// The reordering window: how long after the latest round trip a packet counts as lost if a
        /// packet sent later has arrived, in nanoseconds.
        reorder_ns: u64,
        /// Wait without any arrival after which the packet that was sent last is repeated, in
        /// nanoseconds; at least 1. It must be below `ack_timeout_ns` to have an effect.
        probe_ns: u64,
        /// Number of packets that are lost together, at least 1: if one of them is lost, all are
        /// retransmitted. Units are counted from the first packet of a message on.
        unit_packets: u32,
    },
    /// Selective repeat by the rules of another crate: [`Nic::set_repair`](crate::Nic::set_repair). It works like
    /// [`Irn`](Self::Irn), except that a [`Repair`](crate::Repair) decides which packets of SENDs and WRITEs are
    /// repeated, and when. Without one, only timeouts repeat packets.
    Own,
}

impl Recovery {
    /// Whether the responder keeps packets after a gap.
    pub(crate) fn is_selective(self) -> bool {
        self != Self::GoBackN
    }
}

/// Why a [`QpConfig`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The MTU is not one of the five of IBTA.
    #[error("mtu_bytes = {0}: choose 256, 512, 1024, 2048 or 4096")]
    Mtu(u32),
    /// A number of a queue pair or a PSN has more than 24 bits.
    #[error("{field} = {value}: at most 16777215 (24 bits)")]
    Bits24 {
        /// The name of the field.
        field: &'static str,
        /// The value given.
        value: u32,
    },
    /// The window is not within 1 to [`MAX_PACKETS`].
    #[error("window_packets = {0}: 1 to {MAX_PACKETS}")]
    Window(u32),
    /// A number is 0.
    #[error("{field} = 0: at least 1")]
    Zero {
        /// The name of the field.
        field: &'static str,
    },
    /// There can be no READ.
    #[error("max_reads = 0: 1 to 255")]
    NoReads,
    /// A time is 0.
    #[error("{field} = 0: at least 1 ns")]
    ZeroTime {
        /// The name of the field.
        field: &'static str,
    },
    /// The rate of the connection is 0.
    #[error("rate_bps = 0: at least 1, or None for no limit")]
    NoRate,
    /// All numbers of queue pairs of the NIC are in use.
    #[error("queue pairs = {0}: at most 16777214")]
    QueuePairs(usize),
}

impl QpConfig {
    /// Settings for a datacenter: MTU 1024, a window of 256 packets, an acknowledgement every 16
    /// packets, 16 READs, a timeout of 1 ms, no slow restart, 7 retries, unlimited RNR retries with waits of 10 us,
    /// PSNs from 0, Go-Back-N with one NAK for a gap, one path, and no host software.
    #[must_use]
    pub fn new(peer_qpn: u32) -> Self {
        Self {
            peer_qpn,
            send_psn: 0,
            recv_psn: 0,
            mtu_bytes: 1024,
            window_packets: 256,
            ack_every_packets: 16,
            max_reads: 16,
            ack_timeout_ns: 1_000_000,
            first_timeout_ns: None,
            slow_restart_packets: None,
            retry_limit: Some(7),
            rnr_retry_limit: None,
            rnr_timer: RnrTimer::SHORTEST,
            recovery: Recovery::GoBackN,
            software: None,
            paths: Paths::ONE,
            nak_every_ns: None,
            gap_is_cnp: false,
        }
    }

    /// Bytes of the IP datagram of a packet in the middle of a message. This is the unit of credit.
    #[must_use]
    pub fn packet_bytes(&self) -> u64 {
        // IPv4, UDP, BTH and ICRC.
        u64::from(self.mtu_bytes) + 20 + 8 + 12 + 4
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is out of range, and its value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(256..=4096).contains(&self.mtu_bytes) || !self.mtu_bytes.is_power_of_two() {
            return Err(ConfigError::Mtu(self.mtu_bytes));
        }
        let check = |holds: bool, wrong| if holds { Ok(()) } else { Err(wrong) };
        for (field, value) in [
            ("peer_qpn", self.peer_qpn),
            ("send_psn", self.send_psn),
            ("recv_psn", self.recv_psn),
        ] {
            check(value < 1 << 24, ConfigError::Bits24 { field, value })?;
        }
        let window = self.window_packets;
        let holds = (1..=MAX_PACKETS).contains(&window);
        check(holds, ConfigError::Window(window))?;
        let field = "ack_every_packets";
        check(self.ack_every_packets > 0, ConfigError::Zero { field })?;
        check(self.max_reads > 0, ConfigError::NoReads)?;
        let field = "ack_timeout_ns";
        check(self.ack_timeout_ns > 0, ConfigError::ZeroTime { field })?;
        let field = "first_timeout_ns";
        check(
            self.first_timeout_ns != Some(0),
            ConfigError::ZeroTime { field },
        )?;
        let field = "slow_restart_packets";
        check(
            self.slow_restart_packets != Some(0),
            ConfigError::Zero { field },
        )?;
        let field = "paths.ports";
        check(self.paths.ports > 0, ConfigError::Zero { field })?;
        let field = "paths.packets_each";
        check(self.paths.packets_each > 0, ConfigError::Zero { field })?;
        match self.recovery {
            Recovery::GoBackN | Recovery::Trimming | Recovery::Own => Ok(()),
            Recovery::Irn { rto_low_ns, .. } => {
                let field = "rto_low_ns";
                check(rto_low_ns > 0, ConfigError::ZeroTime { field })
            }
            Recovery::Rack {
                probe_ns,
                unit_packets,
                ..
            } => {
                let field = "probe_ns";
                check(probe_ns > 0, ConfigError::ZeroTime { field })?;
                let field = "unit_packets";
                check(unit_packets > 0, ConfigError::Zero { field })
            }
        }
    }
}
