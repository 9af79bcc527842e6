//! What the command line asks for.

use std::path::PathBuf;
use std::str::FromStr;

use farwrite_experiment::parallel_map;

const PATHS: [&str; 3] = ["wan", "incast", "both"];
const MAX_SEEDS: u64 = 16;

/// The paths and ways to run, and how often.
pub(crate) struct Options {
    paths: Vec<String>,
    /// Over the long path, one after the other.
    pub(crate) writes: u64,
    /// Runs for each row, with one seed after the other.
    pub(crate) seeds: u64,
    only: Option<String>,
    pub(crate) csv: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            paths: Vec::new(),
            writes: 100,
            seeds: 5,
            only: None,
            csv: None,
        };
        let mut args = args;
        while let Some(arg) = args.next() {
            if PATHS.contains(&&*arg) {
                options.paths.push(arg);
                continue;
            }
            let value = args.next().filter(|value| !value.is_empty());
            let missing = || format!("{arg}: it takes a value");
            match &*arg {
                "--writes" => options.writes = number(&arg, value.as_deref(), 100_000)?,
                "--seeds" => options.seeds = number(&arg, value.as_deref(), MAX_SEEDS)?,
                "--only" => options.only = Some(value.ok_or_else(missing)?),
                "--csv" => options.csv = Some(value.ok_or_else(missing)?.into()),
                _ => {
                    return Err(format!(
                        "{arg}: the paths are {}; the options are --writes, --seeds, --only and --csv, \
                         each with a value",
                        PATHS.join(", ")
                    ));
                }
            }
        }
        Ok(options)
    }

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

fn number(option: &str, value: Option<&str>, most: u64) -> Result<u64, String> {
    let number = value.and_then(|value| u64::from_str(value).ok());
    let number = number.filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| {
        let value = value.unwrap_or_default();
        format!("{option} {value}: it takes a whole number from 1 to {most}")
    })
}
