//! A received RoCEv2 packet, read in place (P2).

use crate::header::{Aeth, Bth, Deth, ICRC_BYTES, IMMDT_BYTES, Reth};
use crate::opcode::{self, Extension, Opcode, Position};

/// Bytes of the IP and UDP headers in front of a packet without IP options.
#[must_use]
pub const fn ip_udp_bytes(is_ipv4: bool) -> u32 {
    let ip_bytes = if is_ipv4 { 20 } else { 40 };
    ip_bytes + 8
}

/// Why bytes are not a RoCEv2 packet that this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Byte 0 marks a box message (P10.3), so no BTH follows.
    #[error(
        "byte 0 is {:#04x}: a message of a box in the path, not a BTH",
        opcode::BOX_MESSAGE
    )]
    BoxMessage,
    /// The headers and the ICRC do not fit.
    #[error("a packet of at least {need_bytes} bytes was wanted, {have_bytes} came")]
    TooShort {
        /// Bytes that the headers and the ICRC take.
        need_bytes: usize,
        /// Bytes that came.
        have_bytes: usize,
    },
    /// Payload and padding are together not a multiple of 4 bytes.
    #[error("{bytes} bytes are not a multiple of 4")]
    Unaligned {
        /// Bytes of the packet.
        bytes: usize,
    },
    /// The opcode is reserved, or belongs to a service that is not supported.
    #[error("opcode {0:#04x} is of no RC, UC or UD packet")]
    UnknownOpcode(u8),
    /// The version of the BTH.
    #[error("version {0} of the transport header came, 0 was wanted")]
    Version(u8),
    /// The padding is longer than the bytes that contain it.
    #[error("{pad_bytes} bytes of padding in {payload_bytes} bytes")]
    Padding {
        /// The BTH's pad count.
        pad_bytes: usize,
        /// Bytes between the headers and the ICRC.
        payload_bytes: usize,
    },
    /// The opcode allows no payload, but the packet has one.
    #[error("{payload_bytes} bytes follow the headers of {}, which has no payload", .opcode.name)]
    UnexpectedPayload {
        /// The table row of the opcode.
        opcode: &'static Opcode,
        /// Bytes between the headers and the ICRC.
        payload_bytes: usize,
    },
    /// The length in a one-packet write differs from its payload (IBTA 9.7.4.1).
    #[error("the RETH says {dma_bytes} bytes, the packet has {payload_bytes}")]
    DmaLength {
        /// The RETH's length.
        dma_bytes: u32,
        /// Bytes of payload without padding.
        payload_bytes: usize,
    },
}

/// A packet with a known opcode, complete headers and consistent lengths. [`crate::icrc`] checks
/// the ICRC.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    opcode: &'static Opcode,
    payload: &'a [u8],
    icrc: u32,
}

impl<'a> Packet<'a> {
    /// Parses a whole UDP payload, from the BTH to the ICRC.
    ///
    /// # Errors
    /// One of [`ParseError`]. If several apply, it is the first in the order of that enum. As an
    /// exception, lengths beyond the BTH are checked only after the opcode is known.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        if bytes.first() == Some(&opcode::BOX_MESSAGE) {
            return Err(ParseError::BoxMessage);
        }
        let too_short = |header_bytes| ParseError::TooShort {
            need_bytes: header_bytes + ICRC_BYTES,
            have_bytes: bytes.len(),
        };
        let (body, icrc) = bytes
            .split_last_chunk::<ICRC_BYTES>()
            .ok_or(too_short(Bth::BYTES))?;
        let bth = Bth::parse(body.first_chunk().ok_or(too_short(Bth::BYTES))?);
        if !bytes.len().is_multiple_of(4) {
            return Err(ParseError::Unaligned { bytes: bytes.len() });
        }
        let opcode = opcode::lookup(bth.opcode).ok_or(ParseError::UnknownOpcode(bth.opcode))?;
        if bth.version != 0 {
            return Err(ParseError::Version(bth.version));
        }
        let padded = body
            .get(opcode.header_bytes()..)
            .ok_or(too_short(opcode.header_bytes()))?;
        let packet = Self {
            bytes,
            opcode,
            payload: unpad(padded, usize::from(bth.pad_bytes))?,
            // RoCEv2 sends it with its least significant byte first (P2.5).
            icrc: u32::from_le_bytes(*icrc),
        };
        packet.check_payload()?;
        Ok(packet)
    }

    fn check_payload(&self) -> Result<(), ParseError> {
        let payload_bytes = self.payload.len();
        if !self.opcode.payload && payload_bytes != 0 {
            return Err(ParseError::UnexpectedPayload {
                opcode: self.opcode,
                payload_bytes,
            });
        }
        if self.opcode.payload && self.opcode.position == Position::Only {
            let dma_bytes = self.reth().map(|reth| reth.dma_bytes);
            if let Some(dma_bytes) = dma_bytes.filter(|&b| usize::try_from(b) != Ok(payload_bytes))
            {
                return Err(ParseError::DmaLength {
                    dma_bytes,
                    payload_bytes,
                });
            }
        }
        Ok(())
    }

    /// The table row of the opcode.
    #[must_use]
    pub fn opcode(&self) -> &'static Opcode {
        self.opcode
    }

    /// The base transport header.
    ///
    /// # Panics
    /// Never: [`Packet::parse`] checked it.
    #[must_use]
    pub fn bth(&self) -> Bth {
        Bth::parse(self.bytes.first_chunk().expect("parse saw the BTH"))
    }

    /// The RDMA header, of packets that have one.
    #[must_use]
    pub fn reth(&self) -> Option<Reth> {
        self.extension(Extension::Reth).map(Reth::parse)
    }

    /// The immediate, of packets that have one.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        let bytes: &[u8; IMMDT_BYTES] = self.extension(Extension::ImmDt)?;
        Some(u32::from_be_bytes(*bytes))
    }

    /// The ACK header, of packets that have one.
    #[must_use]
    pub fn aeth(&self) -> Option<Aeth> {
        self.extension(Extension::Aeth).map(Aeth::parse)
    }

    /// The datagram header, of packets that have one.
    #[must_use]
    pub fn deth(&self) -> Option<Deth> {
        self.extension(Extension::Deth).map(Deth::parse)
    }

    /// The payload without its padding.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The ICRC of the packet, not checked.
    #[must_use]
    pub fn icrc(&self) -> u32 {
        self.icrc
    }

    fn extension<const N: usize>(&self, extension: Extension) -> Option<&'a [u8; N]> {
        let offset = self.opcode.offset_of(extension)?;
        self.bytes.get(offset..)?.first_chunk()
    }
}

fn unpad(padded: &[u8], pad_bytes: usize) -> Result<&[u8], ParseError> {
    let payload_bytes = padded.len().checked_sub(pad_bytes);
    payload_bytes
        .and_then(|n| padded.get(..n))
        .ok_or(ParseError::Padding {
            pad_bytes,
            payload_bytes: padded.len(),
        })
}
