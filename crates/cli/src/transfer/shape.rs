//! How a stream of files is cut: into segments, packets and slots for messages in flight.

use std::net::SocketAddr;
use std::time::Duration;

use farwrite::fabric::udp::path_mtu;
use farwrite::{QpConfig, QpOptions};
use farwrite_session::TransferPlan;

use crate::exit::{Exit, Failure, OrExit};
use crate::units::Bytes;

/// IP, UDP, BTH, RETH, immediate and ICRC around a payload.
const OVERHEAD_V4_BYTES: u32 = 20 + 8 + 12 + 16 + 4 + 4;
const OVERHEAD_V6_BYTES: u32 = OVERHEAD_V4_BYTES + 20;
/// Largest MTU that is chosen unasked: RoCE's own.
const MAX_MTU: u32 = 4096;
/// Smallest MTU that carries the control packets too.
pub(crate) const MIN_MTU: u32 = 256;
/// Segments are as large as this time at the rate holds, within bounds: a slow transfer shall not
/// wait long for the end of one, a fast one shall not have thousands.
const SEGMENT_MS: u64 = 100;
const MIN_SEGMENT_BYTES: u64 = 64 << 10;
const MAX_SEGMENT_BYTES: u64 = 8 << 20;
/// A small transfer is cut so that disks and network work at the same time.
const MIN_SEGMENTS: u64 = 8;
/// Segments beyond those that two round trips fill: some are being read or written.
const SPARE_SEGMENTS: u64 = 4;
const MIN_SLOTS: u64 = 8;
const MAX_SLOTS: u64 = 128;
/// What a receiver concedes to a sender beside memory.
const MAX_GENERATIONS: u8 = 4;
/// As much as may leave at once, as time at the rate: the lateness of timers.
const BURST_US: u64 = 500;
const MIN_BURST_BYTES: u64 = 64 << 10;

/// How the stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Payload bytes of a packet.
    pub(super) mtu: u32,
    /// Bytes of a message; the last of the stream may be shorter.
    pub(super) segment_bytes: u64,
    /// Messages in flight, and buffers at each end.
    pub(super) slots: u32,
    /// Bytes of all files together.
    pub(super) stream_bytes: u64,
}

impl Shape {
    /// Cuts a stream so that twice what is under way in a round trip is in flight, within
    /// `memory_bytes`.
    pub(super) fn choose(
        stream_bytes: u64,
        rate_bps: u64,
        rtt: Duration,
        mtu: u32,
        memory_bytes: u64,
    ) -> Self {
        let window_bytes = 2 * bdp_bytes(rate_bps, rtt);
        let by_time = rate_bps / 8 * SEGMENT_MS / 1000;
        let wanted = by_time.min(stream_bytes / MIN_SEGMENTS);
        // Few enough slots, and no longer than offsets in a message can count.
        let longest =
            (u64::from(mtu) << QpConfig::default().split.offset_bits).min(memory_bytes / 2);
        let segment_bytes = wanted
            .clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES)
            .max(window_bytes / (MAX_SLOTS - SPARE_SEGMENTS))
            .min(longest);
        let segment_bytes = segment_bytes - segment_bytes % u64::from(mtu);
        let needed = window_bytes.div_ceil(segment_bytes) + SPARE_SEGMENTS;
        let affordable = 1 << (memory_bytes / segment_bytes).ilog2();
        let slots = needed
            .next_power_of_two()
            .clamp(MIN_SLOTS, MAX_SLOTS)
            .min(affordable);
        Self {
            mtu,
            segment_bytes,
            slots: u32::try_from(slots).expect("at most MAX_SLOTS"),
            stream_bytes,
        }
    }

    /// What a sender's plan and queue pair ask of this end.
    ///
    /// # Errors
    /// [`Exit::Mismatch`] where they do not fit together, or exceed what this end concedes.
    pub(super) fn of_peer(
        plan: &TransferPlan,
        config: &QpConfig,
        memory_bytes: u64,
    ) -> Result<Self, Failure> {
        let mismatch = |what: String| Err(Failure::new(Exit::Mismatch, what));
        if config.max_message_bytes != plan.segment_bytes {
            return mismatch(format!(
                "the sender plans segments of {} bytes, but messages of {}",
                plan.segment_bytes, config.max_message_bytes
            ));
        }
        if config.channels != 1 || config.generations > MAX_GENERATIONS {
            return mismatch(format!(
                "the sender wants {} channels and {} generations of queue pairs; this end has 1 and at most {MAX_GENERATIONS}",
                config.channels, config.generations
            ));
        }
        let wanted = plan.segment_bytes.checked_mul(config.slots.into());
        if wanted.is_none_or(|wanted| wanted > memory_bytes) {
            return mismatch(format!(
                "the sender wants {} buffers of {} here, and this end gives {}: lower its --memory or raise this end's",
                config.slots,
                Bytes(plan.segment_bytes),
                Bytes(memory_bytes)
            ));
        }
        Ok(Self {
            mtu: config.mtu,
            segment_bytes: plan.segment_bytes,
            slots: config.slots,
            stream_bytes: plan.stream_bytes,
        })
    }

    /// Segments of the stream.
    pub(super) fn segments(&self) -> u64 {
        self.stream_bytes.div_ceil(self.segment_bytes)
    }

    /// Bytes of a segment, counted from 0.
    pub(super) fn bytes_of(&self, segment: u64) -> u64 {
        let start = segment.saturating_mul(self.segment_bytes);
        self.stream_bytes
            .saturating_sub(start)
            .min(self.segment_bytes)
    }

    /// Buffers that the stream needs at each end.
    pub(super) fn buffers(&self) -> u64 {
        self.segments().min(self.slots.into())
    }

    /// The queue pair of a sender.
    pub(super) fn config(&self) -> QpConfig {
        QpConfig {
            mtu: self.mtu,
            slots: self.slots,
            max_message_bytes: self.segment_bytes,
            ..QpConfig::default()
        }
    }

    /// The rate that the memory in flight allows; more would wait for acknowledgements.
    pub(super) fn window_bps(&self, rtt: Duration) -> u64 {
        let bits = u128::from(self.segment_bytes) * u128::from(self.slots) * 8;
        let bps = bits * 1_000_000_000 / (2 * rtt.as_nanos()).max(1);
        u64::try_from(bps).unwrap_or(u64::MAX)
    }
}

/// Bytes under way when the path is full.
fn bdp_bytes(rate_bps: u64, rtt: Duration) -> u64 {
    let bits = u128::from(rate_bps) * rtt.as_nanos() / 1_000_000_000;
    u64::try_from(bits / 8).unwrap_or(u64::MAX / 4)
}

/// How a queue pair works at this rate.
pub(super) fn options(sdr: QpConfig, rate_bps: u64, rtt: Duration) -> QpOptions {
    let burst_bytes = rate_bps / 8 * BURST_US / 1_000_000;
    QpOptions {
        sdr,
        rate_bps,
        burst_bytes: burst_bytes.max(MIN_BURST_BYTES),
        initial_rtt: rtt,
        ..QpOptions::default()
    }
}

/// Payload bytes of packets to the peer: what was asked for, if the path carries it, or else as much
/// as it carries.
///
/// # Errors
/// [`Exit::Usage`] for more than the path carries, [`Exit::Unreachable`] without a path.
pub(super) fn mtu(peer: SocketAddr, asked: Option<u32>) -> Result<u32, Failure> {
    let path = path_mtu(peer).or_exit(
        Exit::Unreachable,
        format_args!("asking for a route to {peer}"),
    )?;
    let overhead = if peer.is_ipv4() {
        OVERHEAD_V4_BYTES
    } else {
        OVERHEAD_V6_BYTES
    };
    let room = path.saturating_sub(overhead) / 4 * 4;
    match asked {
        Some(asked) if asked > room => Err(Failure::new(
            Exit::Usage,
            format!(
                "--mtu {asked}: the path to {} carries at most {room}",
                peer.ip()
            ),
        )),
        Some(asked) => Ok(asked),
        None if room < MIN_MTU => Err(Failure::new(
            Exit::Unreachable,
            format!(
                "the path to {} carries packets of {path} bytes only",
                peer.ip()
            ),
        )),
        None => Ok(room.min(MAX_MTU)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;
    const MIB: u64 = 1 << 20;

    fn choose(stream_bytes: u64, rate_bps: u64, rtt_ms: u64, memory_bytes: u64) -> Shape {
        let rtt = Duration::from_millis(rtt_ms);
        Shape::choose(stream_bytes, rate_bps, rtt, 1436, memory_bytes)
    }

    #[test]
    fn every_shape_is_a_queue_pair_within_its_memory() {
        for stream in [0, 1, 4096, MIB, 1 << 30, 1 << 40] {
            for rate in [1_000_000, 100_000_000, GBIT, 10 * GBIT, 100 * GBIT] {
                for rtt in [0, 1, 25, 250, 10_000] {
                    for memory in [MIB, 64 * MIB, 1 << 30, 1 << 36] {
                        for mtu in [256, 1436, 4096, 65_468] {
                            let rtt = Duration::from_millis(rtt);
                            let shape = Shape::choose(stream, rate, rtt, mtu, memory);
                            shape.config().validate().expect("a queue pair that can be");
                            let used = shape.segment_bytes * u64::from(shape.slots);
                            assert!(used <= memory, "{shape:?}");
                            assert!(shape.slots >= 2, "{shape:?}");
                            let sum: u64 = (0..shape.segments().min(3))
                                .map(|i| shape.bytes_of(i))
                                .sum();
                            assert_eq!(sum, stream.min(3 * shape.segment_bytes));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_long_fat_path_is_filled() {
        let shape = choose(1 << 40, 10 * GBIT, 250, 1 << 30);
        assert!(shape.window_bps(Duration::from_millis(250)) >= 10 * GBIT);
        let shape = choose(1 << 40, 100 * GBIT, 250, 1 << 30);
        let most = shape.window_bps(Duration::from_millis(250));
        assert!(most < 100 * GBIT, "a GiB does not hold that: {most}");
    }

    #[test]
    fn what_a_sender_asks_for_is_bounded() {
        let shape = choose(1 << 30, GBIT, 25, 1 << 30);
        let plan = TransferPlan {
            scheme: farwrite_session::Text::new("gbn"),
            rate_bps: GBIT,
            segment_bytes: shape.segment_bytes,
            entries: 1,
            stream_bytes: 1 << 30,
        };
        let config = shape.config();
        assert_eq!(
            Shape::of_peer(&plan, &config, 1 << 30).expect("fits"),
            shape
        );
        let refused = [
            (
                QpConfig {
                    slots: 1 << 16,
                    ..config
                },
                plan.segment_bytes,
            ),
            (
                QpConfig {
                    channels: 2,
                    ..config
                },
                plan.segment_bytes,
            ),
            (
                QpConfig {
                    generations: 16,
                    ..config
                },
                plan.segment_bytes,
            ),
            (config, u64::MAX),
            (config, 0),
            (
                QpConfig {
                    max_message_bytes: u64::MAX,
                    ..config
                },
                u64::MAX,
            ),
        ];
        for (config, segment_bytes) in refused {
            let plan = TransferPlan {
                segment_bytes,
                ..plan.clone()
            };
            let error = Shape::of_peer(&plan, &config, 1 << 30).expect_err("too much");
            assert_eq!(error.exit, Exit::Mismatch, "{error}");
        }
    }
}
