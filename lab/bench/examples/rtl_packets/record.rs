//! The file: what enters the hardware, and what has to come out. `lab/rtl/sim/records.h` reads it.

use std::io::{self, Write};

use farwrite_rc::xp::{Completion, End};

/// Events of the hardware: `kind_t` of `lab/rtl/src/xp_pkg.sv`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    #[default]
    Packet = 1,
    Create = 2,
    PostReceive = 3,
    Load = 4,
    Scan = 5,
    PostSend = 6,
    Send = 7,
    Notify = 8,
}

/// What became of a packet: `outcome_t`, and one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Outcome {
    #[default]
    None = 0,
    Placed = 1,
    Late = 2,
    NotPosted = 3,
    Refused = 4,
    /// The packet is not valid, so nothing comes out.
    NoEvent = 5,
}

/// The context is not compared: Rust does in one call what several events do, and this is not the last of them.
pub(crate) const NOT_LAST: u32 = 1;
/// The scan of timers brings this event, and not the host.
pub(crate) const SCANNED: u32 = 2;

/// The first beats of a packet, from its IP header on.
pub(crate) type Beats = [u8; 128];

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) flags: u32,
    pub(crate) qpn: u32,
    pub(crate) seq: u32,
    pub(crate) now_ns: u64,
    pub(crate) addr: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) rkey: u32,
    pub(crate) bytes: u32,
    pub(crate) imm: u32,
    /// Of `packet`.
    pub(crate) beats: u32,
    pub(crate) packet: Beats,
    pub(crate) outcome: Outcome,
    /// Address, bytes, and the lanes of the first and of the last beat.
    pub(crate) write: Option<(u64, u32, [u64; 2])>,
    /// Headers from the BTH on, offset and bytes of the payload.
    pub(crate) transmit: Option<([u8; 32], u32, u32)>,
    pub(crate) completions: Vec<Completion>,
    /// After the event.
    pub(crate) context: [u32; 13],
}

impl Record {
    pub(crate) fn new(kind: Kind, qpn: u32, now_ns: u64) -> Self {
        Self {
            kind,
            flags: 0,
            qpn,
            seq: 0,
            now_ns,
            addr: 0,
            deadline_ns: u64::MAX,
            rkey: 0,
            bytes: 0,
            imm: 0,
            beats: 0,
            packet: [0; 128],
            outcome: Outcome::None,
            write: None,
            transmit: None,
            completions: Vec::new(),
            context: [0; 13],
        }
    }

    /// Whether this is a packet that has an event.
    pub(crate) fn is_valid_packet(&self) -> bool {
        self.kind == Kind::Packet && self.outcome != Outcome::NoEvent
    }

    /// Writes all fields in a fixed order, numbers with their lowest byte first. `base` is the number that the
    /// hardware gives the first message.
    pub(crate) fn write_to(&self, base: u32, out: &mut impl Write) -> io::Result<()> {
        let words = |values: &[u32], out: &mut dyn Write| {
            values
                .iter()
                .try_for_each(|value| out.write_all(&value.to_le_bytes()))
        };
        let longs = |values: &[u64], out: &mut dyn Write| {
            values
                .iter()
                .try_for_each(|value| out.write_all(&value.to_le_bytes()))
        };
        words(&[self.kind as u32, self.flags, self.qpn, self.seq], out)?;
        longs(&[self.now_ns, self.addr, self.deadline_ns], out)?;
        words(&[self.rkey, self.bytes, self.imm, self.beats], out)?;
        out.write_all(&self.packet)?;
        let (addr, bytes, lanes) = self.write.unwrap_or_default();
        longs(&[addr, lanes[0], lanes[1]], out)?;
        let (header, offset, payload_bytes) = self.transmit.unwrap_or_default();
        out.write_all(&header)?;
        let valid = u32::from(self.write.is_some()) | u32::from(self.transmit.is_some()) << 1;
        words(&[bytes, offset, payload_bytes, valid], out)?;
        words(&self.context, out)?;
        let count = u32::try_from(self.completions.len()).unwrap_or(u32::MAX);
        words(&[self.outcome as u32, count], out)?;
        self.completions
            .iter()
            .try_for_each(|completion| words(&ended(completion, base), out))
    }
}

/// Why a message ended, its number, its bytes, and the immediate.
fn ended(completion: &Completion, base: u32) -> [u32; 4] {
    let number = |id: u64| crate::number(base, id);
    match *completion {
        Completion::Sent { id, bytes } => [3, number(id), bytes, 0],
        Completion::Received { id, bytes, end } => {
            let (why, imm) = match end {
                End::Last { imm } => (0, imm),
                End::Bytes { .. } => unreachable!("the hardware has completion by the last packet"),
                End::TimedOut => (1, 0),
                End::Preempted => (2, 0),
            };
            [why, number(id), bytes, imm]
        }
    }
}
