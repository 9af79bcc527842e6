//! What a user sets in the environment.

use std::env;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use farwrite_choice::SchemeSetting;
use farwrite_keys::Psk;
use farwrite_units::parse::{parse_rate, parse_rtt};

use crate::failure::Failure;
use crate::handle::MOST_ADDRESSES;

/// The file with the secret that all ranks share.
const SECRET: &str = "FARWRITE_PSK_FILE";
/// `1`: ranks need no secret.
const UNAUTHENTICATED: &str = "FARWRITE_NCCL_UNAUTHENTICATED";
const SCHEME: &str = "FARWRITE_NCCL_SCHEME";
const RATE: &str = "FARWRITE_NCCL_RATE";
const RTT: &str = "FARWRITE_NCCL_RTT";
const PORT: &str = "FARWRITE_NCCL_PORT";
const ADDRESS: &str = "FARWRITE_NCCL_ADDRESS";

/// The round trip that NCCL is told without [`RTT`]: one between cities. NCCL asks before a peer is known.
const LIKELY_RTT: Duration = Duration::from_millis(10);

/// How a rank proves that it may take part.
#[derive(Clone, Debug)]
pub(crate) enum Secret {
    Psk(Psk),
    /// Anyone may.
    None,
    /// Nobody may.
    Missing,
}

/// The settings of a process.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) secret: Secret,
    pub(crate) scheme: SchemeSetting,
    /// What NCCL is told of the rate, in bits per second; `None`: that of the interface.
    pub(crate) rate_bps: Option<u64>,
    /// What NCCL is told of the round trip.
    pub(crate) rtt: Duration,
    /// The UDP port at which peers connect to the first device; 0: a free one.
    pub(crate) port: u16,
    /// The addresses that peers are told instead of that of the interface.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Names of interfaces, `NCCL_SOCKET_IFNAME`.
    pub(crate) interfaces: Option<String>,
    /// `NCCL_SOCKET_FAMILY`; true: IPv6.
    pub(crate) is_v6: Option<bool>,
}

impl Settings {
    /// Those of this process.
    ///
    /// # Errors
    /// [`Failure`] for a variable whose value is not valid.
    pub(crate) fn of_environment() -> Result<Self, Failure> {
        Self::of(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let secret = match (variable(SECRET), variable(UNAUTHENTICATED).as_deref()) {
            (Some(file), _) => {
                let loaded = Psk::load(Path::new(&file));
                Secret::Psk(loaded.map_err(|why| wrong(SECRET, &file, why))?)
            }
            (None, Some("1")) => Secret::None,
            (None, _) => Secret::Missing,
        };
        let scheme = variable(SCHEME).unwrap_or_else(|| "auto".into());
        let rate = variable(RATE);
        let rtt = variable(RTT);
        let port = variable(PORT).unwrap_or_else(|| "0".into());
        let addresses = variable(ADDRESS).map_or(Ok(Vec::new()), |text| addresses(&text))?;
        let is_v6 = match variable("NCCL_SOCKET_FAMILY").as_deref() {
            Some("AF_INET") => Some(false),
            Some("AF_INET6") => Some(true),
            _ => None,
        };
        Ok(Self {
            secret,
            scheme: scheme.parse().map_err(|why| wrong(SCHEME, &scheme, why))?,
            rate_bps: rate
                .map(|text| parse_rate(&text).map_err(|why| wrong(RATE, &text, why)))
                .transpose()?,
            rtt: rtt.map_or(Ok(LIKELY_RTT), |text| {
                parse_rtt(&text).map_err(|why| wrong(RTT, &text, why))
            })?,
            port: port
                .parse()
                .map_err(|_| wrong(PORT, &port, "a port lies in 0 to 65535"))?,
            addresses,
            interfaces: variable("NCCL_SOCKET_IFNAME"),
            is_v6,
        })
    }

    /// Checks that the addresses of the settings, which name one listener, are not told for several devices, each with
    /// a listener of its own. `devices` names them for people.
    ///
    /// # Errors
    /// [`Failure`] if they would be.
    pub(crate) fn check_devices(&self, devices: &[String]) -> Result<(), Failure> {
        if self.addresses.is_empty() || devices.len() < 2 {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{ADDRESS} says where peers reach one device, and there are {}, each with a port of its own ({}): name \
             one interface in NCCL_SOCKET_IFNAME, or unset {ADDRESS}",
            devices.len(),
            devices.join(", ")
        )))
    }

    /// What to say where a secret is needed and there is none.
    pub(crate) fn no_secret() -> Failure {
        Failure::usage(format!(
            "there is no secret: set {SECRET} to a file that `farwrite keygen FILE` has made, the same at all \
             ranks, or set {UNAUTHENTICATED}=1 if anyone may connect"
        ))
    }
}

fn addresses(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    let hint = "write up to three of ADDRESS:PORT, with commas between them";
    let parsed: Result<Vec<_>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    let parsed = parsed.map_err(|_| wrong(ADDRESS, text, hint))?;
    match parsed.len() {
        1..=MOST_ADDRESSES => Ok(parsed),
        _ => Err(wrong(ADDRESS, text, hint)),
    }
}

fn wrong(name: &str, value: &str, why: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{name}={value}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(values: &[(&str, &str)]) -> Result<Settings, Failure> {
        Settings::of(|name| {
            let found = values.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_defaults_ask_for_a_secret() {
        let settings = settings(&[]).expect("valid");
        assert!(matches!(settings.secret, Secret::Missing));
        assert_eq!(settings.scheme, SchemeSetting::Auto);
        assert!(Settings::no_secret().text.contains("FARWRITE_PSK_FILE"));
    }

    #[test]
    fn values_are_read() {
        let settings = settings(&[
            (UNAUTHENTICATED, "1"),
            (SCHEME, "sr-nack"),
            (RATE, "2Gbit"),
            (RTT, "25ms"),
            (PORT, "4792"),
            (ADDRESS, "192.0.2.1:4792, [2001:db8::1]:4792"),
            ("NCCL_SOCKET_FAMILY", "AF_INET6"),
        ])
        .expect("valid");
        assert!(matches!(settings.secret, Secret::None));
        assert_eq!(settings.rate_bps, Some(2_000_000_000));
        assert_eq!(settings.rtt, Duration::from_millis(25));
        assert_eq!((settings.port, settings.addresses.len()), (4792, 2));
        let devices = ["eth0 10.0.0.1".to_owned(), "eth1 10.0.1.1".to_owned()];
        settings.check_devices(&devices[..1]).expect("one device");
        let refused = settings.check_devices(&devices).expect_err("two devices");
        assert!(refused.text.contains("eth1 10.0.1.1"), "{refused:?}");
        assert_eq!(settings.is_v6, Some(true));
    }

    #[test]
    fn wrong_values_are_named() {
        for (name, value) in [
            (SECRET, "/nonexistent"),
            (SCHEME, "best-effort"),
            (RATE, "fast"),
            (RTT, "soon"),
            (PORT, "70000"),
            (ADDRESS, "host:1"),
            (ADDRESS, "1.1.1.1:1,1.1.1.1:1,1.1.1.1:1,1.1.1.1:1"),
        ] {
            let failure = settings(&[(name, value)]).expect_err(name);
            assert!(
                failure.text.starts_with(&format!("{name}={value}: ")),
                "{failure:?}"
            );
        }
    }
}
