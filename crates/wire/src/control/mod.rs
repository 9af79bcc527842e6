//! Control packets: what two SDR queue pairs tell each other beside the data (P4).
//!
//! One packet is a [`Header`] and any number of messages. [`Builder`] makes a [`Draft`] of it,
//! which is sealed when the packet leaves. [`open`] checks and reads it; a [`ReplayWindow`] refuses
//! what was opened before.

mod body;
mod check;
mod message;
mod packet;
mod replay;

pub use body::{
    ACK_OVERHEAD_BYTES, CLEAR_TO_SEND_OVERHEAD_BYTES, CLEARANCE_BYTES, CLEARANCE_PARITY_BYTES,
    CLEARANCE_TERMS_BYTES, NACK_OVERHEAD_BYTES, NACK_RANGE_BYTES,
};
pub use check::ParseError;
pub use message::{
    Ack, ClearToSend, Clearance, Control, LossCounts, Nack, Offer, Outcome, PathFeedback, Place,
    SchemeTag, Terms, Withdrawal, data_of, is_parity, parity_of,
};
pub use packet::{
    Builder, Draft, Echo, HEADER_BYTES, Header, KEY_BYTES, MESSAGE_OVERHEAD_BYTES, Messages,
    OpenError, open,
};
pub use replay::ReplayWindow;
