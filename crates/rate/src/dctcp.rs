//! DCTCP (RFC 8257), with the share of marked bytes from the acknowledgements of a NIC.

use crate::math::mul_div;
use crate::parameters::{Parameter, Parameters, Quantity};
use crate::{Acknowledged, Detail, Feedback, Limits, Loss, RateControl, Sent};

/// The value 1 of alpha.
const ONE: u64 = 1 << 32;

/// Parameters of [`Dctcp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DctcpOptions {
    /// Rate of the sender's port in bits a second: the pace.
    pub line_rate_bps: u64,
    /// Bytes of a full packet: the window grows by it in each round trip.
    pub packet_bytes: u64,
    /// `g` is 2 to the power of minus this: the weight of the newest window in alpha.
    pub g_shift: u32,
    /// The window at the start, in bytes.
    pub first_window_bytes: u64,
}

impl DctcpOptions {
    /// `g` of 1/16 (RFC 8257, section 4.2), and a first window of one round trip. RDMA NICs start at the line rate, and
    /// so do the RDMA trees of ns-3; TCP would begin with slow start.
    #[must_use]
    pub fn new(line_rate_bps: u64, packet_bytes: u64, round_trip_bytes: u64) -> Self {
        Self {
            line_rate_bps,
            packet_bytes,
            g_shift: 4,
            first_window_bytes: round_trip_bytes,
        }
    }
}

impl Parameters for DctcpOptions {
    const PARAMETERS: &'static [Parameter<Self>] = &[
        Parameter::new("g", Quantity::Weight, |to, value| {
            to.g_shift = u32::try_from(value).unwrap_or(u32::MAX);
        }),
        Parameter::new("first_window", Quantity::Size, |to, value| {
            to.first_window_bytes = value;
        }),
    ];
}

/// A window that falls by the share alpha / 2 in each round trip with a mark, and otherwise grows by a packet. Alpha is
/// the recent share of bytes with a mark (RFC 8257, sections 3.3 and 3.4).
#[derive(Clone, Debug)]
pub struct Dctcp {
    options: DctcpOptions,
    /// `cwnd` in bytes.
    window_bytes: u64,
    /// `DCTCP.Alpha`: 0 to [`ONE`].
    alpha: u64,
    /// All bytes sent: `SND.NXT`.
    sent_bytes: u64,
    /// `DCTCP.WindowEnd`.
    window_end: u64,
    /// `DCTCP.BytesAcked`.
    acked_bytes: u64,
    /// `DCTCP.BytesMarked`.
    marked_bytes: u64,
    /// Bytes acknowledged since the window last grew.
    grown_bytes: u64,
    /// The newest bytes that are acknowledged: `SND.UNA`.
    acked_end: u64,
    /// The window does not fall again until bytes beyond this are acknowledged. `None`: it has not fallen.
    cut_end: Option<u64>,
}

impl Dctcp {
    /// Starts with alpha 1 and the first window. Numbers that are 0 count as 1.
    #[must_use]
    pub fn new(options: DctcpOptions) -> Self {
        let options = DctcpOptions {
            line_rate_bps: options.line_rate_bps.max(1),
            packet_bytes: options.packet_bytes.max(1),
            g_shift: options.g_shift.min(16),
            ..options
        };
        Self {
            options,
            window_bytes: options.first_window_bytes.max(options.packet_bytes),
            alpha: ONE,
            sent_bytes: 0,
            window_end: 0,
            acked_bytes: 0,
            marked_bytes: 0,
            grown_bytes: 0,
            acked_end: 0,
            cut_end: None,
        }
    }

    /// The end of a window of data: alpha = alpha (1 - g) + g M.
    fn update_alpha(&mut self) {
        let share = mul_div(self.marked_bytes, ONE, self.acked_bytes).min(ONE);
        let shift = self.options.g_shift;
        self.alpha = self.alpha - (self.alpha >> shift) + (share >> shift);
        (self.acked_bytes, self.marked_bytes) = (0, 0);
        self.window_end = self.sent_bytes;
    }

    /// Congestion avoidance (RFC 5681): a packet for each window of acknowledged bytes.
    fn grow(&mut self, acked_bytes: u64) {
        self.grown_bytes = self.grown_bytes.saturating_add(acked_bytes);
        if self.grown_bytes >= self.window_bytes {
            self.grown_bytes -= self.window_bytes;
            self.window_bytes = (self.window_bytes).saturating_add(self.options.packet_bytes);
        }
    }

    /// Whether bytes beyond the last cut are acknowledged.
    fn is_past_cut(&self) -> bool {
        self.cut_end.is_none_or(|end| self.acked_end > end)
    }

    /// Lowers the window by a share in units of 1 / [`ONE`], at most once in a window of data.
    fn cut(&mut self, share: u64) {
        if self.is_past_cut() {
            let kept = mul_div(self.window_bytes, ONE - share, ONE);
            self.set_window(kept.max(self.options.packet_bytes));
        }
    }

    fn set_window(&mut self, bytes: u64) {
        self.window_bytes = bytes;
        self.grown_bytes = 0;
        self.cut_end = Some(self.sent_bytes);
    }
}

impl RateControl for Dctcp {
    fn on_sent(&mut self, sent: &Sent) {
        self.sent_bytes = self.sent_bytes.saturating_add(sent.bytes);
    }

    fn on_feedback(&mut self, _feedback: &Feedback) {}

    fn detail(&self) -> Detail {
        Detail::Packets
    }

    fn on_acknowledged(&mut self, acknowledged: &Acknowledged<'_>) {
        let bytes = acknowledged.bytes;
        self.acked_bytes = self.acked_bytes.saturating_add(bytes);
        if acknowledged.marked {
            self.marked_bytes = self.marked_bytes.saturating_add(bytes);
        }
        self.acked_end = self.acked_end.max(acknowledged.sent_bytes);
        if self.acked_end > self.window_end {
            self.update_alpha();
        }
        if acknowledged.marked {
            self.cut(self.alpha / 2);
        } else if self.is_past_cut() {
            self.grow(bytes);
        }
    }

    fn on_timeout(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }

    fn limits(&self) -> Limits {
        Limits {
            pace_bps: self.options.line_rate_bps,
            window_bytes: self.window_bytes,
        }
    }

    /// A loss halves the window, and a timeout leaves one packet (RFC 8257, section 3.5). No slow start follows.
    fn on_loss(&mut self, _now_ns: u64, loss: Loss) {
        match loss {
            Loss::Reported => self.cut(ONE / 2),
            Loss::TimedOut => self.set_window(self.options.packet_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1000 bytes, and a window of 100 of them.
    fn dctcp() -> Dctcp {
        Dctcp::new(DctcpOptions::new(10_000_000_000, 1_000, 100_000))
    }

    /// Sends `packets` and acknowledges them one by one; the first `marked` of them carry a mark.
    fn round_trip(dctcp: &mut Dctcp, packets: u64, marked: u64) {
        let before = dctcp.sent_bytes;
        for _ in 0..packets {
            dctcp.on_sent(&Sent {
                bytes: 1_000,
                ..Sent::default()
            });
        }
        for number in 1..=packets {
            dctcp.on_acknowledged(&Acknowledged {
                sent_bytes: before + number * 1_000,
                bytes: 1_000,
                marked: number <= marked,
                ..Acknowledged::default()
            });
        }
    }

    /// A window ends with the first packet of the next one, and the first window of all with its own first packet. So
    /// alpha is 15/16 and (15/16)^2 after windows without marks. Of the next windows, one packet and 24 packets of 100
    /// have marks.
    #[test]
    fn alpha_is_the_moving_mean_of_the_marked_share() {
        let mut dctcp = dctcp();
        let mut check = |marked, want: f64| {
            round_trip(&mut dctcp, 100, marked);
            let got = dctcp.alpha as f64 / ONE as f64;
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        };
        let mut want = 15.0 / 16.0;
        check(0, want);
        want *= 15.0 / 16.0;
        check(0, want);
        want = want * 15.0 / 16.0 + 0.01 / 16.0;
        check(25, want);
        want = want * 15.0 / 16.0 + 0.24 / 16.0;
        check(0, want);
    }

    /// `cwnd = cwnd (1 - alpha / 2)`, once in a window of data.
    #[test]
    fn marks_cut_the_window_once_in_a_round_trip() {
        let mut dctcp = dctcp();
        dctcp.alpha = ONE / 2;
        dctcp.window_end = u64::MAX;
        round_trip(&mut dctcp, 50, 50);
        assert_eq!(dctcp.limits().window_bytes, 75_000);
        round_trip(&mut dctcp, 50, 1);
        // 75,000 (1 - 1/4), and no growth in the rest of that window.
        assert_eq!(dctcp.limits().window_bytes, 56_250);
    }

    #[test]
    fn a_round_trip_without_marks_adds_a_packet() {
        let mut dctcp = dctcp();
        round_trip(&mut dctcp, 100, 0);
        assert_eq!(dctcp.limits().window_bytes, 101_000);
        round_trip(&mut dctcp, 101, 0);
        assert_eq!(dctcp.limits().window_bytes, 102_000);
    }

    #[test]
    fn losses_halve_the_window_and_a_timeout_leaves_a_packet() {
        let mut dctcp = dctcp();
        round_trip(&mut dctcp, 1, 0);
        let window = dctcp.limits().window_bytes;
        dctcp.on_loss(0, Loss::Reported);
        dctcp.on_sent(&Sent {
            bytes: 1_000,
            ..Sent::default()
        });
        dctcp.on_loss(0, Loss::Reported);
        assert_eq!(dctcp.limits().window_bytes, window / 2);
        dctcp.on_loss(0, Loss::TimedOut);
        assert_eq!(dctcp.limits().window_bytes, 1_000);
    }
}
