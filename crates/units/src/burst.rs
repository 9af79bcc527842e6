//! The length of bursts of losses.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::show::Time;

/// Shortest and longest mean time of a burst.
const SHORTEST: Duration = Duration::from_nanos(100);
const LONGEST: Duration = Duration::from_secs(3600);
const MOST: f64 = 1e6;

/// Mean length of bursts of losses: a number of losses in a row, or a time.
///
/// ```
/// use farwrite_units::Burst;
/// use std::time::Duration;
///
/// assert_eq!("20".parse(), Ok(Burst::Losses(20.0)));
/// assert_eq!("2ms".parse(), Ok(Burst::Time(Duration::from_millis(2))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Burst {
    /// Losses in a row, 1 to 1e6.
    Losses(f64),
    /// Time for which everything is lost, 100 ns to 1 h.
    Time(Duration),
}

impl FromStr for Burst {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(losses) = text.parse::<f64>() {
            return match (1.0..=MOST).contains(&losses) {
                true => Ok(Self::Losses(losses)),
                false => Err("a mean burst lies in 1 to 1e6 losses".to_owned()),
            };
        }
        match humantime::parse_duration(text) {
            Ok(time) if (SHORTEST..=LONGEST).contains(&time) => Ok(Self::Time(time)),
            Ok(_) => Err("a mean burst lies in 100ns to 1h".to_owned()),
            Err(_) => Err(
                "not a mean burst; write it like 20 for losses in a row, or like 2ms".to_owned(),
            ),
        }
    }
}

/// Shows a number of losses, or a time with its unit.
impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Losses(losses) => losses.fmt(f),
            Self::Time(time) => Time(*time).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_losses_and_units_make_times() {
        let shown = |text: &str| text.parse().map(|burst: Burst| burst.to_string());
        assert_eq!(shown("1.5"), Ok("1.5".to_owned()));
        assert_eq!(shown("1e6"), Ok("1000000".to_owned()));
        assert_eq!(shown("150us"), Ok("150 us".to_owned()));
        assert_eq!(shown("1h"), Ok("3600 s".to_owned()));
        for (text, told) in [
            ("0", "1 to 1e6 losses"),
            ("0.9", "1 to 1e6 losses"),
            ("-3", "1 to 1e6 losses"),
            ("nan", "1 to 1e6 losses"),
            ("2e6", "1 to 1e6 losses"),
            ("0s", "100ns to 1h"),
            ("99ns", "100ns to 1h"),
            ("2h", "100ns to 1h"),
            ("", "like 2ms"),
            ("2 packets", "like 2ms"),
            ("2m s", "like 2ms"),
        ] {
            let error = shown(text).expect_err(text);
            assert!(error.contains(told), "{text:?}: {error}");
        }
    }
}
