//! `farwrite lowar`: forward error correction for unmodified RDMA NICs.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use farwrite_boxes::Middlebox as _;
use farwrite_boxes::lowar::{Coding, Config, Lowar};
use farwrite_bridge::Forward;

use super::{BridgeArgs, LimitArgs, boot, carry, parse_hold};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// The purpose for which the key of boxes is derived from the pre-shared key.
const KEY_PURPOSE: &str = "farwrite 2026 LoWAR boxes";

const EXAMPLES: &str = "\
Examples:
  farwrite keygen boxes.key      then copy boxes.key to the machine at the other end
  farwrite lowar --near eth1 --far eth2 --psk-file boxes.key
  farwrite lowar --near eth1 --far eth2 --psk-file boxes.key --coding 32,1 --ip-mtu 4200
  farwrite lowar --near eth1 --far eth2 --psk-file boxes.key --peer-known
  farwrite lowar --near eth1 --far eth2 --psk-file boxes.key --metrics unix:/run/lowar.sock
  curl --unix-socket /run/lowar.sock http://localhost/metrics

Put one box at each end of a long path, between the NICs and the path, on a machine with two network \
interfaces. Frames pass unchanged, so neither NICs nor routers need other settings. Losses of RoCEv2 \
packets between the two boxes are recovered from repair packets; all other traffic is not changed. \
Repair packets are 44 bytes longer than the longest packet of the NICs: set the MTU of the path to \
at least this length, and pass it as --ip-mtu.

For a comparison without repair packets, use --forward. docs/boxes.md describes benefits, costs and \
limits of boxes.";

/// Carries frames between two network interfaces, and repairs losses of RDMA packets between this
/// box and another one at the far end of a long path (LoWAR). Needs root or CAP_NET_RAW.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub(crate) struct LowarArgs {
    #[command(flatten)]
    bridge: BridgeArgs,
    /// R,C: c repair packets for every r data packets; adaptive: from the measured loss of the path
    #[arg(long, value_name = "R,C|adaptive", default_value = "adaptive")]
    coding: Coding,
    /// Bytes of the longest IP packet that the path between the boxes carries
    /// [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    ip_mtu: Option<u16>,
    /// How long a packet waits for an earlier packet that is missing; must be far below the ACK
    /// timeout of the NICs
    #[arg(long, value_name = "TIME", default_value = "4ms", value_parser = parse_hold)]
    hold: Duration,
    /// Coding units of each half. A block of C repair packets takes C of them while it is open. One source
    /// uses at most four fifths of them
    #[arg(long, value_name = "UNITS", default_value_t = 1280,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    units: u32,
    #[command(flatten)]
    limits: LimitArgs,
    /// Send repair packets from the first packet of each connection on: there is a box at the other end
    /// of the path. Without this, the box first waits for the answer of the other one, about a round trip
    #[arg(long)]
    peer_known: bool,
    /// Only forward frames: no repair packets, no recovery
    #[arg(long)]
    forward: bool,
}

pub(crate) fn run(args: &LowarArgs, console: &Console) -> Result<ExitCode, Failure> {
    if args.forward {
        let config = args.bridge.config(None);
        return carry(&args.bridge, &config, Forward::default(), console);
    }
    let inner = Lowar::new(&args.config()?, boot());
    let config = args.bridge.config(args.ip_mtu.map(usize::from));
    carry(&args.bridge, &config, inner, console)
}

impl LowarArgs {
    fn config(&self) -> Result<Config, Failure> {
        let default = Config::default();
        if let Coding::Fixed(shape) = self.coding
            && u32::from(shape.units()) > self.units
        {
            let (packets, units) = (shape.packets(), shape.units());
            let what = format!(
                "--units {}: a block of --coding {packets},{units} takes {units} of them",
                self.units
            );
            return Err(Failure::new(Exit::Usage, what));
        }
        Ok(Config {
            key: self.bridge.key(KEY_PURPOSE)?,
            coding: self.coding,
            path_mtu_bytes: self.ip_mtu.map_or(default.path_mtu_bytes, usize::from),
            // The value is at most one day.
            hold_ns: u64::try_from(self.hold.as_nanos()).unwrap_or(u64::MAX),
            peer_known: self.peer_known,
            max_units: self.units as usize,
            max_held: self.limits.held as usize,
            max_connections: self.limits.connections as usize,
            ..default
        })
    }
}

#[cfg(test)]
mod tests {
    use farwrite_boxes::Backpressure;
    use farwrite_boxes::lowar::BlockShape;

    use super::*;
    use crate::args::parsed;

    fn parse(arguments: &str) -> Result<LowarArgs, String> {
        parsed(&format!("--near eth1 --far eth2 {arguments}"))
    }

    #[test]
    fn a_box_is_what_was_asked_for() {
        let args = parse("--no-key --coding 32,2 --ip-mtu 4200 --hold 2ms").expect("fine");
        let config = args.config().expect("no key is needed");
        assert_eq!(config.key, None);
        assert_eq!(
            config.coding,
            Coding::Fixed(BlockShape::new(32, 2).expect("fine"))
        );
        assert_eq!((config.path_mtu_bytes, config.hold_ns), (4200, 2_000_000));
        let config = |more| parse(more).expect("fine").config().expect("fine");
        let known = |more| config(more).peer_known;
        assert!(!known("--no-key") && known("--no-key --peer-known"));
        let limits = |more| {
            let config = config(more);
            [config.max_units, config.max_held, config.max_connections]
        };
        assert_eq!(limits("--no-key"), [1280, 2560, 2048]);
        let more = "--no-key --units 8 --held 1 --connections 70000 --coding 64,8";
        assert_eq!(limits(more), [8, 1, 70_000]);
        let bridge = |more| parse(more).expect("fine").bridge.config(None);
        let pauses = bridge("--no-key --pause 5");
        assert_eq!(pauses.priorities, 1 << 5);
        assert_eq!(pauses.backpressure, Some(Backpressure::default()));
        let marks = bridge("--no-key --mark 64KiB").backpressure;
        let mark_bytes = 64 << 10;
        assert_eq!(marks, Some(Backpressure::Ecn { mark_bytes }));
        assert_eq!(bridge("--no-key --no-backpressure").backpressure, None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (arguments, want) in [
            ("--coding 0,1", "--coding"),
            ("--coding 8", "like 32,1, or adaptive"),
            ("--ip-mtu 100", "576"),
            ("--hold 0s", "like 4ms"),
            ("--hold 4", "like 4ms"),
            ("--pause 8", "0..=7"),
            ("--pause 3 --mark 1KiB", "cannot be used with"),
            ("--no-key --psk-file x", "cannot be used with"),
            ("--units 0", "'0' for '--units <UNITS>': 0 is not in 1..="),
            ("--held 1000001", "'1000001' for '--held <FRAMES>'"),
            ("--connections 0", "'0' for '--connections <CONNECTIONS>'"),
            ("--every 1x", "like 10s"),
            ("--metrics nowhere", "want an IP address with a port"),
        ] {
            let refused = parse(arguments).expect_err(arguments);
            assert!(refused.contains(want), "{want:?} is not in {refused:?}");
        }
        let few = parse("--no-key --units 7 --coding 64,8").expect("each alone is fine");
        let refused = few.config().expect_err("no block fits").to_string();
        let want = "--units 7: a block of --coding 64,8 takes 8";
        assert!(refused.contains(want), "{want:?} is not in {refused:?}");
    }
}
