//! The names of the controllers, as programs, plans and Python write them.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// The name of a controller.
///
/// ```
/// use farwrite_rate::{RateControlName, UnknownRateControl};
///
/// let name: RateControlName = "swift".parse()?;
/// assert_eq!(name, RateControlName::Swift);
/// assert_eq!(name.to_string(), "swift");
/// # Ok::<(), UnknownRateControl>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateControlName {
    /// [`Adaptive`](crate::Adaptive).
    Adaptive,
    /// [`Fixed`](crate::Fixed).
    Fixed,
    /// [`Dcqcn`](crate::Dcqcn).
    Dcqcn,
    /// [`Swift`](crate::Swift).
    Swift,
    /// [`Eqds`](crate::Eqds).
    Eqds,
}

/// No controller has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRateControl {
    /// The name.
    pub name: String,
}

impl RateControlName {
    /// All controllers.
    pub const ALL: [Self; 5] = [
        Self::Adaptive,
        Self::Fixed,
        Self::Dcqcn,
        Self::Swift,
        Self::Eqds,
    ];

    /// The name as text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Fixed => "fixed",
            Self::Dcqcn => "dcqcn",
            Self::Swift => "swift",
            Self::Eqds => "eqds",
        }
    }
}

impl fmt::Display for RateControlName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for RateControlName {
    type Err = UnknownRateControl;

    fn from_str(name: &str) -> Result<Self, UnknownRateControl> {
        let mut all = Self::ALL.into_iter();
        all.find(|known| known.as_str() == name)
            .ok_or_else(|| UnknownRateControl {
                name: name.to_owned(),
            })
    }
}

impl fmt::Display for UnknownRateControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no rate control is called {:?}; there are", self.name)?;
        for (number, known) in RateControlName::ALL.into_iter().enumerate() {
            let before = match number {
                0 => " ",
                _ if number + 1 == RateControlName::ALL.len() => " and ",
                _ => ", ",
            };
            write!(f, "{before}{known}")?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownRateControl {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for name in RateControlName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        let unknown = "Swift".parse::<RateControlName>().unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "no rate control is called \"Swift\"; there are adaptive, fixed, dcqcn, swift and eqds"
        );
    }
}
