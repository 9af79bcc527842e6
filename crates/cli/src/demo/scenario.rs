//! The values that follow from the arguments of the demo: the link, the queue pairs, and the ideal
//! time.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use farwrite::{QpConfig, QpOptions, RateControl, SchemeName, packet_overhead_bytes};
use farwrite_emulator::udp::{PortPair, Side, UdpEmulatorConfig};
use farwrite_link::LinkConfig;

use super::args::{DemoArgs, DemoLink};
use crate::exit::{Exit, Failure, OrExit};
use crate::link::losses;
use farwrite_transfer::parity_bytes;
use farwrite_units::Burst;
use farwrite_units::show::{Bytes, real};

/// The size of the queue in front of the link, as time at the rate of the link.
const QUEUE_MS: u64 = 50;
/// The size of the largest burst of the sender, as time at its rate. It allows for late timers.
const BURST_US: u64 = 2000;
/// The least size of that burst. It is the bytes of `SHORT_US`, and at least a packet, if that is less.
const LEAST_BURST_BYTES: u64 = 64 << 10;
/// Over a shorter time, the share of a pace shows a single delay instead of the pace.
const SHORT_US: u64 = 20_000;

/// The transfer that the demo runs.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) size_bytes: u64,
    pub(crate) link: DemoLink,
    pub(crate) seed: u64,
    /// The size of a message in bytes. The last message may be shorter.
    message_bytes: u64,
    pub(crate) sdr: QpConfig,
}

impl Scenario {
    /// # Errors
    /// [`Exit::Usage`] if one of the schemes has too much parity for this size, and the errors of
    /// [`DemoArgs::link`].
    pub(crate) fn new(args: &DemoArgs) -> Result<Self, Failure> {
        let link = args.link()?;
        let longest = (1 << QpConfig::default().split.offset_bits) * u64::from(link.mtu);
        let chunk_bytes = u64::from(link.mtu) * u64::from(args.chunk);
        let parity = |bytes: u64| {
            let schemes = args.scheme.iter();
            let parity = schemes.map(|scheme| parity_bytes(scheme.0, bytes, chunk_bytes));
            parity.max().unwrap_or(0)
        };
        // The parity of a message is also a message.
        let mut message_bytes = args.size.min(longest);
        while parity(message_bytes) > longest {
            message_bytes = (message_bytes / 2).next_multiple_of(chunk_bytes);
        }
        let messages = args.size.div_ceil(message_bytes);
        let slots = u32::try_from(messages).unwrap_or(u32::MAX / 2);
        let sdr = QpConfig {
            mtu: link.mtu,
            packets_per_chunk: args.chunk,
            slots: slots.next_power_of_two().max(2),
            max_message_bytes: message_bytes.max(parity(message_bytes)),
            ..QpConfig::default()
        };
        sdr.validate().or_exit(
            Exit::Usage,
            format_args!(
                "--size {} with the parity of these schemes takes {messages} messages: take less, or \
                 a larger --mtu",
                Bytes(args.size)
            ),
        )?;
        Ok(Self {
            size_bytes: args.size,
            link,
            seed: args.seed,
            message_bytes,
            sdr,
        })
    }

    /// The ranges of the messages. There are several if the size exceeds the maximum of one
    /// message.
    pub(crate) fn messages(&self) -> Vec<Range<u64>> {
        let step = self.message_bytes;
        (0..self.size_bytes.div_ceil(step))
            .map(|i| i * step..self.size_bytes.min((i + 1) * step))
            .collect()
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        u64::from(self.sdr.mtu) * u64::from(self.sdr.packets_per_chunk)
    }

    pub(crate) fn chunk_name(&self) -> String {
        match self.sdr.packets_per_chunk {
            1 => "one packet".to_owned(),
            n => format!("{n} packets"),
        }
    }

    pub(crate) fn chunks_of_messages(&self) -> Vec<u32> {
        let chunks =
            |message: Range<u64>| (message.end - message.start).div_ceil(self.chunk_bytes());
        let messages = self.messages().into_iter().map(chunks);
        // The offset bits limit the number of packets in a message.
        messages
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX))
            .collect()
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.chunks_of_messages().into_iter().map(u64::from).sum()
    }

    /// The size of the parity of all messages in bytes.
    pub(crate) fn parity_bytes(&self, scheme: SchemeName) -> u64 {
        let messages = self.messages().into_iter();
        let parity =
            messages.map(|range| parity_bytes(scheme, range.end - range.start, self.chunk_bytes()));
        parity.sum()
    }

    /// The size of all IP datagrams in bytes, without repeats and parity.
    pub(crate) fn wire_bytes(&self) -> u64 {
        let packets = self.size_bytes.div_ceil(self.sdr.mtu.into());
        self.size_bytes + packets * u64::from(packet_overhead_bytes(true))
    }

    /// The share of its pace that the sender reached if it sent this number of chunks in this time.
    pub(crate) fn pace_share(&self, chunks: u64, took: Duration) -> f64 {
        const SHORT_S: f64 = SHORT_US as f64 / 1e6;
        let mean_chunk_bytes = real(self.wire_bytes()) / real(self.chunks());
        let bits = real(chunks) * mean_chunk_bytes * 8.0;
        // The initial burst leaves ahead of the pace.
        let paced_s = (bits - real(self.burst_bytes()) * 8.0) / real(self.link.rate_bps);
        if paced_s <= 0.0 || paced_s < SHORT_S && took.as_secs_f64() < 5.0 * SHORT_S {
            1.0
        } else {
            (paced_s / took.as_secs_f64()).min(1.0)
        }
    }

    /// The time without loss, from the first bit sent to the acknowledgement of the last one.
    pub(crate) fn ideal(&self) -> Duration {
        let sending_s = real(self.wire_bytes()) * 8.0 / real(self.link.rate_bps);
        Duration::from_secs_f64(sending_s) + self.link.rtt
    }

    /// The rate of the link. It exceeds the rate of the sender. Otherwise, the queue after a pause
    /// of this machine would remain until the end.
    pub(crate) fn link_bps(&self) -> u64 {
        self.link.rate_bps + self.link.rate_bps / 20
    }

    /// The number of bytes in flight when the link is full, in one direction and back.
    pub(crate) fn bdp_bytes(&self) -> u64 {
        let bits = u128::from(self.link.rate_bps) * self.link.rtt.as_nanos() / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    fn burst_bytes(&self) -> u64 {
        let bytes = |us| self.link.rate_bps / 8 * us / 1_000_000;
        let packet_bytes = u64::from(self.sdr.mtu + packet_overhead_bytes(true));
        let least = LEAST_BURST_BYTES.min(bytes(SHORT_US)).max(packet_bytes);
        bytes(BURST_US).max(least)
    }

    pub(crate) fn qp_options(&self, scheme: SchemeName) -> QpOptions {
        QpOptions {
            sdr: self.sdr,
            rate_control: RateControl::Fixed {
                rate_bps: self.link.rate_bps,
            },
            burst_bytes: self.burst_bytes(),
            // In a session, the handshake measures this value.
            initial_rtt: self.link.rtt.max(Duration::from_millis(1)),
            expected_scheme: scheme.tag(),
            max_parity_bytes: self.parity_bytes(scheme),
            ..QpOptions::default()
        }
    }

    /// The configuration of an emulator between a sender and a receiver at these addresses.
    pub(crate) fn emulator(&self, sender: SocketAddr, receiver: SocketAddr) -> UdpEmulatorConfig {
        let queue_bytes = self.link_bps() / 8 * QUEUE_MS / 1000;
        let direction = |burst| LinkConfig {
            delay: self.link.rtt / 2,
            rate_bps: Some(self.link_bps()),
            queue_bytes: Some(queue_bytes.max(1 << 20)),
            loss: losses(self.link.loss_packet, burst),
            ..LinkConfig::default()
        };
        let burst = self.link.burst;
        UdpEmulatorConfig {
            forward: direction(burst),
            // Acknowledgements are rare, so a burst of a number of packets would last for seconds in this direction.
            backward: direction(burst.filter(|burst| matches!(burst, Burst::Time(_)))),
            seed: self.seed,
            channels: vec![PortPair {
                a: Side::facing(sender),
                b: Side::facing(receiver),
            }],
            ..UdpEmulatorConfig::default()
        }
    }
}

/// A free port on loopback.
pub(crate) fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

#[cfg(test)]
mod tests {
    use farwrite_link::Loss;

    use super::*;
    use crate::args::parsed;

    fn of(args: &str) -> Result<Scenario, Failure> {
        Scenario::new(&parsed::<DemoArgs>(args).expect("options"))
    }

    fn scenario(args: &str) -> Scenario {
        of(args).expect("it can be")
    }

    #[test]
    fn the_default_is_one_message_of_256_mib() {
        let scenario = scenario("");
        let messages = scenario.messages();
        assert_eq!((messages.len(), &messages[0]), (1, &(0..256 << 20)));
        assert_eq!(scenario.chunks(), 65_536);
        assert_eq!(scenario.wire_bytes(), (256 << 20) + 65_536 * 64);
        let ideal_s = scenario.ideal().as_secs_f64();
        assert!((ideal_s - 1.1155).abs() < 1e-4, "{ideal_s}");
        scenario.sdr.validate().expect("a queue pair that can be");
    }

    #[test]
    fn more_than_a_message_holds_is_split() {
        for mtu in ["256", "4096", "65468"] {
            let scenario = scenario(&format!("--size 5000MiB --mtu {mtu}"));
            scenario.sdr.validate().expect("a queue pair that can be");
            let messages = scenario.messages();
            assert!(messages.len() <= scenario.sdr.slots as usize);
            let ends = messages.windows(2).all(|pair| pair[0].end == pair[1].start);
            assert!(ends && messages[0].start == 0);
            assert_eq!(messages[messages.len() - 1].end, 5000 << 20);
        }
    }

    #[test]
    fn parity_of_messages_of_any_length_fits() {
        for (scheme, size, messages) in [
            ("ec-mds:32,8", "1", 1),
            ("ec-mds:32,8", "256MiB", 1),
            ("ec-xor:1,1", "5000MiB", 5),
            ("gbn,ec-mds:4,8", "5000MiB", 10),
            ("ec-mds:1,254", "1", 1),
        ] {
            let scenario = scenario(&format!("--size {size} --scheme {scheme}"));
            let ranges = scenario.messages();
            assert_eq!(ranges.len(), messages, "{scheme}, {size}");
            assert_eq!(ranges[messages - 1].end, scenario.size_bytes);
            let name = scheme.trim_start_matches("gbn,").parse().expect("a scheme");
            for range in ranges {
                let bytes = range.end - range.start;
                let parity = parity_bytes(name, bytes, scenario.chunk_bytes());
                assert!(parity <= scenario.sdr.max_message_bytes, "{scheme}, {size}");
            }
        }
        let error = of("--size 16GiB --mtu 256 --scheme ec-mds:1,254").expect_err("too much");
        assert!(error.to_string().contains("--mtu"), "{error}");
    }

    #[test]
    fn the_share_of_the_pace_leaves_out_the_first_burst() {
        let scenario = scenario("");
        let (chunks, burst_s) = (scenario.chunks(), 2e-3);
        let paced_s = real(scenario.wire_bytes()) * 8.0 / 2e9 - burst_s;
        let share = |seconds| scenario.pace_share(chunks, Duration::from_secs_f64(seconds));
        assert!((share(paced_s * 2.0) - 0.5).abs() < 1e-6);
        assert!((share(paced_s / 2.0) - 1.0).abs() < 1e-6);
        let moment = Duration::from_millis(1);
        assert!((scenario.pace_share(100, moment) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_slow_pace_has_a_burst_of_a_packet() {
        let scenario = scenario("--size 16KiB --rate 64kbit --rtt 100ms");
        // Three of four packets of 4160 bytes, at 64 kbit/s.
        let share = scenario.pace_share(4, Duration::from_millis(1560));
        assert!((share - 1.0).abs() < 1e-3, "{share}");
        let share = scenario.pace_share(1, Duration::from_millis(1560));
        assert!((share - 1.0).abs() < 1e-6, "{share}");
    }

    #[test]
    fn bursts_keep_the_mean_loss() {
        let scenario = scenario("--loss 10% --burst 8");
        let ends = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let forward = scenario.emulator(ends[0], ends[1]).forward;
        let Loss::Markov {
            p_good_to_bad,
            p_bad_to_good,
            ..
        } = forward.loss
        else {
            panic!("not a Markov model");
        };
        let bad = p_good_to_bad / (p_good_to_bad + p_bad_to_good);
        assert!((bad - 0.1).abs() < 1e-12, "{bad}");
        assert!((p_bad_to_good - 0.125).abs() < 1e-12);
        forward.validate().expect("a link that can be");
    }
}
