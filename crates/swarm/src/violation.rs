//! The rules, and their violations.

use std::fmt::{self, Display, Formatter};

use crate::plan::show::Millis;

/// A rule that holds in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The bytes of a buffer are those of its message, or were not written.
    Bytes,
    /// Nothing is written beside a posted buffer, or behind a message in it.
    Guard,
    /// A bit of the bitmap is set if and only if the chunk is in memory.
    Bitmap,
    /// The length and the immediate that a receiver sees are those of its message.
    Label,
    /// After the outcome of a receive, its memory does not change. After the outcome of a send, no
    /// packet of the message is sent.
    Afterwards,
    /// Both ends see an outcome that follows from the plan.
    Outcome,
    /// A partial outcome names exactly the data in memory.
    Partial,
    /// Critical ranges leave before the rest. Exact ranges are in memory if an end says that the
    /// message is whole or partial.
    Critical,
    /// A write reports exactly the packets of it that have left, and none leaves after its deadline.
    Write,
    /// A message is refused if and only if it does not meet the terms of its receive.
    Terms,
    /// A side with a deadline has its outcome by the deadline.
    Deadline,
    /// Every message ends within a bounded time after the last fault.
    Liveness,
    /// Everything moves again within 5 seconds and 10 round trips after an attacker has left.
    Recovery,
    /// When all messages have ended, no packet is sent and no timer runs.
    Silence,
    /// The bytes in flight do not exceed the window, no round trip is shorter than the path, and
    /// reports arrive and are correct.
    Path,
    /// An endpoint returns all resources of its fabric.
    Leak,
    /// An RDMA NIC behind boxes gets only packets that the other NIC has sent.
    Packets,
    /// With PFC, switches drop no frame for lack of buffer or headroom.
    Lossless,
    /// Counters of links and fabrics agree, and count no packet that a peer must not send.
    Counters,
    /// No call fails if it is made as documented.
    Call,
    /// Nothing panics.
    Panic,
    /// Equal seeds give equal cases.
    Determinism,
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Guard => "guard",
            Self::Bitmap => "bitmap",
            Self::Label => "label",
            Self::Afterwards => "afterwards",
            Self::Outcome => "outcome",
            Self::Partial => "partial",
            Self::Critical => "critical",
            Self::Write => "write",
            Self::Terms => "terms",
            Self::Deadline => "deadline",
            Self::Liveness => "liveness",
            Self::Recovery => "recovery",
            Self::Silence => "silence",
            Self::Path => "path",
            Self::Leak => "leak",
            Self::Packets => "packets",
            Self::Lossless => "lossless",
            Self::Counters => "counters",
            Self::Call => "call",
            Self::Panic => "panic",
            Self::Determinism => "determinism",
        })
    }
}

/// The first rule that a case broke.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// When it was detected, in nanoseconds of virtual time.
    pub at_ns: u64,
    /// The observed and the expected behaviour.
    pub what: String,
}

impl Violation {
    /// Compares the hashes of two runs of a case, which must be equal.
    pub(crate) fn of_hashes(first: u64, second: u64) -> Option<Self> {
        (first != second).then(|| Self {
            rule: Rule::Determinism,
            at_ns: 0,
            what: format!("hashes {first:#x} and {second:#x}"),
        })
    }
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (rule, at, what) = (self.rule, Millis(self.at_ns), &self.what);
        write!(f, "rule {rule} broken at {at}: {what}")
    }
}
