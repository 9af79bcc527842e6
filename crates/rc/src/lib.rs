//! Reliable connections as RDMA NICs have them, on RoCEv2 packets: queue pairs without clock or
//! I/O, and a NIC that is a host of [`farwrite_net`].
//!
//! A [`QueuePair`] serves SEND, RDMA WRITE (both with and without immediate) and RDMA READ. Losses
//! are repaired by Go-Back-N, as RoCE NICs do it: the responder takes packets in order only, and
//! the requester repeats all packets from the first one missing. Clauses of the InfiniBand
//! Architecture Specification, volume 1, are cited as `IBTA <number>`.
//!
//! # States
//!
//! | half | state | what ends it |
//! |---|---|---|
//! | requester | sends, up to the window | the window or `max_reads` is full |
//! | | waits for progress | an ACK or READ response; a sequence NAK, an implied NAK or the timeout: go back |
//! | | waits after an RNR NAK | the peer's timer: go back; progress |
//! | responder | takes the expected packet | a gap: sequence NAK; no receive buffer: RNR NAK |
//! | | has sent a NAK; drops what comes after the gap, without another NAK | the expected packet |
//! | both | broken: requests and receive buffers are flushed | nothing |
//!
//! A requester breaks the queue pair when retries are exhausted or the peer refuses a request; a
//! responder, when it refuses a request for another reason than a gap or a missing receive buffer.
//!
//! # What is left out
//!
//! Atomics, FLUSH, invalidation and path migration. Credits (IBTA 9.7.7.2): an ACK carries none, so
//! RNR NAKs alone limit SENDs. Congestion control: the pace of a queue pair does not change by
//! itself.
#![no_std]

extern crate alloc;

mod config;
mod memory;
mod nic;
mod opcode;
mod packet;
mod psn;
mod queue_pair;
mod replies;
mod requester;
mod responder;
mod send_queue;
mod syndrome;
mod work;

pub use config::{ConfigError, MAX_PACKETS, QpConfig};
pub use memory::{Memory, RegisterError};
pub use nic::{Connection, FIRST_QPN, Nic, NicCounters};
pub use packet::Packet;
pub use queue_pair::{QpCounters, QueuePair};
pub use syndrome::{Nak, RnrTimer, Syndrome};
pub use work::{Completion, PostError, Remote, Request, RequestError};
