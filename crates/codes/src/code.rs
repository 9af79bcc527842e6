//! The shape of a code: which parity chunks cover which data chunks. This module reads no data
//! bytes.

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::string::String;

use crate::mask::{ChunkMask, MAX_CHUNKS, Present};

/// The arithmetic that computes parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Parity chunk `i` is the XOR of the data chunks `j` with `j mod m = i`. It repairs one loss
    /// among these chunks (SDR-RDMA, section 4.1.2).
    Xor,
    /// Systematic Reed-Solomon over GF(2^8) (polynomial 0x11D) with ISA-L's Cauchy matrix. It is a
    /// maximum distance separable (MDS) code: any `n` parity chunks repair `n` missing data chunks.
    Mds,
}

impl Kind {
    /// Returns the name of the kind: the text before the colon in the name of a code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Xor => "ec-xor",
            Self::Mds => "ec-mds",
        }
    }
}

/// An erasure code with groups of `k` data chunks and `m` parity chunks. Its text form is
/// `ec-mds:32,8`.
///
/// ```
/// use farwrite_codes::{Code, Kind};
///
/// let code: Code = "ec-mds:32,8".parse()?;
/// assert_eq!((code.kind(), code.k(), code.m()), (Kind::Mds, 32, 8));
/// assert_eq!(code.to_string(), "ec-mds:32,8");
/// # Ok::<(), farwrite_codes::ParseCodeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    kind: Kind,
    k: u8,
    m: u8,
}

/// A code cannot have this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// `k` or `m` is 0.
    #[error("({k},{m}): a code has at least 1 data chunk and 1 parity chunk in a group")]
    Zero {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
    /// `k + m` is more than 255.
    #[error("({k},{m}) has too many chunks in a group: k and m together are at most 255")]
    TooLarge {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
    /// `m` is more than `k` in an XOR code, so some parity chunks would cover no data chunk.
    #[error(
        "XOR with {m} parity chunks for {k} data chunks: m is at most k, as more cover nothing"
    )]
    IdleParity {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
}

/// The text is not the name of a code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseCodeError {
    /// The text does not have the form `name:k,m` with a known name.
    #[error("{given:?} is not a code; codes are written ec-mds:32,8 or ec-xor:32,8")]
    Form {
        /// The given text.
        given: String,
    },
    /// `k` or `m` is not a number.
    #[error("{given:?} is not a number of chunks: 1 to 254 would do")]
    Number {
        /// The given text.
        given: String,
    },
    /// The numbers do not make a code.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

impl Code {
    /// Makes a code with `k` data chunks and `m` parity chunks in each group.
    ///
    /// # Errors
    /// If `k` or `m` is 0, if `k + m` is more than 255, or if `m` is more than `k` in an XOR code.
    pub const fn new(kind: Kind, k: usize, m: usize) -> Result<Self, ShapeError> {
        if k == 0 || m == 0 {
            return Err(ShapeError::Zero { k, m });
        }
        if k > MAX_CHUNKS || m > MAX_CHUNKS - k {
            return Err(ShapeError::TooLarge { k, m });
        }
        if matches!(kind, Kind::Xor) && m > k {
            return Err(ShapeError::IdleParity { k, m });
        }
        #[expect(clippy::cast_possible_truncation, reason = "both are below 255")]
        let (k, m) = (k as u8, m as u8);
        Ok(Self { kind, k, m })
    }

    /// Returns the arithmetic.
    pub const fn kind(self) -> Kind {
        self.kind
    }

    /// Returns the number of data chunks in a full group.
    pub const fn k(self) -> usize {
        self.k as usize
    }

    /// Returns the number of parity chunks in a full group.
    pub const fn m(self) -> usize {
        self.m as usize
    }

    /// Returns the number of parity chunks of a group with `data_chunks` data chunks. The last
    /// group of a message can have fewer than `k` data chunks. An XOR code then omits parity chunks
    /// that would cover no data chunk. A group without data has no parity.
    pub const fn parity_chunks(self, data_chunks: usize) -> usize {
        match self.kind {
            _ if data_chunks == 0 => 0,
            Kind::Xor if data_chunks < self.m() => data_chunks,
            _ => self.m(),
        }
    }

    /// Returns whether the present chunks of a group are enough to rebuild all its data.
    /// `data_chunks` is the number of data chunks of the group, at most `k`.
    pub fn recoverable(self, data_chunks: usize, present: &Present) -> bool {
        let missing = present.data.missing(data_chunks);
        let parity = ChunkMask::first(self.parity_chunks(data_chunks)).and(&present.parity);
        match self.kind {
            Kind::Mds => missing.len() <= parity.len(),
            Kind::Xor => {
                let mut unused = parity;
                missing.iter().all(|chunk| unused.remove(chunk % self.m()))
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{},{}", self.kind, self.k, self.m)
    }
}

impl Kind {
    /// Reads the text of a code of any size, such as `ec-mds:32,8`: the kind, `k` and `m`.
    ///
    /// # Errors
    /// [`ParseCodeError::Form`] or [`ParseCodeError::Number`].
    pub fn parse_shape(text: &str) -> Result<(Self, usize, usize), ParseCodeError> {
        let form = || ParseCodeError::Form {
            given: text.to_owned(),
        };
        let (name, shape) = text.split_once(':').ok_or_else(form)?;
        let kind = [Self::Xor, Self::Mds]
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(form)?;
        let (k, m) = shape.split_once(',').ok_or_else(form)?;
        let number = |text: &str| {
            text.parse().map_err(|_| ParseCodeError::Number {
                given: text.to_owned(),
            })
        };
        Ok((kind, number(k)?, number(m)?))
    }
}

impl FromStr for Code {
    type Err = ParseCodeError;

    fn from_str(text: &str) -> Result<Self, ParseCodeError> {
        let (kind, k, m) = Kind::parse_shape(text)?;
        Ok(Self::new(kind, k, m)?)
    }
}
