//! `farwrite netrt`: retransmission between top-of-rack switches, for unmodified RDMA NICs.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use farwrite_boxes::Middlebox as _;
use farwrite_boxes::netrt::{Config, NetRt};
use farwrite_units::parse::{parse_count, parse_delay, parse_rate, parse_rtt};
use farwrite_units::show::{Bytes, Time};

use super::{BridgeArgs, LimitArgs, boot, carry, parse_hold};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// The purpose for which the key of boxes is derived from the pre-shared key.
const KEY_PURPOSE: &str = "farwrite 2026 NetRT boxes";

const EXAMPLES: &str = "\
Examples:
  farwrite keygen boxes.key      then copy boxes.key to all boxes
  farwrite netrt --near eth1 --far eth2 --rate 25Gbit --rtt 20us --psk-file boxes.key
  farwrite netrt --near eth1 --far eth2 --rate 1Gbit --rtt 10ms --hold 50ms --psk-file boxes.key
  farwrite netrt --near eth1 --far eth2 --rate 10Gbit --rtt 40ms --pool 100MB --bitmap 65536 \\
    --held 60000 --psk-file boxes.key --metrics 127.0.0.1:9791
  curl http://127.0.0.1:9791/metrics

Put one box beside each NIC, between the NIC and its switch, on a machine with two network interfaces. \
Frames pass unchanged, and NICs need no other settings. A box keeps copies of the packets that its \
NIC sends. The box at the other end holds back packets that arrive after a missing one, and requests \
the missing packet from the first box. Repeats have the code point 48 (CS6), which the network \
should prefer; --repeat-dscp sets another one.

The hold time must be far below the ACK timeout of the NICs. docs/boxes.md describes benefits, costs \
and limits of boxes.";

/// Carries frames between two network interfaces, keeps copies of RDMA packets, and repeats packets
/// that the box beside the other NIC did not receive (NetRT). Needs root or CAP_NET_RAW.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub(crate) struct NetRtArgs {
    #[command(flatten)]
    bridge: BridgeArgs,
    /// The rate of the far interface: 8kbit to 100Gbit
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: u64,
    /// The round trip between the NICs, without queues
    #[arg(long, value_name = "TIME", value_parser = parse_rtt)]
    rtt: Duration,
    /// Maximum bytes of copies, 16KiB or more; without it, the bytes that the rate carries in two round
    /// trips and those that may wait in this machine
    #[arg(long, value_name = "BYTES", value_parser = parse_pool)]
    pool: Option<u64>,
    /// How long a flow waits for a missing packet; without it, 40 round trips, but at least 1ms
    #[arg(long, value_name = "TIME", value_parser = parse_hold)]
    hold: Option<Duration>,
    /// Packets after a missing one within which others are requested at once; more than 128 helps
    /// where more packets are in flight
    #[arg(long, value_name = "PACKETS", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(128..=1_000_000))]
    bitmap: u32,
    #[command(flatten)]
    limits: LimitArgs,
    /// How long a packet may be late before it is requested: the usual difference in delay of the
    /// paths that packets of a connection take; 0s for a single path
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_delay)]
    request_delay: Duration,
    /// Differentiated services code point of repeats and requests, 1 to 63, the same at all boxes.
    /// The network should prefer it. Packets that NICs send with it are not protected
    #[arg(long, value_name = "DSCP", default_value_t = 48,
          value_parser = clap::value_parser!(u8).range(1..=63))]
    repeat_dscp: u8,
}

fn parse_pool(text: &str) -> Result<u64, String> {
    /// Some packets of the largest MTU.
    const LEAST_BYTES: u64 = 16 << 10;
    match parse_count(text)? {
        bytes if bytes < LEAST_BYTES => Err(format!(
            "a pool has {} or more; write it like 1MiB",
            Bytes(LEAST_BYTES)
        )),
        bytes => Ok(bytes),
    }
}

pub(crate) fn run(args: &NetRtArgs, console: &Console) -> Result<ExitCode, Failure> {
    let inner = NetRt::new(&args.config()?, boot());
    carry(&args.bridge, &args.bridge.config(None), inner, console)
}

impl NetRtArgs {
    fn config(&self) -> Result<Config, Failure> {
        // The values are at most 10 s.
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let queue_bytes = self.bridge.longest_queue_bytes();
        let mut config = Config::new(self.rate, ns(self.rtt)).with_queue(queue_bytes);
        config.pause_priority = Some(self.bridge.pause);
        config.key = self.bridge.key(KEY_PURPOSE)?;
        config.bitmap_bits = self.bitmap;
        config.max_held = self.limits.held as usize;
        config.max_connections = self.limits.connections as usize;
        config.request_delay_ns = ns(self.request_delay);
        config.repeat_dscp = self.repeat_dscp;
        if let Some(pool) = self.pool {
            config.pool_bytes = usize::try_from(pool).unwrap_or(usize::MAX);
        }
        if let Some(hold) = self.hold {
            if hold <= self.rtt {
                let (hold, rtt) = (Time(hold), Time(self.rtt));
                let what = format!("--hold {hold}: a repeat takes a round trip, --rtt {rtt}");
                return Err(Failure::new(Exit::Usage, what));
            }
            config.hold_ns = ns(hold);
        }
        if config.request_delay_ns.saturating_add(ns(self.rtt)) >= config.hold_ns {
            let (delay, rtt) = (Time(self.request_delay), Time(self.rtt));
            let hold = Time(Duration::from_nanos(config.hold_ns));
            let what = format!(
                "--request-delay {delay}: with a repeat, which takes --rtt {rtt}, it exceeds the \
                 hold time, {hold}"
            );
            return Err(Failure::new(Exit::Usage, what));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use farwrite_boxes::netrt::Config;

    use super::NetRtArgs;
    use crate::args::parsed;

    fn parse(more: &str) -> Result<Config, String> {
        let line = format!("--near a --far b --no-key --rate 1Gbit --rtt 10ms {more}");
        let args = parsed::<NetRtArgs>(&line)?;
        args.config().map_err(|failure| failure.to_string())
    }

    #[test]
    fn what_cannot_repair_is_refused_with_a_reason() {
        for (arguments, want) in [
            ("--hold 0s", "like 4ms"),
            ("--hold 10ms", "a repeat takes a round trip, --rtt 10"),
            ("--pool 0", "16 KiB or more"),
            ("--pool 16383", "16 KiB or more"),
            ("--bitmap 127", "128..="),
            ("--held 0", "1..="),
            ("--connections 0", "'0' for '--connections <CONNECTIONS>'"),
            ("--hold 11s", "a hold time lies above 0s, up to 10s"),
            ("--request-delay soon", "like 5us"),
            ("--request-delay 11s", "a delay lies in 0s to 10s"),
            (
                "--hold 50ms --request-delay 40ms",
                "--request-delay 40 ms: with a repeat, which takes --rtt 10 ms",
            ),
            ("--repeat-dscp 0", "0 is not in 1..=63"),
            ("--repeat-dscp 64", "64 is not in 1..=63"),
        ] {
            let refused = parse(arguments).expect_err(arguments);
            assert!(refused.contains(want), "{want:?} is not in {refused:?}");
        }
        assert_eq!(parse("--pool 16KiB").expect("fine").pool_bytes, 16 << 10);
    }

    #[test]
    fn a_box_is_what_was_asked_for() {
        let config = |more| parse(more).expect("fine");
        let plain = config("");
        // Two products of rate and round trip, and twice the queue that pauses the NIC.
        let pool_bytes = 2 * 1_250_000 + 2 * (64 << 10);
        assert_eq!((plain.pool_bytes, plain.hold_ns), (pool_bytes, 400_000_000));
        let marks = config("--mark 1MiB");
        assert_eq!(marks.pool_bytes, 2 * 1_250_000 + (2 << 20));
        let pauses = [&plain, &config("--pause 5")].map(|config| config.pause_priority);
        assert_eq!(pauses, [Some(3), Some(5)]);
        let other = config("--pool 5MB --hold 50ms");
        assert_eq!((other.pool_bytes, other.hold_ns), (5_000_000, 50_000_000));
        assert_eq!((plain.bitmap_bits, plain.max_held), (128, 2560));
        let long = config("--bitmap 65536 --held 60000");
        assert_eq!((long.bitmap_bits, long.max_held), (65_536, 60_000));
        let of = |config: Config| {
            let Config {
                max_connections,
                request_delay_ns,
                repeat_dscp,
                ..
            } = config;
            (max_connections, request_delay_ns, repeat_dscp)
        };
        assert_eq!(of(plain), (2048, 0, 48));
        let other = config("--connections 9 --request-delay 300us --repeat-dscp 40");
        assert_eq!(of(other), (9, 300_000, 40));
    }
}
