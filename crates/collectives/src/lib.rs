//! Operations of a group of ranks: all-reduce, all-gather and the others, over endpoints.
//!
//! A [`Member`] is one rank of one group. It has no clock, threads or sockets of its own, so it
//! runs in real time and in virtual time. A [`Communicator`] is a member over UDP with a thread
//! that runs it. Most users need a [`Communicator`].
//!
//! ```
//! use std::time::Duration;
//! use farwrite_collectives::{
//!     Buffers, Communicator, CommunicatorOptions, ElementType, Operation, Reduction,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two ranks in one process; elsewhere each rank is a process, and the messages travel.
//! let options = CommunicatorOptions::new("127.0.0.1:0".parse()?);
//! let ranks = [
//!     Communicator::new(0, 2, options.clone())?,
//!     Communicator::new(1, 2, options)?,
//! ];
//! let mut messages = Vec::new();
//! loop {
//!     let answers = ranks.iter().map(|rank| rank.meet(messages.clone()));
//!     let answers = answers.collect::<Result<Vec<_>, _>>()?;
//!     match answers.into_iter().collect() {
//!         Some(next) => messages = next,
//!         None => break,
//!     }
//! }
//! let sum = Operation::AllReduce {
//!     element: ElementType::I32,
//!     reduction: Reduction::Sum,
//! };
//! let values = |rank: i32| [1, 2, 3].map(|x: i32| (x + rank).to_ne_bytes()).concat();
//! let tickets = [
//!     ranks[0].submit(sum.clone(), Buffers::in_place(values(0)))?,
//!     ranks[1].submit(sum, Buffers::in_place(values(10)))?,
//! ];
//! for ticket in tickets {
//!     ticket.wait(Duration::from_secs(10))?;
//!     let result = ticket.take_buffers().and_then(|buffers| buffers.output);
//!     let result = result.and_then(|buffer| buffer.into_vec());
//!     assert_eq!(result, Some([12, 14, 16].map(i32::to_ne_bytes).concat()));
//! }
//! # Ok(())
//! # }
//! ```

mod binding;
mod bounded;
mod buffer;
mod communicator;
mod control;
mod driver;
mod element;
mod error;
mod exact_qp;
mod execution;
#[doc(hidden)]
pub mod fuzzing;
mod gone;
mod group_view;
mod in_order;
mod index;
mod info;
pub mod kernel;
mod meeting;
mod member;
mod memory_budget;
mod mismatch;
mod operation;
mod options;
mod peers;
mod plan;
mod qp_buffers;
mod rendezvous;
mod repair;
mod report;
pub mod schedule;
mod scratch;
mod seal;
mod segment;
mod send_receive;
mod sizes;
mod ticket;
mod wants;

pub use bounded::replay::replay;
pub use bounded::{BoundedOptions, Hadamard};
pub use buffer::{Buffer, Buffers};
pub use communicator::{Communicator, CommunicatorOptions};
pub use element::{ElementType, Reduction};
pub use error::{CollectiveError, RankState};
pub use farwrite_choice::SchemeSetting;
pub use member::{Finished, Member, OperationId};
pub use operation::{Algorithm, Delivery, Operation};
pub use options::{GroupOptions, OperationOptions};
pub use report::{Arrival, Missing, PeerReport, Report};
pub use ticket::Ticket;
