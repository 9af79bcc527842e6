//! Hosts that wake up late, report rarely and need a processor for each packet.

use farwrite_rng::SplitMix;

/// How late something is: nanoseconds by quantile, linear between two quantiles.
pub(crate) type Lateness = &'static [(f64, f64)];

/// What a host with an ordinary kernel does to a flow.
///
/// Measured on two cores of a virtual machine with Linux: `ppoll` with the usual timer slack, and the delay of reports
/// between two network namespaces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Host {
    /// How late a thread runs after the end of a sleep.
    pub(crate) sleep: Lateness,
    /// How late a thread reads a report that has arrived.
    pub(crate) read: Lateness,
    /// Shortest time between two reports.
    pub(crate) least_report_ns: u64,
    /// Processor time of a packet, and of a batch of packets.
    pub(crate) packet_ns: u64,
    pub(crate) batch_ns: u64,
}

impl Host {
    /// A host whose processors have little else to do.
    pub(crate) fn quiet() -> Self {
        Self {
            sleep: &[
                (0.0, 15e3),
                (0.1, 21e3),
                (0.5, 35e3),
                (0.9, 80e3),
                (0.999, 400e3),
                (1.0, 3e6),
            ],
            read: &[
                (0.0, 5e3),
                (0.1, 20e3),
                (0.5, 90e3),
                (0.9, 250e3),
                (0.99, 500e3),
                (1.0, 2e6),
            ],
            least_report_ns: 125_000,
            packet_ns: 3_000,
            batch_ns: 20_000,
        }
    }

    /// A host whose processors also run other programs: one sleep in ten ends 0.1 ms late or more, and one in a hundred
    /// 3 ms or more, because another program runs.
    pub(crate) fn busy() -> Self {
        Self {
            sleep: &[
                (0.0, 15e3),
                (0.1, 26e3),
                (0.5, 44e3),
                (0.9, 140e3),
                (0.98, 300e3),
                (0.99, 3e6),
                (0.999, 5e6),
                (1.0, 2e7),
            ],
            read: &[
                (0.0, 5e3),
                (0.1, 40e3),
                (0.5, 150e3),
                (0.9, 300e3),
                (0.98, 540e3),
                (0.99, 3e6),
                (0.999, 5e6),
                (1.0, 2e7),
            ],
            ..Self::quiet()
        }
    }
}

/// A sample of a lateness, in nanoseconds.
pub(crate) fn draw(rng: &mut SplitMix, lateness: Lateness) -> u64 {
    let at = rng.below(1 << 30) as f64 / (1u64 << 30) as f64;
    let next = lateness.iter().position(|&(quantile, _)| quantile > at);
    let next = next.unwrap_or(lateness.len() - 1).max(1);
    let ((low, low_ns), (high, high_ns)) = (lateness[next - 1], lateness[next]);
    (low_ns + (high_ns - low_ns) * (at - low) / (high - low)) as u64
}
