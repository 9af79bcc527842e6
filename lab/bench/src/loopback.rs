//! Moves cold memory over loopback with more and more layers of the stack, compared with sockets
//! alone.

use clap::{Args, ValueEnum};
use farwrite::{RateControl, SchemeName, Sealing};

use crate::Failure;
use crate::blast::{BlastConfig, blast};
use crate::fabric::FabricPair;
use crate::meter::Moved;
use crate::stack::StackPair;
use crate::table;
use farwrite_units::stats::median;

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of `loopback`")]
pub(crate) struct LoopbackArgs {
    /// Bytes to move, in MiB.
    #[arg(long, default_value_t = 1024)]
    size_mib: usize,
    /// Payload bytes of a packet.
    #[arg(long, default_value_t = 4096)]
    mtu: usize,
    /// Highest number of KiB in flight, except in the full stack.
    #[arg(long, default_value_t = 2048)]
    window_kib: u64,
    /// Pace of the full stack with a fixed rate, in Gbit/s on the wire.
    #[arg(long, default_value_t = 100)]
    rate_gbps: u64,
    /// A scheme of the full stack; can be repeated.
    #[arg(long = "scheme", value_name = "SCHEME", value_parser = SchemeName::parse_exact,
          default_values = ["sr-nack", "ec-mds:32,8"])]
    schemes: Vec<SchemeName>,
    /// A way to move the memory; can be repeated; all if not given.
    #[arg(long = "way", value_enum)]
    ways: Vec<Way>,
}

/// How the memory is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Sockets alone.
    Blast,
    /// The UDP fabric alone.
    Fabric,
    /// The full stack with a fixed rate, by each scheme.
    Fixed,
    /// The full stack with the adaptive rate, by each scheme.
    Adaptive,
}

impl LoopbackArgs {
    fn has(&self, way: Way) -> bool {
        self.ways.is_empty() || self.ways.contains(&way)
    }
}

/// Moves the memory in all ways in alternation, and prints medians.
pub(crate) fn run(args: &LoopbackArgs, runs: usize) -> Result<(), Failure> {
    // Each page is written once, so that it exists. All buffers are much larger than the caches.
    let cold = |fill| vec![fill; args.size_mib << 20];
    let (source, mut destination) = (cold(0x5a_u8), cold(0xff));
    let config = BlastConfig {
        mtu: args.mtu,
        window_bytes: args.window_kib << 10,
        pace_bps: None,
    };
    let mut fabric = match args.has(Way::Fabric) {
        true => Some(FabricPair::new(args.mtu, cold(0x5a), cold(0xff))?),
        false => None,
    };
    let rate_bps = args.rate_gbps * 1_000_000_000;
    let mtu = u32::try_from(args.mtu)?;
    let controls = [
        (Way::Fixed, "fixed", RateControl::Fixed { rate_bps }),
        (Way::Adaptive, "adaptive", RateControl::default()),
    ];
    let mut stacks = Vec::new();
    for (_, name, control) in controls.into_iter().filter(|(way, ..)| args.has(*way)) {
        let stack = StackPair::new(mtu, control, 0, Sealing::Off, cold(0x5a), cold(0xff))?;
        stacks.push((name, stack));
    }
    let mut rounds = Vec::new();
    for _ in 0..runs {
        let mut round = Vec::new();
        if args.has(Way::Blast) {
            round.push(blast(config, &source, &mut destination)?);
        }
        if let Some(fabric) = &mut fabric {
            round.push(fabric.run(config)?);
        }
        for scheme in &args.schemes {
            for (_, stack) in &mut stacks {
                round.push(stack.run(scheme.tag())?);
            }
        }
        rounds.push(round);
    }
    let stacks = args.schemes.iter().flat_map(|scheme| {
        let names = stacks.iter();
        names.map(move |(control, _)| format!("full stack, {scheme}, {control}"))
    });
    let names = [(Way::Blast, "raw blast"), (Way::Fabric, "UDP fabric alone")];
    let names = names.into_iter().filter(|(way, _)| args.has(*way));
    let names = names.map(|(_, name)| name.to_owned());
    let rows = names.chain(stacks).enumerate();
    let rows: Vec<_> = rows.map(|(way, name)| row(name, &rounds, way)).collect();
    let title = format!(
        "loopback: {} MiB of cold memory in packets of {} bytes, both ends in one process; medians \
         of {runs} runs.\nBytes are those of the message, without parity. A core-second is \
         processor time of both ends, user and\nsystem. Ratios are to the first row of the same \
         run.",
        args.size_mib, args.mtu
    );
    let header = ["", "Gbit/s", "ratio", "GB/core-s", "ratio", "cores", "lost"];
    table::print(&title, header, &rows);
    Ok(())
}

/// The medians of one way.
fn row(name: String, rounds: &[Vec<Moved>], way: usize) -> [String; 7] {
    let of = |what: fn(&Moved) -> f64| median(rounds.iter().map(|round| what(&round[way])));
    let ratio = |what: fn(&Moved) -> f64| {
        median(
            rounds
                .iter()
                .map(|round| what(&round[way]) / what(&round[0])),
        )
    };
    [
        name,
        format!("{:.1}", of(Moved::goodput_bps) / 1e9),
        format!("{:.2}", ratio(Moved::goodput_bps)),
        format!("{:.2}", of(Moved::bytes_per_core_second) / 1e9),
        format!("{:.2}", ratio(Moved::bytes_per_core_second)),
        format!("{:.2}", of(|moved| moved.usage.cores())),
        format!("{:.2} %", of(Moved::loss_packet) * 100.0),
    ]
}
