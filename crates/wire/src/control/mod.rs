//! Control packets: what two SDR queue pairs tell each other beside the data (P4).

mod message;

pub use message::{Ack, ClearToSend, Clearance, Control, Credit, Nack, Offer, Outcome, SchemeTag};
