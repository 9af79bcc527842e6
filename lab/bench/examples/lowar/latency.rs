//! What LoWAR adds to a message in a local network.

use std::collections::BTreeSet;
use std::time::Duration;

use farwrite_units::stats::mean;

use crate::case::{BoxPlace, Case};
use crate::rows::Rows;
use crate::{Options, fixed, series};

/// Times of the NIC's receive path for each frame, and more for each one that was held, in percent of the time
/// that a packet takes on the cable.
const RECEIVERS: [(u64, u64); 8] = [
    (0, 0),
    (0, 100),
    (50, 50),
    (50, 100),
    (90, 50),
    (100, 25),
    (100, 50),
    (100, 100),
];

/// L13: what LoWAR adds to one message without losses, and what losses add to that.
pub(crate) fn of_all(options: &Options, rows: &Rows) {
    let local = Case {
        rtt: Duration::from_micros(10),
        peer_known: true,
        ..options.case()
    };
    for (frame, drain) in RECEIVERS {
        let times = options.receive_times(frame, drain);
        let name = format!(", in the NIC, {frame}% and {drain}%");
        let place = BoxPlace::Nic(times);
        of_place(&Case { place, ..local }, &name, rows);
    }
    for factor in [1, 4, 40] {
        let name = match factor {
            1 => String::new(),
            factor => format!(", cables of NICs {factor} times as fast"),
        };
        let place = BoxPlace::Cable(factor);
        of_place(&Case { place, ..local }, &name, rows);
    }
    println!("paper: added is the time of the repair packets; losses add in proportion to r,");
    println!("       twice as much in two blocks, and 16 in one block as much as one");
}

/// Prints and adds the numbers of one place of LoWAR.
fn of_place(case: &Case, name: &str, rows: &Rows) {
    /// Where losses begin, of which the mean is taken.
    const PLACES: u64 = 20;
    println!("local network{name}, one message of 1 MB, time in us");
    println!(
        "{:>9} {:>9} {:>9} {:>10} {:>10} {:>11}",
        "", "lossless", "added", "one loss", "16 losses", "two blocks"
    );
    let conditions = format!("{}, one message of 1 MB{name}", case.conditions());
    let conditions = format!("{conditions}, with losses the mean of {PLACES} places");
    let panel = rows.panel("L13", &format!("latency{name}"), &conditions);
    let time_us = |coding, lost| Case { coding, ..*case }.times_us(1, Some(lost))[0];
    let plain = time_us(None, BTreeSet::new());
    println!("{:>9} {plain:>9.1}", "GBN");
    for (r, c) in [(8, 1), (32, 1), (64, 1), (128, 1), (128, 16)] {
        let run = |lost: BTreeSet<u64>| time_us(fixed(r, c), lost);
        let lossless = run(BTreeSet::new());
        // Losses begin at places of a block that are as far from each other, where a burst of c packets does
        // not leave it, in several blocks.
        let (block, places) = (u64::from(r), u64::from(r - u16::from(c) + 1));
        let first =
            |place: u64| 37 * place % 700 / block * block + (2 * place + 1) * places / (2 * PLACES);
        let firsts = (0..PLACES).map(first);
        let added_by = |lost: &dyn Fn(u64) -> BTreeSet<u64>| {
            mean(firsts.clone().map(|at| run(lost(at)) - lossless))
        };
        let one = added_by(&|at| [at].into());
        let two = added_by(&|at| [at, at + block].into());
        let many = (c == 16).then(|| added_by(&|at| (at..at + 16).collect()));
        let (shape, added) = (format!("({r},{c})"), lossless - plain);
        let measures = [
            ("added_us", Some(added)),
            ("one_loss_us", Some(one)),
            ("16_losses_us", many),
            ("two_blocks_us", Some(two)),
        ];
        for (measure, value) in measures {
            if let Some(value) = value {
                panel.add(&series(fixed(r, c)), r.into(), measure, value);
            }
        }
        let many = many.map_or_else(String::new, |many| format!("{many:.1}"));
        println!("{shape:>9} {lossless:>9.1} {added:>9.1} {one:>10.1} {many:>10} {two:>11.1}");
    }
}
