//! What the command line asks for.

use std::path::PathBuf;

use clap::Parser;
use clap::value_parser;
use farwrite_experiment::parallel_map;

/// The paths and ways to run, and how often.
#[derive(Parser)]
pub(crate) struct Options {
    /// Paths; without any, all
    #[arg(value_parser = ["wan", "incast", "both"])]
    paths: Vec<String>,
    /// Writes over the long path, one after the other
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..=100_000))]
    pub(crate) writes: u64,
    /// Runs for each row, with one seed after the other
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(1..=16))]
    pub(crate) seeds: u64,
    /// The one way to repair losses that runs
    #[arg(long)]
    only: Option<String>,
    /// Write the results as rows
    #[arg(long)]
    pub(crate) csv: Option<PathBuf>,
}

impl Options {
    /// Whether to run this path.
    pub(crate) fn wants(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|wanted| wanted == path)
    }

    /// Whether to run this way to repair losses.
    pub(crate) fn wants_way(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == name)
    }

    /// The runs of a row, for a person.
    pub(crate) fn runs(&self) -> String {
        match self.seeds {
            1 => "seed 0".into(),
            seeds => format!("seeds 0 to {}", seeds - 1),
        }
    }

    /// The results of `run` with each seed, on all cores.
    pub(crate) fn with_seeds<T: Send>(&self, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
        let seeds: Vec<u64> = (0..self.seeds).collect();
        parallel_map(&seeds, |seed| run(*seed))
    }
}
