//! Adaptive timeouts for bounded operations: operations that end at a deadline, even if data is
//! missing.
//!
//! All members of a group run the same operations. After each operation, every member
//! [proposes](Timeout::propose) a cost, which follows from the elapsed time and the bytes that
//! arrived. The members exchange their proposals over a reliable channel, and each member passes
//! all of them to [`Timeout::agree`]. The same proposals give the same timeout at every member.
//! [`Timeouts`] keeps one timeout for each collective, size class and group.
//!
//! This crate has no clock, no randomness and no I/O, and does not know chunks or schemes. It
//! handles operations of a group, which consist of many messages. Times are in nanoseconds.
//!
//! ```
//! use farwrite_deadline::{Bounds, Collective, Observation, Policy, TimeoutKey, Timeouts};
//!
//! let bounds = Bounds { min_ns: 100_000, max_ns: 1_000_000_000 };
//! let mut timeouts = Timeouts::new(Policy::OptiNic, bounds);
//! let bytes = 16 << 20;
//! let key = TimeoutKey::new(Collective::AllReduce, bytes, 7);
//! // The warm-up has no deadline, and every member takes part with what it saw.
//! let timeout = timeouts.get_mut(key);
//! assert_eq!(timeout.timeout_ns(bytes), None);
//! let warm_up = Observation::whole(20_000_000, bytes);
//! let proposals: Vec<_> = (0..2).filter_map(|_| timeout.propose(&warm_up)).collect();
//! timeout.agree(bytes, &proposals);
//! // 1.25 times the warm-up, and 50 us.
//! assert_eq!(timeout.timeout_ns(bytes), Some(25_050_000));
//! ```
//!
//! # Policies
//!
//! | policy | the next timeout | source |
//! |---|---|---|
//! | [`Policy::OptiNic`] | the median of the proposals, smoothed by the group with weight 0.2 | OptiNIC 3.1.2 |
//! | [`Policy::Celeris`] | each member smooths its own proposals with weight 0.2; their median | Celeris III.B |
//! | [`Policy::LossTarget`] | the least that keeps the share of missing bytes below a target | ours |
//!
//! The first two policies, as published, converge to the *typical* time of an operation: two of
//! five operations take longer and are cut. [`CutCounts::share_cut`] reports this share. `cargo test -p
//! farwrite-deadline --test policies -- --nocapture` prints the following for 8 members, where
//! operations take 1 ms plus an exponentially distributed time with mean 0.2 ms:
//!
//! | policy | operations cut | bytes missing |
//! |---|---|---|
//! | OptiNIC | 41% | 5.4% |
//! | Celeris | 37% | 4.7% |
//! | loss target of 1% | 7.5% | 0.83% |
//! | loss target of 0.1% | 1.1% | 0.10% |
//!
//! If the path itself drops more than the target, waiting cannot help. [`Timeout::repair_choice`] then
//! selects parity or repeats, whichever takes less time, or says that the target cannot be met
//! within the bounds.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod budget;
mod cost;
mod cut_counts;
mod key;
mod loss_target;
mod repair_choice;
mod timeout;

pub use budget::phase_ends_ns;
pub use cost::{Cost, Observation, Proposal};
pub use cut_counts::CutCounts;
pub use key::{Collective, TimeoutKey, Timeouts};
pub use repair_choice::RepairChoice;
pub use timeout::{Bounds, Policy, Timeout};
