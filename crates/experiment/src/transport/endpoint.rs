//! A transport on an endpoint of [`farwrite`]: its rate control.

use farwrite::{EqdsOptions, RateControl, SwiftOptions};
use farwrite_rc::PathProfile;

use super::{EndpointControl, Transport};

/// Swift's target delay beyond the round trip without queues, in nanoseconds: `base_target` of
/// [`SwiftOptions::new`], as with the models of Falcon and UCCL.
const SWIFT_QUEUE_NS: u64 = 20_000;
/// Swift's target for the time in the receiver beyond a round trip, in nanoseconds.
const SWIFT_ENDPOINT_NS: u64 = 100_000;

impl Transport {
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
            (EndpointControl::Dcqcn, _) => RateControl::Dcqcn(self.dcqcn(path)),
            (EndpointControl::Swift, _) => {
                let base = SwiftOptions {
                    base_target_ns: path.rtt_ns.saturating_add(SWIFT_QUEUE_NS),
                    // Receivers hold reports for up to an eighth of a round trip.
                    endpoint_target_ns: path.rtt_ns.saturating_add(SWIFT_ENDPOINT_NS),
                    ..SwiftOptions::new(path.rate_bps, u64::from(self.mtu), 0)
                };
                RateControl::Swift(self.swift.unwrap_or_default().apply(base))
            }
            (EndpointControl::Eqds, _) => {
                let base = EqdsOptions {
                    // Endpoints count IP packets, and a cable whole frames.
                    line_rate_bps: ip_share(port_bps, path),
                    first_window_bytes: path.round_trip_bytes(),
                };
                RateControl::Eqds(self.eqds.unwrap_or_default().apply(base))
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
