//! Best effort: a message ends in time, with the chunks that have arrived (OptiNIC section 3.1;
//! P5.9).
//!
//! `best-effort` alone never sends a chunk twice (`sender`, `receiver`). With repairs or parity,
//! another scheme repairs losses while a repair can still arrive in time: `bounded_sender` and
//! `bounded_receiver` wrap its halves. With critical ranges, some chunks leave first (`critical`),
//! and are exact if the scheme says so (`exact_sender`, `exact_receiver`).

mod bounded_receiver;
mod bounded_sender;
mod critical;
mod exact_receiver;
mod exact_sender;
mod open_messages;
mod receiver;
mod sender;

use alloc::boxed::Box;
use farwrite_codes::Kind;
use farwrite_wire::control::SchemeTag;

use crate::erasure::ErasureCoding;
use crate::order::{InSequence, WireOrder};
use crate::scheme::{Arrivals, Critical, Layout, Message, PeerView, Receiver, Scheme, Sender};
use crate::selective_repeat::{SelectiveReceiver, SelectiveRepeat, SelectiveSender};
use crate::timing::Alpha;

/// Best effort, alone or with a scheme that repairs losses within the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BestEffort {
    /// `best-effort`: lost chunks are not repaired.
    Alone,
    /// `best-effort+sr`: selective repeat with NACKs, while a repeat can arrive in time.
    Repeats(Alpha),
    /// `best-effort+ec-mds:k,m`, `best-effort+ec-xor:k,m`: parity first, then repeats while they
    /// can arrive in time.
    Parity(ErasureCoding),
    /// `best-effort+first`: critical ranges leave first. Lost chunks are not repaired.
    First,
    /// `best-effort+exact`: critical ranges leave first, and are repaired by selective repeat with
    /// NACKs until they have arrived.
    Exact(Alpha),
}

impl BestEffort {
    /// Id in the [`SchemeTag`] of best effort alone (P5.9).
    pub const ALONE_ID: u8 = 6;
    /// Id in the [`SchemeTag`] of best effort with repeats (P5.9).
    pub const REPEATS_ID: u8 = 7;
    /// Id in the [`SchemeTag`] of best effort with XOR parity (P5.9).
    pub const XOR_ID: u8 = 8;
    /// Id in the [`SchemeTag`] of best effort with MDS parity (P5.9).
    pub const MDS_ID: u8 = 9;
    /// Id in the [`SchemeTag`] of best effort with critical ranges first (P5.9).
    pub const FIRST_ID: u8 = 10;
    /// Id in the [`SchemeTag`] of best effort with exact critical ranges (P5.9).
    pub const EXACT_ID: u8 = 11;

    /// The scheme that a tag selects. `None` if the tag is not one of these, or its parameters are
    /// not valid.
    pub fn from_tag(tag: SchemeTag) -> Option<Self> {
        let params = tag.params;
        match tag.id {
            Self::ALONE_ID => (params == [0; 6]).then_some(Self::Alone),
            Self::FIRST_ID => (params == [0; 6]).then_some(Self::First),
            Self::EXACT_ID => Some(Self::Exact(Alpha::from_params(params)?)),
            Self::REPEATS_ID => Some(Self::Repeats(Alpha::from_params(params)?)),
            Self::XOR_ID | Self::MDS_ID => {
                let id = match tag.id {
                    Self::XOR_ID => ErasureCoding::XOR_ID,
                    _ => ErasureCoding::MDS_ID,
                };
                Some(Self::Parity(ErasureCoding::from_tag(SchemeTag {
                    id,
                    params,
                })?))
            }
            _ => None,
        }
    }
}

impl Scheme for BestEffort {
    fn tag(&self) -> SchemeTag {
        match self {
            Self::Alone => SchemeTag {
                id: Self::ALONE_ID,
                params: [0; 6],
            },
            Self::Repeats(alpha) => SchemeTag {
                id: Self::REPEATS_ID,
                params: alpha.to_params(),
            },
            Self::First => SchemeTag {
                id: Self::FIRST_ID,
                params: [0; 6],
            },
            Self::Exact(alpha) => SchemeTag {
                id: Self::EXACT_ID,
                params: alpha.to_params(),
            },
            Self::Parity(coding) => SchemeTag {
                id: match coding.code.kind() {
                    Kind::Xor => Self::XOR_ID,
                    Kind::Mds => Self::MDS_ID,
                },
                params: coding.tag().params,
            },
        }
    }

    fn sender(&self) -> Box<dyn Sender + Send> {
        match self {
            Self::Alone | Self::First => Box::new(sender::BestEffortSender::default()),
            Self::Exact(alpha) => {
                let repairs = SelectiveSender::new(*alpha, true);
                Box::new(exact_sender::ExactSender::new(repairs))
            }
            Self::Repeats(alpha) => {
                let repairs = SelectiveRepeat::with_nacks(*alpha).repair_sender();
                Box::new(bounded_sender::BoundedSender::new(repairs))
            }
            Self::Parity(coding) => {
                Box::new(bounded_sender::BoundedSender::new(coding.repair_sender()))
            }
        }
    }

    fn receiver(&self) -> Box<dyn Receiver + Send> {
        match self {
            Self::Alone | Self::First => Box::new(receiver::BestEffortReceiver::default()),
            Self::Exact(_) => {
                let repairs = SelectiveReceiver::new(true);
                Box::new(exact_receiver::ExactReceiver::new(repairs))
            }
            Self::Repeats(alpha) => {
                let repairs = SelectiveRepeat::with_nacks(*alpha).repair_receiver();
                Box::new(bounded_receiver::BoundedReceiver::new(repairs))
            }
            Self::Parity(coding) => Box::new(bounded_receiver::BoundedReceiver::new(
                coding.repair_receiver(),
            )),
        }
    }

    fn layout(&self, message: &Message) -> Option<Layout> {
        match self {
            Self::Parity(coding) => coding.layout(message),
            Self::Alone | Self::Repeats(_) | Self::First | Self::Exact(_) => None,
        }
    }

    fn is_bounded(&self) -> bool {
        true
    }

    fn critical(&self) -> Option<Critical> {
        match self {
            Self::First => Some(Critical::First),
            Self::Exact(_) => Some(Critical::Exact),
            Self::Alone | Self::Repeats(_) | Self::Parity(_) => None,
        }
    }

    fn order(&self, message: &Message) -> Box<dyn WireOrder + Send> {
        match self {
            Self::Parity(coding) => coding.order(message),
            Self::First | Self::Exact(_) => Box::new(critical::CriticalFirst::of(message)),
            Self::Alone | Self::Repeats(_) => Box::new(InSequence::of(message)),
        }
    }
}

/// The sending half of a repairing scheme, with what bounded messages need.
pub(crate) trait RepairSender: Sender {
    /// Repeats are no longer useful: removes all queued repeats.
    fn drop_repeats(&mut self);
}

/// The receiving half of a repairing scheme, with what bounded messages need.
pub(crate) trait RepairReceiver: Receiver {
    /// The message is about to end: processes everything that has arrived, so that all groups that
    /// can be rebuilt are rebuilt. If the message is whole, it ends now, even if no report can
    /// leave.
    fn look(&mut self, view: &PeerView, message: u64, arrivals: &dyn Arrivals);
}
