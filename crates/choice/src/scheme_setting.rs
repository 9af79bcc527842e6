//! The choice of what repairs losses: one scheme, or the planner.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use farwrite::SchemeName;
use farwrite::schemes::registry::ParseSchemeError;

/// What repairs losses.
///
/// ```
/// use farwrite_choice::SchemeSetting;
///
/// assert_eq!("auto".parse(), Ok(SchemeSetting::Auto));
/// let named: SchemeSetting = "ec-mds:32,8".parse().expect("a scheme");
/// assert_eq!(named.to_string(), "ec-mds:32,8");
/// // Everything must arrive.
/// assert!("best-effort".parse::<SchemeSetting>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemeSetting {
    /// The planner decides, message by message, from a few candidates.
    Auto,
    /// This scheme.
    Named(SchemeName),
}

impl SchemeSetting {
    /// The planner's candidates: only a few, since a receiver admits few on a queue pair.
    const CANDIDATES: [&str; 5] = [
        "sr-nack",
        "ec-xor:32,8",
        "ec-mds:128,4",
        "ec-mds:32,4",
        "ec-mds:32,8",
    ];

    /// The schemes that a message may be sent with.
    #[must_use]
    pub fn candidates(self) -> Vec<SchemeName> {
        match self {
            Self::Auto => Self::CANDIDATES
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect(),
            Self::Named(name) => vec![name],
        }
    }

    /// The candidate that sends the most parity. Memory for its parity is enough for every
    /// candidate.
    #[must_use]
    pub fn most_parity(self) -> SchemeName {
        match self {
            Self::Auto => SchemeName::EXACT[4],
            Self::Named(name) => name,
        }
    }
}

impl fmt::Display for SchemeSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named(name) => name.fmt(f),
        }
    }
}

impl From<SchemeName> for SchemeSetting {
    fn from(name: SchemeName) -> Self {
        Self::Named(name)
    }
}

/// A name that is neither `auto` nor an exact scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSettingError(ParseSchemeError);

impl fmt::Display for ParseSettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_auto = match self.0 {
            ParseSchemeError::UnknownExact { .. } => "; or auto, which chooses",
            _ => "",
        };
        write!(f, "{}{or_auto}", self.0)
    }
}

impl Error for ParseSettingError {}

impl FromStr for SchemeSetting {
    type Err = ParseSettingError;

    fn from_str(name: &str) -> Result<Self, ParseSettingError> {
        match name {
            "auto" => Ok(Self::Auto),
            _ => SchemeName::parse_exact(name)
                .map(Self::Named)
                .map_err(ParseSettingError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::parity_bytes;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for name in ["auto", "sr-nack", "ec-mds:20,4"] {
            let choice = name.parse::<SchemeSetting>().expect(name);
            assert_eq!(choice.to_string(), name);
        }
        let wrong = "automatic".parse::<SchemeSetting>();
        let told = wrong.expect_err("no scheme").to_string();
        assert!(
            told.contains("or auto") && !told.contains("best-effort"),
            "{told}"
        );
        for name in SchemeName::BOUNDED.map(|name| name.to_string()) {
            name.parse::<SchemeSetting>().expect_err("it is not exact");
        }
    }

    #[test]
    fn there_is_room_for_the_parity_of_every_candidate() {
        assert_eq!(
            SchemeSetting::Auto.candidates().len(),
            SchemeSetting::CANDIDATES.len()
        );
        assert_eq!(SchemeSetting::Auto.most_parity().to_string(), "ec-mds:32,8");
        for candidate in SchemeSetting::Auto.candidates() {
            for bytes in [1, 4096, 4097, 31 * 4096, 33 * 4096, 127 * 4096, 8 << 20] {
                let most = parity_bytes(SchemeSetting::Auto.most_parity(), bytes, 4096);
                let parity = parity_bytes(candidate, bytes, 4096);
                assert!(parity <= most, "{candidate} at {bytes}: {parity} > {most}");
            }
        }
    }
}
