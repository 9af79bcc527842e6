//! Writes into remote memory over long, fast, lossy links, with losses repaired in software.
//!
//! An [`Endpoint`] owns a fabric, which carries packets, and any number of queue pairs. A receiver
//! posts buffers. The messages of a sender are written to these buffers in order. Each message
//! names a scheme that repairs its losses. To repair losses yourself, send without a scheme and
//! watch [`RecvHandle::bitmap`], which shows for each chunk whether it has arrived.
//!
//! A message ends with an [`Outcome`]: whole, partial or failed. A receive ends as partial at its
//! deadline ([`RecvOptions::deadline_ns`]), or if its scheme is a best-effort scheme
//! ([`SchemeName::BOUNDED`]). In these cases, [`RecvHandle::partial`] returns what arrived.
//! The crate `farwrite-deadline` adapts the timeouts of operations that a group runs together.
//!
//! An end can also read: [`Endpoint::post_read`] requests bytes of memory that the peer exposes
//! ([`Endpoint::expose`]), and the peer sends them as a message. [`Endpoint::write`] writes parts of
//! a posted buffer again and again, each with a deadline.
//!
//! The caller polls an endpoint and passes the time as an argument. [`RealTime`] fabrics have a
//! clock and a way to wait, and [`Endpoint::run_until`] is the poll loop for them.
//! [`Endpoint::start_thread`] runs this loop on a separate thread. It returns a [`ProgressThread`],
//! which any thread can use. [`Endpoint::start_workers`] moves receiving to threads, one for each
//! port. [`Endpoint::code_on`] moves the arithmetic of parity to threads.
//!
//! [`routes`] finds the routes to peers behind address translation, and the largest packets that they
//! carry.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddr};
//! use farwrite::{Endpoint, MemoryRegion, Outcome, QpOptions, SendOptions, UdpConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two ends in one process, over loopback sockets; two machines differ in how `qp_info` travels.
//! let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
//! let mut a = Endpoint::over_udp(&UdpConfig::new(loopback))?;
//! let mut b = Endpoint::over_udp(&UdpConfig::new(loopback))?;
//! let (qa, qb) = (a.create_qp(QpOptions::default())?, b.create_qp(QpOptions::default())?);
//! let (info_a, info_b) = (a.qp_info(qa)?, b.qp_info(qb)?);
//! a.connect_qp(qa, &info_b)?;
//! b.connect_qp(qb, &info_a)?;
//!
//! let target: MemoryRegion = b.register(vec![0_u8; 1 << 20])?;
//! let recv = b.post_recv(qb, target.whole())?;
//! let source = a.register(vec![7_u8; 1 << 20])?;
//! let send = a.post_send(qa, source.whole(), SendOptions::default())?;
//! while send.outcome().is_none() {
//!     a.poll_now()?;
//!     b.poll_now()?;
//! }
//! assert_eq!(recv.outcome(), Some(Outcome::Whole));
//! assert!(b.memory(target)?.iter().all(|&byte| byte == 7));
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    not(target_os = "linux"),
    allow(
        dead_code,
        reason = "routes use it, and they exist over UDP sockets only"
    )
)]

mod announcement;
mod coding;
mod completion_context;
mod completions;
mod control_packets;
mod critical;
mod endpoint;
mod error;
pub mod events;
mod handle;
mod losses;
mod memory;
pub mod metrics;
mod options;
#[cfg(target_os = "linux")]
mod over_udp;
mod pair;
mod partial;
mod peer;
mod progress;
mod queue_pairs;
mod reads;
mod real_time;
mod receive_workers;
mod receiving;
mod region_users;
mod registry;
#[cfg(target_os = "linux")]
pub mod routes;
mod schedule;
mod turns;
mod user_wakes;
mod waiters;
mod writes;

pub use coding::CodingThreads;
pub use critical::{CriticalError, CriticalRanges};
pub use endpoint::Endpoint;
pub use error::{Error, SealingError, StreamError};
pub use farwrite_fabric as fabric;
pub use farwrite_fabric::contract::{Counters, DropReason, Fabric, Memory, Region};
#[cfg(target_os = "linux")]
pub use farwrite_fabric::udp::{ReservedPort, UdpConfig, UdpFabric};
pub use farwrite_rate::{
    DcqcnOptions, EqdsOptions, Phase, RateControlName, Start, SwiftOptions, UnknownRateControl,
};
pub use farwrite_schemes as schemes;
pub use farwrite_schemes::chunk_loss::{ChunkLoss, Markov};
pub use farwrite_schemes::registry::SchemeName;
pub use farwrite_sdr::{
    Awaited, ChunkBitmap, EndpointId, ImmediateSplit, MAX_CHANNELS, MAX_GENERATIONS, MAX_MTU,
    MIN_GENERATIONS, QpConfig, QpInfo, ReadRefusal, Refusal, Timing, TimingError,
};
pub use farwrite_wire::Secret;
pub use farwrite_wire::control::{Outcome, SchemeTag};
pub use farwrite_wire::sealing::{Cipher, SEALING_BYTES};
pub use handle::{QueuePair, RecvHandle, SendHandle};
pub use memory::{MemoryRegion, MrSlice};
pub use options::{QpOptions, RateControl, RecvOptions, Sealing, SendOptions};
pub use pair::QpStats;
pub use partial::Partial;
pub use peer::{
    EcnField, PeerStats, ROCE_OVERHEAD_BYTES, SendLimit, packet_overhead_bytes, payload_share,
    sealed_overhead_bytes,
};
pub use progress::{ProgressThread, RepeatedWait, TaskAdder, TaskId, TaskState};
pub use reads::{ExposedRegion, ReadOptions, ReadRefused};
pub use real_time::RealTime;
pub use registry::SchemeResolver;
pub use user_wakes::QpWaker;
pub use waiters::Waiters;
pub use writes::{WriteHandle, WriteOutcome};
