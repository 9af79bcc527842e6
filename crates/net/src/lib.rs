//! Networks in virtual time: so far, what crosses them. A [`Frame`] keeps its headers parsed; its
//! bytes are made where they are needed.

mod bytes;
mod frame;
pub mod header;
mod ids;

pub use bytes::{BytesError, address_of};
pub use frame::{Ecn, Frame, Payload};
pub use ids::NodeId;
