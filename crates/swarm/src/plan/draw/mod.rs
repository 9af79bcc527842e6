//! Plans drawn from a seed.

mod attacker;
mod faults;
mod reads;
mod terms;
mod writes;

use std::time::Duration;

use farwrite::{
    CriticalRanges, DcqcnOptions, EqdsOptions, ImmediateSplit, Outcome, QpConfig, QpOptions,
    RateControl, SchemeName, SchemeTag, Start, SwiftOptions, Timing,
};
use farwrite_link::{LinkConfig, Loss, Reorder};
use farwrite_wire::control::Terms;

use super::{Ending, MS, MessagePlan, PairPlan, PathPlan, Plan, Repair, SECOND};
use farwrite_rng::SplitMix;

/// Schemes with codes of all shapes, and schemes without codes.
const SCHEMES: [&str; 19] = [
    "sr-rto",
    "sr-nack",
    "gbn",
    "ec-xor:32,8",
    "ec-mds:32,8",
    "ec-xor:3,3",
    "ec-xor:5,2",
    "ec-xor:1,1",
    "ec-mds:3,2",
    "ec-mds:1,3",
    "ec-mds:7,5",
    "ec-mds:17,1",
    "ec-mds:200,55",
    "best-effort",
    "best-effort+sr",
    "best-effort+ec-xor:5,2",
    "best-effort+ec-mds:7,5",
    "best-effort+first",
    "best-effort+exact",
];
/// Highest number of schemes on one queue pair. A receiver refuses more than 16.
const SCHEMES_A_PAIR: usize = 4;
/// Time within which messages must end. Few cases need more than 5 s; `soak --patience 5` finds
/// them.
const PATIENCE_NS: u64 = 120 * SECOND;
/// Limits the size of a case, so that it runs in milliseconds.
const MAX_PACKETS: u64 = 1_500;
const MAX_BYTES: u64 = 600_000;

/// A plan that is being built.
struct Draft {
    rng: SplitMix,
    plan: Plan,
    /// Time over which messages are posted.
    span_ns: u64,
    packets: u64,
    bytes: u64,
    deadline_share: f64,
    terms_share: f64,
}

impl Plan {
    /// Draws the plan of a seed.
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut rng = SplitMix::new(seed);
        let mut draft = Draft {
            plan: Self {
                seed: rng.next(),
                ipv6: rng.chance(0.5),
                translated: false,
                coding_ns: 0,
                paths: Vec::new(),
                pairs: Vec::new(),
                messages: Vec::new(),
                faults: Vec::new(),
                heal_ns: 0,
                patience_ns: PATIENCE_NS,
            },
            span_ns: 0,
            packets: 0,
            bytes: 0,
            deadline_share: rng.pick(&[0.0, 0.0, 0.2, 0.6]),
            terms_share: rng.pick(&[0.0, 0.3, 0.8]),
            rng,
        };
        draft.add_paths();
        draft.share_line_rate();
        draft.add_pairs();
        draft.add_messages();
        draft.add_faults();
        draft.add_late_packets();
        draft.add_attacker(seed);
        draft.add_writes(seed);
        draft.add_reads(seed);
        draft.add_replay(seed);
        draft.seal(seed);
        draft.code_beside(seed);
        draft.heal();
        draft.wait_for_datacenter_control();
        draft.plan
    }
}

/// A rate that both links carry, in bits a second.
fn slowest_bps(links: &[LinkConfig; 2]) -> u64 {
    let rates = links.iter().filter_map(|link| link.rate_bps);
    rates.min().map_or(2_000_000_000, |bps| bps / 10 * 9)
}

/// A controller for datacenters, on a path that need not be in one. Swift's targets leave room for
/// the delays of the swarm's hosts; otherwise its window would fall to the least one.
fn datacenter_control(rng: &mut SplitMix, line_rate_bps: u64, rtt_ns: u64) -> RateControl {
    match rng.within(0..3) {
        0 => return RateControl::Dcqcn(DcqcnOptions::paper(line_rate_bps)),
        1 => {
            return RateControl::Eqds(EqdsOptions {
                line_rate_bps,
                first_window_bytes: rng.pick(&[1, 5_000, 100_000]),
            });
        }
        _ => {}
    }
    let target_ns = rtt_ns * rng.pick(&[2, 4]) + 5 * MS;
    RateControl::Swift(SwiftOptions {
        base_target_ns: target_ns,
        endpoint_target_ns: target_ns,
        min_cwnd_millionths: 100_000,
        // The path sets the size of its own packets.
        ..SwiftOptions::new(line_rate_bps, 1, 0)
    })
}

/// A timing profile, or other durations. They need not fit the path: with an unsuitable timing,
/// messages take longer but still end.
fn timing(rng: &mut SplitMix) -> Timing {
    let mut about = |bits: std::ops::Range<u64>| {
        let ns = 1 << rng.within(bits);
        ns + rng.within(0..ns)
    };
    let max_repeat_ns = about(21..29);
    let other = Timing {
        lateness_ns: about(13..26),
        min_repeat_ns: about(12..23).min(max_repeat_ns),
        max_repeat_ns,
        min_ping_ns: about(17..25).min(max_repeat_ns),
        max_probe_ns: about(22..31),
        pace_recovery_ns: about(20..34),
        fabric_retry_ns: about(11..20),
    };
    rng.pick(&[
        Timing::wide_area(),
        Timing::wide_area(),
        Timing::wide_area(),
        Timing::datacenter(),
        Timing::datacenter(),
        other,
    ])
}

/// Critical ranges of a message.
fn critical(rng: &mut SplitMix, bytes: u64) -> CriticalRanges {
    let count = if bytes > 0 {
        rng.pick(&[0, 1, 1, 2, 8])
    } else {
        0
    };
    let longest = rng.pick(&[1, bytes / 4, bytes]).max(1);
    let ranges = (0..count).map(|_| {
        let start = rng.within(0..bytes);
        start..bytes.min(start + rng.within(1..longest + 1))
    });
    CriticalRanges::new(ranges).expect("8 ranges at most, and none empty")
}

impl Draft {
    fn add_paths(&mut self) {
        let hosts = self.rng.pick(&[2, 2, 2, 3, 4]);
        for host in 1..hosts {
            let other = self.rng.index(host);
            let delay = Duration::from_micros(self.rng.pick(&[20, 500, 5_000, 12_500, 100_000]));
            let rate_bps = self.rng.pick(&[
                None,
                Some(20_000_000),
                Some(100_000_000),
                Some(1_000_000_000),
            ]);
            let plain = LinkConfig {
                delay,
                rate_bps,
                queue_bytes: self.rng.pick(&[None, None, Some(60_000), Some(1_000_000)]),
                ..LinkConfig::default()
            };
            let mut links = [plain; 2];
            if self.rng.chance(0.2) {
                // One direction differs from the other.
                let slow = self.rng.index(2);
                links[slow].delay = delay.mul_f64(4.0 * self.rng.unit());
                links[slow].rate_bps = self.rng.pick(&[rate_bps, Some(5_000_000)]);
            }
            for link in &mut links {
                self.spoil(link);
            }
            let rate_control = self.rate_control(&links, delay);
            self.plan.paths.push(PathPlan {
                hosts: [other, host],
                links,
                rate_control,
            });
            let rtt_ns = 2 * u64::try_from(delay.as_nanos()).expect("a short delay");
            self.span_ns = self.span_ns.max(rtt_ns * 20 + 20 * MS);
        }
    }

    /// A controller for a path. Its hint may belong to another path.
    fn rate_control(&mut self, links: &[LinkConfig; 2], delay: Duration) -> RateControl {
        let rng = &mut self.rng;
        let within_bps = slowest_bps(links);
        if rng.chance(0.5) {
            let too_fast = rng.chance(0.25);
            let rate_bps = within_bps * if too_fast { 3 } else { 2 } / 2;
            return RateControl::Fixed { rate_bps };
        }
        let rtt_ns = 2 * u64::try_from(delay.as_nanos()).expect("a short delay");
        if rng.chance(0.2) {
            return datacenter_control(rng, within_bps, rtt_ns);
        }
        let start = Start {
            rate_bps: rng.pick(&[within_bps / 10, within_bps, within_bps * 10]),
            rtt_ns: rng.pick(&[rtt_ns / 2, rtt_ns, rtt_ns * 3]),
        };
        RateControl::Adaptive {
            max_bps: rng.pick(&[None, Some(within_bps), Some(within_bps * 2)]),
            start: rng.pick(&[None, None, Some(start)]),
        }
    }

    /// Gives all paths under EQDS the line rate of the slowest: a host has one.
    fn share_line_rate(&mut self) {
        let under_eqds = |path: &PathPlan| match path.rate_control {
            RateControl::Eqds(options) => Some(options.line_rate_bps),
            _ => None,
        };
        let Some(rate_bps) = self.plan.paths.iter().filter_map(under_eqds).min() else {
            return;
        };
        for path in &mut self.plan.paths {
            if let RateControl::Eqds(options) = &mut path.rate_control {
                options.line_rate_bps = rate_bps;
            }
        }
    }

    /// DCQCN and Swift take each loss for congestion. Where the path loses one packet in six, they
    /// send about one packet in a round trip, and a chunk of many packets needs several repeats. Under
    /// EQDS, each repeat may wait for a request and its credit, which may be lost. So messages on such
    /// a path may take longer.
    fn wait_for_datacenter_control(&mut self) {
        let waits_ns = self.plan.paths.iter().map(|path| match path.rate_control {
            RateControl::Dcqcn(_) | RateControl::Swift(_) | RateControl::Eqds(_) => {
                let rtt = path.links[0].delay + path.links[1].delay;
                let rtt_ns = u64::try_from(rtt.as_nanos()).expect("a short delay");
                rtt_ns * self.packets * 4
            }
            RateControl::Fixed { .. } | RateControl::Adaptive { .. } => 0,
        });
        self.plan.patience_ns += waits_ns.max().unwrap_or(0);
    }

    /// Adds faults to a link.
    fn spoil(&mut self, link: &mut LinkConfig) {
        let rng = &mut self.rng;
        link.loss = match rng.within(0..8) {
            0 | 4 => Loss::None,
            1 | 5 => Loss::Iid {
                loss_packet: 0.02 * rng.unit(),
            },
            2 | 6 => Loss::Iid {
                loss_packet: 0.2 * rng.unit(),
            },
            3 => Loss::MarkovInTime {
                mean_good: Duration::from_micros(rng.within(1_000..50_000)),
                mean_bad: Duration::from_micros(rng.within(10..1_000)),
                loss_good: 0.01 * rng.unit(),
                loss_bad: 0.3 + 0.7 * rng.unit(),
            },
            _ => Loss::Markov {
                p_good_to_bad: 0.02 * rng.unit(),
                p_bad_to_good: 0.02 + 0.2 * rng.unit(),
                loss_good: 0.01 * rng.unit(),
                loss_bad: 0.3 + 0.7 * rng.unit(),
            },
        };
        link.duplicate = rng.pick(&[0.0, 0.0, 0.02, 0.5]) * rng.unit();
        // Over IPv4, an end accepts an ICRC that is valid with another identification (P2.5), so a
        // flipped bit sometimes passes. Over IPv6, it never does.
        if self.plan.ipv6 {
            link.corrupt = rng.pick(&[0.0, 0.02]) * rng.unit();
        }
        // The time for which packets are held back depends on the generations: see
        // `Draft::reorder`.
        link.reorder.probability = rng.pick(&[0.0, 0.01, 0.3]) * rng.unit();
    }

    fn add_pairs(&mut self) {
        for _ in 0..self.rng.pick(&[1, 1, 2, 3]) {
            let path = self.rng.index(self.plan.paths.len());
            self.add_pair(path, 0);
        }
        self.reorder();
    }

    fn add_pair(&mut self, path: usize, opens_ns: u64) {
        let mut sdr = self.shape();
        let rng = &mut self.rng;
        let PathPlan {
            links,
            rate_control,
            ..
        } = &self.plan.paths[path];
        let late_ns = rng.within(1..self.span_ns);
        let lag_ns = rng.pick(&[0, 0, late_ns]);
        // A chunk that overflows the queue in the same way each time never arrives whole. So bursts
        // must fit the queue, and only short chunks may sometimes be sent too fast for the path.
        let has_queue = links.iter().any(|link| link.queue_bytes.is_some());
        let bursts: &[u64] = if has_queue {
            &[1, 50_000]
        } else {
            &[1, 50_000, 256 * 1024]
        };
        let burst_bytes = rng.pick(bursts);
        let timing = timing(rng);
        let within_bps = slowest_bps(links);
        let too_fast =
            matches!(rate_control, RateControl::Fixed { rate_bps } if *rate_bps > within_bps);
        if too_fast && has_queue {
            sdr.packets_per_chunk = sdr.packets_per_chunk.min(4);
        }
        let options = QpOptions {
            rate_control: *rate_control,
            burst_bytes,
            timing,
            initial_rtt: Duration::from_micros(rng.pick(&[100, 25_000, 1_000_000])),
            reordering_window: rng.pick(&[None, Some(links[0].delay / 2)]),
            expected_scheme: if sdr.parity {
                rng.pick(&SCHEMES)
                    .parse::<SchemeName>()
                    .expect("a name")
                    .tag()
            } else {
                SchemeTag::NONE
            },
            max_parity_bytes: rng.pick(&[0, 20_000, 300_000, 1 << 30, 1 << 30]),
            sdr,
            ..QpOptions::default()
        };
        self.plan.pairs.push(PairPlan {
            path,
            options,
            opens_ns,
            lag_ns,
            reads: [false; 2],
        });
    }

    fn shape(&mut self) -> QpConfig {
        let rng = &mut self.rng;
        let mtu = rng.pick(&[64, 256, 1000, 1024, 4096]);
        let (id_bits, offset_bits, user_bits) =
            rng.pick(&[(10, 18, 4), (10, 18, 4), (8, 24, 0), (9, 8, 15), (7, 9, 16)]);
        let most_bytes = u64::from(mtu) << offset_bits;
        QpConfig {
            mtu,
            packets_per_chunk: rng.pick(&[1, 1, 2, 3, 4, 16, 64]),
            split: ImmediateSplit {
                id_bits,
                offset_bits,
                user_bits,
            },
            slots: rng.pick(&[1, 2, 2, 4, 8, 64]),
            parity: rng.chance(0.85),
            max_message_bytes: rng.pick(&[5_000, 1 << 16, 1 << 20]).min(most_bytes),
            generations: rng.pick(&[2, 2, 3, 4, 4, 8, 16]),
            channels: rng.pick(&[1, 1, 2, 5]),
        }
    }

    /// Sets how long links hold packets back. A packet that is too late would be taken for a packet
    /// of another message, so the limit is half of the generations minus two, in round trips
    /// (P3.10).
    fn reorder(&mut self) {
        for (index, path) in self.plan.paths.iter_mut().enumerate() {
            let pairs = self.plan.pairs.iter().filter(|pair| pair.path == index);
            let generations = pairs.map(|pair| pair.options.sdr.generations).min();
            let trips = u32::from(generations.unwrap_or(2) - 2) / 2;
            let rtt = path.links[0].delay + path.links[1].delay;
            for link in &mut path.links {
                let share = 0.95 * self.rng.unit();
                let extra_delay = (rtt * trips).mul_f64(share);
                let probability = if trips == 0 {
                    0.0
                } else {
                    link.reorder.probability
                };
                link.reorder = Reorder {
                    probability,
                    extra_delay,
                };
            }
        }
    }

    fn add_messages(&mut self) {
        for pair in 0..self.plan.pairs.len() {
            let options = &self.plan.pairs[pair].options;
            let parity = options.sdr.parity;
            let usable: Vec<&str> = SCHEMES
                .into_iter()
                .filter(|name| parity || !name.contains("ec-"))
                .collect();
            let schemes: Vec<SchemeName> = (0..SCHEMES_A_PAIR)
                .map(|_| self.rng.pick(&usable).parse().expect("a name"))
                .collect();
            let count = self.rng.pick(&[1, 3, 8, 20, 60]);
            let largest = self.rng.pick(&[40, 3_000, 20_000, 300_000]);
            let mut at_ns = self.plan.pairs[pair].opens_ns;
            for _ in 0..count {
                let gap_ns = self.span_ns / count;
                at_ns += self.rng.within(0..gap_ns * 2);
                self.add_message(pair, &schemes, largest, at_ns);
            }
        }
    }

    fn add_message(&mut self, pair: usize, schemes: &[SchemeName], largest: u64, at_ns: u64) {
        let sdr = self.plan.pairs[pair].options.sdr;
        let mtu = u64::from(sdr.mtu);
        let rng = &mut self.rng;
        let bytes = match rng.within(0..8) {
            0 => 0,
            1 => 1,
            2 => rng.pick(&[mtu - 1, mtu, mtu + 1]),
            3 => mtu * u64::from(sdr.packets_per_chunk) * rng.within(1..6),
            _ => rng.within(0..largest),
        };
        let room_bytes = MAX_BYTES - self.bytes;
        let room_packets = (MAX_PACKETS - self.packets.min(MAX_PACKETS - 1)) * mtu;
        let bytes = bytes
            .min(sdr.max_message_bytes)
            .min(room_bytes)
            .min(room_packets);
        self.bytes += bytes;
        self.packets += bytes.div_ceil(mtu).max(1);
        let spare = rng.pick(&[0, 0, 1, 10_000]);
        let scheme = match rng.within(0..10) {
            0 => Repair::Nothing,
            1 if bytes > 0 => Repair::Stream,
            _ => Repair::Scheme(rng.pick(schemes)),
        };
        let critical = match scheme {
            Repair::Scheme(SchemeName::BestEffortFirst | SchemeName::BestEffortExact) => {
                critical(rng, bytes)
            }
            _ => CriticalRanges::NONE,
        };
        let is_short = bytes > 0 && scheme != Repair::Stream && rng.chance(0.03);
        let capacity = if is_short {
            rng.within(0..bytes)
        } else {
            (bytes + spare).min(sdr.max_message_bytes)
        };
        let immediate = rng.pick(&[None, None, Some(0), Some(0x8765_4321)]);
        let immediate = immediate.filter(|_| sdr.split.user_bits > 0);
        let (early, late) = (rng.chance(0.3), rng.chance(0.3));
        let slack_ns = self.span_ns / 4;
        let after_ns = rng.within(1..self.span_ns / 2);
        let outcome = rng.pick(&[Outcome::Partial, Outcome::Failed]);
        self.plan.messages.push(MessagePlan {
            pair,
            from: usize::from(rng.chance(0.3)),
            bytes: usize::try_from(bytes).expect("small"),
            capacity: usize::try_from(capacity).expect("small"),
            scheme,
            critical,
            immediate,
            terms: Terms::default(),
            send_limit_ns: None,
            recv_limit_ns: None,
            write_limits_ns: Vec::new(),
            send_ns: at_ns + if late { rng.within(0..slack_ns) } else { 0 },
            recv_ns: at_ns + if early { 0 } else { rng.within(0..slack_ns) },
            ending: match scheme {
                Repair::Scheme(_) if rng.chance(0.9) => Ending::Natural,
                _ if rng.chance(0.3) => Ending::Cancel { after_ns },
                // Only the receiver can end a message without a scheme.
                _ => Ending::Complete { after_ns, outcome },
            },
        });
        self.set_terms(schemes);
        self.set_limits();
    }
}
