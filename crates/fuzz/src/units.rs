//! Targets of the units crate.

use std::fmt::Debug;
use std::time::Duration;

use farwrite_units::Burst;
use farwrite_units::parse::{self, List};
use farwrite_units::show::{Bytes, Moment, Percent, Rate, Time, real};

/// A quantity as people write it. A value that was read is within the limits that its parser names, and can be
/// shown.
pub fn text(data: &[u8]) {
    let text = &String::from_utf8_lossy(data);
    for &(read, most) in SIZES {
        show(read(text), most, |bytes| Bytes(bytes).to_string());
    }
    for &(read, most) in TIMES {
        show(read(text), most, |time| Time(time).to_string());
    }
    for &(read, most) in NUMBERS {
        let read = read(text);
        assert!(!read.as_ref().is_ok_and(|number| *number < 0.0), "{read:?}");
        show(read, most, |number| {
            format!("{} {}", Rate(number), Percent(number))
        });
    }
    show(parse::parse_rate(text), 100_000_000_000, |bps| {
        Rate(real(bps)).to_string()
    });
    show(parse::parse_mtu(text), 65_468, |mtu| mtu.to_string());
    show(parse::parse_payload(text), 9168, |bytes| bytes.to_string());
    show(parse::parse_extent(text), 1_000_000, |extent| {
        extent.to_string()
    });
    if let Ok(moment) = parse::parse_moment(text) {
        assert!(!Moment(moment).to_string().is_empty());
    }
    if let Ok(burst) = text.parse::<Burst>() {
        assert!(!burst.to_string().is_empty());
    }
    let list = text.parse::<List<String>>().expect("any text is a list");
    assert_eq!(list.join(","), **text);
}

type Parsers<T> = &'static [(fn(&str) -> Result<T, String>, T)];

const GIB: u64 = 1 << 30;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

const SIZES: Parsers<u64> = &[
    (parse::parse_size, 16 * GIB),
    (parse::parse_count, 1 << 63),
    (parse::parse_memory, 16 * GIB),
    (parse::parse_message, 4096 << 40),
    (parse::parse_chunk, GIB),
];
const TIMES: Parsers<Duration> = &[
    (parse::parse_rtt, Duration::from_secs(10)),
    (parse::parse_path_rtt, HOUR),
    (parse::parse_timeout, HOUR),
    (parse::parse_probe_time, HOUR),
    (parse::parse_duration, DAY),
    (parse::parse_simulated, DAY),
];
const NUMBERS: Parsers<f64> = &[
    (parse::parse_path_rate, 1e15),
    (parse::parse_loss, 0.5),
    (parse::parse_bit_errors, 1e-3),
    (parse::parse_path_loss, 0.99),
    (parse::parse_share, 10.0),
    (parse::parse_part, 1.0),
    (parse::parse_cores, 1e6),
    (parse::parse_distance, 1e7),
];

/// Shows a value, if there is one.
fn show<T: Copy + PartialOrd + Debug>(
    read: Result<T, String>,
    most: T,
    show: impl FnOnce(T) -> String,
) {
    match read {
        Ok(value) => {
            assert!(value <= most, "{value:?} is above {most:?}");
            assert!(!show(value).is_empty());
        }
        Err(why) => assert!(!why.is_empty() && !why.contains('\n')),
    }
}
