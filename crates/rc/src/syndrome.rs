//! The syndrome of an ACK header (IBTA, "AETH Format").

/// The responder's verdict in an ACK header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All packets up to this one are executed.
    Ack,
    /// All packets before this one are executed. This one needs a receive buffer, and there is
    /// none. The requester retransmits it after the time that this code stands for ([`RnrTimer`]).
    NotReady(RnrTimer),
    /// All packets before this one are executed. This one is refused.
    Nak(Nak),
}

/// Why a responder refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nak {
    /// Packets are missing before one that arrived. The requester retransmits them.
    Sequence,
    /// The packet does not fit the packets before it, has a wrong length, or does not fit the
    /// receive buffer. The connection ends.
    InvalidRequest,
    /// The key does not cover the memory. The connection ends.
    Access,
    /// The responder failed. The connection ends.
    Operation,
}

/// How long a requester waits after an RNR NAK: a 5-bit code of IBTA's table of RNR NAK timer
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// 10 us.
    pub const SHORTEST: Self = Self(1);

    /// The wait of each code, in units of 10 us.
    const WAITS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    /// The timer of a code; `None` above 31.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The wait in nanoseconds: 10 us for code 1 to 491.52 ms for code 31, and 655.36 ms for
    /// code 0.
    #[must_use]
    pub fn wait_ns(self) -> u64 {
        u64::from(Self::WAITS[usize::from(self.0)]) * 10_000
    }
}

/// The value instead of a credit count: the responder does not limit messages ahead of time (IBTA
/// 9.7.7.2).
const NO_CREDITS: u8 = 0x1F;
const ACK: u8 = 0b000 << 5;
const NOT_READY: u8 = 0b001 << 5;
const NAK: u8 = 0b011 << 5;

impl Syndrome {
    /// The byte in the header. An ACK has no credit count.
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack => ACK | NO_CREDITS,
            Self::NotReady(timer) => NOT_READY | timer.0,
            Self::Nak(nak) => {
                NAK | match nak {
                    Nak::Sequence => 0,
                    Nak::InvalidRequest => 1,
                    Nak::Access => 2,
                    Nak::Operation => 3,
                }
            }
        }
    }

    /// Parses the byte of a header; `None` for reserved values. Ignores credits.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        let value = byte & 0x1F;
        match byte & 0xE0 {
            ACK => Some(Self::Ack),
            NOT_READY => RnrTimer::from_code(value).map(Self::NotReady),
            NAK => Some(Self::Nak(match value {
                0 => Nak::Sequence,
                1 => Nak::InvalidRequest,
                2 => Nak::Access,
                3 => Nak::Operation,
                _ => return None,
            })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_specification() {
        let nak = |byte| Syndrome::from_byte(byte);
        assert_eq!(Syndrome::Ack.to_byte(), 0x1F);
        assert_eq!(nak(0x00), Some(Syndrome::Ack));
        assert_eq!(nak(0x60), Some(Syndrome::Nak(Nak::Sequence)));
        assert_eq!(nak(0x62), Some(Syndrome::Nak(Nak::Access)));
        for reserved in [0x40, 0x5F, 0x65, 0x80, 0xFF] {
            assert_eq!(nak(reserved), None, "{reserved:#x}");
        }
        for byte in (0..=u8::MAX).filter(|byte| byte & 0xE0 != 0) {
            assert!(Syndrome::from_byte(byte).is_none_or(|s| s.to_byte() == byte));
        }
    }

    #[test]
    fn waits_are_those_of_the_specification() {
        for (code, us) in [(0, 655_360), (1, 10), (12, 640), (14, 1280), (31, 491_520)] {
            assert_eq!(RnrTimer::from_code(code).unwrap().wait_ns(), us * 1000);
        }
        assert_eq!(RnrTimer::from_code(32), None);
    }
}
