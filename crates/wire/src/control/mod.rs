//! Control packets, which two SDR queue pairs exchange in addition to the data (P4).
//!
//! A packet is a [`Header`] and any number of messages. [`Builder`] makes a [`Draft`] of it. The
//! draft is sealed when the packet leaves. [`open`] checks and reads a packet. A [`ReplayWindow`]
//! refuses packets that were opened before.

mod body;
mod critical;
mod message;
mod replay;
mod sealed_packet;
mod value_checks;

pub use body::{
    ACK_OVERHEAD_BYTES, CLEAR_TO_SEND_OVERHEAD_BYTES, CLEARANCE_BYTES, CLEARANCE_PARITY_BYTES,
    CLEARANCE_TERMS_BYTES, NACK_OVERHEAD_BYTES, NACK_RANGE_BYTES,
};
pub use critical::{CriticalChunks, MAX_CRITICAL_RANGES};
pub use message::{
    Ack, ClearToSend, Clearance, Control, Credit, CreditRequest, LossCounts, MessageId, Nack,
    Offer, Outcome, PeerFeedback, Place, ReadRefusal, ReadRequest, SchemeTag, StaleCounts, Terms,
    Withdrawal,
};
pub use replay::ReplayWindow;
pub use sealed_packet::{
    Builder, Draft, Echo, HEADER_BYTES, Header, KEY_BYTES, MESSAGE_OVERHEAD_BYTES, Messages,
    OpenError, open,
};
pub use value_checks::ParseError;
