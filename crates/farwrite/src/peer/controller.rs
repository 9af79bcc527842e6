//! The controllers that a user can choose.

use farwrite_rate::{
    Adaptive, AdaptiveOptions, BatchLimits, Dcqcn, Fixed, PacedEqds, Phase, RateControl as _,
    Start, SwiftOptions, SwiftTimeout, SwiftWithTimeout,
};
use farwrite_wire::timing::Timing;

use super::stats::SendLimit;
use crate::options::RateControl;

/// Maximum rate of an adaptive controller without a configured maximum, in bits per second. No
/// network card is faster.
const MAX_BPS: u64 = 1_000_000_000_000;

/// The controller of the rate to a peer.
#[derive(Debug)]
pub(super) enum Controller {
    Fixed(Fixed),
    Adaptive(Box<Adaptive>),
    Dcqcn(Box<Dcqcn>),
    Swift(Box<SwiftWithTimeout>),
    Eqds(Box<PacedEqds>),
}

impl Controller {
    /// Creates a controller for packets of up to `packet_bytes` bytes on the wire.
    pub(super) fn new(choice: &RateControl, packet_bytes: u64, timing: &Timing) -> Self {
        let recovery_ns = timing.pace_recovery_ns;
        match *choice {
            RateControl::Fixed { rate_bps } => Self::Fixed(Fixed::new(rate_bps, recovery_ns)),
            RateControl::Adaptive { max_bps, start } => {
                Self::Adaptive(Box::new(Adaptive::new(AdaptiveOptions {
                    packet_bytes,
                    max_rate_bps: max_bps.unwrap_or(MAX_BPS),
                    jitter_ns: jitter_ns(timing),
                    recovery_ns,
                    start,
                })))
            }
            RateControl::Dcqcn(options) => Self::Dcqcn(Box::new(Dcqcn::new(options))),
            RateControl::Swift(options) => {
                let options = SwiftOptions {
                    packet_bytes,
                    ..options
                };
                Self::Swift(Box::new(SwiftWithTimeout::new(
                    options,
                    swift_timeout(timing),
                )))
            }
            RateControl::Eqds(options) => {
                Self::Eqds(Box::new(PacedEqds::new(options, recovery_ns)))
            }
        }
    }

    pub(super) fn get(&self) -> &dyn farwrite_rate::RateControl {
        match self {
            Self::Fixed(fixed) => fixed,
            Self::Adaptive(adaptive) => &**adaptive,
            Self::Dcqcn(dcqcn) => &**dcqcn,
            Self::Swift(swift) => &**swift,
            Self::Eqds(eqds) => &**eqds,
        }
    }

    pub(super) fn get_mut(&mut self) -> &mut dyn farwrite_rate::RateControl {
        match self {
            Self::Fixed(fixed) => fixed,
            Self::Adaptive(adaptive) => &mut **adaptive,
            Self::Dcqcn(dcqcn) => &mut **dcqcn,
            Self::Swift(swift) => &mut **swift,
            Self::Eqds(eqds) => &mut **eqds,
        }
    }

    /// Returns the credit used so far, and the bytes that may leave without credit, on the wire.
    /// `None` with a controller without credit.
    pub(super) fn credit_state(&self) -> Option<(u64, u64)> {
        match self {
            Self::Eqds(eqds) => Some(eqds.credit_state()),
            _ => None,
        }
    }

    pub(super) fn phase(&self) -> Option<Phase> {
        match self {
            Self::Adaptive(adaptive) => Some(adaptive.phase()),
            _ => None,
        }
    }

    pub(super) fn learned(&self) -> Option<Start> {
        match self {
            Self::Adaptive(adaptive) => adaptive.learned(),
            _ => None,
        }
    }

    pub(super) fn base_rtt_ns(&self) -> Option<u64> {
        match self {
            Self::Adaptive(adaptive) => adaptive.base_rtt_ns(),
            _ => None,
        }
    }

    /// Returns what bounds the rate while there is something to send.
    pub(super) fn limit(&self, choice: &RateControl) -> SendLimit {
        let pace_bps = self.get().limits().pace_bps;
        let max_bps = choice.max_rate_bps().unwrap_or(MAX_BPS);
        let ceiling_bps = match self {
            Self::Fixed(_) => pace_bps,
            Self::Adaptive(adaptive) => adaptive.ceiling_bps(),
            Self::Dcqcn(_) => max_bps,
            // The window of Swift bounds the rate too, and the pace does not show which of the two does.
            Self::Swift(_) => return SendLimit::Path,
            Self::Eqds(eqds) if eqds.credit_bytes() == 0 => return SendLimit::Path,
            Self::Eqds(_) => pace_bps,
        };
        if pace_bps < ceiling_bps {
            SendLimit::Path
        } else if pace_bps < max_bps {
            SendLimit::Receiver
        } else {
            SendLimit::Configured
        }
    }
}

/// The parts of Swift's timeout that the round trip does not determine.
fn swift_timeout(timing: &Timing) -> SwiftTimeout {
    SwiftTimeout {
        least_ns: 2 * timing.lateness_ns + timing.min_repeat_ns,
        first_ns: timing.max_repeat_ns,
    }
}

/// Returns the variation of delay that hosts cause: a tenth of the lateness allowed for their
/// operating systems.
pub(super) fn jitter_ns(timing: &Timing) -> u64 {
    timing.lateness_ns / 10
}

/// What bounds the batches of a sender whose full packets have `packet_bytes`. At most `burst_bytes` leave at once.
///
/// At a fixed rate, later packets make up for what was lost to late timers: half of the time that the timeouts of
/// schemes leave for lateness. With more on a slow path, the last packets would wait so long behind the first that
/// they count as lost. Other controllers measure queues, so they make up for the usual lateness only: a burst must
/// cause no longer queue than the hosts' own variation of delay. At its maximum rate, an adaptive sender makes up for
/// more, at twice that rate: where a processor is busy, one sleep in a hundred ends 3 to 4 ms late.
pub(super) fn batch_limits(
    choice: &RateControl,
    packet_bytes: u64,
    burst_bytes: u64,
    timing: &Timing,
) -> BatchLimits {
    let jitter_ns = jitter_ns(timing);
    BatchLimits {
        packet_bytes,
        burst_bytes,
        longest_ns: jitter_ns,
        late_ns: jitter_ns / 10,
        make_up_ns: match choice {
            RateControl::Fixed { .. } => timing.lateness_ns / 2,
            _ => jitter_ns / 4,
        },
        owed_ns: match choice {
            RateControl::Adaptive { .. } => 4 * jitter_ns,
            _ => 0,
        },
    }
}
