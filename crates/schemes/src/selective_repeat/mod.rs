//! Selective repeat: only missing chunks are sent again (paper section 4.1.1; P5.1, P5.2).

pub(crate) mod ack_state;
mod holes;
mod nacks;
mod receiver;
mod selective_send;
mod sender;
mod sent_chunks;
mod tail_request;

use alloc::boxed::Box;
use farwrite_wire::control::SchemeTag;

use crate::best_effort::{RepairReceiver, RepairSender};
use crate::scheme::{Receiver, Scheme, Sender};
use crate::timing::Alpha;
pub(crate) use receiver::SelectiveReceiver;
pub(crate) use sender::SelectiveSender;

/// Selective repeat, with timeouts alone or with NACKs as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectiveRepeat {
    /// The time that the timeout adds to the round trip.
    pub alpha: Alpha,
    /// Whether the receiver reports holes, so that the sender need not wait for the timeout.
    pub nack: bool,
}

impl SelectiveRepeat {
    /// Id in the [`SchemeTag`] of selective repeat with timeouts alone (P5.1).
    pub const RTO_ID: u8 = 1;
    /// Id in the [`SchemeTag`] of selective repeat with NACKs (P5.2).
    pub const NACK_ID: u8 = 2;

    /// `sr-rto`: timeouts alone.
    pub const fn with_timeouts(alpha: Alpha) -> Self {
        Self { alpha, nack: false }
    }

    /// `sr-nack`: NACKs, and timeouts for losses that NACKs miss.
    pub const fn with_nacks(alpha: Alpha) -> Self {
        Self { alpha, nack: true }
    }

    pub(crate) fn repair_sender(&self) -> Box<dyn RepairSender + Send> {
        Box::new(SelectiveSender::new(self.alpha, self.nack))
    }

    pub(crate) fn repair_receiver(&self) -> Box<dyn RepairReceiver + Send> {
        Box::new(SelectiveReceiver::new(self.nack))
    }
}

impl Scheme for SelectiveRepeat {
    fn tag(&self) -> SchemeTag {
        let id = if self.nack {
            Self::NACK_ID
        } else {
            Self::RTO_ID
        };
        SchemeTag {
            id,
            params: self.alpha.to_params(),
        }
    }

    fn sender(&self) -> Box<dyn Sender + Send> {
        Box::new(SelectiveSender::new(self.alpha, self.nack))
    }

    fn receiver(&self) -> Box<dyn Receiver + Send> {
        Box::new(SelectiveReceiver::new(self.nack))
    }
}
