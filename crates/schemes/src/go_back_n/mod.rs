//! Go-back-N at chunk level, the baseline: after a loss, everything from the lost chunk on is sent
//! again (P5.3).
//!
//! RoCE hardware applies go-back-N to the packets of a connection. This scheme applies it to the
//! chunks of a queue pair, whose messages form one sequence. Unlike in RoCE hardware, chunks that
//! arrive out of sequence stay in memory, so the sender jumps ahead when the hole before them is
//! filled.

mod receiver;
mod sender;

use alloc::boxed::Box;
use farwrite_wire::control::SchemeTag;

use crate::scheme::{Receiver, Scheme, Sender};
use crate::timing::Alpha;

/// Go-back-N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoBackN {
    /// The time that the timeout adds to the round trip.
    pub alpha: Alpha,
}

impl GoBackN {
    /// Id in the [`SchemeTag`] (P5.3).
    pub const ID: u8 = 3;

    /// Creates it with this timeout.
    pub const fn new(alpha: Alpha) -> Self {
        Self { alpha }
    }
}

impl Scheme for GoBackN {
    fn tag(&self) -> SchemeTag {
        SchemeTag {
            id: Self::ID,
            params: self.alpha.to_params(),
        }
    }

    fn sender(&self) -> Box<dyn Sender + Send> {
        Box::new(sender::GoBackSender::new(self.alpha))
    }

    fn receiver(&self) -> Box<dyn Receiver + Send> {
        Box::new(receiver::GoBackReceiver::default())
    }
}
