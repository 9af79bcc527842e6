//! Models of SRNIC, Falcon and UCCL, as the OptiNIC paper describes them, and all assumptions
//! behind them.
//!
//! Each model is a choice among mechanisms that all queue pairs have: a recovery, a congestion
//! controller, host software and a number of paths. Measurements of the original systems are not
//! the aim: the models show what each design costs under loss and contention.
//!
//! | | SRNIC | Falcon | UCCL |
//! |---|---|---|---|
//! | source | NSDI 2023 | SIGCOMM 2025 | arXiv 2504.17307 (2025) |
//! | OptiNIC, Table 1: reliability | selective repeat (SW) | selective repeat (HW) | selective repeat (SW) |
//! | here | [`Recovery::Irn`] | [`Recovery::Rack`] | [`Recovery::Rack`], by chunk |
//! | OptiNIC, Table 1: reordering | in software | buffered in the NIC | in software |
//! | here | [`SoftwareScope::Repairs`] | held by the NIC without delay | [`SoftwareScope::All`] |
//! | OptiNIC, Table 1: congestion control | hardware | hardware | software |
//! | here | DCQCN | Swift | Swift, its delay includes software |
//! | paths | one | 4 | 256 |
//! | PFC (OptiNIC, Table 1: not required) | no | no | no |
//!
//! # SRNIC
//!
//! - OptiNIC, section 1: host software does retransmissions and reordering. So software handles
//!   request packets from a gap on until the gap is closed, and NAKs. A repair thus waits for
//!   software three times: when the gap is seen, when the NAK is handled, and when the gap is
//!   closed. Without loss, software does nothing.
//! - The papers here give no delay. Ours: 5 us each time (the way to the host and back,
//!   and a thread that polls many queue pairs), and 200 ns of a core for each packet.
//! - SRNIC promises the network scalability of IRN (its abstract). So windows and timeouts are those
//!   of [`irn`](RdmaTransport::Irn), and timeouts are longer by the three delays. OptiNIC's table
//!   says that its NIC does congestion control; DCQCN is our choice, the same as for `irn`.
//!
//! # Falcon
//!
//! - OptiNIC, section 1: fast retransmissions, congestion control by delay, and several paths, all
//!   in the NIC. Its abstract (SIGCOMM 2025) says the same, for networks with loss and without
//!   special switches. The controller by delay is Swift (SIGCOMM 2020), which comes from the same
//!   company.
//! - The papers here do not say how losses are found. Ours: RACK-TLP (RFC 8985), with a reordering
//!   window of one round trip, at least 10 us; a probe after 100 us, or two round trips, plus the
//!   window; a timeout of 1 ms, or four round trips.
//! - Ours: 4 paths, and each packet takes the next one. One window holds for all paths; Falcon
//!   itself weighs paths by their delay.
//! - Ours: Swift aims at a round trip 20 us above that of an empty path.
//! - Falcon acknowledges with bitmaps. Here, each packet after a gap has a NAK of its own, which
//!   says the same unless it is lost.
//!
//! # UCCL
//!
//! - OptiNIC, sections 1 and 2.3: all of transport control runs in software, congestion control,
//!   scheduling of flows and choice of paths included; the NIC moves data. So every packet waits for
//!   software at its receiver, data and acknowledgements.
//! - OptiNIC, section 5.3.4: 256 connections per peer. So 256 paths.
//! - UCCL's paper and source: software decides by chunks of 32 KB, and an unreliable connection of
//!   the NIC drops a message that misses a packet. So the packets of a chunk share a path, and are
//!   retransmitted together. Its source has Timely and Swift; here it is Swift.
//! - Ours: 2 us for each packet (a thread that polls), and 600 ns of a core for each chunk, paid in
//!   equal parts by its packets. UCCL's threads serve many connections; here, each queue pair has a
//!   core of its own, which favours UCCL.
//! - Ours: the same detection of losses as for Falcon, whose round trips include software here. UCCL
//!   itself counts duplicate acknowledgements, with a threshold that its users set.
//! - UCCL prefers the less loaded of two random paths. Here, paths take turns.

use farwrite_rate::SwiftOptions;

use crate::{PathProfile, Paths, QpConfig, RdmaTransport, Recovery, Software, SoftwareScope};

const SRNIC: Software = Software {
    scope: SoftwareScope::Repairs,
    delay_ns: 5_000,
    packet_ns: 200,
};
const FALCON_PATHS: u16 = 4;
const UCCL_PATHS: u16 = 256;
const UCCL_DELAY_NS: u64 = 2_000;
const UCCL_CHUNK_BYTES: u32 = 32 << 10;
const UCCL_CHUNK_NS: u64 = 600;
const LEAST_REORDER_NS: u64 = 10_000;
const LEAST_PROBE_NS: u64 = 100_000;
const LEAST_TIMEOUT_NS: u64 = 1_000_000;
/// Delay in queues at which Swift aims.
const QUEUE_NS: u64 = 20_000;

/// Settings of SRNIC from those of IRN.
pub(crate) fn srnic(irn: QpConfig) -> QpConfig {
    let software_ns = 3 * SRNIC.delay_ns;
    let recovery = match irn.recovery {
        Recovery::Irn {
            rto_low_ns,
            rto_low_packets,
            goes_back,
        } => Recovery::Irn {
            rto_low_ns: rto_low_ns.saturating_add(software_ns),
            rto_low_packets,
            goes_back,
        },
        other => other,
    };
    QpConfig {
        recovery,
        ack_timeout_ns: irn.ack_timeout_ns.saturating_add(software_ns),
        software: Some(SRNIC),
        ..irn
    }
}

/// Settings of Falcon from those of all transports.
pub(crate) fn falcon(base: QpConfig, path: &PathProfile) -> QpConfig {
    QpConfig {
        recovery: rack(path, 1),
        ack_timeout_ns: LEAST_TIMEOUT_NS.max(path.rtt_ns.saturating_mul(4)),
        paths: Paths {
            ports: FALCON_PATHS,
            packets_each: 1,
        },
        ..base
    }
}

/// Settings of UCCL from those of all transports.
pub(crate) fn uccl(base: QpConfig, path: &PathProfile) -> QpConfig {
    let chunk_packets = (UCCL_CHUNK_BYTES / path.mtu_bytes.max(1)).max(1);
    QpConfig {
        recovery: rack(path, chunk_packets),
        paths: Paths {
            ports: UCCL_PATHS,
            packets_each: chunk_packets,
        },
        software: Some(Software {
            scope: SoftwareScope::All,
            delay_ns: UCCL_DELAY_NS,
            packet_ns: UCCL_CHUNK_NS / u64::from(chunk_packets),
        }),
        ..falcon(base, path)
    }
}

fn rack(path: &PathProfile, unit_packets: u32) -> Recovery {
    let reorder_ns = LEAST_REORDER_NS.max(path.rtt_ns);
    let probe_ns = LEAST_PROBE_NS.max(path.rtt_ns.saturating_mul(2));
    Recovery::Rack {
        reorder_ns,
        probe_ns: probe_ns.saturating_add(reorder_ns),
        unit_packets,
    }
}

/// The options of Swift for Falcon and UCCL.
pub(crate) fn swift(transport: RdmaTransport, path: &PathProfile) -> SwiftOptions {
    let config = transport.config(0, path);
    let software_ns = config.software.map_or(0, |software| 2 * software.delay_ns);
    let target_ns = path.rtt_ns.saturating_add(software_ns + QUEUE_NS);
    SwiftOptions {
        base_target_ns: target_ns,
        per_hop_ns: 0,
        max_cwnd_millionths: u64::from(config.window_packets) * 1_000_000,
        ..SwiftOptions::new(path.rate_bps, config.packet_bytes(), 0)
    }
}
