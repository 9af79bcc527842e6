//! Compares shipped protocols in virtual time with the completion-time model (`lab/results/agreement.md`).
//!
//! Each cell of a grid is a path, a message size and a scheme. Messages are sent one after another
//! between two endpoints. A time is measured from posting the message, when the sender already has
//! the clear-to-send, to the final acknowledgement (paper section 4.2). With sites, each time is
//! that of a ring all-reduce among this number of endpoints (section 5.3).

mod cell;
mod csv;
mod expected;
mod ring;
mod table;
mod verdict;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use cell::Cell;
use clap::Parser;
use farwrite::SchemeName;
use farwrite_units::Burst;
use verdict::Comparison;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures messages of shipped endpoints in virtual time, and compares them with the model.
///
/// The exit status is 1 if a deviation is above its goal and is not explained by chance.
#[derive(Parser)]
struct Args {
    /// Rate of the sender on the wire, in Gbit/s; the cable is 5% faster.
    #[arg(long, default_value_t = 400.0)]
    rate_gbps: f64,
    /// Round-trip times in ms, at least 10.
    #[arg(long, value_delimiter = ',', default_value = "25")]
    rtt_ms: Vec<f64>,
    /// Length of a message, or of the buffer of each site, in KiB, up to 8 GiB.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "128,1024,8192,131072,1048576,8388608"
    )]
    size_kib: Vec<u64>,
    /// Share of packets that the path loses in each direction.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1e-6,1e-5,1e-4,1e-3,1e-2"
    )]
    loss: Vec<f64>,
    /// Mean length of a burst of losses: a number of packets, such as 20, or a time, such as 2us; 0:
    /// independent losses.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = parse_burst)]
    burst: Vec<CellBurst>,
    /// Lose only packets from the sender of messages, and no reports. The model still loses both.
    #[arg(long)]
    keep_reports: bool,
    /// Post receives that demand the length and the scheme of the message, so that a lost offer
    /// delays nothing. The model still has lost offers.
    #[arg(long)]
    terms: bool,
    /// Schemes to compare.
    #[arg(
        long,
        value_delimiter = ';',
        value_parser = SchemeName::parse_exact,
        default_value = "sr-rto;sr-nack;ec-xor:32,8;ec-mds:32,8"
    )]
    schemes: Vec<SchemeName>,
    /// Ring all-reduces between this number of sites, 2 to 32, instead of single messages.
    #[arg(long, value_delimiter = ',')]
    sites: Vec<u32>,
    /// Messages per cell; default: 10,000 up to 8 MiB, 1,000 up to 128 MiB, and fewer above.
    #[arg(long)]
    samples: Option<usize>,
    /// Payload bytes of a packet, and of a chunk.
    #[arg(long, default_value_t = 4096)]
    mtu: u32,
    /// Threads; 0: one for each core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Seed of the losses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print a histogram of the times below each row, in eighths of a round trip.
    #[arg(long)]
    spectrum: bool,
    /// Also write the times to this file, one row per cell (CSV).
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// A burst of a cell; `None` for independent losses.
type CellBurst = Option<Burst>;

fn parse_burst(text: &str) -> Result<CellBurst, String> {
    match text {
        "0" => Ok(None),
        text => text.parse().map(Some),
    }
}

impl Args {
    /// The grid, in the order of the table.
    fn cells(&self) -> Vec<Cell> {
        let sites: Vec<_> = match &self.sites[..] {
            [] => vec![None],
            sites => sites.iter().copied().map(Some).collect(),
        };
        let mut cells = Vec::new();
        for sites in sites {
            for &rtt_ms in &self.rtt_ms {
                for &kib in &self.size_kib {
                    for &burst in &self.burst {
                        for &loss_packet in &self.loss {
                            let with_scheme = |&scheme| Cell {
                                scheme,
                                bytes: kib << 10,
                                sites,
                                rate_bps: self.rate_gbps * 1e9,
                                rtt_s: rtt_ms / 1e3,
                                loss_packet,
                                burst,
                                keeps_reports: self.keep_reports,
                                has_terms: self.terms,
                                mtu: self.mtu,
                                samples: self.samples.unwrap_or(Cell::usual_samples(kib << 10)),
                                seed: self.seed,
                            };
                            cells.extend(self.schemes.iter().map(with_scheme));
                        }
                    }
                }
            }
        }
        cells
    }
}

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|why| {
        eprintln!("agreement: {why}");
        ExitCode::from(2)
    })
}

/// Returns whether all cells agree, as an exit status.
fn run(args: &Args) -> Result<ExitCode, Failure> {
    let cells = args.cells();
    for cell in &cells {
        cell.check()?;
    }
    let threads = match args.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    println!(
        "{} Gbit/s, packets and chunks of {} bytes, seed {}",
        args.rate_gbps, args.mtu, args.seed
    );
    table::print_head();
    let begun = Instant::now();
    let comparisons = compare_all(&cells, threads, args.spectrum)?;
    if let Some(path) = &args.csv {
        std::fs::write(path, csv::text(&cells, &comparisons)).map_err(|why| {
            let path = path.display();
            format!("--csv {path}: {why}")
        })?;
    }
    table::print_end(&comparisons, begun.elapsed());
    let is_good = comparisons.iter().all(Comparison::is_good);
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The time of each message or ring of a cell, in seconds.
fn times_of(cell: &Cell) -> Result<Vec<f64>, Failure> {
    match cell.sites {
        None => world::run(cell),
        Some(sites) => ring::run(cell, sites),
    }
}

/// Runs all cells, one thread per cell, and prints their rows in the order of the cells.
fn compare_all(
    cells: &[Cell],
    threads: usize,
    shows_spectrum: bool,
) -> Result<Vec<Comparison>, Failure> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (results, received) = channel();
        for _ in 0..threads.clamp(1, cells.len().max(1)) {
            let (results, next) = (results.clone(), &next);
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = cells.get(place) else { return };
                    let compared = times_of(cell).and_then(|times| Comparison::new(cell, times));
                    if results.send((place, compared)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        let mut waiting: Vec<Option<Comparison>> = cells.iter().map(|_| None).collect();
        let mut printed = 0;
        for (place, compared) in received {
            // The threads stop after their current cells.
            waiting[place] =
                Some(compared.inspect_err(|_| next.store(cells.len(), Ordering::Relaxed))?);
            while let Some(Some(comparison)) = waiting.get(printed) {
                table::print_row(&cells[printed], comparison);
                if shows_spectrum {
                    table::print_spectrum(&cells[printed], comparison);
                }
                printed += 1;
            }
        }
        Ok(waiting.into_iter().flatten().collect())
    })
}
