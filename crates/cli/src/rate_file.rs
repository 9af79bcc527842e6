//! A file with the maximum rate of a transfer, which is read again when a hang-up comes (SIGHUP).

use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;

use farwrite_transfer::{Event, MaxRate, Observer};
use farwrite_units::input::read_text;
use farwrite_units::parse::parse_rate;
use farwrite_units::show::{Rate, real};

use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt;

/// Longest file. It holds one rate.
const MOST_BYTES: u64 = 4096;

/// Reads the maximum rate, and reads the file again after each hang-up, on a thread of its own, until the program ends.
/// From now on, a hang-up does not end the program. A file without a rate then changes nothing, and warns.
pub(crate) fn follow(file: &Path, console: &Console) -> Result<MaxRate, Failure> {
    let hung_up = interrupt::catch_hang_ups()?;
    let max_rate = MaxRate::new(read(file)?);
    let (followed, file, console) = (max_rate.clone(), file.to_owned(), console.clone());
    let watch = move || {
        loop {
            thread::sleep(interrupt::LOOK);
            if !hung_up.swap(false, Ordering::Relaxed) {
                continue;
            }
            match read(&file) {
                Ok(bps) => {
                    followed.set(bps);
                    let note = format!("the maximum rate is {}", Rate(real(bps)));
                    console.observe(Event::Note(note));
                }
                Err(what) => {
                    let old = Rate(real(followed.bps()));
                    console.warn(format_args!("{what}; the maximum rate stays {old}"));
                }
            }
        }
    };
    let thread = thread::Builder::new().name("rate file".into()).spawn(watch);
    thread.or_exit(Exit::Other, "starting a thread")?;
    Ok(max_rate)
}

/// The rate in bits per second.
fn read(file: &Path) -> Result<u64, Failure> {
    let named = format!("--rate-file {}", file.display());
    let text = read_text(file, MOST_BYTES).or_exit(Exit::Files, &named)?;
    let rate = parse_rate(text.trim());
    rate.map_err(|why| Failure::new(Exit::Usage, format!("{named}: {why}")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::read;

    #[test]
    fn a_file_holds_one_rate() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rate");
        for (text, want) in [
            (" 64kbit\n", Ok(64_000)),
            ("2.5Gbit/s", Ok(2_500_000_000)),
            ("", Err("not a rate")),
            ("10Mbit\n20Mbit\n", Err("not a rate")),
            ("7kbit", Err("8kbit to 100Gbit")),
        ] {
            fs::write(&file, text).expect("written");
            match (read(&file), want) {
                (Ok(bps), Ok(want)) => assert_eq!(bps, want),
                (Err(why), Err(want)) => assert!(why.to_string().contains(want), "{why}"),
                (read, _) => panic!("{text:?}: {read:?}"),
            }
        }
        let why = read(folder.path()).expect_err("a directory").to_string();
        assert!(why.contains("a directory"), "{why}");
    }
}
