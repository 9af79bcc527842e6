//! The schemes of this crate, by name and by tag (P5).

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use farwrite_codes::{Code, Kind, ParseCodeError};
use farwrite_wire::control::SchemeTag;

use crate::best_effort::BestEffort;
use crate::erasure::ErasureCoding;
use crate::go_back_n::GoBackN;
use crate::scheme::Scheme;
use crate::selective_repeat::SelectiveRepeat;
use crate::timing::Alpha;

/// The name of a scheme as a user writes it: `sr-rto`, `sr-nack`, `gbn`, `ec-xor:32,8` or
/// `ec-mds:32,8`, with any numbers of data and parity chunks a group that make a [`Code`];
/// `best-effort`, `best-effort+sr`, `best-effort+ec-xor:32,8`, `best-effort+ec-mds:32,8`,
/// `best-effort+first` or `best-effort+exact`.
///
/// ```
/// use farwrite_schemes::registry::{ParseSchemeError, SchemeName, from_tag};
///
/// let scheme = "ec-mds:20,4".parse::<SchemeName>()?.scheme();
/// assert_eq!(scheme.tag().id, 5);
/// assert!(from_tag(scheme.tag()).is_some());
/// # Ok::<(), ParseSchemeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemeName {
    /// Selective repeat with timeouts alone (P5.1).
    SrRto,
    /// Selective repeat with NACKs (P5.2).
    SrNack,
    /// Go-back-N (P5.3).
    Gbn,
    /// Erasure coding with this code (P5.4).
    Ec(Code),
    /// Best effort, without any repair (P5.9).
    BestEffort,
    /// Best effort, with selective repeat while it can help (P5.9).
    BestEffortSr,
    /// Best effort, with erasure coding while it can help (P5.9).
    BestEffortEc(Code),
    /// Best effort, with critical ranges first (P5.9).
    BestEffortFirst,
    /// Best effort, with critical ranges that are repeated until they have arrived (P5.9).
    BestEffortExact,
}

/// A name that is not a scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSchemeError {
    /// The name does not match any scheme.
    #[error(
        "no scheme is called {name:?}; there are sr-rto, sr-nack, gbn, and with any numbers of data \
         and parity chunks ec-xor:32,8 and ec-mds:32,8; and to end in time instead of whole, \
         best-effort, best-effort+sr, best-effort+ec-xor:32,8, best-effort+ec-mds:32,8, \
         best-effort+first and best-effort+exact"
    )]
    Unknown {
        /// The name.
        name: String,
    },
    /// The same, where everything must arrive.
    #[error(
        "no scheme is called {name:?}; there are sr-rto, sr-nack, gbn, and with any numbers of data \
         and parity chunks ec-xor:32,8 and ec-mds:32,8"
    )]
    UnknownExact {
        /// The name.
        name: String,
    },
    /// Best effort, although everything must arrive.
    #[error(
        "{name} ends a message in time, also where bytes are missing, but this data must arrive \
         whole: take sr-nack, or ec-mds:32,8"
    )]
    NotExact {
        /// The scheme.
        name: SchemeName,
    },
    /// Erasure coding with a code that does not exist.
    #[error(transparent)]
    Code(#[from] ParseCodeError),
}

impl SchemeName {
    /// Every scheme that continues until a message is whole. The codes are those of the paper
    /// (section 5.2.1).
    pub const EXACT: [Self; 5] = [
        Self::SrRto,
        Self::SrNack,
        Self::Gbn,
        Self::Ec(usual(Kind::Xor)),
        Self::Ec(usual(Kind::Mds)),
    ];

    /// Every scheme whose messages may end as partial. The codes are those of [`Self::EXACT`].
    pub const BOUNDED: [Self; 6] = [
        Self::BestEffort,
        Self::BestEffortSr,
        Self::BestEffortEc(usual(Kind::Xor)),
        Self::BestEffortEc(usual(Kind::Mds)),
        Self::BestEffortFirst,
        Self::BestEffortExact,
    ];

    /// Returns whether the scheme continues until a message is whole. A message of another scheme
    /// may end as partial, whatever the terms of its receive are.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        !matches!(
            self,
            Self::BestEffort
                | Self::BestEffortSr
                | Self::BestEffortEc(_)
                | Self::BestEffortFirst
                | Self::BestEffortExact
        )
    }

    /// Reads the name of an [exact](Self::is_exact) scheme, for data that must arrive completely.
    ///
    /// # Errors
    /// Those of [`FromStr`], with [`ParseSchemeError::UnknownExact`], and [`ParseSchemeError::NotExact`].
    pub fn parse_exact(name: &str) -> Result<Self, ParseSchemeError> {
        let name: Self = name.parse().map_err(|error| match error {
            ParseSchemeError::Unknown { name } => ParseSchemeError::UnknownExact { name },
            error => error,
        })?;
        match name.is_exact() {
            true => Ok(name),
            false => Err(ParseSchemeError::NotExact { name }),
        }
    }

    /// The scheme with its usual parameters.
    pub fn scheme(self) -> Box<dyn Scheme + Send + Sync> {
        self.with_alpha(match self {
            Self::Ec(_) | Self::BestEffortEc(_) => ErasureCoding::ALPHA,
            _ => Alpha::DEFAULT,
        })
    }

    /// The tag of the scheme with its usual parameters.
    pub fn tag(self) -> SchemeTag {
        self.scheme().tag()
    }

    /// The name of the scheme that a tag selects. `None` if this crate has no scheme with that id,
    /// or cannot read its parameters.
    #[must_use]
    pub fn from_tag(tag: SchemeTag) -> Option<Self> {
        match tag.id {
            SelectiveRepeat::RTO_ID => Some(Self::SrRto),
            SelectiveRepeat::NACK_ID => Some(Self::SrNack),
            GoBackN::ID => Some(Self::Gbn),
            ErasureCoding::XOR_ID | ErasureCoding::MDS_ID => {
                Some(Self::Ec(ErasureCoding::from_tag(tag)?.code))
            }
            _ => Some(match BestEffort::from_tag(tag)? {
                BestEffort::Alone => Self::BestEffort,
                BestEffort::Repeats(_) => Self::BestEffortSr,
                BestEffort::Parity(coding) => Self::BestEffortEc(coding.code),
                BestEffort::First => Self::BestEffortFirst,
                BestEffort::Exact(_) => Self::BestEffortExact,
            }),
        }
    }

    /// The scheme with this timeout. Best effort without repair has no timeout.
    pub fn with_alpha(self, alpha: Alpha) -> Box<dyn Scheme + Send + Sync> {
        match self {
            Self::SrRto => Box::new(SelectiveRepeat::with_timeouts(alpha)),
            Self::SrNack => Box::new(SelectiveRepeat::with_nacks(alpha)),
            Self::Gbn => Box::new(GoBackN::new(alpha)),
            Self::Ec(code) => Box::new(ErasureCoding::new(code, alpha)),
            Self::BestEffort => Box::new(BestEffort::Alone),
            Self::BestEffortFirst => Box::new(BestEffort::First),
            Self::BestEffortExact => Box::new(BestEffort::Exact(alpha)),
            Self::BestEffortSr => Box::new(BestEffort::Repeats(alpha)),
            Self::BestEffortEc(code) => {
                Box::new(BestEffort::Parity(ErasureCoding::new(code, alpha)))
            }
        }
    }
}

/// 32 data and 8 parity chunks.
const fn usual(kind: Kind) -> Code {
    match Code::new(kind, 32, 8) {
        Ok(code) => code,
        Err(_) => unreachable!(),
    }
}

impl From<SchemeName> for SchemeTag {
    fn from(name: SchemeName) -> Self {
        name.tag()
    }
}

impl fmt::Display for SchemeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SrRto => f.write_str("sr-rto"),
            Self::SrNack => f.write_str("sr-nack"),
            Self::Gbn => f.write_str("gbn"),
            Self::Ec(code) => code.fmt(f),
            Self::BestEffort => f.write_str("best-effort"),
            Self::BestEffortSr => f.write_str("best-effort+sr"),
            Self::BestEffortEc(code) => write!(f, "best-effort+{code}"),
            Self::BestEffortFirst => f.write_str("best-effort+first"),
            Self::BestEffortExact => f.write_str("best-effort+exact"),
        }
    }
}

impl FromStr for SchemeName {
    type Err = ParseSchemeError;

    fn from_str(name: &str) -> Result<Self, ParseSchemeError> {
        match name {
            "sr-rto" => Ok(Self::SrRto),
            "sr-nack" => Ok(Self::SrNack),
            "gbn" => Ok(Self::Gbn),
            "best-effort" => Ok(Self::BestEffort),
            "best-effort+sr" => Ok(Self::BestEffortSr),
            "best-effort+first" => Ok(Self::BestEffortFirst),
            "best-effort+exact" => Ok(Self::BestEffortExact),
            _ if name.starts_with("ec-") => Ok(Self::Ec(name.parse()?)),
            _ if name.starts_with("best-effort+ec-") => {
                let code = name.trim_start_matches("best-effort+");
                Ok(Self::BestEffortEc(code.parse()?))
            }
            _ => Err(ParseSchemeError::Unknown {
                name: name.to_owned(),
            }),
        }
    }
}

/// The scheme that a tag selects. `None` if this crate has no scheme with that id, or cannot read
/// its parameters.
pub fn from_tag(tag: SchemeTag) -> Option<Box<dyn Scheme + Send + Sync>> {
    let name = match tag.id {
        SelectiveRepeat::RTO_ID => SchemeName::SrRto,
        SelectiveRepeat::NACK_ID => SchemeName::SrNack,
        GoBackN::ID => SchemeName::Gbn,
        ErasureCoding::XOR_ID | ErasureCoding::MDS_ID => {
            return Some(Box::new(ErasureCoding::from_tag(tag)?));
        }
        _ => return Some(Box::new(BestEffort::from_tag(tag)?)),
    };
    Some(name.with_alpha(Alpha::from_params(tag.params)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_and_tags_lead_back_to_the_same_scheme() {
        let all = SchemeName::EXACT.into_iter().chain(SchemeName::BOUNDED);
        for (name, id) in all.zip(1..) {
            assert_eq!(name.to_string().parse(), Ok(name));
            assert_eq!(name.is_exact(), !name.scheme().is_bounded());
            assert_eq!(name.is_exact(), SchemeName::EXACT.contains(&name));
            let tag = name.with_alpha(Alpha::from_256ths(0x1234)).tag();
            let params = match name {
                SchemeName::Ec(_) | SchemeName::BestEffortEc(_) => [32, 8, 0x12, 0x34, 32, 0],
                SchemeName::BestEffort | SchemeName::BestEffortFirst => [0; 6],
                _ => [0x12, 0x34, 0, 0, 0, 0],
            };
            assert_eq!(tag, SchemeTag { id, params });
            assert_eq!(from_tag(tag).unwrap().tag(), tag);
            assert_eq!(SchemeName::from_tag(tag), Some(name));
        }
    }

    #[test]
    fn where_everything_must_arrive_best_effort_is_refused_by_name() {
        for name in SchemeName::EXACT {
            assert_eq!(SchemeName::parse_exact(&name.to_string()), Ok(name));
        }
        for name in SchemeName::BOUNDED.map(|name| name.to_string()) {
            let message = SchemeName::parse_exact(&name).unwrap_err().to_string();
            assert!(message.starts_with(&name), "{message}");
            assert!(message.contains("must arrive whole"), "{message}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let message = "tcp".parse::<SchemeName>().unwrap_err().to_string();
        for name in SchemeName::EXACT.into_iter().chain(SchemeName::BOUNDED) {
            assert!(message.contains(&name.to_string()), "{message}");
        }
        assert!(message.contains("tcp"));
    }

    #[test]
    fn a_code_that_there_is_not_is_answered_with_why() {
        for (name, why) in [
            ("ec-mds:200,100", "at most 255"),
            ("ec-xor:4,8", "m is at most k"),
            ("ec-mds:0,8", "at least 1"),
            ("ec-lt:32,8", "ec-mds:32,8"),
            ("ec-mds", "ec-mds:32,8"),
            ("best-effort+ec-mds:200,100", "at most 255"),
        ] {
            let message = name.parse::<SchemeName>().unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn tags_of_others_and_unreadable_parameters_are_refused() {
        for id in [0, 12, 127, 128, 255] {
            let params = [0; 6];
            assert!(from_tag(SchemeTag { id, params }).is_none(), "{id}");
            assert_eq!(SchemeName::from_tag(SchemeTag { id, params }), None, "{id}");
        }
        for (id, params) in [
            (1, [2, 0, 0, 0, 0, 1]),
            (4, [32, 8, 2, 0, 16, 1]),
            (4, [32, 8, 2, 0, 0, 0]),
            (4, [8, 32, 2, 0, 16, 0]),
            (5, [0, 8, 2, 0, 16, 0]),
            (5, [32, 0, 2, 0, 16, 0]),
            (5, [200, 100, 2, 0, 16, 0]),
            (6, [2, 0, 0, 0, 0, 0]),
            (7, [2, 0, 0, 0, 0, 1]),
            (8, [8, 32, 2, 0, 16, 0]),
            (9, [32, 8, 2, 0, 0, 0]),
            (10, [2, 0, 0, 0, 0, 0]),
            (11, [2, 0, 0, 0, 0, 1]),
        ] {
            let tag = SchemeTag { id, params };
            assert!(from_tag(tag).is_none(), "{tag:?}");
        }
    }
}
