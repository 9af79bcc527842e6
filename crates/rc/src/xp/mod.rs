//! XP, the transport of `OptiNIC` and Celeris: WRITEs with immediate that end in time, without retransmission
//! and without order.
//!
//! A [`QueuePair`] has a [`Context`] of 52 bytes, the part that a NIC keeps in its memory: 20 bytes of transport
//! and 32 bytes of DCQCN (Celeris III.A). Work requests, their deadlines and completions are in queues that
//! belong to the host. Parameters that all queue pairs share are registers of the NIC.
//!
//! # Rules
//!
//! Sections are those of the `OptiNIC` paper.
//!
//! - Messages are numbered (`wqe_seq`), and each takes one posted receive. The receiver has one active message,
//!   the expected one (3.1.1).
//! - Each packet says where its payload belongs, so a packet of the active message is placed at once, in any order.
//! - A packet of a later message ends the active message, and all messages between them. A packet of an earlier
//!   message is dropped.
//! - A receive ends when it is complete, or at its deadline, or by a later message (3.1.2). The completion has the
//!   number of bytes that were placed. Packets that come after the end are late.
//! - [`CompleteBy`] says what completes a receive: the last packet of its message, or as many bytes as the message has.
//! - A send ends when its last packet has left, or at its deadline. Nothing is acknowledged.
//! - Only the timer of the active receive runs, and that of the active send. A later one whose deadline is earlier
//!   ends when it becomes active.
//! - Packets with ECN marks cause congestion notifications, and these lower the rate (3.1.3).
//! - With credit (EQDS) in place of DCQCN, each message begins with a first window, at the rate of the line. The first
//!   of its packets to arrive, also without its payload, says how long the message is, and the receiver grants what is
//!   beyond the first window, or stops when the receive ends. Each grant has the total so far, so it makes up for
//!   lost ones. If no later grant arrives, the send ends at its deadline.
//!
//! # On the wire
//!
//! | packet | content |
//! |---|---|
//! | fragment | UC RDMA WRITE Only; PSN: `wqe_seq`; RETH: address of this fragment, key, bytes of the whole message |
//! | last fragment | the same with immediate |
//! | notification | CNP (IBTA A17.9.3) |
//! | grant | ACK; MSN of the AETH: packets of credit granted so far |
//!
//! # Differences from the paper
//!
//! - Section 3.1 says that a receive completes when all fragments have arrived, section 3.1.2 that the last one
//!   completes it. The default is the second rule, with which a path that reorders packets makes the last ones late.
//!   With the first rule, a lost packet makes the receive wait for the deadline or for a later message.
//! - A packet that arrives twice counts twice, because the receiver does not remember which packets have arrived. So a
//!   receive that bytes complete may end before its last missing packet.
//! - The paper names EQDS (3.1.3) without its rules for messages that are not repaired. EQDS counts packets that have
//!   arrived, but a lost packet never arrives. EQDS restarts with an acknowledgement, and XP has none. So a message
//!   asks for its own length, and starts as EQDS does after a timeout. Credit is state of the host, not of the context.
//! - Timeouts are deadlines on the clock of the queue pair, which run from the post on.
//! - SEND, READ, and WRITE without immediate are not implemented, nor is the stride of section 3.2.

mod context;
mod credit;
mod dcqcn;
mod fragment;
mod queue_pair;
mod work;

pub use context::Context;
pub use dcqcn::DcqcnContext;
pub(crate) use fragment::is_data;
pub use queue_pair::{Counters, QueuePair};
pub use work::{CompleteBy, Completion, Config, ConfigError, End, PostError, Receive, Write};
