//! Which scheme repairs the next message: a named one, or the choice of the planner from what was
//! measured.
//!
//! The planner (`farwrite-model`) estimates how long a message takes with each candidate. But the
//! user waits for everything that is left. Each message starts as soon as the previous one has left
//! and a slot is free, so only the last message costs its full time, while every message pays for its
//! parity. So parity is worth its cost when little is left, when round trips are long, or when
//! repairs would keep slots occupied.
//!
//! The choice belongs to the sender of a message. Its offer names the scheme, so the receiver needs
//! no agreement, only memory for the parity of [`SchemeSetting::most_parity`].

mod chooser;
mod cost;
mod measured;
mod parity;
mod picker;
mod scheme_setting;

pub use chooser::{Choice, Chooser, Packets};
pub use cost::Cost;
pub use measured::{Losses, Measured};
pub use parity::{group_chunks, parity_bytes};
pub use picker::SchemePicker;
pub use scheme_setting::{ParseSettingError, SchemeSetting};
