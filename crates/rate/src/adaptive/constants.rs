//! All constants of the controller, with reasons where they are not plain. `cargo run --release -p
//! farwrite-bench --example rate_grid` shows what a change of one does.

// All states

/// Timeout of the first report, in nanoseconds (RFC 6298 section 2.1).
pub(super) const FIRST_TIMEOUT_NS: u64 = 1_000_000_000;

/// On a path whose round trip is known, timeouts in a row double up to this time, in nanoseconds, or up to four times
/// a single one if that is longer: the round trip may have grown. A single one has the time of two packets of the
/// train, so four have that of the shortest train. With longer timeouts, nothing would move for many seconds after
/// the end of an outage.
pub(super) const SILENT_NS: u64 = 1_000_000_000;

/// Highest rate in bits a second, and largest window in bytes. Products of the two must not
/// overflow.
pub(super) const MAX_BPS: u64 = 1 << 50;
pub(super) const MAX_BYTES: u64 = 1 << 50;

/// When a variation is detected, a train tests this multiple of the share: the variation has ended
/// growth too early.
pub(super) const UNGROWN: u64 = 2;

// Estimates of the path (`path`)

/// Upper bound of round-trip samples, in nanoseconds, because a peer may report false values
/// (P5.6.1).
pub(super) const MAX_RTT_NS: u64 = 10_000_000_000;

/// Number of points kept. They are an eighth of a round trip apart, so they cover two round trips.
pub(super) const POINTS: usize = 16;

/// From this time of a packet on, in nanoseconds, at its highest recent rate, a flow is slow: up to 24 Mbit/s with
/// packets of 1500 bytes. Then a quarter of a round trip has one or two samples, and a single long delay would count as
/// a queue. A queue of faster flows should show as soon as possible: with more samples for all flows, 16 equal ones on
/// 100 Mbit/s keep a longer queue.
pub(super) const SLOW_PACKET_NS: u64 = 500_000;

/// The shortest delay of a slow flow is that of at least this number of samples, or of one round trip. With six or
/// more, eight equal flows on 10 Mbit/s share less well, and the queue of one flow is longer.
pub(super) const SLOW_SAMPLES: u32 = 4;

/// A path is short if its round trip is shorter than this multiple of the hosts' variation. There, one sample in six is
/// late by more than 250 us, and one in a hundred of the shortest of four.
pub(super) const SHORT_PATH: u64 = 6;
pub(super) const SHORT_SAMPLES: u32 = 4;

/// Upper bound of the random loss, in parts of a million. The delay of a queue that never runs
/// empty counts as part of the base, and its drops as random loss. Without a bound, the flow would
/// send more and more into such a queue.
pub(super) const MAX_RANDOM_LOSS_PPM: u64 = 250_000;

// Paths whose delay varies (`variation`)

/// A queue grows by the bytes that others send beyond what the path carries. Flows that fill a queue
/// on purpose grow it by less than one part in this number of the time that passes: BBR by a quarter
/// of a round trip in a round trip, CUBIC by much less.
pub(super) const GROWTH_SHARE: u64 = 3;

/// Number of packet times by which a burst of others delays a packet.
pub(super) const BURST_PACKETS: u64 = 2;

/// A rise counts if the delay falls by half of it within this number of round trips. What senders do
/// because of a queue shows after one round trip or more, so a queue stays for that time.
pub(super) const SHORT_ROUNDS: u64 = 2;

/// Number of the latest rises that are kept, and number of them that show a variation. Fewer can
/// be flows that have started while others ended.
pub(super) const RISES_KEPT: usize = 8;
pub(super) const RISES_ENOUGH: usize = 5;

/// For how long a rise counts, in nanoseconds. Variation has its own time scale, which is not that
/// of the round trip.
pub(super) const MEMORY_NS: u64 = 10_000_000_000;

/// The variation is this multiple of the longest rise: a rise begins anywhere between the shortest
/// delay and the longest.
pub(super) const RISE_MULTIPLE: u64 = 2;

// Trains (`probe`)

/// A train lasts one part in this number of the round trip, between hosts with little noise.
pub(super) const TRAIN_SHARE: u64 = 16;

/// Between noisy hosts, a searching train lasts at most one part in this number of the round trip,
/// or 5/4 of the noise if that is longer.
pub(super) const NOISY_SHARE: u64 = 8;

/// Least number of packets of a train, and number of packets of the first train on an unknown path
/// (RFC 6928 allows 10 packets of 1500 bytes).
pub(super) const MIN_PACKETS: u64 = 8;
pub(super) const FIRST_PACKETS: u64 = 16;

/// Length of the first train on an unknown path, in nanoseconds.
pub(super) const FIRST_NS: u64 = 1_000_000;

/// Longest duration of the shortest train, in nanoseconds. Trains without a report do not get
/// slower than that: the timeouts already grow, and a slower train delays the end of a silence.
pub(super) const SLOWEST_NS: u64 = 1_000_000_000;

/// Factor between the rates of two trains if the path carried the first one. So the path carries at
/// least a quarter of a train's rate. A train of a sixteenth of the round trip queues at most 3/16
/// of the bytes that the path holds, and one of an eighth at most 3/8.
pub(super) const STEP: u64 = 4;

/// A delay of up to this multiple of the noise may be noise, because hosts state their usual noise,
/// and an emulator or a busy processor is late for longer.
pub(super) const DOUBTFUL: u64 = 2;

/// Number of trains of a start-up that are sent again because their result is in doubt. Each costs
/// a round trip; a wrong result costs ten or more, because growth has to find the rate.
pub(super) const REPEATS: u32 = 2;

// Growth between two cuts (`growth`)

/// Fixed-point scale of growth.
pub(super) const GROWTH_UNIT: u64 = 256;

/// Doublings after which growth stops.
pub(super) const MAX_DOUBLINGS: u64 = 40;

/// The first doubling adds the square root of the window, in packets, divided by this.
pub(super) const FIRST_STEP: u64 = 8;

/// Time of a doubling, in half round trips. The sender detects a queue one round trip or more after
/// it has formed. If growth doubled in one round trip, a single flow would overflow a queue of a
/// fifth of the path at each cut.
pub(super) const DOUBLING_HALVES: u64 = 3;

/// Growth up to this number of packets does not wait for what arrives: on a path of 64 kbit/s that holds one packet, a
/// file took 1.3 times as long with a bound of two packets.
pub(super) const GROWN_PACKETS: u64 = 8;

// From one cut to the next (`cycle`)

/// Number of failed attempts to drain the queue after which the flow concludes that other flows
/// fill it; the second value applies if others filled it shortly before. If many equal flows start
/// one after the other, or have few packets each, they need more than six attempts to empty a queue
/// together. If they entered `Compete`, they would keep it full forever.
pub(super) const PATIENCE: [u32; 2] = [10, 2];

/// The flow concludes the same if twice the number of failed attempts exceeds the number of successful
/// ones by this number. Linux's BBR paces 1 % below its estimate and random loss shortens its queue,
/// so the queue runs empty after every second to fifth attempt: ten failures in a row are rare.
pub(super) const EXCESS: u32 = 24;
pub(super) const FAILURE: u32 = 2;

/// Of the attempts of equal flows, less than a fifth fail. If each of them has fewer packets than
/// this, more attempts fail, so a successful attempt counts as much as a failed one.
pub(super) const EXCESS_PACKETS: u64 = 16;

/// Failed attempts in a row, and what they leave of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decline {
    pub(super) attempts: u32,
    /// The flow has less than this part of its window before them.
    pub(super) part: u64,
    /// Least number of packets of that window.
    pub(super) packets: u64,
}

impl Decline {
    pub(super) const fn of(attempts: u32, part: u64, packets: u64) -> Self {
        Self {
            attempts,
            part,
            packets,
        }
    }
}

/// The flow concludes the same after failed attempts in a row that left it with a small part of a
/// large window. A BBR flow keeps its rate for 10 round trips or more, and takes what this flow gives
/// up. When this flow has nothing left, the queue runs empty. Equal flows drain a queue in fewer
/// attempts, unless each has few packets in flight.
pub(super) const COLLAPSES: [Decline; 2] = [Decline::of(4, 16, 512), Decline::of(7, 4, 256)];

/// If the queue runs empty after such attempts, a train tests what the others have left.
pub(super) const YIELDED: Decline = Decline::of(4, 4, 32);

/// The first attempts on a new path use a lower window, because the estimates are uncertain.
pub(super) const YOUNG: u32 = 3;

/// Number of round trips after a cut in which the random loss is measured.
pub(super) const LOW_ROUNDS: u32 = 2;

/// Factor of the window while the queue drains, in 256ths: 0.9 of the flow's share, and less after
/// each failed attempt.
pub(super) const KEPT: [u64; 3] = [230, 192, 128];

// Beside flows that keep the queue full (`compete`)

/// While the flow competes, a delay that changes by at most one part in this number of what a queue would have changed
/// by is that of a longer path. With this part also outside of `Compete`, sixteen flows of five packets take one another
/// for a longer path.
pub(super) const STEADY_PART: u64 = 8;

/// Number of round trips in which the window rises to the bytes that it then holds.
pub(super) const RISE_ROUNDS: u64 = 8;

/// If packets are lost again within this number of round trips after a cut, the other flows did not
/// yield. A CUBIC window takes longer to recover.
pub(super) const YIELD_ROUNDS: u64 = 16;

/// The flow reacts to heavy loss when the round trips with heavy loss outnumber those with light
/// loss by this number. BBR keeps a rate for 10 round trips.
pub(super) const OVERFULL_ROUNDS: u32 = 24;

/// Number of round trips until the first attempt to drain the queue. Each further pause is twice as
/// long, up to the second value: while this flow drains, BBR raises its rate to use the free
/// capacity.
pub(super) const PAUSE_ROUNDS: [u64; 2] = [12, 96];

// Transitions (`steps`)

/// A delay that rises at once by more than one part in this number of the round trip shows that the path stood still.
/// With 3, messages would also be faster after shorter pauses, but 16 flows at 10 Gbit/s and 300 ms took the trains of one
/// another for such pauses, and kept the queue full.
pub(super) const STILL_SHARE: u64 = 2;

/// Loss beyond the random loss, in parts of a million, above which a steady delay counts as a full
/// queue instead of a longer path.
pub(super) const STRAY_LOSS_PPM: u64 = 1_000;

/// Loss beyond the random loss, in parts of a million, that several flows cause if each keeps a
/// full path in flight. One BBR flow causes less: see the column `dropped` of the example `rate_grid
/// noisy`.
pub(super) const OVERFULL_LOSS_PPM: u64 = 300_000;

/// For this time after `Compete`, fewer failed attempts to drain are enough to conclude that other
/// flows fill the queue. The longer of the two values applies; one is in round trips, one in
/// nanoseconds. BBR pauses for 200 ms.
pub(super) const WARNED_ROUNDS: u64 = 96;
pub(super) const WARNED_NS: u64 = 1_000_000_000;

/// When others have left capacity, a train tests this multiple of the flow's share.
pub(super) const FREED: u64 = 4;
