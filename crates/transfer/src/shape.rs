//! How to cut a stream of files: into segments, packets and slots for messages in flight.

use std::net::SocketAddr;
use std::time::Duration;

use farwrite::fabric::udp::path_mtu;
use farwrite::routes::payload_in;
use farwrite::{QpConfig, QpOptions, RateControl, SchemeName, Sealing};
use farwrite_choice::{group_chunks, parity_bytes};
use farwrite_files::TransferPlan;

use farwrite_units::show::Bytes;

use crate::{Error, ErrorKind};

/// The MTU of RoCE.
const NIC_MTU: u32 = 4096;
/// The smallest MTU that also carries the control packets.
pub const MIN_TRANSFER_MTU: u32 = 256;
/// A segment is the data of this time at the rate, within limits: on a slow path a segment must not
/// take long, and on a fast path there must not be thousands.
const SEGMENT_MS: u64 = 100;
const MIN_SEGMENT_BYTES: u64 = 64 << 10;
const MAX_SEGMENT_BYTES: u64 = 2 << 20;
/// The minimum number of segments: a small transfer also uses disks and network at the same time.
const MIN_SEGMENTS: u64 = 8;
/// Segments beyond those that two round trips fill: these are being read or written.
const SPARE_SEGMENTS: u64 = 4;
const MIN_SLOTS: u64 = 8;
const MAX_SLOTS: u64 = 128;
/// The maximum number of generations that a receiver admits.
const MAX_GENERATIONS: u8 = 4;

/// The speed of a path before any measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speed {
    /// The likely rate of the path, in bits per second.
    pub(crate) likely_bps: u64,
    /// The highest rate that the path may turn out to have. Buffers are sized for this rate.
    pub(crate) most_bps: u64,
}

impl Speed {
    /// The speed of an unknown path. Segments of 1 MiB end within seconds on a slow path, and the
    /// buffers fill most fast paths. `--rate` or an earlier transfer gives better values.
    const UNKNOWN: Self = Self {
        likely_bps: 84_000_000,
        most_bps: 10_000_000_000,
    };

    /// The speed according to the user's limit and to measurements of an earlier transfer.
    pub(crate) fn of(max_rate_bps: Option<u64>, measured_bps: Option<u64>) -> Self {
        let most_bps = measured_bps.map_or(Self::UNKNOWN.most_bps, |measured| {
            measured.saturating_mul(2).max(Self::UNKNOWN.most_bps)
        });
        let most_bps = max_rate_bps.unwrap_or(most_bps);
        let likely_bps = measured_bps.or(max_rate_bps);
        Self {
            likely_bps: likely_bps.unwrap_or(Self::UNKNOWN.likely_bps).min(most_bps),
            most_bps,
        }
    }
}

/// How the stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Payload bytes of a packet.
    pub(crate) mtu: u32,
    pub(crate) packets_per_chunk: u32,
    /// Bytes of a message; the last of the stream may be shorter.
    pub(crate) segment_bytes: u64,
    /// Bytes of the parity of such a message, 0 where the scheme sends none.
    pub(crate) parity_bytes: u64,
    /// Messages in flight, and buffers at each end.
    pub(crate) slots: u32,
    /// Bytes of all files together.
    pub(crate) stream_bytes: u64,
}

impl Shape {
    /// Cuts a stream so that twice the bandwidth-delay product is in flight, within `memory_bytes`,
    /// parity included.
    ///
    /// # Errors
    /// [`ErrorKind::Settings`] if the memory does not hold two chunks with the parity of this
    /// scheme.
    pub(crate) fn choose(
        stream_bytes: u64,
        speed: Speed,
        rtt: Duration,
        mtu: u32,
        memory_bytes: u64,
        scheme: SchemeName,
    ) -> Result<Self, Error> {
        let window_bytes = 2 * bdp_bytes(speed.most_bps, rtt);
        let by_time = speed.likely_bps / 8 * SEGMENT_MS / 1000;
        let wanted = by_time.min(stream_bytes / MIN_SEGMENTS);
        let config = QpConfig {
            mtu,
            ..QpConfig::default()
        };
        let chunk_bytes = chunk_bytes(&config);
        let longest = longest(scheme, mtu, chunk_bytes, memory_bytes)?;
        // A group that is not full has as much parity as a full one.
        let group_bytes = group_chunks(scheme) * chunk_bytes;
        let least = MIN_SEGMENT_BYTES.max(group_bytes).min(MAX_SEGMENT_BYTES);
        // Keep the number of slots low.
        let segment_bytes = wanted
            .clamp(least, MAX_SEGMENT_BYTES)
            .max(window_bytes / (MAX_SLOTS - SPARE_SEGMENTS))
            .min(longest);
        let unit = match segment_bytes < group_bytes {
            true => chunk_bytes,
            false => group_bytes,
        };
        let segment_bytes = segment_bytes - segment_bytes % unit;
        let parity_bytes = parity_bytes(scheme, segment_bytes, chunk_bytes);
        let needed = window_bytes.div_ceil(segment_bytes) + SPARE_SEGMENTS;
        let affordable = 1 << (memory_bytes / (segment_bytes + parity_bytes)).ilog2();
        let slots = needed
            .next_power_of_two()
            .clamp(MIN_SLOTS, MAX_SLOTS)
            .min(affordable);
        Ok(Self {
            mtu,
            packets_per_chunk: config.packets_per_chunk,
            segment_bytes,
            parity_bytes,
            slots: u32::try_from(slots).expect("at most MAX_SLOTS"),
            stream_bytes,
        })
    }

    /// The shape that a sender's plan and queue pair require of this end.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if they do not fit together, or exceed the limits of this end.
    pub(crate) fn of_peer(
        plan: &TransferPlan,
        config: &QpConfig,
        memory_bytes: u64,
        scheme: SchemeName,
    ) -> Result<Self, Error> {
        let mismatch = |what: String| Err(Error::new(ErrorKind::Mismatch, what));
        let parity_bytes = parity_bytes(scheme, plan.segment_bytes, chunk_bytes(config));
        if config.max_message_bytes != plan.segment_bytes.max(parity_bytes) {
            return mismatch(format!(
                "the sender plans segments of {} bytes and {parity_bytes} of parity, but messages of {}",
                plan.segment_bytes, config.max_message_bytes
            ));
        }
        if config.channels != 1 || config.generations > MAX_GENERATIONS {
            return mismatch(format!(
                "the sender wants {} channels and {} generations of queue pairs; this end has 1 and at most {MAX_GENERATIONS}",
                config.channels, config.generations
            ));
        }
        let buffer_bytes = plan.segment_bytes.saturating_add(parity_bytes);
        let wanted = buffer_bytes.checked_mul(config.slots.into());
        if wanted.is_none_or(|wanted| wanted > memory_bytes) {
            return mismatch(format!(
                "the sender wants {} buffers of {} here, and this end gives {}: lower its --memory or raise this end's",
                config.slots,
                Bytes(buffer_bytes),
                Bytes(memory_bytes)
            ));
        }
        Ok(Self {
            mtu: config.mtu,
            packets_per_chunk: config.packets_per_chunk,
            segment_bytes: plan.segment_bytes,
            parity_bytes,
            slots: config.slots,
            stream_bytes: plan.stream_bytes,
        })
    }

    /// # Errors
    /// [`ErrorKind::Mismatch`].
    pub(crate) fn check_mtu(&self, most: u32) -> Result<(), Error> {
        if self.mtu <= most {
            return Ok(());
        }
        let what = format!(
            "the sender's packets have {} bytes, and the network interface of the receiver carries at \
             most {most}: give the sender --mtu {most}",
            self.mtu
        );
        Err(Error::new(ErrorKind::Mismatch, what))
    }

    /// The same segments in packets of `mtu` bytes, which must be smaller than before. Returns
    /// `None` if a segment or its parity would have too many packets.
    pub(crate) fn with_mtu(self, mtu: u32, scheme: SchemeName) -> Option<Self> {
        let mut smaller = Self { mtu, ..self };
        let chunk_bytes = smaller.chunk_bytes();
        smaller.parity_bytes = parity_bytes(scheme, self.segment_bytes, chunk_bytes);
        let longest = u64::from(mtu) << smaller.config().split.offset_bits;
        let fits = smaller.segment_bytes.max(smaller.parity_bytes) <= longest;
        fits.then_some(smaller)
    }

    pub(crate) fn segments(&self) -> u64 {
        self.stream_bytes.div_ceil(self.segment_bytes)
    }

    /// Bytes of a segment, counted from 0.
    pub(crate) fn bytes_of(&self, segment: u64) -> u64 {
        let start = segment.saturating_mul(self.segment_bytes);
        self.stream_bytes
            .saturating_sub(start)
            .min(self.segment_bytes)
    }

    /// Memory for a segment with its parity.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.bytes_of(0).saturating_add(self.parity_bytes)
    }

    /// Buffers that the stream needs at each end.
    pub(crate) fn buffers(&self) -> u64 {
        self.segments().min(self.slots.into())
    }

    /// The configuration of a sender's queue pair.
    pub(crate) fn config(&self) -> QpConfig {
        QpConfig {
            mtu: self.mtu,
            packets_per_chunk: self.packets_per_chunk,
            slots: self.slots,
            max_message_bytes: self.segment_bytes.max(self.parity_bytes),
            ..QpConfig::default()
        }
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        chunk_bytes(&self.config())
    }

    /// Parity of all segments in flight.
    pub(crate) fn max_parity_bytes(&self) -> u64 {
        self.parity_bytes.saturating_mul(self.slots.into())
    }

    /// The rate that the memory in flight allows. A higher rate would wait for acknowledgements.
    pub(crate) fn window_bps(&self, rtt: Duration) -> u64 {
        let bits = u128::from(self.segment_bytes) * u128::from(self.slots) * 8;
        let bps = bits * 1_000_000_000 / (2 * rtt.as_nanos()).max(1);
        u64::try_from(bps).unwrap_or(u64::MAX)
    }
}

/// The longest segment for which two segments, with their parity, fit into the memory. Neither data
/// nor parity exceeds the range of offsets in a message.
fn longest(
    scheme: SchemeName,
    mtu: u32,
    chunk_bytes: u64,
    memory_bytes: u64,
) -> Result<u64, Error> {
    let message_bytes = u64::from(mtu) << QpConfig::default().split.offset_bits;
    let wanted = |chunks: u64| {
        let parity_bytes = parity_bytes(scheme, chunks * chunk_bytes, chunk_bytes);
        (parity_bytes, 2 * (chunks * chunk_bytes + parity_bytes))
    };
    let fits = |chunks: u64| {
        let (parity_bytes, both) = wanted(chunks);
        parity_bytes <= message_bytes && both <= memory_bytes
    };
    // More chunks never have less parity.
    let (mut fitting, mut too_many) = (0, message_bytes / chunk_bytes + 1);
    while too_many - fitting > 1 {
        let chunks = fitting.midpoint(too_many);
        match fits(chunks) {
            true => fitting = chunks,
            false => too_many = chunks,
        }
    }
    if fitting == 0 {
        let (_, least) = wanted(1);
        let what = format!(
            "--memory {}: {scheme} with packets of {mtu} bytes takes {least} bytes at least; give more, or a \
             smaller --mtu",
            Bytes(memory_bytes)
        );
        return Err(Error::new(ErrorKind::Settings, what));
    }
    Ok(fitting * chunk_bytes)
}

fn chunk_bytes(config: &QpConfig) -> u64 {
    u64::from(config.mtu) * u64::from(config.packets_per_chunk)
}

/// Bytes in flight when the path is full.
fn bdp_bytes(rate_bps: u64, rtt: Duration) -> u64 {
    let bits = u128::from(rate_bps) * rtt.as_nanos() / 1_000_000_000;
    u64::try_from(bits / 8).unwrap_or(u64::MAX / 4)
}

/// The options of a queue pair with this rate control.
pub(crate) fn options(
    sdr: QpConfig,
    rate_control: RateControl,
    sealing: Sealing,
    rtt: Duration,
) -> QpOptions {
    QpOptions {
        sdr,
        rate_control,
        sealing,
        initial_rtt: rtt,
        ..QpOptions::default()
    }
}

/// Payload of packets from or to an RDMA NIC, whose path cannot be probed: what was asked for, or what the
/// route is said to carry, but at most `most`, the largest of this end. The peer may be a NIC with an
/// interface like this one, so the default is one of RoCE's sizes.
///
/// # Errors
/// [`ErrorKind::Settings`] for more than the route or this end carries, [`ErrorKind::Unreachable`] without a
/// route.
pub(crate) fn nic_mtu(peer: SocketAddr, asked: Option<u32>, most: u32) -> Result<u32, Error> {
    let path = path_mtu(peer).map_err(|error| {
        let what = format_args!("asking for a route to {peer}");
        Error::caused(ErrorKind::Unreachable, what, &error)
    })?;
    let room = payload_in(path, peer).min(most);
    match asked {
        Some(asked) if asked > room => {
            let peer = peer.ip();
            let what = format!("--mtu {asked}: the path to {peer} carries at most {room}");
            Err(Error::new(ErrorKind::Settings, what))
        }
        Some(asked) => Ok(asked),
        None => Ok(roce_mtu(room)),
    }
}

/// The largest MTU of RoCE that has room.
fn roce_mtu(room: u32) -> u32 {
    1 << room.clamp(MIN_TRANSFER_MTU, NIC_MTU).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_packets_than_the_receiver_carries_are_refused() {
        let shape = choose(MIB, GBIT, 10, 64 * MIB);
        assert!(shape.check_mtu(shape.mtu).is_ok());
        let error = shape.check_mtu(shape.mtu - 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        let hint = format!("--mtu {}", shape.mtu - 4);
        assert!(error.to_string().ends_with(&hint), "{error}");
    }

    const GBIT: u64 = 1_000_000_000;
    const MIB: u64 = 1 << 20;

    fn fixed(rate_bps: u64) -> Speed {
        Speed::of(Some(rate_bps), None)
    }

    fn choose(stream_bytes: u64, rate_bps: u64, rtt_ms: u64, memory_bytes: u64) -> Shape {
        let rtt = Duration::from_millis(rtt_ms);
        let (speed, scheme) = (fixed(rate_bps), SchemeName::Gbn);
        let chosen = Shape::choose(stream_bytes, speed, rtt, 1436, memory_bytes, scheme);
        chosen.expect("enough")
    }

    /// Streams, rates, round trips in milliseconds, and memories, in all combinations.
    fn wishes() -> impl Iterator<Item = (u64, u64, u64, u64)> {
        let streams = [0, 1, 4096, MIB, 1 << 30, 1 << 40].into_iter();
        streams.flat_map(|stream| {
            let rates = [1_000_000, 100_000_000, GBIT, 10 * GBIT, 100 * GBIT].into_iter();
            rates.flat_map(move |rate| {
                let memories = [MIB, 64 * MIB, 1 << 30, 1 << 36].into_iter();
                let rtts = [0, 1, 25, 250, 10_000];
                memories.flat_map(move |memory| rtts.map(|rtt| (stream, rate, rtt, memory)))
            })
        })
    }

    #[test]
    fn every_shape_is_a_queue_pair_within_its_memory() {
        let others = ["ec-mds:1,254", "ec-mds:254,1", "ec-xor:7,7"];
        let others = others.map(|name| name.parse().expect("a scheme"));
        let mut refused = 0;
        for scheme in SchemeName::EXACT.into_iter().chain(others) {
            for mtu in [256, 1436, 4096, 65_468] {
                for (stream, rate, rtt, memory) in wishes() {
                    let rtt = Duration::from_millis(rtt);
                    let chosen = Shape::choose(stream, fixed(rate), rtt, mtu, memory, scheme);
                    let Ok(shape) = chosen else {
                        // A chunk and its parity, twice.
                        let chunk = u64::from(mtu);
                        let least = 2 * (chunk + parity_bytes(scheme, chunk, chunk));
                        assert!(least > memory, "{scheme}, {mtu}, {memory}");
                        refused += 1;
                        continue;
                    };
                    check(&shape, memory, scheme);
                }
            }
        }
        assert!(refused > 0, "memory for everything");
    }

    fn check(shape: &Shape, memory: u64, scheme: SchemeName) {
        let config = shape.config();
        config.validate().expect("a queue pair that can be");
        let used = (shape.segment_bytes + shape.parity_bytes) * u64::from(shape.slots);
        assert!(used <= memory && shape.slots >= 2, "{scheme}, {shape:?}");
        // The parity of segments of every length fits, including very short ones.
        let segments = [1, shape.segment_bytes / 2, shape.segment_bytes];
        for bytes in segments.into_iter().filter(|bytes| *bytes > 0) {
            let parity = parity_bytes(scheme, bytes, chunk_bytes(&config));
            assert!(parity <= config.max_message_bytes, "{scheme}, {shape:?}");
            assert!(parity <= shape.parity_bytes, "{scheme}, {shape:?}");
        }
        let of_first = (0..shape.segments().min(3)).map(|i| shape.bytes_of(i));
        let stream = shape.stream_bytes.min(3 * shape.segment_bytes);
        assert_eq!(of_first.sum::<u64>(), stream);
    }

    #[test]
    fn packets_of_a_nic_have_a_size_of_roce() {
        let sizes = [100, 256, 1436, 2047, 2048, 4096, 8936].map(roce_mtu);
        assert_eq!(sizes, [256, 256, 1024, 1024, 2048, 4096, 4096]);
    }

    #[test]
    fn segments_are_whole_groups_where_they_can_be() {
        let scheme: SchemeName = "ec-mds:32,8".parse().expect("a scheme");
        let rtt = Duration::from_millis(25);
        for (stream, groups) in [(1, 1), (MIB, 1), (1 << 30, 16)] {
            let shape = Shape::choose(stream, fixed(GBIT), rtt, 4096, 1 << 30, scheme);
            let shape = shape.expect("enough memory");
            assert_eq!(shape.segment_bytes, groups * 32 * 4096, "{shape:?}");
            assert_eq!(shape.parity_bytes, groups * 8 * 4096, "{shape:?}");
        }
        // Two whole groups and their parity do not fit here.
        let shape = Shape::choose(1 << 30, fixed(GBIT), rtt, 65_468, 2 * MIB, scheme);
        let shape = shape.expect("enough memory");
        assert_eq!(shape.parity_bytes, 8 * 65_468);
        assert!(shape.segment_bytes < 32 * 65_468, "{shape:?}");
    }

    #[test]
    fn a_path_that_nobody_described_can_be_slow_or_fast() {
        let rtt = Duration::from_millis(25);
        let unknown = Speed::of(None, None);
        let shape = Shape::choose(1 << 40, unknown, rtt, 4096, 1 << 30, SchemeName::SrNack);
        let shape = shape.expect("enough memory");
        assert!(shape.segment_bytes <= MIB, "{shape:?}");
        assert!(shape.window_bps(rtt) >= 10 * GBIT, "{shape:?}");
        // A measured rate has priority over the default. The user's limit has priority over both.
        let measured = Speed::of(None, Some(40 * GBIT));
        let speed = (measured.likely_bps, measured.most_bps);
        assert_eq!(speed, (40 * GBIT, 80 * GBIT));
        let bounded = Speed::of(Some(GBIT), Some(40 * GBIT));
        assert_eq!((bounded.likely_bps, bounded.most_bps), (GBIT, GBIT));
        assert_eq!(Speed::of(Some(1_000_000), None).likely_bps, 1_000_000);
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
            scheme: farwrite_keys::Text::new("gbn"),
            segment_bytes: shape.segment_bytes,
            entries: 1,
            stream_bytes: 1 << 30,
        };
        let config = shape.config();
        let fits = Shape::of_peer(&plan, &config, 1 << 30, SchemeName::Gbn);
        assert_eq!(fits.expect("fits"), shape);
        let changed = |change: fn(&mut QpConfig)| {
            let mut config = config;
            change(&mut config);
            config
        };
        let refused = [
            (changed(|it| it.slots = 1 << 16), plan.segment_bytes),
            (changed(|it| it.channels = 2), plan.segment_bytes),
            (changed(|it| it.generations = 16), plan.segment_bytes),
            (config, u64::MAX),
            (config, 0),
            (changed(|it| it.max_message_bytes = u64::MAX), u64::MAX),
        ];
        for (config, segment_bytes) in refused {
            let plan = TransferPlan {
                segment_bytes,
                ..plan.clone()
            };
            let error = Shape::of_peer(&plan, &config, 1 << 30, SchemeName::Gbn);
            let error = error.expect_err("too much");
            assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        }
    }
}
