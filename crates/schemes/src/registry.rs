//! The schemes of this crate, by name and by tag (P5).

use core::fmt;
use core::str::FromStr;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use farwrite_wire::control::SchemeTag;

use crate::go_back_n::GoBackN;
use crate::scheme::Scheme;
use crate::selective_repeat::SelectiveRepeat;
use crate::timing::Alpha;

/// The name of a scheme, as a user writes it: `sr-rto`, `sr-nack` or `gbn`.
///
/// ```
/// use farwrite_schemes::registry::{SchemeName, from_tag};
///
/// let scheme = "sr-nack".parse::<SchemeName>()?.scheme();
/// assert_eq!(scheme.tag().id, 2);
/// assert!(from_tag(scheme.tag()).is_some());
/// # Ok::<(), farwrite_schemes::registry::UnknownScheme>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemeName {
    /// Selective repeat with timeouts alone (P5.1).
    SrRto,
    /// Selective repeat with NACKs (P5.2).
    SrNack,
    /// Go-back-N (P5.3).
    Gbn,
}

/// A name that no scheme has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no scheme is called {name:?}; there are sr-rto, sr-nack and gbn")]
pub struct UnknownScheme {
    /// The name that was given.
    pub name: String,
}

impl SchemeName {
    /// All names.
    pub const ALL: [Self; 3] = [Self::SrRto, Self::SrNack, Self::Gbn];

    /// As a user writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SrRto => "sr-rto",
            Self::SrNack => "sr-nack",
            Self::Gbn => "gbn",
        }
    }

    /// The scheme with its usual parameters.
    pub fn scheme(self) -> Box<dyn Scheme + Send + Sync> {
        self.with_alpha(Alpha::DEFAULT)
    }

    /// How the scheme with its usual parameters is named on the wire.
    pub fn tag(self) -> SchemeTag {
        self.scheme().tag()
    }

    /// The scheme with this timeout.
    pub fn with_alpha(self, alpha: Alpha) -> Box<dyn Scheme + Send + Sync> {
        match self {
            Self::SrRto => Box::new(SelectiveRepeat::with_timeouts(alpha)),
            Self::SrNack => Box::new(SelectiveRepeat::with_nacks(alpha)),
            Self::Gbn => Box::new(GoBackN::new(alpha)),
        }
    }
}

impl From<SchemeName> for SchemeTag {
    fn from(name: SchemeName) -> Self {
        name.tag()
    }
}

impl fmt::Display for SchemeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SchemeName {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Self, UnknownScheme> {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == name);
        known.ok_or_else(|| UnknownScheme {
            name: name.to_owned(),
        })
    }
}

/// The scheme that a tag asks for; `None` if this crate has none of that id, or cannot read its
/// parameters.
pub fn from_tag(tag: SchemeTag) -> Option<Box<dyn Scheme + Send + Sync>> {
    let name = match tag.id {
        SelectiveRepeat::RTO_ID => SchemeName::SrRto,
        SelectiveRepeat::NACK_ID => SchemeName::SrNack,
        GoBackN::ID => SchemeName::Gbn,
        _ => return None,
    };
    Some(name.with_alpha(Alpha::from_params(tag.params)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_and_tags_lead_back_to_the_same_scheme() {
        for (name, id) in SchemeName::ALL.into_iter().zip(1..) {
            assert_eq!(name.to_string().parse(), Ok(name));
            let tag = name.with_alpha(Alpha::from_256ths(0x1234)).tag();
            let params = [0x12, 0x34, 0, 0, 0, 0];
            assert_eq!(tag, SchemeTag { id, params });
            assert_eq!(from_tag(tag).unwrap().tag(), tag);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let message = "tcp".parse::<SchemeName>().unwrap_err().to_string();
        for name in SchemeName::ALL {
            assert!(message.contains(name.as_str()), "{message}");
        }
        assert!(message.contains("tcp"));
    }

    #[test]
    fn tags_of_others_and_unreadable_parameters_are_refused() {
        for id in [0, 4, 127, 128, 255] {
            let params = [0; 6];
            assert!(from_tag(SchemeTag { id, params }).is_none(), "{id}");
        }
        let params = [2, 0, 0, 0, 0, 1];
        assert!(from_tag(SchemeTag { id: 1, params }).is_none());
    }
}
