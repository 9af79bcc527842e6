//! Tails of collectives: RDMA NICs and models of SRNIC, Falcon and UCCL beside endpoints that end
//! in time (claims C2, Celeris Fig. 2, and O5, O6 and OL, OptiNIC Figs. 5 and 6).
//!
//! `cargo run --release -p farwrite-bench --example tails -- COMMAND [OPTION...]`; `--help` lists both.

mod celeris;
mod celeris_losses;
mod losses;
mod masks;
mod measure;
mod optinic;
mod shipped;
mod sizes;
mod xp;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
    /// Write the rows to this file instead of the standard output
    #[arg(long, global = true)]
    csv: Option<PathBuf>,
}

#[derive(Subcommand)]
enum What {
    /// C2: NICs, models, and rings of messages of endpoints
    Celeris(celeris::Setting),
    /// C2: RoCE and XP in the network of `celeris` with losses
    CelerisLosses(celeris::Setting),
    /// O6: NICs, models, and rings of messages of endpoints
    Optinic(optinic::Setting),
    /// O5: NICs, models, and rings of messages of endpoints
    Sizes {
        #[command(flatten)]
        setting: optinic::Setting,
        /// The short deadline, of a warm-up
        #[arg(long, default_value_t = 95)]
        short_percent: u64,
    },
    /// The NIC model of `OptiNIC`'s transport, for O5 and O6
    Xp {
        #[command(flatten)]
        setting: optinic::Setting,
        /// The short deadline, of a warm-up
        #[arg(long, default_value_t = 95)]
        short_percent: u64,
        /// Measured collectives of each kind and size, for O5
        #[arg(long, default_value_t = 10)]
        size_runs: u64,
    },
    /// Operations of `farwrite-collectives`, for O6
    Shipped(optinic::Setting),
    /// Operations of `farwrite-collectives`, for O5
    ShippedSizes(optinic::Setting),
    /// OL: the network of `optinic` with losses
    Losses {
        #[command(flatten)]
        setting: optinic::Setting,
        /// A buffer of the switch that is small
        #[arg(long, default_value_t = 400)]
        small_kb: u64,
    },
    /// O3V: which bytes the collectives of `losses` lack, for `lab/python/masks.py`
    Masks {
        #[command(flatten)]
        setting: optinic::Setting,
        /// A buffer of the switch that is small
        #[arg(long, default_value_t = 400)]
        small_kb: u64,
    },
}

fn main() -> Result<(), Box<dyn Error>> {
    let Args { what, csv } = Args::parse();
    let rows = rows(what)?;
    match csv {
        Some(file) => Ok(fs::write(file, rows)?),
        None => {
            print!("{rows}");
            Ok(())
        }
    }
}

/// Returns the text of a CSV file.
fn rows(what: What) -> Result<String, Box<dyn Error>> {
    let table = match what {
        What::Celeris(setting) => celeris::measure(&setting)?,
        What::CelerisLosses(setting) => celeris_losses::measure(&setting)?,
        What::Optinic(setting) => optinic::measure(setting)?,
        What::Sizes {
            setting,
            short_percent,
        } => sizes::measure(setting, short_percent)?,
        What::Xp {
            setting,
            short_percent,
            size_runs,
        } => xp::measure(setting, short_percent, size_runs)?,
        What::Shipped(setting) => shipped::measure(setting)?,
        What::ShippedSizes(setting) => shipped::measure_sizes(setting)?,
        What::Losses { setting, small_kb } => losses::measure(setting, small_kb)?,
        What::Masks { setting, small_kb } => return masks::rows(setting, small_kb),
    };
    Ok(table.csv().to_owned())
}
