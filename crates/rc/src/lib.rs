//! Reliable connections as RDMA NICs have them, on RoCEv2 packets: queue pairs without clock or
//! I/O, and a NIC that is a host of [`farwrite_net`].
//!
//! A [`QueuePair`] serves SEND, RDMA WRITE (both with and without immediate) and RDMA READ. A
//! [`Nic`] has many of them. [`Transport`] names presets: `roce`, `irn`, `eqds`. Clauses of the
//! InfiniBand Architecture Specification, volume 1, are cited as `IBTA <number>`; sections whose
//! numbers could not be checked against a public text are cited by their titles.
//!
//! # States
//!
//! A queue pair is made ready to send and receive (RTS of IBTA, "QP States"), and its two halves
//! change state on their own until it breaks:
//!
//! | half | state | event | action and next state |
//! |---|---|---|---|
//! | requester | sending | window or `max_reads` is full | waiting |
//! | | waiting | ACK, READ response | requests complete; sending |
//! | | sending, waiting | sequence NAK, implied NAK, timeout | go back; sending |
//! | | sending, waiting | RNR NAK | go back; not ready |
//! | | not ready | peer's timer ends, progress | sending |
//! | responder | in order | expected packet | do it; in order |
//! | | in order | packet after a gap | sequence NAK; refusing |
//! | | in order | no receive buffer | RNR NAK; refusing |
//! | | refusing | packet after a gap | drop it; refusing |
//! | | refusing | expected packet | as in order |
//! | | any | packet from before | ACK, or READ response again; same |
//! | both | any | retries exhausted, other NAK sent or received | broken: all is flushed |
//!
//! An implied NAK is a reply to a later packet while part of a READ's response is missing. A
//! requester that has gone back to a packet ignores implied NAKs until there is progress.
//!
//! # Loss recovery
//!
//! The table above is that of Go-Back-N, as RoCE NICs do it: the responder takes packets in order
//! only, and the requester repeats all packets from the first one missing. [`Recovery`] chooses it
//! or selective repeat: [`Recovery::Irn`] (SIGCOMM 2018, section 3), or [`Recovery::Trimming`] for
//! switches that cut payloads off.
//!
//! In selective repeat the responder keeps packets after a gap, within the window. It places the
//! payload of a WRITE at once if the first packet of the WRITE has come, which says where it goes;
//! READs, SENDs, immediates and completions wait until the gap is closed. The requester knows of
//! single packets what has arrived and what is lost:
//!
//! | | IRN | trimming |
//! |---|---|---|
//! | lost is | what a later packet has overtaken | what came without its payload |
//! | repeated | once for that, before new packets; again after a timeout | the same |
//! | timeout | `RTO_low` with up to `N` packets in flight, else `RTO_high` | one |
//! | after it | the oldest packet, and all that were overtaken | all that has not arrived |
//! | in flight | `window_packets`: the bandwidth-delay product (BDP-FC) | what credit allows |
//!
//! For a lost part of a READ's response, a READ request asks for that part alone.
//!
//! # On the wire
//!
//! All packets are those of RoCEv2, so that tools for RoCEv2 read them. What IRN and EQDS add
//! stands in the MSN of the ACK header, which requesters here do not use:
//!
//! | packet | PSN | MSN |
//! |---|---|---|
//! | ACK in Go-Back-N and IRN | the last packet done | messages done (IBTA, "Generating MSN Value") |
//! | ACK with trimming | the last packet done | packets of credit granted so far |
//! | sequence NAK in Go-Back-N | the expected packet | messages done |
//! | sequence NAK in selective repeat | the expected packet | the packet that came after the gap |
//! | the same, for a trimmed packet | the trimmed packet | the same PSN |
//! | CNP (IBTA A17.9.3), opcode 0x81 | 0 | it has no ACK header; BECN is set, 16 zero bytes follow |
//!
//! With trimming, the bit that asks for an acknowledgement means that the sender has more to send,
//! hence wants credit; every packet is acknowledged anyway.
//!
//! # Congestion control
//!
//! [`Nic::set_control`] puts a queue pair under a controller of `farwrite-rate`, at any time. The
//! pace holds for requests and responses to READs, window and credit for requests only: nobody
//! acknowledges responses, and a READ is itself a request for data by the receiver. Losses,
//! arrivals, notifications and grants reach the controller as they happen. A NIC answers packets
//! marked by ECN with congestion notifications ([`Nic::set_notification_interval`]), and grants
//! credit ([`Nic::set_pull_pacer`]).
//!
//! # What differs from the papers
//!
//! - IRN puts an RDMA header into each packet of a WRITE, and a number of the receive buffer and an
//!   offset into each packet of a SEND. Here, a packet of a WRITE whose first packet is missing
//!   waits for it, and packets of SENDs wait for the gap to close.
//! - IRN acknowledges the packets of a response, and gives responses PSNs of their own. Here, the
//!   requester asks again for what is missing.
//! - IRN's requester leaves recovery when all that was sent before it is acknowledged, and may then
//!   repeat a packet again without a timeout. Here, each packet is repeated once for a gap.
//! - An EQDS sender reports how much it has to send. Here, it reports whether there is more, so up
//!   to a round trip of credit is left over at the end of a message.
//! - WRITEs that are under way together and overlap may be placed in either order.
//!
//! # What is left out
//!
//! Atomics, FLUSH, invalidation and path migration. Credits for messages (IBTA 9.7.7.2): an ACK
//! carries none, so RNR NAKs alone limit SENDs. Delay inside a NIC: Swift's endpoint delay is 0.
#![no_std]

extern crate alloc;

mod config;
mod control;
mod hold;
mod memory;
mod nic;
mod notices;
mod opcode;
mod packet;
mod psn;
mod queue_pair;
mod repair;
mod replies;
mod requester;
mod responder;
mod selective;
mod send_queue;
mod syndrome;
mod transport;
mod work;

pub use config::{ConfigError, MAX_PACKETS, QpConfig, Recovery};
pub use memory::{Memory, RegisterError};
pub use nic::{Connection, FIRST_QPN, Nic, NicCounters};
pub use packet::Packet;
pub use queue_pair::{QpCounters, QueuePair};
pub use syndrome::{Nak, RnrTimer, Syndrome};
pub use transport::{Path, Transport, UnknownTransport};
pub use work::{Completion, PostError, Remote, Request, RequestError};
