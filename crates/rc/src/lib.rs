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
//! A queue pair is made ready to send and receive (RTS of IBTA 10.3.1), and its two halves change
//! state on their own until it breaks:
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
//! # What is left out
//!
//! Atomics, FLUSH, invalidation and path migration. Credits (IBTA 9.7.7.2): an ACK carries none, so
//! RNR NAKs alone limit SENDs. Congestion control: packets are ECT(0), but nothing reacts to marks,
//! and the pace of a queue pair does not change by itself.
#![no_std]

extern crate alloc;

mod config;
mod control;
mod memory;
mod nic;
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
