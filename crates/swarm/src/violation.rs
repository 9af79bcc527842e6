//! What a case can break.

use std::fmt::{self, Display, Formatter};

use crate::plan::show::Millis;

/// A rule that holds in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Bytes of a buffer are those of its message, or nobody wrote them.
    Bytes,
    /// Nothing is written beside a posted buffer, or behind a message in it.
    Guard,
    /// A bit of the bitmap is set if and only if the chunk is in memory.
    Bitmap,
    /// The length and the immediate that a receiver sees are those of its message.
    Label,
    /// Memory does not change once the outcome of its receive is known, and no packet of a message
    /// leaves once the outcome of its send is.
    Afterwards,
    /// Both ends see the outcome that the plan leads to.
    Outcome,
    /// A partial outcome names what is in memory, and nothing else.
    Partial,
    /// A message is refused where it is not what its receive demands, and nowhere else.
    Terms,
    /// A side with a deadline has its outcome by then.
    Deadline,
    /// Every message is over a bounded time after the last fault.
    Liveness,
    /// Nobody sends, and no timer runs, when all messages are over.
    Silence,
    /// No more is in flight than the window allows, no round trip is shorter than the path, and
    /// reports come and are true.
    Path,
    /// Everything that an endpoint took from its fabric comes back.
    Leak,
    /// An RDMA NIC behind boxes gets packets only that the other NIC has sent.
    Packets,
    /// Counters of links and fabrics agree, and count no packet that a peer may not send.
    Counters,
    /// No call fails that is made as documented.
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
            Self::Terms => "terms",
            Self::Deadline => "deadline",
            Self::Liveness => "liveness",
            Self::Silence => "silence",
            Self::Path => "path",
            Self::Leak => "leak",
            Self::Packets => "packets",
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
    /// When, in nanoseconds of the virtual time.
    pub at_ns: u64,
    /// What was seen, and what was expected.
    pub what: String,
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (rule, at, what) = (self.rule, Millis(self.at_ns), &self.what);
        write!(f, "rule {rule} broken at {at}: {what}")
    }
}
