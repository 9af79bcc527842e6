//! The command-line syntax of queues, marks, variations, policers and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use farwrite_link::{Policer, Ramp, Reorder, Spread, Variation};
use farwrite_units::parse::{parse_count, parse_delay, parse_loss, parse_part, parse_rate};

/// The limit of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Queue {
    Bytes(u64),
    Time(Duration),
    Packets(u64),
}

impl FromStr for Queue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let packets = text.strip_suffix('p').and_then(|count| count.parse().ok());
        let queue = packets.map(Self::Packets);
        let queue = queue.or_else(|| parse_count(text).ok().map(Self::Bytes));
        let queue = queue.or_else(|| parse_delay(text).ok().map(Self::Time));
        queue.ok_or_else(|| "not a limit of a queue; write it like 1MB, 40ms or 1000p".to_owned())
    }
}

impl Queue {
    /// The number of bytes that take this time at a rate. Packets count as 1500 bytes.
    pub(super) fn bytes(self, rate_bps: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Packets(packets) => packets.saturating_mul(1500),
            Self::Time(time) => {
                let bits = u128::from(rate_bps) * time.as_nanos() / 1_000_000_000;
                u64::try_from(bits / 8).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Which packets are marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Marks {
    low: Queue,
    high: Queue,
    most: f64,
}

impl Marks {
    /// Converts times to bytes at the initial rate. Later steps do not change this.
    pub(super) fn ramp(self, rate_bps: u64) -> Ramp {
        Ramp {
            low_bytes: self.low.bytes(rate_bps),
            high_bytes: self.high.bytes(rate_bps),
            most: self.most,
        }
    }
}

impl FromStr for Marks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((low, rest)) = text.split_once("..") else {
            let limit = text.parse()?;
            return Ok(Self {
                low: limit,
                high: limit,
                most: 1.0,
            });
        };
        let (high, most) = rest
            .split_once(':')
            .ok_or("not a range of marks; write it like 100kB..400kB:0.2")?;
        let most: Option<f64> = most.parse().ok().filter(|most| (0.0..=1.0).contains(most));
        Ok(Self {
            low: low.parse()?,
            high: high.parse()?,
            most: most.ok_or("a share of marks lies in 0 to 1")?,
        })
    }
}

/// Parses the share of packets that are held back, and for how long.
pub(super) fn parse_reorder(text: &str) -> Result<Reorder, String> {
    let (share, time) = text
        .split_once(':')
        .ok_or("not a share and a time; write it like 1%:2ms")?;
    Ok(Reorder {
        probability: parse_loss(share).map_err(|_| {
            format!("{share:?}: the share of reordered packets lies in 0 to 0.5; write it like 1% or 0.01")
        })?,
        extra_delay: parse_delay(time)?,
    })
}

/// Parses a delay that varies, such as `uniform:10ms/30ms`: how it is distributed, and after a slash
/// how long each value stays. Without a slash, each packet has its own. Packets stay in order without
/// `+overtake`.
pub(super) fn parse_variation(text: &str) -> Result<Variation, String> {
    let (rest, overtakes) = match text.strip_suffix("+overtake") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (spread, every) = match rest.split_once('/') {
        Some((spread, every)) => (spread, parse_delay(every)?),
        None => (rest, Duration::ZERO),
    };
    let wrong = || {
        format!(
            "{text:?} is no variation; write it like uniform:10ms/30ms, normal:3ms..10ms/30ms, \
             spikes:5%:20ms/10ms or none"
        )
    };
    let spread = match spread.split_once(':') {
        None if text == "none" => Spread::None,
        Some(("uniform", most)) => Spread::Uniform {
            most: parse_delay(most)?,
        },
        Some(("normal", values)) => {
            let (deviation, most) = values.split_once("..").ok_or_else(wrong)?;
            Spread::Normal {
                deviation: parse_delay(deviation)?,
                most: parse_delay(most)?,
            }
        }
        Some(("spikes", values)) => {
            let (share, most) = values.split_once(':').ok_or_else(wrong)?;
            Spread::Spikes {
                share: parse_part(share)?,
                most: parse_delay(most)?,
            }
        }
        _ => return Err(wrong()),
    };
    Ok(Variation {
        spread,
        every,
        overtakes,
    })
}

/// Parses a policer, such as `10Mbit:24kB`: its rate, and the size of its bucket.
pub(super) fn parse_policer(text: &str) -> Result<Policer, String> {
    if text == "none" {
        return Ok(Policer::UNLIMITED);
    }
    let (rate, burst) = text
        .split_once(':')
        .ok_or("not a policer; write it like 10Mbit:24kB (rate and bucket), or none")?;
    Ok(Policer {
        rate_bps: parse_rate(rate)?,
        burst_bytes: parse_count(burst)?,
    })
}

/// The addresses of a device, with the prefix lengths of their networks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Addresses {
    pub(super) ipv4: Option<(Ipv4Addr, u8)>,
    pub(super) ipv6: Option<(Ipv6Addr, u8)>,
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut addresses = Self::default();
        for part in text.split(',') {
            let known = part
                .split_once('/')
                .and_then(|(address, bits)| Some((address.parse().ok()?, bits.parse().ok()?)));
            let before = match known {
                Some((IpAddr::V4(v4), bits @ 1..=32)) => {
                    addresses.ipv4.replace((v4, bits)).is_some()
                }
                Some((IpAddr::V6(v6), bits @ 1..=128)) => {
                    addresses.ipv6.replace((v6, bits)).is_some()
                }
                _ => {
                    return Err(format!(
                        "{part:?} is no address; write it like 10.77.0.1/24 or fd77::1/64"
                    ));
                }
            };
            if before {
                return Err("a device has one address of each IP version".to_owned());
            }
        }
        Ok(addresses)
    }
}
