//! Headers of a frame behind UDP, parsed.

use std::sync::Arc;

use farwrite_wire::header::{Aeth, Bth, Deth, IMMDT_BYTES, Reth};
use farwrite_wire::opcode::{self, Extension};
use farwrite_wire::packet::Packet;
use farwrite_wire::request::WriteImm;

/// What stands between the UDP header and the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Header {
    /// The headers of a RoCEv2 packet.
    Roce(Roce),
    /// Other bytes, such as the header of a repair packet; padding and ICRC do not follow them.
    Other(Arc<[u8]>),
}

/// The headers of a RoCEv2 packet, in the order in which they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roce {
    /// The base transport header. Its pad count is set when bytes are made.
    pub bth: Bth,
    /// The datagram header.
    pub deth: Option<Deth>,
    /// The RDMA header.
    pub reth: Option<Reth>,
    /// The ACK header.
    pub aeth: Option<Aeth>,
    /// The immediate.
    pub imm: Option<u32>,
}

/// Why headers are not those of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The opcode is unknown.
    #[error("opcode {0:#04x} is of no RC, UC or UD packet")]
    UnknownOpcode(u8),
    /// The headers present are not those that the opcode has.
    #[error("{name} has {expected:?} between its BTH and its payload, and not {present:?}")]
    Extensions {
        /// The opcode's name.
        name: &'static str,
        /// What the opcode has.
        expected: &'static [Extension],
        /// What came; `None` stands for a header that is absent.
        present: [Option<Extension>; 4],
    },
    /// The opcode has a header that frames do not keep.
    #[error("{name} has a header of kind {extension:?}, which frames do not carry")]
    Unsupported {
        /// The opcode's name.
        name: &'static str,
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

    /// Headers of a write with immediate, as queue pairs of Farwrite send it (P2.2 to P2.4).
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

    /// The headers of a packet.
    ///
    /// # Errors
    /// [`HeaderError::Unsupported`]: atomics, invalidations and flushes.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, HeaderError> {
        use Extension::{Aeth, Deth, ImmDt, Reth};
        let opcode = packet.opcode();
        let mut extensions = opcode.extensions.iter();
        if let Some(&extension) = extensions.find(|e| !matches!(e, Deth | Reth | Aeth | ImmDt)) {
            return Err(HeaderError::Unsupported {
                name: opcode.name,
                extension,
            });
        }
        Ok(Self {
            bth: packet.bth(),
            deth: packet.deth(),
            reth: packet.reth(),
            aeth: packet.aeth(),
            imm: packet.imm(),
        })
    }

    /// Appends the bytes of the headers for a payload that takes `pad_bytes` of padding.
    ///
    /// # Errors
    /// [`HeaderError::UnknownOpcode`], or [`HeaderError::Extensions`] if the opcode wants other
    /// headers than there are. Nothing is appended then.
    pub fn emit(&self, pad_bytes: u8, out: &mut Vec<u8>) -> Result<(), HeaderError> {
        let opcode = self.bth.opcode;
        let opcode = opcode::lookup(opcode).ok_or(HeaderError::UnknownOpcode(opcode))?;
        let present = self.present();
        if !present
            .into_iter()
            .flatten()
            .eq(opcode.extensions.iter().copied())
        {
            return Err(HeaderError::Extensions {
                name: opcode.name,
                expected: opcode.extensions,
                present,
            });
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
