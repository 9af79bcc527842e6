//! A transport on an endpoint of [`farwrite`]: its scheme and its rate control.

use std::num::NonZeroU16;
use std::time::Duration;

use farwrite::{
    EqdsOptions, QpConfig, RateControl, RateControlName, SchemeName, Start, SwiftOptions,
};
use farwrite_rc::PathProfile;

use super::TransportError;
use super::name::{ControlName, Protocol};
use crate::parameters::{Dcqcn, Eqds, Swift};

/// Endpoints of [`farwrite`], with one scheme for all flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointTransport {
    pub(crate) scheme: SchemeName,
    pub(super) control: EndpointControl,
    pub(crate) mtu: u32,
    pub(crate) packets_per_chunk: u32,
    pub(crate) priority: u8,
    /// Whether the receiver of a flow has posted its buffer a round trip before the flow starts.
    pub(crate) posted: bool,
    /// With best effort: longest duration of a flow.
    pub(crate) deadline: Option<Duration>,
    /// The UDP port; `None`: each host draws one.
    pub(crate) port: Option<NonZeroU16>,
}

/// What sets the rate of endpoints, with its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndpointControl {
    /// The adaptive controller, which knows nothing of the path.
    Adaptive,
    /// The adaptive controller, which starts with the rate and the round trip of the path, like a
    /// sender that has used the path before.
    Known,
    /// A fixed rate in bits per second.
    Rate(u64),
    /// The rate of the path, without control.
    PathRate,
    Dcqcn(Option<Dcqcn>),
    Swift(Option<Swift>),
    Eqds(Option<Eqds>),
}

impl EndpointControl {
    fn name(&self) -> ControlName {
        match self {
            Self::Adaptive | Self::Rate(_) => ControlName::DEFAULT,
            Self::Known => ControlName::Known,
            Self::PathRate => ControlName::Of(RateControlName::Fixed),
            Self::Dcqcn(_) => ControlName::Of(RateControlName::Dcqcn),
            Self::Swift(_) => ControlName::Of(RateControlName::Swift),
            Self::Eqds(_) => ControlName::Of(RateControlName::Eqds),
        }
    }
}

impl EndpointTransport {
    /// The name of the protocol.
    pub(super) fn protocol(&self) -> String {
        Protocol::of_endpoint(self.scheme, self.control.name())
    }

    pub(super) fn has_dcqcn(&self) -> bool {
        matches!(self.control, EndpointControl::Dcqcn(_))
    }

    /// Checks the values.
    pub(super) fn check(&self) -> Result<(), TransportError> {
        if !self.scheme.is_exact() && self.deadline.is_none() {
            let why = format!("{}: needs a deadline, such as \"3ms\"", self.protocol());
            return Err(TransportError::Endpoint(why));
        }
        let config = QpConfig {
            mtu: self.mtu,
            packets_per_chunk: self.packets_per_chunk,
            max_message_bytes: 1,
            ..QpConfig::default()
        };
        let checked = config.validate();
        checked.map_err(|why| TransportError::Endpoint(why.to_string()))?;
        Ok(())
    }

    /// What an endpoint does at the start of a flow that `farwrite plan` does not count; `None` if it
    /// starts as the planner assumes.
    pub(super) fn start_costs(&self) -> Option<String> {
        let search = match self.control {
            EndpointControl::Adaptive => Some(
                "senders know nothing of the path, and finding its rate takes round trips (@fixed has \
                 the rate)",
            ),
            EndpointControl::Known => Some(
                "senders know the path and test it, so what is longer than a first train waits a round \
                 trip (@fixed tests nothing)",
            ),
            _ => None,
        };
        let clearance = (!self.posted).then_some(
            "receivers post buffers when flows start, so the first packet waits half a round trip \
             (posted = true posts them before)",
        );
        let costs: Vec<_> = search.into_iter().chain(clearance).collect();
        (!costs.is_empty()).then(|| costs.join("; "))
    }

    /// The rate control of a path, at an end whose cable has `port_bps` bits per second.
    pub(crate) fn rate_control(&self, path: &PathProfile, port_bps: u64) -> RateControl {
        match &self.control {
            EndpointControl::Adaptive => RateControl::default(),
            EndpointControl::Rate(rate_bps) => RateControl::Fixed {
                rate_bps: *rate_bps,
            },
            EndpointControl::Known => RateControl::Adaptive {
                max_bps: None,
                start: Some(Start {
                    rate_bps: ip_share(path.rate_bps, path),
                    rtt_ns: path.rtt_ns,
                }),
            },
            EndpointControl::PathRate => RateControl::Fixed {
                rate_bps: ip_share(path.rate_bps, path),
            },
            EndpointControl::Dcqcn(own) => {
                RateControl::Dcqcn(own.clone().unwrap_or_default().options(path))
            }
            EndpointControl::Swift(own) => {
                let base = SwiftOptions::new(path.rate_bps, u64::from(self.mtu), 0)
                    .over_round_trip(path.rtt_ns);
                RateControl::Swift(own.as_ref().map_or(base, |own| own.apply(base)))
            }
            EndpointControl::Eqds(own) => {
                let base = EqdsOptions {
                    // Endpoints count IP packets, and a cable whole frames.
                    line_rate_bps: ip_share(port_bps, path),
                    first_window_bytes: path.round_trip_bytes(),
                };
                RateControl::Eqds(own.as_ref().map_or(base, |own| own.apply(base)))
            }
        }
    }
}

/// Part of a cable's rate that full IP packets take.
fn ip_share(rate_bps: u64, path: &PathProfile) -> u64 {
    let frame_bytes = u128::from(path.frame_bytes());
    let ip_bytes = frame_bytes - u128::from(path.framing_bytes);
    let bps = u128::from(rate_bps) * ip_bytes / frame_bytes;
    u64::try_from(bps).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use crate::transport::TransportSettings;

    #[test]
    fn what_a_start_costs_is_told_unless_it_costs_nothing() {
        let told = |protocol: &str, rate, posted| {
            let settings = TransportSettings {
                rate,
                posted,
                ..TransportSettings::new(protocol)
            };
            let transport = settings.transport().expect("valid");
            transport.start_costs().unwrap_or_default()
        };
        let (find, test, post) = ("finding its rate", "test it", "post buffers");
        for (protocol, rate, posted, parts) in [
            ("farwrite-sr-nack", None, false, &[find, post][..]),
            ("farwrite-sr-nack", None, true, &[find]),
            ("farwrite-sr-nack", Some(1_000_000), false, &[post]),
            ("farwrite-sr-nack", Some(1_000_000), true, &[]),
            ("farwrite-sr-nack@known", None, true, &[test]),
            ("farwrite-sr-nack@fixed", None, false, &[post]),
            ("farwrite-sr-nack@fixed", None, true, &[]),
            ("farwrite-sr-nack@dcqcn", None, false, &[post]),
            ("roce", None, false, &[]),
        ] {
            let told = told(protocol, rate, posted);
            for part in [find, test, post] {
                assert_eq!(
                    told.contains(part),
                    parts.contains(&part),
                    "{protocol}: {told}"
                );
            }
        }
    }
}
