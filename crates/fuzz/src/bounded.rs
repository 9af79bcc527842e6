//! Runs a target on its seeds, and on inputs that are made from them.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use farwrite_rng::SplitMix;

use crate::{TARGETS, Target};

/// Number of inputs of each target, in addition to its seeds.
const INPUTS: usize = 20_000;
/// Inputs do not grow beyond this.
const MAX_BYTES: usize = 4096;

/// Runs a target. `FARWRITE_FUZZ_SEED=2` draws other inputs.
pub(crate) fn run(name: &str, target: Target) {
    let seeds = seeds(name);
    for seed in &seeds {
        check(name, target, seed);
    }
    let number = std::env::var("FARWRITE_FUZZ_SEED");
    let number = number.map_or(1, |text| {
        text.parse().expect("FARWRITE_FUZZ_SEED is a number")
    });
    let mut inputs = Inputs {
        rng: SplitMix::new(number),
        seeds,
    };
    for _ in 0..INPUTS {
        let input = inputs.draw();
        check(name, target, &input);
    }
}

/// Runs a target on an input. If that panics, keeps the input in a file.
fn check(name: &str, target: Target, input: &[u8]) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) else {
        return;
    };
    let directory = folder().join("artifacts").join(name);
    let file = directory.join("bounded-run");
    fs::create_dir_all(&directory).expect("a directory for the input");
    fs::write(&file, input).expect("the input is written");
    eprintln!("fuzz/run {name} {} repeats this", file.display());
    resume_unwind(panic);
}

/// The folder of cargo-fuzz.
fn folder() -> PathBuf {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    fuzz.canonicalize().expect("fuzz/ is beside crates/")
}

/// The seeds of a target, ordered by the names of their files.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let directory = folder().join("seeds").join(name);
    let files = fs::read_dir(&directory);
    let files = files.unwrap_or_else(|why| panic!("{}: {why}", directory.display()));
    let mut files: Vec<_> = files
        .map(|file| file.expect("it is listed").path())
        .collect();
    files.sort_unstable();
    let seeds = files
        .iter()
        .map(|file| fs::read(file).expect("it is there"));
    let seeds: Vec<Vec<u8>> = seeds.collect();
    assert!(!seeds.is_empty(), "{} has no seed", directory.display());
    seeds
}

/// Numbers at the limits of types and of what options accept.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "2",
    "255",
    "256",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551616",
    "1e309",
    "1e-9",
    "nan",
    "0.5",
];
/// Bytes at the limits of numbers.
const BYTES: [u8; 8] = [0, 1, 2, 4, 0x7F, 0x80, 0xFE, 0xFF];

/// Draws inputs: some are random, most are seeds with changes.
struct Inputs {
    rng: SplitMix,
    seeds: Vec<Vec<u8>>,
}

impl Inputs {
    fn draw(&mut self) -> Vec<u8> {
        let length = self.rng.index(200);
        match self.rng.below(10) {
            0 => self.rng.bytes(length),
            // Small values parse more often as counts and variants.
            1 => (0..length).map(|_| self.rng.below(5) as u8).collect(),
            _ => {
                let seed = self.rng.index(self.seeds.len());
                let mut input = self.seeds[seed].clone();
                for _ in 0..=self.rng.below(4) {
                    self.change(&mut input);
                }
                input.truncate(MAX_BYTES);
                input
            }
        }
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let start = self.rng.index(input.len() + 1);
        let end = (start + self.rng.index(16)).min(input.len());
        match self.rng.below(9) {
            0 => self.set(input, start, |rng, _| rng.below(256) as u8),
            1 => self.set(input, start, |rng, _| rng.pick(&BYTES)),
            2 => self.set(input, start, |rng, byte| byte ^ 1 << rng.below(8)),
            3 => self.set(input, start, |rng, byte| {
                byte.wrapping_add(rng.pick(&[1, 0xFF]))
            }),
            4 => input.truncate(start),
            5 => drop(input.drain(start..end)),
            6 => {
                let again = input[start..end].to_vec();
                drop(input.splice(end..end, again));
            }
            7 => self.replace_number(input, start),
            _ => self.cross(input, start, end),
        }
    }

    fn set(&mut self, input: &mut [u8], at: usize, value: fn(&mut SplitMix, u8) -> u8) {
        if let Some(byte) = input.get_mut(at) {
            *byte = value(&mut self.rng, *byte);
        }
    }

    /// Replaces the first decimal number from `start` on by another.
    fn replace_number(&mut self, input: &mut Vec<u8>, start: usize) {
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let Some(first) = input[start..].iter().position(is_digit) else {
            return;
        };
        let rest = &input[start + first..];
        let digits = rest.iter().take_while(|byte| is_digit(byte)).count();
        let number = self.rng.pick(&NUMBERS).bytes();
        drop(input.splice(start + first..start + first + digits, number));
    }

    /// Replaces some bytes by a part of a seed, or by the rest of a seed from the same place on.
    fn cross(&mut self, input: &mut Vec<u8>, start: usize, end: usize) {
        let Self { rng, seeds } = self;
        let other = &seeds[rng.index(seeds.len())];
        if rng.percent(50) {
            input.truncate(start);
            input.extend(other.get(start..).unwrap_or(&[]));
        } else {
            let from = rng.index(other.len() + 1);
            let until = other.len().min(from + rng.index(64));
            drop(input.splice(start..end, other[from..until].to_vec()));
        }
    }
}

#[test]
fn seeds_and_documentation_list_the_same_targets() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let folders = fs::read_dir(folder().join("seeds")).expect("fuzz/seeds/ is there");
    let folders = folders.map(|entry| entry.expect("it is listed").file_name());
    let folders = folders.map(|name| name.to_string_lossy().into_owned());
    assert_eq!(folders.collect::<BTreeSet<_>>(), targets);
    let readme = fs::read_to_string(folder().join("README.md")).expect("it is there");
    let rows = readme.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    assert_eq!(names.map(str::to_owned).collect::<BTreeSet<_>>(), targets);
}
