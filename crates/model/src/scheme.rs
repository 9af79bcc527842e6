//! Schemes and their names.

use core::fmt;
use core::str::FromStr;

use farwrite_codes::Kind;
use farwrite_schemes::registry::SchemeName;

use crate::error::{ModelError, Wanted};

/// Highest number of chunks in a group, data and parity together.
const MAX_GROUP_CHUNKS: u32 = 4096;

/// A repair scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Selective repeat that detects losses by timeouts.
    SrRto,
    /// Selective repeat in which the receiver reports losses.
    SrNack,
    /// Go-Back-N: after a loss, the sender repeats everything from the lost chunk on.
    GoBackN,
    /// Parity chunks, with selective repeat for groups that cannot be decoded.
    Ec {
        /// The code of the parity chunks.
        code: Kind,
        /// Data chunks of a group.
        k: u32,
        /// Parity chunks of a group.
        m: u32,
    },
}

impl Scheme {
    /// The default timeout in round trips: 3 for `sr-rto` and for the fallback of erasure coding, 1
    /// for the schemes in which the receiver reports losses (paper section 5.1.1).
    pub fn default_rto_rtts(self) -> f64 {
        match self {
            Self::SrRto | Self::Ec { .. } => 3.0,
            Self::SrNack | Self::GoBackN => 1.0,
        }
    }

    /// The waits of the shipped protocol (`docs/protocol.md`) in round trips, for the arguments
    /// `rto_rtts` and `beta` of [`Setting`](crate::Setting).
    pub fn protocol_waits(self) -> (f64, f64) {
        match self {
            // P5.0.7.
            Self::SrRto => (3.0, 0.0),
            // P5.2.1.
            Self::SrNack | Self::GoBackN => (1.125, 0.0),
            // P5.4.9, and P5.4.12 with the interval of P5.2.3.
            Self::Ec { .. } => (1.25, 0.125),
        }
    }

    /// Parity chunks per data chunk, `m / k`. Zero for schemes without parity.
    pub fn parity_overhead(self) -> f64 {
        match self {
            Self::Ec { k, m, .. } => f64::from(m) / f64::from(k),
            _ => 0.0,
        }
    }

    /// Whether two schemes differ in `k` and `m` alone.
    pub(crate) fn is_alike(self, other: Self) -> bool {
        match (self, other) {
            (Self::Ec { code: one, .. }, Self::Ec { code: other, .. }) => one == other,
            _ => self == other,
        }
    }

    /// Checks `k` and `m`.
    pub(crate) fn check(self) -> Result<(), ModelError> {
        let Self::Ec { code, k, m } = self else {
            return Ok(());
        };
        let argument = |argument, value: u32, wants| ModelError::Argument {
            argument,
            unit: "chunks",
            value: f64::from(value),
            wants,
        };
        if k == 0 || k > MAX_GROUP_CHUNKS {
            return Err(argument("k", k, Wanted::GroupData));
        }
        if m == 0 || m > MAX_GROUP_CHUNKS - k {
            return Err(argument("m", m, Wanted::GroupParity));
        }
        if code == Kind::Xor && m > k {
            return Err(argument("m", m, Wanted::XorParity));
        }
        Ok(())
    }
}

impl TryFrom<SchemeName> for Scheme {
    type Error = ModelError;

    /// The model has no scheme whose messages may end as partial.
    fn try_from(name: SchemeName) -> Result<Self, ModelError> {
        match name {
            SchemeName::SrRto => Ok(Self::SrRto),
            SchemeName::SrNack => Ok(Self::SrNack),
            SchemeName::Gbn => Ok(Self::GoBackN),
            SchemeName::Ec(code) => {
                // A group has at most 255 chunks.
                let [k, m] =
                    [code.k(), code.m()].map(|chunks| u32::try_from(chunks).unwrap_or(255));
                let code = code.kind();
                Ok(Self::Ec { code, k, m })
            }
            _ => Err(ModelError::BestEffort(name.to_string())),
        }
    }
}

/// As [`SchemeName`], but groups of codes can be larger.
impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SrRto => SchemeName::SrRto.fmt(f),
            Self::SrNack => SchemeName::SrNack.fmt(f),
            Self::GoBackN => SchemeName::Gbn.fmt(f),
            Self::Ec { code, k, m } => write!(f, "{code}:{k},{m}"),
        }
    }
}

impl FromStr for Scheme {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        if text.starts_with("best-effort") {
            return Err(ModelError::BestEffort(text.to_owned()));
        }
        let unknown = || ModelError::Scheme(text.to_owned());
        if let Ok((code, k, m)) = Kind::parse_shape(text) {
            let [k, m] = [k, m].map(u32::try_from);
            let (k, m) = k.ok().zip(m.ok()).ok_or_else(unknown)?;
            let scheme = Self::Ec { code, k, m };
            scheme.check()?;
            return Ok(scheme);
        }
        let name = text.parse::<SchemeName>();
        name.map_err(|_| unknown())?.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in ["sr-rto", "sr-nack", "gbn", "ec-mds:32,8", "ec-xor:20,4"] {
            assert_eq!(name.parse::<Scheme>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn schemes_of_the_protocol_keep_their_names() {
        for name in SchemeName::EXACT {
            let scheme = Scheme::try_from(name).unwrap();
            assert_eq!(scheme.to_string(), name.to_string());
            assert_eq!(name.to_string().parse(), Ok(scheme));
        }
        for name in SchemeName::BOUNDED {
            let why = ModelError::BestEffort(name.to_string());
            assert_eq!(Scheme::try_from(name), Err(why));
        }
        // Groups of the protocol have at most 255 chunks.
        assert!("ec-mds:300,8".parse::<SchemeName>().is_err());
        assert_eq!(
            "ec-mds:300,8".parse::<Scheme>().unwrap().to_string(),
            "ec-mds:300,8"
        );
    }

    #[test]
    fn other_names_are_refused_with_the_right_ones() {
        for name in [
            "",
            "sr",
            "ec-mds",
            "ec-mds:32",
            "ec-mds:32,x",
            "ec-foo:1,1",
            "ec-mds:-1,2",
        ] {
            let error = name.parse::<Scheme>().unwrap_err().to_string();
            assert!(error.contains("ec-mds:K,M"), "{error}");
        }
        let error = "ec-xor:4,8".parse::<Scheme>().unwrap_err().to_string();
        assert_eq!(error, "m = 8 chunks: must be at most k for an XOR code");
        assert!("ec-mds:0,8".parse::<Scheme>().is_err());
        assert!("ec-mds:4000,97".parse::<Scheme>().is_err());
    }
}
