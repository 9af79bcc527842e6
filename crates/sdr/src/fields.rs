//! The typed fields at the end of queue-pair information (P6.1).

use alloc::vec::Vec;
use core::fmt;

use farwrite_wire::timing::Timing;

/// Maximum size of all fields together, in bytes.
const MAX_BYTES: usize = 4096;
const MAX_COUNT: usize = 64;
/// Flag: a reader that does not know the type must reject the information.
const REQUIRED: u16 = 0x8000;
const TIMING_TYPE: u16 = 1;
const ENDPOINT_TYPE: u16 = 2;
const FEATURES_TYPE: u16 = 3;
/// Feature: the end answers requests for reads (P3.13).
const ANSWERS_READS: u64 = 1;
/// Feature: the end grants credit to senders that ask for it (P4.12).
const GRANTS_CREDIT: u64 = 2;
/// Feature: the end reads the count of stale packets in peer feedback (P4.10).
const READS_STALE: u64 = 4;
/// Feature: the end seals data packets if its peer does (P2.7).
const SEALS: u64 = 8;
/// Feature: the end connects only to a peer that seals.
const REQUIRES_SEALING: u64 = 16;
/// Feature: the processor of the end has instructions for AES.
const HAS_AES: u64 = 32;
/// Feature: the end omits the ICRC of sealed packets if its peer does (P2.7).
const OMITS_ICRC: u64 = 64;
/// Bytes of a duration in nanoseconds.
const DURATION_BYTES: usize = 8;

/// Identifies the endpoint instance of a queue pair.
///
/// Two queue pairs connect the same two endpoints if the ids at both ends are equal. The id is
/// random and not secret. The peer can claim any id, so an id must not give access to anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub [u8; 16]);

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointId({self})")
    }
}

/// What is wrong with the fields of queue-pair information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The fields have more bytes than allowed.
    #[error("{0} bytes of fields, at most {MAX_BYTES} are allowed")]
    Bytes(usize),
    /// There are more fields than allowed.
    #[error("more than {MAX_COUNT} fields")]
    Count,
    /// The bytes end inside a field. The value is the number of bytes of that field that are
    /// present.
    #[error("the last {0} bytes are no whole field")]
    Truncated(usize),
    /// A type that is not higher than the type of the previous field.
    #[error("a field of type {kind} comes after one of type {before}: types must ascend")]
    Order {
        /// The type.
        kind: u16,
        /// The type of the previous field.
        before: u16,
    },
    /// A value of the wrong length.
    #[error("the field of type {kind} has {got} bytes, {want} expected")]
    Length {
        /// The type.
        kind: u16,
        /// Actual bytes.
        got: usize,
        /// Expected bytes.
        want: usize,
    },
    /// A field that the peer marked as required. This version does not know its type.
    #[error(
        "the peer requires the field of type {0}, which this end does not know: update this end"
    )]
    Unknown(u16),
    /// A required field is missing.
    #[error("the field of type {0} is missing")]
    Missing(u16),
}

#[derive(Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) timing: Timing,
    pub(crate) endpoint: EndpointId,
    pub(crate) grants_credit: bool,
    pub(crate) answers_reads: bool,
    pub(crate) reads_stale: bool,
    pub(crate) seals: bool,
    pub(crate) requires_sealing: bool,
    pub(crate) has_aes: bool,
    pub(crate) omits_icrc: bool,
}

impl Fields {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let durations = self.timing.fields().map(|(_, ns)| ns.to_be_bytes());
        // Required: an end that ignored it would use other timeouts.
        push(out, TIMING_TYPE, REQUIRED, durations.as_flattened());
        push(out, ENDPOINT_TYPE, 0, &self.endpoint.0);
        let features = [
            (self.answers_reads, ANSWERS_READS),
            (self.grants_credit, GRANTS_CREDIT),
            (self.reads_stale, READS_STALE),
            (self.seals, SEALS),
            (self.requires_sealing, REQUIRES_SEALING),
            (self.has_aes, HAS_AES),
            (self.omits_icrc, OMITS_ICRC),
        ];
        let bits = features.map(|(has, bit)| if has { bit } else { 0 });
        let features = bits.iter().fold(0, |all, bit| all | bit);
        push(out, FEATURES_TYPE, 0, &u64::to_be_bytes(features));
    }

    /// Reads all fields. The last field ends where `bytes` ends.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FieldError> {
        if bytes.len() > MAX_BYTES {
            return Err(FieldError::Bytes(bytes.len()));
        }
        let (mut timing, mut endpoint, mut features) = (None, None, 0);
        let (mut rest, mut before, mut count) = (bytes, None, 0);
        while !rest.is_empty() {
            let field = Field::read(&mut rest).ok_or(FieldError::Truncated(rest.len()))?;
            let kind = field.kind;
            if let Some(before) = before.filter(|&before| kind <= before) {
                return Err(FieldError::Order { kind, before });
            }
            before = Some(kind);
            count += 1;
            if count > MAX_COUNT {
                return Err(FieldError::Count);
            }
            match kind {
                TIMING_TYPE => timing = Some(field.timing()?),
                ENDPOINT_TYPE => endpoint = Some(EndpointId(field.array()?)),
                FEATURES_TYPE => features = u64::from_be_bytes(field.array()?),
                _ if field.flags & REQUIRED != 0 => return Err(FieldError::Unknown(kind)),
                _ => {}
            }
        }
        Ok(Self {
            timing: timing.ok_or(FieldError::Missing(TIMING_TYPE))?,
            endpoint: endpoint.ok_or(FieldError::Missing(ENDPOINT_TYPE))?,
            grants_credit: features & GRANTS_CREDIT != 0,
            answers_reads: features & ANSWERS_READS != 0,
            reads_stale: features & READS_STALE != 0,
            seals: features & SEALS != 0,
            requires_sealing: features & REQUIRES_SEALING != 0,
            has_aes: features & HAS_AES != 0,
            omits_icrc: features & OMITS_ICRC != 0,
        })
    }
}

fn push(out: &mut Vec<u8>, kind: u16, flags: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    for number in [kind, flags, length] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(value);
}

struct Field<'a> {
    kind: u16,
    flags: u16,
    value: &'a [u8],
}

impl<'a> Field<'a> {
    /// Reads a field from the front. Returns `None` if the bytes end inside it, and then leaves
    /// them unchanged.
    fn read(bytes: &mut &'a [u8]) -> Option<Self> {
        let (&[k0, k1, f0, f1, l0, l1], tail) = bytes.split_first_chunk()?;
        let (value, tail) = tail.split_at_checked(u16::from_be_bytes([l0, l1]).into())?;
        *bytes = tail;
        Some(Self {
            kind: u16::from_be_bytes([k0, k1]),
            flags: u16::from_be_bytes([f0, f1]),
            value,
        })
    }

    fn array<const N: usize>(&self) -> Result<[u8; N], FieldError> {
        self.value.try_into().map_err(|_| FieldError::Length {
            kind: self.kind,
            got: self.value.len(),
            want: N,
        })
    }

    fn timing(&self) -> Result<Timing, FieldError> {
        const BYTES: usize = Timing::wide_area().fields().len() * DURATION_BYTES;
        let mut values = [0; BYTES / DURATION_BYTES];
        let bytes: [u8; BYTES] = self.array()?;
        let (durations, _) = bytes.as_chunks();
        for (value, duration) in values.iter_mut().zip(durations) {
            *value = u64::from_be_bytes(*duration);
        }
        Ok(Timing::from_values(values))
    }
}
