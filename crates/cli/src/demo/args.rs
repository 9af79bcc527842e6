//! The arguments of the demo.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use farwrite::SchemeName;
use farwrite::schemes::registry::ParseSchemeError;

use crate::exit::{Exit, Failure};
use crate::link_file::{self, Description, Unit};
use crate::trace::TraceArgs;
use farwrite_units::Burst;
use farwrite_units::parse::{List, parse_loss, parse_mtu, parse_rate, parse_rtt, parse_size};

/// The default link.
const RTT: Duration = Duration::from_millis(25);
const LOSS: f64 = 1e-3;
const RATE_BPS: u64 = 2_000_000_000;
const MTU: u32 = 4096;
/// The longest round trip from a file that the demo emulates.
const MAX_RTT: Duration = Duration::from_secs(10);
const MAX_LOSS: f64 = 0.5;

const EXAMPLES: &str = "\
Examples:
  farwrite demo
  farwrite demo --loss 1% --rtt 80ms --rate 1Gbit
  farwrite demo --link link.toml
  farwrite demo --loss 1% --burst 2ms
  farwrite demo --burst 20 --scheme sr-nack,ec-xor:32,8,ec-mds:20,4
  farwrite demo --size 1GiB --out pictures --json > result.json

Both ends and the link between them run in this process, and use RoCEv2 over UDP on loopback. \
The sender sends at --rate. The link carries 5 % more, so that its queue empties after a pause of \
this machine. Both directions lose packets: data forward, acknowledgements backward. Bursts of a \
number of packets occur only in the forward direction: acknowledgements are rare, so such a burst \
would last for seconds. Bursts of a time occur in both directions.

Schemes: sr-rto (selective repeat with timeouts), sr-nack (selective repeat with NACKs), gbn \
(go-back-N), ec-xor:K,M and ec-mds:K,M (erasure coding by XOR or Reed-Solomon: M parity chunks for \
every K data chunks). The ideal time, used for comparison, does not include parity.";

/// Moves a message over an emulated long link, once with each scheme, and verifies every byte.
/// Compares the schemes in a table, and in a picture of the chunks of the message as they arrive
/// over time.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Bytes to move: 1 to 16GiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) size: u64,
    /// File that describes the link, as `farwrite probe --save` writes it; other options have
    /// priority over it
    #[arg(long, value_name = "FILE")]
    pub(crate) link: Option<PathBuf>,
    /// Round-trip time of the link: 0s to 10s [default: that of --link, else 25ms]
    #[arg(long, value_name = "TIME", value_parser = parse_rtt, allow_hyphen_values = true)]
    pub(crate) rtt: Option<Duration>,
    /// Probability that a packet is lost: 0 to 0.5 [default: that of --link, else 1e-3]
    #[arg(long, value_name = "P", value_parser = parse_loss, allow_hyphen_values = true)]
    pub(crate) loss: Option<f64>,
    /// Lose packets in bursts (two-state Markov), at the same mean loss: of this mean number of
    /// packets, such as 20, or of this mean time, such as 2ms [default: that of --link, else each
    /// packet by itself]
    #[arg(long, value_name = "PACKETS|TIME", allow_hyphen_values = true)]
    pub(crate) burst: Option<Burst>,
    /// Bits per second that the sender puts on the wire, with headers: 8kbit to 100Gbit [default:
    /// that of --link, else 2Gbit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate, allow_hyphen_values = true)]
    pub(crate) rate: Option<u64>,
    /// Payload bytes of a packet: a multiple of 4 from 256 to 65468 [default: that of --link, else
    /// 4096]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu, allow_hyphen_values = true)]
    pub(crate) mtu: Option<u32>,
    /// Packets in a chunk, which is acknowledged and repeated as a whole: 1 to 64
    #[arg(long, value_name = "PACKETS", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64), allow_hyphen_values = true)]
    pub(crate) chunk: u32,
    /// Determines the data and the losses
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) seed: u64,
    /// Schemes to run, in this order
    #[arg(long, value_name = "NAME,...")]
    #[arg(default_value = "sr-rto,sr-nack,gbn,ec-xor:32,8,ec-mds:32,8")]
    pub(crate) scheme: List<ExactScheme>,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// Directory for the picture, farwrite-demo.svg; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}

/// A scheme that moves the complete message, and that the demo compares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExactScheme(pub(crate) SchemeName);

impl FromStr for ExactScheme {
    type Err = ParseSchemeError;

    fn from_str(name: &str) -> Result<Self, ParseSchemeError> {
        SchemeName::parse_exact(name).map(Self)
    }
}

/// The link to emulate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DemoLink {
    pub(crate) rtt: Duration,
    pub(crate) loss_packet: f64,
    /// Mean length of a burst of losses; numbers count packets.
    pub(crate) burst: Option<Burst>,
    pub(crate) rate_bps: u64,
    pub(crate) mtu: u32,
}

impl DemoArgs {
    /// The link. Options have priority over the file, and the file has priority over the defaults.
    ///
    /// # Errors
    /// The errors of the file, and [`Exit::Usage`] for a path that the demo cannot emulate.
    pub(crate) fn link(&self) -> Result<DemoLink, Failure> {
        let Some(file) = &self.link else {
            return Ok(self.link_of(&Description::default(), self.loss));
        };
        let path = link_file::read(file)?;
        let refuse = |what: String| {
            let what = format!("{}: {what}", file.display());
            Err(Failure::new(Exit::Usage, what))
        };
        let counts_chunks = matches!(path.burst, Some((Unit::Chunks, _)));
        if self.burst.is_none() && counts_chunks && !path.has_one_packet_chunks() {
            let what = "mean_burst_chunks counts chunks of several packets, and the demo loses \
                        packets: give mean_burst_packets, or --burst";
            return refuse(what.to_owned());
        }
        let loss_packet = match (self.loss, path.loss_packet()) {
            (Some(loss), _) => Some(loss),
            (None, Ok(loss)) => loss,
            (None, Err(what)) => return refuse(what),
        };
        let link = self.link_of(&path, loss_packet);
        if link.rtt > MAX_RTT {
            return refuse(format!("rtt = {:?}: the demo takes at most 10s", link.rtt));
        }
        if link.loss_packet > MAX_LOSS {
            return refuse(format!(
                "loss {}: the demo takes at most 0.5",
                link.loss_packet
            ));
        }
        Ok(link)
    }

    fn link_of(&self, path: &Description, loss_packet: Option<f64>) -> DemoLink {
        let rtt = path.rtt_s.map(Duration::from_secs_f64);
        DemoLink {
            rtt: self.rtt.or(rtt).unwrap_or(RTT),
            loss_packet: loss_packet.unwrap_or(LOSS),
            burst: self.burst.or(burst_of(path)),
            rate_bps: self.rate.or(path.pace_bps()).unwrap_or(RATE_BPS),
            mtu: self.mtu.or(path.mtu).unwrap_or(MTU),
        }
    }
}

/// The bursts of a path; `None` if so few losses follow one another that they may be independent.
fn burst_of(path: &Description) -> Option<Burst> {
    /// A mean that is shorter may come from independent losses.
    const SHORTEST: f64 = 1.5;
    let losses = path.burst.map(|(_, losses)| losses);
    let losses = losses.filter(|losses| *losses >= SHORTEST);
    path.burst_time
        .map(Burst::Time)
        .or(losses.map(Burst::Losses))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    fn link(file: &str, args: &str) -> Result<DemoLink, Failure> {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("link.toml");
        std::fs::write(&path, file).expect("write");
        let args = format!("--link {} {args}", path.display());
        parsed::<DemoArgs>(&args).expect("options").link()
    }

    #[test]
    fn a_file_says_what_the_options_do_not() {
        let file = "rate = \"500Mbit\"\nrtt = \"7ms\"\nloss_packet = 0.02\nmtu = 1436\n";
        let want = DemoLink {
            rtt: Duration::from_millis(7),
            loss_packet: 0.02,
            burst: None,
            rate_bps: 500_000_000,
            mtu: 1436,
        };
        assert_eq!(link(file, "").expect("fine"), want);
        let bursts = format!("{file}mean_burst_packets = 3.4\n");
        let other = link(&bursts, "--rtt 1ms").expect("fine");
        assert_eq!(
            (other.rtt.as_millis(), other.burst),
            (1, Some(Burst::Losses(3.4)))
        );
        let timed = format!("{file}mean_burst_time = \"3ms\"\n");
        let time = Burst::Time(Duration::from_millis(3));
        assert_eq!(link(&timed, "").expect("fine").burst, Some(time));
        let nothing = link("", "").expect("fine");
        assert_eq!((nothing.rtt, nothing.mtu), (RTT, MTU));
    }

    #[test]
    fn an_option_replaces_a_loss_of_chunks() {
        let other = link("loss_chunk = 0.15", "--loss 1%").expect("fine");
        assert_eq!(other.loss_packet, 0.01);
        let single = "loss_packet = 0.1\nmean_burst_chunks = 3\nchunk = \"4KiB\"\nmtu = 4096";
        let three = Some(Burst::Losses(3.0));
        assert_eq!(link(single, "").expect("fine").burst, three);
    }

    #[test]
    fn what_the_demo_cannot_emulate_is_refused() {
        let chunks = "loss_packet = 0.1\nmean_burst_chunks = 3\nchunk = \"64KiB\"\nmtu = 4096";
        for (file, told) in [
            ("rtt = \"1min\"", "at most 10s"),
            ("loss_packet = 0.9", "at most 0.5"),
            ("loss_chunk = 0.1", "needs chunk and mtu"),
            (chunks, "give mean_burst_packets"),
        ] {
            let error = link(file, "").expect_err(told);
            assert_eq!(error.exit, Exit::Usage);
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
