//! Tails of collectives: RDMA NICs and models of SRNIC, Falcon and UCCL beside endpoints that end
//! in time (claims C2, Celeris Fig. 2, and O5, O6 and OL, OptiNIC Figs. 5 and 6).
//!
//! `cargo run --release -p farwrite-bench --example tails -- COMMAND [--OPTION N]... [--csv FILE]`. The commands:
//!
//! - `celeris` (C2), `optinic` (O6) and `sizes` (O5): NICs, models, and rings of messages of endpoints.
//! - `xp`: the NIC model of `OptiNIC`'s transport, for O5 and O6.
//! - `shipped` and `shipped-sizes`: operations of `farwrite-collectives`, for O6 and O5.
//! - `losses` (OL): the network of `optinic` with losses.
//!
//! Options are the fields of `celeris::Setting` and `optinic::Setting`, with dashes. `sizes` also has
//! `--short-percent`, `losses` has `--small-kb`, and `xp` has `--short-percent` and `--size-runs`.
//! Without `--csv`, the rows go to the standard output.

mod celeris;
mod losses;
mod measure;
mod optinic;
mod shipped;
mod sizes;
mod xp;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;

/// Numbers by the names of their options.
pub(crate) struct Numbers(BTreeMap<String, u64>);

impl Numbers {
    /// Removes and returns the number of an option; `default` if it was not given.
    pub(crate) fn take(&mut self, name: &str, default: u64) -> u64 {
        self.0.remove(name).unwrap_or(default)
    }

    /// Refuses options that nothing has taken.
    pub(crate) fn end(&self) -> Result<(), Box<dyn Error>> {
        match self.0.keys().next() {
            Some(name) => Err(format!("--{name}: there is no such option").into()),
            None => Ok(()),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let (mut numbers, mut file) = (BTreeMap::new(), None);
    while let Some(argument) = arguments.next() {
        let name = argument.strip_prefix("--");
        let name = name.ok_or_else(|| format!("{argument}: options begin with --"))?;
        let value = arguments.next();
        let value = value.ok_or_else(|| format!("{argument} has no value"))?;
        if name == "csv" {
            file = Some(value);
        } else {
            let number = value
                .parse()
                .map_err(|why| format!("{argument} {value}: {why}"))?;
            numbers.insert(name.to_owned(), number);
        }
    }
    let numbers = Numbers(numbers);
    let table = match what.as_str() {
        "celeris" => celeris::measure(numbers)?,
        "optinic" => optinic::measure(numbers)?,
        "sizes" => sizes::measure(numbers)?,
        "xp" => xp::measure(numbers)?,
        "shipped" => shipped::measure(numbers)?,
        "shipped-sizes" => shipped::measure_sizes(numbers)?,
        "losses" => losses::measure(numbers)?,
        other => {
            let names = "celeris, optinic, sizes, xp, shipped, shipped-sizes or losses";
            return Err(format!("{other:?}: choose {names}").into());
        }
    };
    match file {
        Some(file) => Ok(fs::write(file, table.csv())?),
        None => {
            print!("{}", table.csv());
            Ok(())
        }
    }
}
