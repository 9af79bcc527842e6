//! The arguments of a link.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args};
use farwrite_emulator::tun::{Namespace, TunEmulatorConfig, TunEnd, TunLinkConfig};
use farwrite_link::{DeliveryTrace, LinkConfig, Loss, Policer, Reorder, Step, Variation};
use farwrite_units::parse::{parse_bit_errors, parse_duration, parse_loss, parse_rate, parse_rtt};
use farwrite_units::{Burst, input};

use super::changes::{Back, parse_back, parse_step};
use super::losses;
use super::quantities::{Addresses, Marks, Queue, parse_policer, parse_reorder, parse_variation};
use crate::exit::{Exit, Failure, OrExit};

/// The default queue is a round trip, but at least this time, and the time of this number of full
/// packets.
const LEAST_QUEUE: Duration = Duration::from_millis(5);
const LEAST_QUEUE_PACKETS: u64 = 4;

/// Longest file with a trace in bytes: minutes at a gigabit a second.
const MOST_TRACE: u64 = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  ip netns add a; ip netns add b
  farwrite link --namespaces a b --rate 1Gbit --rtt 40ms --loss 0.1%
  farwrite link --namespaces a b --rate 200Mbit --rtt 40ms --queue 1MB --ecn 5ms --no-offload
  farwrite link --namespaces a b --rate 1Gbit --rtt 40ms \\
    --step 10s:rate=250Mbit --step 20s:rate=1Gbit
  farwrite link --namespaces a b --ip-mtu 9000 --rate 10Gbit --rtt 25ms --for 60s --json
  farwrite link --devices tun0 tun1 --rtt 80ms --loss 1% --burst 20
  farwrite link --namespaces a b --ip-mtu 9000 --rate 1Gbit --rtt 4ms --bit-errors 1e-7
  farwrite link --namespaces a b --rate 1Gbit --rtt 40ms --loss 1% --burst 2ms
  farwrite link --namespaces a b --rate 50Mbit --rtt 30ms --vary uniform:10ms/30ms
  farwrite link --namespaces a b --rate 50Mbit --rtt 30ms \\
    --vary spikes:5%:20ms/10ms --back vary=none
  farwrite link --namespaces a b --rate 100Mbit --rtt 20ms --police 10Mbit:24kB --back police=none
  farwrite link --namespaces a b --rtt 60ms --trace lte.down --back rate=5Mbit,delay=40ms
  farwrite link --namespaces a b --rate 64kbit --rtt 100ms --step 20s:forward.rate=128kbit

While the first of them runs:
  ip netns exec a ping 10.77.0.2

The two devices carry any IPv4 and IPv6 traffic. Both directions have the same path, unless --back \
is given. A queue is first in, first out, and drops packets that do not fit. With --ecn, it also sets \
the mark \"congestion experienced\" in packets whose sender supports ECN. Losses occur after the \
queue. A burst of a number of packets lasts until that number of packets was sent, so a path that is \
idle in a burst still loses the next packets. A burst of a time ends with the time.

--vary adds a delay in each direction. The value after the slash is the time for which a drawn delay \
stays; without it, each packet has a delay of its own. uniform:10ms lies between 0 and 10ms. \
normal:3ms..10ms has a normal distribution with mean 0 and a deviation of 3ms, between 0 and 10ms. \
spikes:5%:20ms is 0 for 95% of the drawn delays, and up to 20ms for the others. Packets stay in order: one \
that would overtake waits for the one before. With +overtake at the end, such as \
uniform:10ms+overtake, it does not wait.

A policer drops packets for which its bucket has no tokens, and delays none. It is behind the queue. \
A trace has a line for each instant at which 1500 bytes may leave the queue, in milliseconds from \
the start, as in mahimahi. It repeats from its end.

With offloads, the kernel passes trains of packets in one piece: TCP segments, UDP datagrams of one \
flow. Queue, marks and losses apply to each packet of a train separately. Packets that arrive within \
50us of one another leave together.

At the end, by Ctrl-C or --for, a table shows what was carried, and how late packets were. A \
measurement is valid only if the p99 of the lateness is small compared with the round trip, and if \
`unread` is 0. Otherwise this machine was too slow.";

/// Emulates a long path for any IP traffic, between two network namespaces: rate, delay, queue,
/// loss, reordering, and changes of them. Needs root.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("ends").required(true).multiple(true))]
pub(crate) struct LinkArgs {
    /// Two network namespaces, by name or by path; a device is created in each
    #[arg(long, num_args = 2, value_names = ["A", "B"], group = "ends")]
    namespaces: Option<Vec<String>>,
    /// With --namespaces, the names of the new devices (without it, far0 in both); otherwise, two existing TUN devices
    #[arg(long, num_args = 2, value_names = ["A", "B"], group = "ends")]
    #[arg(default_values = ["far0", "far0"], hide_default_value = true)]
    devices: Vec<String>,
    /// Addresses of the new devices: IPv4, IPv6 or both, separated by a comma; without it,
    /// `--addresses 10.77.0.1/24,fd77::1/64 10.77.0.2/24,fd77::2/64`
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    #[arg(default_values = ["10.77.0.1/24,fd77::1/64", "10.77.0.2/24,fd77::2/64"])]
    #[arg(hide_default_value = true)]
    addresses: Vec<Addresses>,
    /// Bytes of the longest IP packet of the new devices: 1280 to 65535
    #[arg(long, value_name = "BYTES", default_value = "1500")]
    #[arg(value_parser = clap::value_parser!(u16).range(1280..))]
    ip_mtu: u16,
    /// Bits of IP packets per second: 8kbit to 100Gbit; without it, unlimited
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Round-trip time of an empty link, half of it each way: 0s to 10s
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_rtt)]
    rtt: Duration,
    /// File with the instants at which packets may leave the queue, in the format of mahimahi;
    /// replaces the rate
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    trace: Option<PathBuf>,
    /// Limit of the queue, such as 1MB, 40ms or 1000p (packets); without it, the round trip, at
    /// least 5ms and 4 packets
    #[arg(long, value_name = "LIMIT")]
    queue: Option<Queue>,
    /// Mark packets (ECN) if the queue is longer than this, such as 5ms or 100kB; or LOW..HIGH:P,
    /// as in RED: none up to LOW, rising to a share P at HIGH, all above HIGH
    #[arg(long, value_name = "LIMIT|LOW..HIGH:P")]
    ecn: Option<Marks>,
    /// Probability that a packet is lost: 0 to 0.5
    #[arg(long, value_name = "P", default_value = "0", value_parser = parse_loss)]
    loss: f64,
    /// Lose packets in bursts (two-state Markov), at the same mean loss: of this mean number of
    /// packets, such as 20, or of this mean time, such as 2ms
    #[arg(long, value_name = "PACKETS|TIME")]
    burst: Option<Burst>,
    /// Probability that a bit is wrong, such as 1e-7: up to 0.001. A packet with a wrong bit is lost,
    /// so long packets are lost more often; not with --loss and --burst
    #[arg(long, value_name = "P", value_parser = parse_bit_errors)]
    #[arg(conflicts_with_all = ["loss", "burst"])]
    bit_errors: Option<f64>,
    /// Delay packets so that others overtake them, with this probability and for this time: 1%:2ms
    #[arg(long, value_name = "P:TIME", value_parser = parse_reorder)]
    reorder: Option<Reorder>,
    /// Delay that varies, in addition to --rtt, such as uniform:10ms/30ms, normal:3ms..10ms/30ms or
    /// spikes:5%:20ms/10ms: its distribution, and how long each value stays
    #[arg(long, value_name = "DISTRIBUTION[/TIME]", value_parser = parse_variation)]
    vary: Option<Variation>,
    /// Drop packets above this rate, behind the queue: the rate and the size of the bucket, such as
    /// 10Mbit:24kB
    #[arg(long, value_name = "RATE:SIZE", value_parser = parse_policer)]
    police: Option<Policer>,
    /// Values for the direction from B to A, if they differ: rate, delay (one way), queue, loss,
    /// reorder, vary, police and trace, such as loss=0,rate=100Mbit
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = parse_back)]
    back: Option<Back>,
    /// Change rate, rtt, delay (one way), vary or police at this time after the start, such as
    /// 10s:rate=250Mbit,rtt=80ms; of one direction with a prefix, such as 10s:forward.vary=none or
    /// 10s:back.rate=1Mbit; can be repeated
    #[arg(long, value_name = "TIME:KEY=VALUE,...", value_parser = parse_step)]
    step: Vec<[Step; 2]>,
    /// Pass only single packets (no offloads)
    #[arg(long)]
    no_offload: bool,
    /// Do not sleep in the last 50us before a packet is due; uses up to one core for each direction
    #[arg(long)]
    spin: bool,
    /// End after this long: 1ms to 1 day
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub(super) duration: Option<Duration>,
    /// Seed of losses, marks, reordering and variation
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
}

impl LinkArgs {
    /// The configuration of the emulator. Reads the traces.
    pub(super) fn config(&self) -> Result<TunEmulatorConfig, Failure> {
        let default = Back::default();
        let back = self.back.as_ref().unwrap_or(&default);
        let most_loss = self.loss.max(back.loss.unwrap_or(0.0));
        if self.burst.is_some() && most_loss == 0.0 {
            let what =
                "--burst says how losses follow each other, and nothing is lost; give --loss too";
            return Err(Failure::new(Exit::Usage, what));
        }
        let forward = LinkConfig {
            delay: self.rtt / 2,
            rate_bps: self.rate,
            policer: self.police,
            loss: match self.bit_errors {
                Some(bit_error_rate) => Loss::BitErrors { bit_error_rate },
                None => losses(self.loss, self.burst),
            },
            variation: self.vary.unwrap_or_default(),
            reorder: self.reorder.unwrap_or_default(),
            ..LinkConfig::default()
        };
        let trace = self.trace.as_deref().map(read_trace).transpose()?;
        let back_trace = match &back.trace {
            Some(file) => Some(read_trace(file)?),
            None if back.rate.is_some() => None,
            None => trace.clone(),
        };
        let back_rate = back.rate.or(self.rate);
        // The link itself refuses to change the rate of a trace.
        let has_rates = [
            self.rate.is_some() || trace.is_some(),
            back_rate.is_some() || back_trace.is_some(),
        ];
        let lacks_rate = |(step, has_rate): (&Step, bool)| step.rate_bps.is_some() && !has_rate;
        let mut steps = self.step.iter();
        if steps.any(|steps| steps.iter().zip(has_rates).any(lacks_rate)) {
            let what =
                "--step changes a rate of a direction that has none from the start; give --rate";
            return Err(Failure::new(Exit::Usage, what));
        }
        let backward = LinkConfig {
            delay: back.delay.unwrap_or(forward.delay),
            rate_bps: back_rate.filter(|_| back_trace.is_none()),
            policer: back.policer.or(self.police),
            loss: match back.loss {
                Some(loss) => losses(loss, self.burst),
                None => forward.loss,
            },
            variation: back.variation.unwrap_or(forward.variation),
            reorder: back.reorder.unwrap_or(forward.reorder),
            ..forward
        };
        let rtt = forward.delay + backward.delay;
        let back_queue = back.queue.or(self.queue);
        let mut forward = self.path(forward, trace, self.queue, rtt)?;
        forward.steps = self.step.iter().map(|[step, _]| *step).collect();
        let mut backward = self.path(backward, back_trace, back_queue, rtt)?;
        backward.steps = self.step.iter().map(|[_, step]| *step).collect();
        Ok(TunEmulatorConfig {
            ends: self.ends()?,
            forward,
            backward,
            mtu: self.ip_mtu,
            offload: !self.no_offload,
            spin: self.spin,
            seed: self.seed,
        })
    }

    /// A direction without its steps.
    fn path(
        &self,
        mut link: LinkConfig,
        trace: Option<Arc<DeliveryTrace>>,
        queue: Option<Queue>,
        rtt: Duration,
    ) -> Result<TunLinkConfig, Failure> {
        let rate_bps = link
            .rate_bps
            .or(trace.as_ref().map(|trace| trace.mean_bps()));
        if let Some(rate_bps) = rate_bps {
            let queue = queue.unwrap_or(Queue::Time(self.least_queue(rate_bps).max(rtt)));
            match queue {
                // Times in which a trace delivers nothing do not shorten its queue.
                Queue::Time(_) if trace.is_some() => link.queue_bytes = Some(queue.bytes(rate_bps)),
                Queue::Time(time) => link.queue_time = Some(time),
                Queue::Bytes(bytes) => link.queue_bytes = Some(bytes),
                Queue::Packets(packets) => link.queue_packets = Some(packets),
            }
            link.ecn = self.ecn.map(|marks| marks.ramp(rate_bps));
        } else if queue.is_some() || self.ecn.is_some() {
            let what = "without a rate no packet waits, so there is no queue; give --rate";
            return Err(Failure::new(Exit::Usage, what));
        }
        Ok(TunLinkConfig {
            link,
            trace,
            steps: Vec::new(),
        })
    }

    fn least_queue(&self, rate_bps: u64) -> Duration {
        let bits = 8 * LEAST_QUEUE_PACKETS * u64::from(self.ip_mtu);
        LEAST_QUEUE.max(Duration::from_nanos(bits * 1_000_000_000 / rate_bps))
    }

    fn ends(&self) -> Result<[TunEnd; 2], Failure> {
        let usage = |what: &str| Err(Failure::new(Exit::Usage, what));
        let ([device_a, device_b], [a, b]) = (&self.devices[..], &self.addresses[..]) else {
            return usage("a link has two devices");
        };
        let Some(namespaces) = self.namespaces.as_deref() else {
            if device_a == device_b {
                return usage("a link joins two devices: name two of them");
            }
            return Ok([device_a, device_b].map(|device| TunEnd::Attach {
                device: device.clone(),
            }));
        };
        let [name_a, name_b] = namespaces else {
            return usage("a link joins two namespaces");
        };
        if name_a.is_empty() || name_b.is_empty() {
            return usage(
                "a namespace without a name (\"\"): name two of them, or give paths such as /proc/PID/ns/net",
            );
        }
        if name_a == name_b {
            return usage("a link joins two namespaces: packets would not leave a single one");
        }
        let create = |namespace: &str, device: &String, addresses: &Addresses| TunEnd::Create {
            namespace: Namespace::new(namespace),
            device: device.clone(),
            ipv4: addresses.ipv4,
            ipv6: addresses.ipv6,
        };
        Ok([create(name_a, device_a, a), create(name_b, device_b, b)])
    }
}

fn read_trace(file: &Path) -> Result<Arc<DeliveryTrace>, Failure> {
    let named = format!("--trace {}", file.display());
    let text = input::read_text(file, MOST_TRACE).or_exit(Exit::Files, &named)?;
    let trace = DeliveryTrace::parse(&text);
    Ok(Arc::new(trace.or_exit(Exit::Usage, &named)?))
}

#[cfg(test)]
mod tests {
    use farwrite_link::Spread;

    use super::*;
    use crate::args::parsed;

    fn config(arguments: &str) -> Result<TunEmulatorConfig, String> {
        let args = parsed::<LinkArgs>(arguments)?;
        args.config().map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_path_is_what_was_asked_for() {
        let config = config(
            "--namespaces a b --rate 1Gbit --rtt 40ms --queue 2MB --ecn 5ms --loss 1% --reorder \
             1%:2ms --back loss=0,queue=100p --step 10s:rate=250Mbit,rtt=80ms",
        )
        .expect("fine");
        let TunLinkConfig { link, steps, .. } = config.forward;
        assert_eq!(link.delay, Duration::from_millis(20));
        assert_eq!(
            (link.rate_bps, link.queue_bytes),
            (Some(1_000_000_000), Some(2_000_000))
        );
        assert_eq!(link.loss, Loss::Iid { loss_packet: 0.01 });
        assert_eq!(link.ecn.map(|ramp| ramp.low_bytes), Some(625_000));
        assert_eq!(link.reorder.extra_delay, Duration::from_millis(2));
        assert_eq!(steps[0].at, Duration::from_secs(10));
        assert_eq!(steps[0].rate_bps, Some(250_000_000));
        assert_eq!(steps[0].delay, Some(Duration::from_millis(40)));
        let back = config.backward.link;
        assert_eq!((back.queue_bytes, back.queue_packets), (None, Some(100)));
        assert_eq!(back.loss, Loss::Iid { loss_packet: 0.0 });
        assert!(config.offload && !config.spin);
    }

    #[test]
    fn directions_differ_in_everything() {
        let ms = Duration::from_millis;
        let config = config(
            "--namespaces a b --rate 100Mbit --rtt 30ms --vary uniform:10ms/30ms --police 10Mbit:24kB \
             --back delay=40ms,rate=64kbit,reorder=2%:10ms,vary=spikes:5%:20ms/10ms+overtake,police=none \
             --step 1s:vary=normal:3ms..10ms,forward.police=none,back.rate=8kbit,back.delay=1ms",
        )
        .expect("fine");
        let (forward, back) = (config.forward.link, config.backward.link);
        let uniform = Variation {
            spread: Spread::Uniform { most: ms(10) },
            every: ms(30),
            overtakes: false,
        };
        assert_eq!(forward.variation, uniform);
        let policer = Policer {
            rate_bps: 10_000_000,
            burst_bytes: 24_000,
        };
        assert_eq!(forward.policer, Some(policer));
        assert_eq!((forward.delay, back.delay), (ms(15), ms(40)));
        assert_eq!(back.rate_bps, Some(64_000));
        assert_eq!(
            (forward.reorder.probability, back.reorder.probability),
            (0.0, 0.02)
        );
        let spikes = Variation {
            spread: Spread::Spikes {
                share: 0.05,
                most: ms(20),
            },
            every: ms(10),
            overtakes: true,
        };
        assert_eq!(back.variation, spikes);
        assert_eq!(back.policer, Some(Policer::UNLIMITED));
        // A round trip, and four packets at 64 kbit/s.
        assert_eq!(
            (forward.queue_time, back.queue_time),
            (Some(ms(55)), Some(ms(750)))
        );
        let [forward, back] = [config.forward.steps[0], config.backward.steps[0]];
        let normal = Variation {
            spread: Spread::Normal {
                deviation: ms(3),
                most: ms(10),
            },
            ..Variation::default()
        };
        assert_eq!(
            (forward.variation, back.variation),
            (Some(normal), Some(normal))
        );
        assert_eq!(
            (forward.policer, back.policer),
            (Some(Policer::UNLIMITED), None)
        );
        assert_eq!((forward.rate_bps, back.rate_bps), (None, Some(8_000)));
        assert_eq!((forward.delay, back.delay), (None, Some(ms(1))));
    }

    #[test]
    fn a_trace_replaces_the_rate() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lte");
        std::fs::write(&file, "1\n").expect("written");
        let file = file.display();
        let config = |rest: &str| {
            let config = config(&format!("--namespaces a b --rtt 40ms {rest}"));
            let config = config.expect("fine");
            [config.forward, config.backward]
        };
        let [forward, back] = config(&format!("--trace {file}"));
        assert!(forward.trace.is_some() && back.trace.is_some());
        // 40 ms at 12 Mbit/s.
        assert_eq!(forward.link.queue_bytes, Some(60_000));
        let [forward, back] = config(&format!("--trace {file} --back rate=5Mbit"));
        assert!(forward.trace.is_some() && back.trace.is_none());
        assert_eq!(back.link.rate_bps, Some(5_000_000));
        let [forward, back] = config(&format!("--rate 1Mbit --back trace={file}"));
        assert!(forward.trace.is_none() && back.trace.is_some());
        assert_eq!(back.link.rate_bps, None);
    }

    #[test]
    fn bursts_are_of_packets_or_of_time() {
        let loss = |burst: &str| {
            let config = config(&format!("--namespaces a b --loss 1% --burst {burst}"));
            config.expect("fine").backward.link.loss
        };
        assert_eq!(loss("20"), Loss::in_bursts(0.01, 20.0));
        let time = Duration::from_millis(2);
        assert_eq!(loss("2ms"), Loss::in_timed_bursts(0.01, time));
        let error = config("--namespaces a b --burst 20").expect_err("nothing is lost");
        assert!(error.contains("--loss"), "{error}");
    }

    #[test]
    fn bit_errors_replace_the_loss() {
        let losses = |arguments: &str| {
            let config = config(&format!("--namespaces a b {arguments}")).expect("fine");
            [config.forward.link.loss, config.backward.link.loss]
        };
        let bit_errors = Loss::BitErrors {
            bit_error_rate: 1e-7,
        };
        assert_eq!(losses("--bit-errors 1e-7"), [bit_errors; 2]);
        let none = Loss::Iid { loss_packet: 0.0 };
        assert_eq!(
            losses("--bit-errors 1e-7 --back loss=0"),
            [bit_errors, none]
        );
    }

    #[test]
    fn a_queue_is_a_round_trip_where_none_is_given() {
        let queue = |path: &str| {
            let config = config(&format!("--namespaces a b {path}")).expect("fine");
            config.forward.link.queue_time
        };
        let round_trip = Some(Duration::from_millis(40));
        assert_eq!(queue("--rate 1Gbit --rtt 40ms"), round_trip);
        assert_eq!(queue("--rate 1Gbit --rtt 1ms"), Some(LEAST_QUEUE));
        assert_eq!(queue("--rtt 1ms"), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        refused(
            r#"
            => <--namespaces <A> <B>|--devices <A> <B>>
            --namespaces a => 2 values
            --namespaces a a => packets would not leave
            --devices tun0 tun0 => name two of them
            --namespaces a b --queue 10ms => give --rate
            --namespaces a b --ecn 10ms => give --rate
            --namespaces a b --rate 1GB => bits a second
            --namespaces a b --ip-mtu 100 => 1280
            --namespaces a b --queue 10x => like 1MB, 40ms or 1000p
            --namespaces a b --loss 2 => 0 to 0.5
            --namespaces a b --bit-errors 0.01 => 0 to 0.001
            --namespaces a b --bit-errors 1e-7 --loss 1% => cannot be used with
            --namespaces a b --burst 2GB => like 2ms
            --namespaces a b --burst 0.5 => 1 to 1e6
            --namespaces a b --reorder 1% => 1%:2ms
            --namespaces a b --reorder 200%:1ms => 0 to 0.5
            --namespaces a b --vary uniform:100h => a delay lies in 0s to 10s
            --namespaces a b --rate 7kbit => 8kbit to 100Gbit
            --namespaces a b --vary 10ms => uniform:10ms/30ms
            --namespaces a b --vary normal:3ms/30ms => normal:3ms..10ms/30ms
            --namespaces a b --vary spikes:20ms => spikes:5%:20ms/10ms
            --namespaces a b --vary uniform:10ms/1x => a time
            --namespaces a b --vary uniform:11s => 0s to 10s
            --namespaces a b --police 10Mbit => 10Mbit:24kB
            --namespaces a b --trace /no/such/file => /no/such/file: No such file
            --namespaces a b --trace Cargo.toml => Cargo.toml: line 1: "[package]" is no time
            --namespaces a b --trace x --rate 1Mbit => cannot be used with
            --namespaces a b --addresses 10.0.0.1 10.0.0.2 => 10.77.0.1/24
            --namespaces a b --addresses 10.0.0.1/33 10.0.0.2/24 => 10.77.0.1/24
            --namespaces a b --ecn 5ms..1MB:2 => a share
            --namespaces a b --ecn 5ms..:0.1 => like 1MB, 40ms
            "#,
        );
    }

    #[test]
    fn changes_that_make_no_sense_are_refused_with_a_reason() {
        refused(
            "
            --namespaces a b --step 10s => 10s:rate=250Mbit
            --namespaces a b --step 10s:loss=1% => rate, rtt, delay
            --namespaces a b --step x:rate=1Gbit => a time
            --namespaces a b --back rtt=1ms => rate, delay, queue, loss
            --namespaces a b --step 1s:rate=1Mbit => give --rate
            --namespaces a b --step 1s:rate=1Mbit,rate=2Mbit => again
            --namespaces a b --back loss=0,loss=1% => again
            --namespaces a b --back trace=x,rate=1Mbit => not both
            --namespaces a b --step 1s:up.rate=1Mbit => back.rate
            ",
        );
    }

    /// Checks the reasons for which arguments are refused: each line has arguments and a reason.
    fn refused(cases: &str) {
        for case in cases.trim().lines() {
            let (arguments, want) = case.split_once("=> ").expect("a case");
            let told = config(arguments).expect_err(arguments);
            assert!(told.contains(want), "{want:?} is not in {told:?}");
        }
    }
}
