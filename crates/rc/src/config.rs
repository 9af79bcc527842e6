//! What a queue pair is like.

use crate::RnrTimer;

/// Most packets that a requester may have unacknowledged, and that one message may take. Two times
/// this keeps within the half of all PSNs that a responder can tell from old ones (IBTA, "Packet
/// Sequence Numbers").
pub const MAX_PACKETS: u32 = 1 << 22;

/// Settings of a queue pair. [`QpConfig::new`] gives those of a datacenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Number of the peer's queue pair, 24 bits.
    pub peer_qpn: u32,
    /// First PSN of the requests sent; the peer's [`recv_psn`](Self::recv_psn).
    pub send_psn: u32,
    /// First PSN of the requests received; the peer's [`send_psn`](Self::send_psn).
    pub recv_psn: u32,
    /// Bytes of payload in a packet that is not the last of its message: 256, 512, 1024, 2048 or
    /// 4096, the same at both ends.
    pub mtu_bytes: u32,
    /// Packets that may be unacknowledged, 1 to [`MAX_PACKETS`]. A READ counts as the packets of
    /// its response. One that begins within the window may exceed it.
    pub window_packets: u32,
    /// A request for an acknowledgement goes with the last packet of each message, the last of the
    /// window, and each packet whose PSN, plus 1, is a multiple of this; at least 1.
    pub ack_every_packets: u32,
    /// READs that may be under way, sent by this end or by the peer; 1 to 255.
    pub max_reads: u8,
    /// How long the requester waits for a reply that it has asked for, since it asked or since the
    /// last progress, before all packets from the oldest on are sent again (IBTA, "Detecting Lost
    /// Acknowledge Messages and Timeouts").
    pub ack_timeout_ns: u64,
    /// How often in a row, without progress, packets are sent again after a timeout or a sequence
    /// error.
    pub retry_limit: u8,
    /// How often in a row a request is sent again after an RNR NAK; `None` for no limit (the
    /// value 7 of verbs).
    pub rnr_retry_limit: Option<u8>,
    /// How long the peer has to wait after an RNR NAK of this end.
    pub rnr_timer: RnrTimer,
    /// How losses are repaired, the same at both ends.
    pub recovery: Recovery,
}

/// How losses are repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// As RoCE NICs do it (IBTA 9.7.5): the responder drops what comes after a gap, and the
    /// requester repeats everything from the gap on.
    #[default]
    GoBackN,
    /// As IRN does it (SIGCOMM 2018): the responder keeps what comes after a gap and names it in a
    /// NAK, and the requester repeats what is missing. `window_packets` is then the cap on what is
    /// in flight (BDP-FC), and `ack_timeout_ns` is `RTO_high`.
    Irn {
        /// `RTO_low`: the timeout while few packets are in flight, in nanoseconds; at least 1.
        rto_low_ns: u64,
        /// `N`: up to how many packets are few.
        rto_low_packets: u32,
    },
    /// For switches that trim (NDP, EQDS): as [`Irn`](Self::Irn), but a gap is no loss, since
    /// packets may take any path. The responder names each packet that comes without its payload.
    Trimming,
}

impl Recovery {
    /// Whether packets after a gap are kept.
    pub(crate) fn is_selective(self) -> bool {
        self != Self::GoBackN
    }
}

/// What is wrong with a [`QpConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The MTU is not one of IBTA's.
    #[error("mtu_bytes = {0}: choose 256, 512, 1024, 2048 or 4096")]
    Mtu(u32),
    /// A number is out of its range.
    #[error("{field} = {value}: {want}")]
    Range {
        /// Which.
        field: &'static str,
        /// What came.
        value: u64,
        /// What is possible.
        want: &'static str,
    },
}

impl QpConfig {
    /// MTU 1024, a window of 256 packets, an acknowledgement every 16, 16 READs, a timeout of
    /// 1 ms, 7 retries, RNR retries without limit after 10 us each, PSNs from 0,
    /// Go-Back-N.
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
            retry_limit: 7,
            rnr_retry_limit: None,
            rnr_timer: RnrTimer::SHORTEST,
            recovery: Recovery::GoBackN,
        }
    }

    /// Bytes of the IP datagram of a packet in the middle of a message: the unit of credit.
    #[must_use]
    pub fn packet_bytes(&self) -> u64 {
        // IPv4, UDP, BTH and ICRC.
        u64::from(self.mtu_bytes) + 20 + 8 + 12 + 4
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is out of its range, and its value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(256..=4096).contains(&self.mtu_bytes) || !self.mtu_bytes.is_power_of_two() {
            return Err(ConfigError::Mtu(self.mtu_bytes));
        }
        let range = |field, value: u64, holds: bool, want| {
            let wrong = ConfigError::Range { field, value, want };
            if holds { Ok(()) } else { Err(wrong) }
        };
        for (field, value) in [
            ("peer_qpn", self.peer_qpn),
            ("send_psn", self.send_psn),
            ("recv_psn", self.recv_psn),
        ] {
            let want = "at most 16777215 (24 bits)";
            range(field, value.into(), value < 1 << 24, want)?;
        }
        let window = self.window_packets;
        let holds = (1..=MAX_PACKETS).contains(&window);
        range("window_packets", window.into(), holds, "1 to 4194304")?;
        let every = self.ack_every_packets;
        range("ack_every_packets", every.into(), every > 0, "at least 1")?;
        let reads = self.max_reads;
        range("max_reads", reads.into(), reads > 0, "1 to 255")?;
        let timeout = self.ack_timeout_ns;
        range("ack_timeout_ns", timeout, timeout > 0, "at least 1 ns")?;
        let Recovery::Irn { rto_low_ns, .. } = self.recovery else {
            return Ok(());
        };
        range("rto_low_ns", rto_low_ns, rto_low_ns > 0, "at least 1 ns")
    }
}
