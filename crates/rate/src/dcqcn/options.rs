//! Parameters of DCQCN.

const US: u64 = 1_000;
const MBIT: u64 = 1_000_000;

/// Parameters of [`Dcqcn`](crate::Dcqcn). The letters are those of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnOptions {
    /// Rate of the sender's port in bits a second; flows start with it.
    pub line_rate_bps: u64,
    /// Lowest rate of a flow, in bits a second.
    pub min_rate_bps: u64,
    /// `g` is 2 to the power of minus this: the weight of the newest period in alpha.
    pub g_shift: u32,
    /// The period of alpha, in nanoseconds. A period without notification lowers it.
    pub alpha_timer_ns: u64,
    /// Whether alpha rises once per period with a notification, as in NICs. Otherwise it rises with
    /// each cut, as in the paper.
    pub alpha_rises_by_period: bool,
    /// Least time between two cuts, in nanoseconds. A notification within this time causes a cut at
    /// its end.
    pub cut_interval_ns: u64,
    /// Whether all cuts come at the end of a cut interval: the intervals follow each other from the
    /// first notification on. Otherwise a notification after the interval cuts at once.
    pub cuts_at_interval_ends: bool,
    /// Whether the rate at which a packet leaves determines the time of the next one. Otherwise a new
    /// rate applies at once, also to the packet that waits.
    pub paces_by_departures: bool,
    /// Whether each cut sets the target to the rate before the cut. Otherwise a second cut before
    /// the first increase keeps the target.
    pub clamp_target: bool,
    /// `T`: the time between two steps of increase, in nanoseconds.
    pub increase_timer_ns: u64,
    /// `B`: the bytes sent between two steps of increase. `None`: only the timer causes steps.
    pub byte_counter_bytes: Option<u64>,
    /// `F`: steps of fast recovery.
    pub fast_recovery_steps: u32,
    /// `R_AI`: a step of additive increase adds this to the target, in bits a second.
    pub additive_increase_bps: u64,
    /// `R_HAI`: a step of hyper increase adds this to the target, in bits a second.
    pub hyper_increase_bps: u64,
    /// `N`: marks that a [`Feedback`](crate::Feedback) reports count as one notification in this
    /// time, in nanoseconds.
    pub notification_interval_ns: u64,
    /// Bytes in flight at the line rate; the window is in proportion to the rate. `None`: no window. The RDMA trees of
    /// ns-3 have such a window of one bandwidth-delay product (`HAS_WIN`, `VAR_WIN`).
    pub window_bytes: Option<u64>,
}

impl DcqcnOptions {
    /// The values of the paper: `g` 1/256, `T` and the period of alpha 55 us, `B` 10 MB, `F` 5,
    /// `R_AI` 40 Mbit/s, `N` 50 us. The paper does not specify `R_HAI` and the lowest rate. Here
    /// they are 400 Mbit/s, ten times `R_AI`, and 10 Mbit/s.
    #[must_use]
    pub fn paper(line_rate_bps: u64) -> Self {
        Self {
            line_rate_bps,
            min_rate_bps: 10 * MBIT,
            g_shift: 8,
            alpha_timer_ns: 55 * US,
            alpha_rises_by_period: false,
            cut_interval_ns: 0,
            cuts_at_interval_ends: false,
            paces_by_departures: false,
            clamp_target: true,
            increase_timer_ns: 55 * US,
            byte_counter_bytes: Some(10_000_000),
            fast_recovery_steps: 5,
            additive_increase_bps: 40 * MBIT,
            hyper_increase_bps: 400 * MBIT,
            notification_interval_ns: 50 * US,
            window_bytes: None,
        }
    }

    /// The values of the ns-3 code of HPCC (SIGCOMM 2019) and its forks, where NICs see the mark of
    /// each packet: an alpha period of 1 us, a cut at most every 4 us, an increase every 300 us,
    /// `F` 1, no byte counter; `R_AI` 10 and `R_HAI` 25 Mbit/s per 25 Gbit/s of line rate; a lowest
    /// rate of 100 Mbit/s. That code also has the rules
    /// [`cuts_at_interval_ends`](Self::cuts_at_interval_ends) and
    /// [`paces_by_departures`](Self::paces_by_departures), which are off here.
    #[must_use]
    pub fn ns3(line_rate_bps: u64) -> Self {
        Self {
            line_rate_bps,
            min_rate_bps: 100 * MBIT,
            g_shift: 8,
            alpha_timer_ns: US,
            alpha_rises_by_period: true,
            cut_interval_ns: 4 * US,
            cuts_at_interval_ends: false,
            paces_by_departures: false,
            clamp_target: false,
            increase_timer_ns: 300 * US,
            byte_counter_bytes: None,
            fast_recovery_steps: 1,
            additive_increase_bps: line_rate_bps / 2500,
            hyper_increase_bps: line_rate_bps / 1000,
            notification_interval_ns: 0,
            window_bytes: None,
        }
    }

    /// The options with valid values: a lowest rate from 1 to the line rate, timers and counters
    /// above 0, a `g` from 2^-16 to 1.
    pub(super) fn bounded(self) -> Self {
        let line_rate_bps = self.line_rate_bps.max(1);
        let least_increase_bps = (line_rate_bps / 1_000_000).max(1);
        Self {
            line_rate_bps,
            min_rate_bps: self.min_rate_bps.clamp(1, line_rate_bps),
            g_shift: self.g_shift.min(16),
            alpha_timer_ns: self.alpha_timer_ns.max(1),
            increase_timer_ns: self.increase_timer_ns.max(1),
            byte_counter_bytes: self.byte_counter_bytes.map(|bytes| bytes.max(1)),
            // With this bound, the rate reaches the line rate after at most a million steps.
            fast_recovery_steps: self.fast_recovery_steps.min(1_000),
            additive_increase_bps: self.additive_increase_bps.max(least_increase_bps),
            hyper_increase_bps: self.hyper_increase_bps.max(least_increase_bps),
            ..self
        }
    }
}
