//! Reliable connections of RDMA NICs over RoCEv2 packets: queue pairs without clock or I/O, and a
//! NIC that is a host of [`farwrite_net`]. [`xp`] is a transport without reliability.
//!
//! A [`QueuePair`] serves SEND, RDMA WRITE (both with and without immediate) and RDMA READ. A
//! [`Nic`] has many queue pairs. [`RdmaTransport`] names presets: `roce`, `irn`, `eqds`, and models
//! of SRNIC, Falcon and UCCL (`baselines.rs` has their assumptions). Clauses of the InfiniBand
//! Architecture Specification, volume 1, are cited as `IBTA <number>`. Sections whose numbers could
//! not be checked against a public text are cited by their titles.
//!
//! # States
//!
//! A queue pair starts ready to send and receive (RTS of IBTA, "QP States"). Its two halves change
//! state independently until the queue pair breaks:
//!
//! | half | state | event | action and next state |
//! |---|---|---|---|
//! | requester | sending | window or `max_reads` is full | waiting |
//! | | waiting | ACK, READ response | requests complete; sending |
//! | | sending, waiting | sequence NAK, implied NAK, timeout | go back; sending |
//! | | sending, waiting | RNR NAK | go back; not ready |
//! | | not ready | peer's timer ends, progress | sending |
//! | responder | in order | expected packet | execute it; in order |
//! | | in order | packet after a gap | sequence NAK; refusing |
//! | | in order | no receive buffer | RNR NAK; refusing |
//! | | refusing | packet after a gap | drop it, and NAK again after [`QpConfig::nak_every_ns`]; refusing |
//! | | refusing | expected packet | same as in order |
//! | | any | duplicate packet | ACK, or READ response again; same |
//! | both | any | retries exhausted, other NAK sent or received | broken: all requests and receives are flushed |
//!
//! An implied NAK is a reply to a later packet while part of a READ's response is missing. A
//! requester that has gone back to a packet ignores implied NAKs until there is progress.
//!
//! # Loss recovery
//!
//! The table above describes Go-Back-N, the scheme of RoCE NICs: the responder accepts packets in
//! order only, and the requester retransmits all packets from the first missing one on.
//! [`Recovery`] selects Go-Back-N or one of three kinds of selective repeat: [`Recovery::Irn`]
//! (SIGCOMM 2018, section 3), [`Recovery::Trimming`] for switches that trim payloads, or
//! [`Recovery::Rack`] for packets that take several paths (RFC 8985).
//!
//! In selective repeat, the responder keeps packets after a gap, within the window. It writes the
//! payload of a WRITE to memory at once if the first packet of the WRITE has arrived, because that
//! packet has the destination address. READs, SENDs, immediates and completions wait until the gap
//! is closed. The requester keeps a scoreboard: for each packet in flight, whether it has arrived
//! and whether it is lost.
//!
//! | | IRN | trimming | RACK |
//! |---|---|---|---|
//! | a packet counts as lost if | a packet sent later has arrived | it arrived without its payload | a packet sent later has arrived, and a round trip and the reordering window are over |
//! | retransmissions | once for that reason, before new packets; again after a timeout | the same | as often as needed, before new packets; with all packets of their unit |
//! | timeout | `RTO_low` with up to `N` packets in flight, else `RTO_high` | one value | a probe, then one value |
//! | after a timeout | the oldest packet, and all packets below the highest arrival that are missing | all packets that have not arrived | the same |
//! | limit of packets in flight | `window_packets`: the bandwidth-delay product (BDP-FC) | credit | `window_packets`, and the window of the controller |
//!
//! For a lost part of a READ's response, the requester sends a READ request for that part alone.
//!
//! # Host software and several paths
//!
//! [`Software`] hands packets to the host instead of the NIC: those that concern a loss, or all of
//! them. They are handled later, one after the other. [`Paths`] gives the packets of a queue pair
//! several UDP source ports in turn, so that switches with ECMP send them over several paths.
//!
//! # On the wire
//!
//! All packets are RoCEv2 packets, so that tools for RoCEv2 can parse them. Values that IRN and
//! EQDS add are in the MSN field of the ACK header, which these requesters do not use otherwise:
//!
//! | packet | PSN | MSN |
//! |---|---|---|
//! | ACK in Go-Back-N and IRN | the last executed packet | executed messages (IBTA, "Generating MSN Value") |
//! | ACK with trimming | the last executed packet | packets of credit granted so far |
//! | sequence NAK in Go-Back-N | the expected packet | executed messages |
//! | sequence NAK in selective repeat | the expected packet | the packet that arrived after the gap |
//! | sequence NAK for a trimmed packet | the trimmed packet | the same PSN |
//! | CNP (IBTA A17.9.3), opcode 0x81 | 0 | no ACK header; BECN is set, 16 zero bytes follow |
//!
//! With trimming, every packet is acknowledged. The bit that asks for an acknowledgement therefore
//! has another meaning: the sender has more packets to send and wants credit.
//!
//! # Congestion control
//!
//! [`Nic::set_control`] attaches a controller of `farwrite-rate` to a queue pair, at any time. The
//! pace applies to requests and to responses to READs. Window and credit apply to requests only:
//! nobody acknowledges responses, and a READ is itself a request for data by the receiver. The
//! controller receives losses, arrivals, congestion notifications and grants as they happen. A NIC
//! answers packets with ECN marks with congestion notifications
//! ([`Nic::set_notification_interval`]), and grants credit ([`Nic::set_pull_pacer`]).
//!
//! # Differences from the papers
//!
//! - IRN puts an RDMA header into each packet of a WRITE, and a receive buffer number and an offset
//!   into each packet of a SEND. Here, a packet of a WRITE waits until the first packet of the
//!   WRITE has arrived, and packets of SENDs wait until the gap is closed.
//! - IRN acknowledges the packets of a response, and gives responses PSNs of their own. Here, the
//!   requester asks again for the missing packets.
//! - IRN's requester leaves recovery when everything that was sent before it is acknowledged, and
//!   may then retransmit a packet again without a timeout. Here, each packet is retransmitted once
//!   for a gap.
//! - An EQDS sender reports how much it has to send. Here, it reports whether there is more, so up
//!   to one round trip of credit is unused at the end of a message.
//! - WRITEs that are in progress at the same time and overlap may be placed in either order.
//!
//! # Not implemented
//!
//! Atomics, FLUSH, invalidation and path migration. Message credits (IBTA 9.7.7.2): an ACK carries
//! none, so only RNR NAKs limit SENDs. Delay inside a NIC, other than that of host software: Swift's
//! endpoint delay is 0.
#![no_std]

extern crate alloc;

mod baselines;
mod config;
mod control;
mod echo;
mod end;
mod memory;
mod nic;
mod notices;
mod opcode;
mod out_of_order;
mod own_repair;
mod packet;
mod psn;
mod queue_pair;
mod rack;
mod repair;
mod replies;
mod requester;
mod responder;
mod scoreboard;
mod send_queue;
mod software;
mod syndrome;
mod transport;
mod work;
pub mod xp;

pub use config::{ConfigError, MAX_PACKETS, Paths, QpConfig, Recovery};
pub use memory::{Memory, RegisterError};
pub use nic::{Connection, FIRST_QPN, Nic, NicCounters};
pub use opcode::NOTIFICATION;
pub use own_repair::{Repair, Unacknowledged};
pub use packet::Packet;
pub use queue_pair::{QpCounters, QueuePair};
pub use software::{Software, SoftwareScope};
pub use syndrome::{Nak, RnrTimer, Syndrome};
pub use transport::{PathProfile, RdmaTransport, UnknownTransport};
pub use work::{Completion, PostError, Remote, Request, RequestError};

/// The earliest of some times; `None` stands for never. A NIC asks several times for each packet, so
/// this is a plain minimum, and not a chain of iterators.
#[inline]
pub(crate) fn earliest<const N: usize>(times: [Option<u64>; N]) -> Option<u64> {
    const NEVER: u64 = u64::MAX;
    let first = times.map(|at_ns| at_ns.unwrap_or(NEVER));
    let first = first.into_iter().fold(NEVER, u64::min);
    (first != NEVER).then_some(first)
}
