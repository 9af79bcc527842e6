//! A transport on an endpoint of [`farwrite`]: its rate control.

use farwrite::{EqdsOptions, RateControl, Start, SwiftOptions};
use farwrite_rc::PathProfile;

use super::{EndpointControl, Protocol, Transport};

impl Transport {
    /// What an endpoint does at the start of a flow that `farwrite plan` does not count; `None` for
    /// NICs, and for endpoints that start as the planner assumes.
    #[must_use]
    pub fn start_costs(&self) -> Option<String> {
        let Ok(Protocol::Endpoint(_, control)) = self.protocol() else {
            return None;
        };
        let search = match control {
            EndpointControl::Default if self.rate.is_none() => Some(
                "senders know nothing of the path, and finding its rate takes round trips (+fixed has \
                 the rate)",
            ),
            EndpointControl::Known => Some(
                "senders know the path and test it, so what is longer than a first train waits a round \
                 trip (+fixed tests nothing)",
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
    pub(crate) fn rate_control(
        &self,
        control: EndpointControl,
        path: &PathProfile,
        port_bps: u64,
    ) -> RateControl {
        match (control, self.rate) {
            (EndpointControl::Default, None) => RateControl::default(),
            (EndpointControl::Default, Some(rate_bps)) => RateControl::Fixed { rate_bps },
            (EndpointControl::Known, _) => RateControl::Adaptive {
                max_bps: None,
                start: Some(Start {
                    rate_bps: ip_share(path.rate_bps, path),
                    rtt_ns: path.rtt_ns,
                }),
            },
            (EndpointControl::Fixed, _) => RateControl::Fixed {
                rate_bps: ip_share(path.rate_bps, path),
            },
            (EndpointControl::Dcqcn, _) => RateControl::Dcqcn(self.dcqcn(path)),
            (EndpointControl::Swift, _) => {
                let base = SwiftOptions::new(path.rate_bps, u64::from(self.mtu), 0)
                    .over_round_trip(path.rtt_ns);
                RateControl::Swift(self.swift.clone().unwrap_or_default().apply(base))
            }
            (EndpointControl::Eqds, _) => {
                let base = EqdsOptions {
                    // Endpoints count IP packets, and a cable whole frames.
                    line_rate_bps: ip_share(port_bps, path),
                    first_window_bytes: path.round_trip_bytes(),
                };
                RateControl::Eqds(self.eqds.clone().unwrap_or_default().apply(base))
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
    use super::*;

    #[test]
    fn what_a_start_costs_is_told_unless_it_costs_nothing() {
        let told = |protocol: &str, rate, posted| {
            let transport = Transport {
                rate,
                posted,
                ..Transport::new(protocol)
            };
            transport.start_costs().unwrap_or_default()
        };
        let (find, test, post) = ("finding its rate", "test it", "post buffers");
        for (protocol, rate, posted, parts) in [
            ("farwrite-sr-nack", None, false, &[find, post][..]),
            ("farwrite-sr-nack", None, true, &[find]),
            ("farwrite-sr-nack", Some(1_000_000), false, &[post]),
            ("farwrite-sr-nack", Some(1_000_000), true, &[]),
            ("farwrite-sr-nack+known", None, true, &[test]),
            ("farwrite-sr-nack+fixed", None, false, &[post]),
            ("farwrite-sr-nack+fixed", None, true, &[]),
            ("farwrite-sr-nack+dcqcn", None, false, &[post]),
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
