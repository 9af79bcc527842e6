//! What a person can ask of the demo.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farwrite::SchemeName;

use farwrite_units::parse::{List, parse_loss, parse_mtu, parse_rate, parse_rtt, parse_size};

const EXAMPLES: &str = "\
Examples:
  farwrite demo
  farwrite demo --loss 1% --rtt 80ms --rate 1Gbit
  farwrite demo --burst 20 --scheme sr-nack,ec-xor:32,8,ec-mds:20,4
  farwrite demo --size 1GiB --out pictures --json > result.json

Both ends, and the link between them, live in this process and speak RoCEv2 over UDP on loopback. \
The sender paces itself at --rate; the link carries 5 % more, so that its queue drains after a pause \
of this machine. Losses strike both directions: data forward, acknowledgements backward; bursts of \
losses strike forward only.

Schemes: sr-rto (selective repeat with timeouts), sr-nack (selective repeat with NACKs), gbn \
(go-back-N), ec-xor:K,M and ec-mds:K,M (erasure coding by XOR or Reed-Solomon: M parity chunks for \
every K data chunks). The ideal time, with which they are compared, is without parity.";

/// Moves a message from one end to the other across an emulated long-haul link, once with each
/// scheme, verifies every byte, and shows how the schemes compare: as a table, and as a picture of
/// the message's chunks arriving over time.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Bytes to move: 1 to 16GiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) size: u64,
    /// Round-trip time of the link: 0s to 10s
    #[arg(long, value_name = "TIME", default_value = "25ms", value_parser = parse_rtt)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) rtt: Duration,
    /// Probability that a packet is lost: 0 to 0.5
    #[arg(long, value_name = "P", default_value = "1e-3", value_parser = parse_loss)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) loss: f64,
    /// Lose packets in bursts of this many in the mean (two-state Markov), at the same mean loss
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(allow_hyphen_values = true)]
    pub(crate) burst: Option<u32>,
    /// Bits a second that the sender puts on the wire, headers included: 1Mbit to 100Gbit
    #[arg(long, value_name = "RATE", default_value = "2Gbit", value_parser = parse_rate)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) rate: u64,
    /// Payload bytes of a packet: a multiple of 4 from 256 to 65468
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = parse_mtu)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) mtu: u32,
    /// Packets of a chunk, which is acknowledged and repeated as a whole: 1 to 64
    #[arg(long, value_name = "PACKETS", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64), allow_hyphen_values = true)]
    pub(crate) chunk: u32,
    /// Determines the data and the losses
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        allow_hyphen_values = true
    )]
    pub(crate) seed: u64,
    /// Schemes to run, in this order
    #[arg(
        long,
        value_name = "NAME,...",
        default_value = "sr-rto,sr-nack,gbn,ec-xor:32,8,ec-mds:32,8"
    )]
    pub(crate) scheme: List<SchemeName>,
    /// Directory for the picture, farwrite-demo.svg; made if need be
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) out: PathBuf,
}
