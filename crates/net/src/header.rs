//! Parsed headers that follow UDP in a frame.

use std::sync::Arc;

use farwrite_wire::header::{Aeth, Bth, Deth, IMMDT_BYTES, Reth};
use farwrite_wire::opcode::{self, Extension, Opcode};
use farwrite_wire::packet::Packet;
use farwrite_wire::request::WriteImm;

/// Everything between the UDP header and the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// The headers of a RoCEv2 packet.
    Roce(Roce),
    /// Other bytes, for example the header of a repair packet. No padding and no ICRC follow them.
    Other(Arc<[u8]>),
}

/// The headers of a RoCEv2 packet, in wire order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roce {
    /// The base transport header. Serialization sets its pad count.
    pub bth: Bth,
    /// The datagram extended transport header.
    pub deth: Option<Deth>,
    /// The RDMA extended transport header.
    pub reth: Option<Reth>,
    /// The ACK extended transport header.
    pub aeth: Option<Aeth>,
    /// The immediate value.
    pub imm: Option<u32>,
}

/// Why headers do not form a valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The opcode is unknown.
    #[error("opcode {0:#04x} does not belong to an RC, UC or UD packet")]
    UnknownOpcode(u8),
    /// The headers present do not match the opcode.
    #[error(
        "{} has {:?} between its BTH and its payload, and not {present:?}",
        opcode.name,
        opcode.extensions
    )]
    Extensions {
        /// The table row of the opcode, with the headers that the opcode requires.
        opcode: &'static Opcode,
        /// The headers that are present; `None` stands for an absent one.
        present: [Option<Extension>; 4],
    },
    /// The opcode has a header that frames cannot store.
    #[error("{} has a header of kind {extension:?}, which frames cannot store", .opcode.name)]
    Unsupported {
        /// The table row of the opcode.
        opcode: &'static Opcode,
        /// The header.
        extension: Extension,
    },
}

impl Header {
    /// Bytes of the header.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        match self {
            Self::Roce(roce) => roce.bytes(),
            // An IPv4 datagram has at most 65,535 bytes.
            Self::Other(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        }
    }
}

impl Roce {
    /// Headers of a packet that has only a BTH.
    #[must_use]
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            deth: None,
            reth: None,
            aeth: None,
            imm: None,
        }
    }

    /// Headers of a write with immediate, as Farwrite's queue pairs send it (P2.2 to P2.4).
    #[must_use]
    pub fn of_write(write: &WriteImm) -> Self {
        Self {
            reth: Some(write.reth()),
            imm: Some(write.imm),
            ..Self::new(write.bth())
        }
    }

    /// Bytes of the headers that are present.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        let extensions = self.present().into_iter().flatten();
        let bytes = Bth::BYTES + extensions.map(Extension::bytes).sum::<usize>();
        // Four headers of at most 16 bytes.
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Parses the headers of a packet.
    ///
    /// # Errors
    /// [`HeaderError::Unsupported`] for atomics, invalidations and flushes.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, HeaderError> {
        use Extension::{Aeth, Deth, ImmDt, Reth};
        let opcode = packet.opcode();
        let mut extensions = opcode.extensions.iter();
        if let Some(&extension) = extensions.find(|e| !matches!(e, Deth | Reth | Aeth | ImmDt)) {
            return Err(HeaderError::Unsupported { opcode, extension });
        }
        Ok(Self {
            bth: packet.bth(),
            deth: packet.deth(),
            reth: packet.reth(),
            aeth: packet.aeth(),
            imm: packet.imm(),
        })
    }

    /// Appends the bytes of the headers. `pad_bytes` is the padding that the payload needs.
    ///
    /// # Errors
    /// [`HeaderError::UnknownOpcode`], or [`HeaderError::Extensions`] if the headers do not match
    /// the opcode. In both cases, nothing is appended.
    pub fn emit(&self, pad_bytes: u8, out: &mut Vec<u8>) -> Result<(), HeaderError> {
        let opcode = self.bth.opcode;
        let opcode = opcode::lookup(opcode).ok_or(HeaderError::UnknownOpcode(opcode))?;
        let present = self.present();
        if !present
            .into_iter()
            .flatten()
            .eq(opcode.extensions.iter().copied())
        {
            return Err(HeaderError::Extensions { opcode, present });
        }
        let bth = Bth {
            pad_bytes,
            ..self.bth
        };
        append(out, |bytes: &mut [u8; Bth::BYTES]| bth.emit(bytes));
        if let Some(deth) = self.deth {
            append(out, |bytes: &mut [u8; Deth::BYTES]| deth.emit(bytes));
        }
        if let Some(reth) = self.reth {
            append(out, |bytes: &mut [u8; Reth::BYTES]| reth.emit(bytes));
        }
        if let Some(aeth) = self.aeth {
            append(out, |bytes: &mut [u8; Aeth::BYTES]| aeth.emit(bytes));
        }
        if let Some(imm) = self.imm {
            append(out, |bytes: &mut [u8; IMMDT_BYTES]| {
                *bytes = imm.to_be_bytes();
            });
        }
        Ok(())
    }

    fn present(&self) -> [Option<Extension>; 4] {
        [
            self.deth.map(|_| Extension::Deth),
            self.reth.map(|_| Extension::Reth),
            self.aeth.map(|_| Extension::Aeth),
            self.imm.map(|_| Extension::ImmDt),
        ]
    }
}

fn append<const N: usize>(out: &mut Vec<u8>, emit: impl FnOnce(&mut [u8; N])) {
    let mut bytes = [0; N];
    emit(&mut bytes);
    out.extend_from_slice(&bytes);
}
