//! The meaning of the first byte of a packet (IBTA 9.2.1, table 38).

use crate::header::{Aeth, Bth, Deth, IMMDT_BYTES, Reth};

/// UC RDMA WRITE Only with Immediate: the packet that carries data (P2).
pub const UC_WRITE_ONLY_WITH_IMM: u8 = 0x2B;
/// UC SEND Only: the packet that carries control messages (P4).
pub const UC_SEND_ONLY: u8 = 0x24;
/// First byte of a message between boxes in the path (P10.3, P11.2). No opcode has this value.
pub const BOX_MESSAGE: u8 = 0x1F;
/// First byte of a route packet (P6.2). No opcode has this value.
pub const ROUTE_PACKET: u8 = 0x1E;
/// First byte of a packet of a handshake (P12.3). No opcode has this value: 0x1C and 0x1D are FLUSH and
/// ATOMIC WRITE since IBTA 1.7.
pub const HANDSHAKE_PACKET: u8 = 0x1B;

/// A service of the transport, the high three bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (IBTA A17.9.3).
    Cnp,
}

/// Which part of a message a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// All of it.
    Only,
}

/// A header between BTH and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// Datagram (IBTA 9.3.2).
    Deth,
    /// Flush (IBTA annex A19).
    Feth,
    /// RDMA (IBTA 9.3.3).
    Reth,
    /// Atomic request (IBTA 9.3.4).
    AtomicEth,
    /// ACK (IBTA 9.3.5).
    Aeth,
    /// Atomic ACK (IBTA 9.5.3).
    AtomicAckEth,
    /// Immediate data (IBTA 9.3.6).
    ImmDt,
    /// Invalidate (IBTA 9.3.7).
    Ieth,
}

impl Extension {
    /// Bytes of the header.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Deth => Deth::BYTES,
            Self::Reth => Reth::BYTES,
            Self::AtomicEth => 28,
            Self::Aeth => Aeth::BYTES,
            Self::AtomicAckEth => 8,
            Self::ImmDt => IMMDT_BYTES,
            Self::Feth | Self::Ieth => 4,
        }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// The byte.
    pub value: u8,
    /// The service.
    pub class: Class,
    /// Its name in the specification.
    pub name: &'static str,
    /// Which part of a message it carries.
    pub position: Position,
    /// Headers after the BTH, in their order.
    pub extensions: &'static [Extension],
    /// Whether bytes may follow the headers.
    pub payload: bool,
}

impl Opcode {
    /// Bytes of the BTH and the extensions.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        Bth::BYTES + self.extensions.iter().map(|e| e.bytes()).sum::<usize>()
    }

    /// Where an extension starts, counted from the first byte of the BTH; `None` if the packet has
    /// no such header.
    #[must_use]
    pub fn offset_of(&self, extension: Extension) -> Option<usize> {
        let index = self.extensions.iter().position(|&e| e == extension)?;
        let before = self.extensions.iter().take(index).map(|e| e.bytes());
        Some(Bth::BYTES + before.sum::<usize>())
    }
}

/// Returns the table row of an opcode; `None` for reserved values and for services that are not
/// supported here (reliable datagram, 0x40 to 0x5F; extended reliable connection, 0xA0 to 0xBF;
/// manufacturer-specific, from 0xC0 on).
///
/// ```
/// use farwrite_wire::opcode::{UC_WRITE_ONLY_WITH_IMM, lookup};
///
/// let write = lookup(UC_WRITE_ONLY_WITH_IMM).expect("in the table");
/// assert_eq!(write.name, "UC RDMA WRITE Only with Immediate");
/// // BTH, RETH, ImmDt.
/// assert_eq!(write.header_bytes(), 12 + 16 + 4);
/// ```
#[must_use]
pub fn lookup(value: u8) -> Option<&'static Opcode> {
    TABLE[usize::from(value)].as_ref()
}

static TABLE: [Option<Opcode>; 256] = by_value();

const fn by_value() -> [Option<Opcode>; 256] {
    let mut table = [None; 256];
    let mut i = 0;
    while i < ROWS.len() {
        let value = ROWS[i].value as usize;
        assert!(table[value].is_none(), "two rows for one opcode");
        table[value] = Some(ROWS[i]);
        i += 1;
    }
    table
}

const fn row(
    value: u8,
    name: &'static str,
    position: Position,
    extensions: &'static [Extension],
    payload: bool,
) -> Opcode {
    let class = match value >> 5 {
        0b000 => Class::Rc,
        0b001 => Class::Uc,
        0b011 => Class::Ud,
        0b100 => Class::Cnp,
        _ => panic!("no class has this opcode"),
    };
    Opcode {
        value,
        class,
        name,
        position,
        extensions,
        payload,
    }
}

use Extension::{Aeth as A, Reth as R};
use Extension::{AtomicAckEth, AtomicEth, Deth as D, Feth, Ieth, ImmDt};
use Position::{First, Last, Middle, Only};

#[rustfmt::skip]
const ROWS: [Opcode; 40] = [
    row(0x00, "RC SEND First", First, &[], true),
    row(0x01, "RC SEND Middle", Middle, &[], true),
    row(0x02, "RC SEND Last", Last, &[], true),
    row(0x03, "RC SEND Last with Immediate", Last, &[ImmDt], true),
    row(0x04, "RC SEND Only", Only, &[], true),
    row(0x05, "RC SEND Only with Immediate", Only, &[ImmDt], true),
    row(0x06, "RC RDMA WRITE First", First, &[R], true),
    row(0x07, "RC RDMA WRITE Middle", Middle, &[], true),
    row(0x08, "RC RDMA WRITE Last", Last, &[], true),
    row(0x09, "RC RDMA WRITE Last with Immediate", Last, &[ImmDt], true),
    row(0x0A, "RC RDMA WRITE Only", Only, &[R], true),
    row(0x0B, "RC RDMA WRITE Only with Immediate", Only, &[R, ImmDt], true),
    row(0x0C, "RC RDMA READ Request", Only, &[R], false),
    row(0x0D, "RC RDMA READ response First", First, &[A], true),
    row(0x0E, "RC RDMA READ response Middle", Middle, &[], true),
    row(0x0F, "RC RDMA READ response Last", Last, &[A], true),
    row(0x10, "RC RDMA READ response Only", Only, &[A], true),
    row(0x11, "RC Acknowledge", Only, &[A], false),
    row(0x12, "RC ATOMIC Acknowledge", Only, &[A, AtomicAckEth], false),
    row(0x13, "RC CmpSwap", Only, &[AtomicEth], false),
    row(0x14, "RC FetchAdd", Only, &[AtomicEth], false),
    row(0x16, "RC SEND Last with Invalidate", Last, &[Ieth], true),
    row(0x17, "RC SEND Only with Invalidate", Only, &[Ieth], true),
    row(0x1C, "RC FLUSH", Only, &[Feth, R], false),
    row(0x1D, "RC ATOMIC WRITE", Only, &[R], true),
    row(0x20, "UC SEND First", First, &[], true),
    row(0x21, "UC SEND Middle", Middle, &[], true),
    row(0x22, "UC SEND Last", Last, &[], true),
    row(0x23, "UC SEND Last with Immediate", Last, &[ImmDt], true),
    row(0x24, "UC SEND Only", Only, &[], true),
    row(0x25, "UC SEND Only with Immediate", Only, &[ImmDt], true),
    row(0x26, "UC RDMA WRITE First", First, &[R], true),
    row(0x27, "UC RDMA WRITE Middle", Middle, &[], true),
    row(0x28, "UC RDMA WRITE Last", Last, &[], true),
    row(0x29, "UC RDMA WRITE Last with Immediate", Last, &[ImmDt], true),
    row(0x2A, "UC RDMA WRITE Only", Only, &[R], true),
    row(0x2B, "UC RDMA WRITE Only with Immediate", Only, &[R, ImmDt], true),
    row(0x64, "UD SEND Only", Only, &[D], true),
    row(0x65, "UD SEND Only with Immediate", Only, &[D, ImmDt], true),
    row(0x81, "CNP", Only, &[], true),
];
