//! Prints the measurements as a table.

use farwrite_codes::Kernel;
use farwrite_units::stats::median;

use crate::coded_message::{CodedMessage, What};

/// Cores that the paper needs to encode at 400 Gbit/s (Fig. 11).
const PAPER_CORES: [(&str, u32); 2] = [("ec-xor:32,8", 4), ("ec-mds:32,8", 8)];
const PAPER_BYTES_PER_SECOND: f64 = 400e9 / 8.0;

/// Prints medians, each with its ratio to the best reading and to the best of ISA-L.
pub(crate) fn print(coded_message: &CodedMessage, whats: &[What], seconds: &[Vec<f64>]) {
    let bytes = coded_message.layout.data_bytes();
    let speeds = whats
        .iter()
        .zip(seconds)
        .map(|(&what, seconds)| (what, bytes as f64 / median(seconds)));
    let speeds: Vec<(What, f64)> = speeds.collect();
    let best = |of: &dyn Fn(What) -> bool| {
        let all = speeds.iter().copied().filter(|&(what, _)| of(what));
        all.max_by(|a, b| a.1.total_cmp(&b.1))
    };
    println!(
        "codes        {} MiB in chunks of {} KiB, in cold memory, on one core with {}; \
         GB/s of data, medians of {}",
        bytes >> 20,
        coded_message.layout.chunk_bytes() >> 10,
        Kernel::best(),
        seconds[0].len(),
    );
    let read = best(&|what| matches!(what, What::Read(_)));
    let Some((What::Read(way), read)) = read else {
        return;
    };
    line("read", read, &format!("best of several loops: {way}"));
    for &(what, speed) in &speeds {
        let of_read = format!("{:4.2} of read", speed / read);
        match what {
            What::Encode(code) => {
                let cores = format!("{:.1} cores for 400 Gbit/s", PAPER_BYTES_PER_SECOND / speed);
                let paper = PAPER_CORES
                    .iter()
                    .find(|(name, _)| *name == code.to_string());
                let paper = paper.map_or(String::new(), |(_, cores)| format!(" (paper: {cores})"));
                let same = coded_message.layout.code() == code;
                let isal = best(&|what| same && matches!(what, What::IsalEncode(_)));
                let name = format!("{code} encode");
                line(
                    &name,
                    speed,
                    &format!("{of_read}  {}{cores}{paper}", of_isal(speed, isal)),
                );
            }
            What::Recover(lost) => {
                let isal =
                    best(&|what| matches!(what, What::IsalRecover(other, _) if other == lost));
                let name = format!("{} recover {lost}", coded_message.layout.code());
                line(
                    &name,
                    speed,
                    &format!("{of_read}  {}", of_isal(speed, isal)),
                );
            }
            What::EncodeOnThreads(code) => {
                let threads = coded_message.threads();
                line(
                    &format!("{code} encode"),
                    speed,
                    &format!("{of_read}  on {threads} threads"),
                );
            }
            What::Read(_) | What::IsalEncode(_) | What::IsalRecover(..) => {}
        }
    }
}

fn line(name: &str, speed: f64, rest: &str) {
    println!("{name:<22} {:6.2}  {rest}", speed / 1e9);
}

/// The ratio to the best of ISA-L, and the way of calling it.
fn of_isal(speed: f64, isal: Option<(What, f64)>) -> String {
    let Some((What::IsalEncode(tile) | What::IsalRecover(_, tile), isal)) = isal else {
        return String::new();
    };
    let tile = match tile {
        usize::MAX => "whole chunks".to_owned(),
        bytes => format!("columns of {bytes} bytes"),
    };
    format!(
        "{:4.2} of ISA-L ({:.2}, by {tile})  ",
        speed / isal,
        isal / 1e9
    )
}
