//! How often a NIC retransmits without progress.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Largest number of consecutive retransmissions of a NIC without progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retries {
    /// After this many, the flow fails.
    AtMost(u8),
    /// No limit, as in the RDMA trees of ns-3: `"unlimited"` in plans. A flow fails if no frame reaches any
    /// host for eight timeouts, and for a second at least.
    Unlimited,
}

const UNLIMITED: &str = "unlimited";

impl Retries {
    /// As the field of [`QpConfig`](farwrite_rc::QpConfig).
    pub(super) fn limit(self) -> Option<u8> {
        match self {
            Self::AtMost(retries) => Some(retries),
            Self::Unlimited => None,
        }
    }
}

impl<'de> Deserialize<'de> for Retries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NumberOrWord;
        impl Visitor<'_> for NumberOrWord {
            type Value = Retries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 0 to 255, or \"{UNLIMITED}\"")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Retries, E> {
                let retries = u8::try_from(number).map(Retries::AtMost);
                retries.map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Retries, E> {
                self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Retries, E> {
                match word {
                    UNLIMITED => Ok(Retries::Unlimited),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }
        }
        from.deserialize_any(NumberOrWord)
    }
}

impl Serialize for Retries {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::AtMost(retries) => to.serialize_u8(*retries),
            Self::Unlimited => to.serialize_str(UNLIMITED),
        }
    }
}
