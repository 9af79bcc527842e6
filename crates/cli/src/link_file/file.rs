//! Reads `link.toml`, a file that describes a path.

use std::fmt;
use std::path::Path as FilePath;
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;
use toml::Value;

use super::{Description, Medium, Unit};
use crate::exit::{Exit, Failure, OrExit};
use crate::toml_error::in_line;
use farwrite_units::Burst;
use farwrite_units::input::read_text;
use farwrite_units::parse::{
    parse_chunk, parse_distance, parse_extent, parse_moment, parse_mtu, parse_path_loss,
    parse_path_rate, parse_path_rtt, parse_rtt,
};

/// A longer file is a different file, given by mistake.
const MOST_BYTES: u64 = 64 << 10;

/// The fields of a file. A value has the syntax of the option on the command line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    rate: Option<Value>,
    rtt: Option<Value>,
    distance: Option<Value>,
    signal: Option<Value>,
    loss_chunk: Option<Value>,
    loss_packet: Option<Value>,
    mean_burst_chunks: Option<Value>,
    mean_burst_packets: Option<Value>,
    mean_burst_time: Option<Value>,
    chunk: Option<Value>,
    mtu: Option<Value>,
    // The other fields only describe the origin of the values, or are not used yet.
    reordering_packets: Option<Value>,
    reordering_time: Option<Value>,
    measured: Option<Value>,
    measured_by: Option<Value>,
    peer: Option<Value>,
}

/// Reads the description of a path from a file.
///
/// # Errors
/// [`Exit::Files`] if it cannot be read, [`Exit::Usage`] if its content is invalid.
pub(crate) fn read(file: &FilePath) -> Result<Description, Failure> {
    let text = read_text(file, MOST_BYTES)
        .or_exit(Exit::Files, format_args!("reading {}", file.display()))?;
    parse(&text)
        .map_err(|what| Failure::new(Exit::Usage, format_args!("{}: {what}", file.display())))
}

/// Reads the text of a file.
///
/// # Errors
/// The field or the line, and what is wrong.
pub(crate) fn parse(text: &str) -> Result<Description, String> {
    describe(&toml::from_str(text).map_err(|error| in_line(text, &error))?)
}

/// Reads a table of a larger file.
///
/// # Errors
/// As [`parse`], without the line.
pub(crate) fn of_table(table: toml::Table) -> Result<Description, String> {
    let fields = table.try_into::<Fields>();
    describe(&fields.map_err(|error| error.message().to_owned())?)
}

fn describe(fields: &Fields) -> Result<Description, String> {
    check_either(("rtt", &fields.rtt), ("distance", &fields.distance))?;
    let losses = (
        ("loss_chunk", &fields.loss_chunk),
        ("loss_packet", &fields.loss_packet),
    );
    let bursts = (
        ("mean_burst_chunks", &fields.mean_burst_chunks),
        ("mean_burst_packets", &fields.mean_burst_packets),
    );
    check_either(bursts.0, ("mean_burst_time", &fields.mean_burst_time))?;
    check_either(bursts.1, ("mean_burst_time", &fields.mean_burst_time))?;
    let burst_time = field("mean_burst_time", &fields.mean_burst_time, parse_burst_time)?;
    let signal = field("signal", &fields.signal, |text| {
        Medium::from_str(text, true)
    })?;
    let distance_km = field("distance", &fields.distance, parse_distance)?;
    if signal.is_some() && distance_km.is_none() {
        return Err("signal says nothing without distance".to_owned());
    }
    let signal = signal.unwrap_or(Medium::Vacuum);
    let rtt = field("rtt", &fields.rtt, parse_path_rtt)?;
    let rtt_s = rtt.map(|rtt| rtt.as_secs_f64());
    let description = Description {
        loss: in_unit(losses, parse_path_loss)?,
        burst: in_unit(bursts, parse_run)?,
        burst_time,
        rate_bps: field("rate", &fields.rate, parse_path_rate)?,
        rtt_s: rtt_s.or(distance_km.map(|km| signal.rtt_s(km))),
        chunk_bytes: field("chunk", &fields.chunk, parse_chunk)?,
        mtu: field("mtu", &fields.mtu, parse_mtu)?,
    };
    let short = |text: &str| match text.len() {
        0..=200 => Ok(()),
        _ => Err("want at most 200 bytes"),
    };
    field(
        "reordering_packets",
        &fields.reordering_packets,
        parse_extent,
    )?;
    field("reordering_time", &fields.reordering_time, parse_rtt)?;
    field("measured", &fields.measured, parse_moment)?;
    field("measured_by", &fields.measured_by, short)?;
    field("peer", &fields.peer, short)?;
    Ok(description)
}

/// A mean burst as a number of losses.
fn parse_run(text: &str) -> Result<f64, String> {
    match text.parse()? {
        Burst::Losses(losses) => Ok(losses),
        Burst::Time(_) => Err("want a number of losses; a time is mean_burst_time".to_owned()),
    }
}

/// A mean burst as a time.
fn parse_burst_time(text: &str) -> Result<Duration, String> {
    match text.parse()? {
        Burst::Time(time) => Ok(time),
        Burst::Losses(_) => Err("not a time; write it like 2ms".to_owned()),
    }
}

/// A field and its name.
type Named<'a> = (&'static str, &'a Option<Value>);

/// Parses a field with the parser of the option.
fn field<T, E: fmt::Display>(
    name: &str,
    value: &Option<Value>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, String> {
    let (text, shown) = match value {
        None => return Ok(None),
        Some(Value::String(text)) => (text.clone(), format!("{text:?}")),
        Some(Value::Integer(number)) => (number.to_string(), number.to_string()),
        Some(Value::Float(number)) => (number.to_string(), format!("{number:?}")),
        Some(other) => {
            return Err(format!(
                "{name} = {other}: want a number, or text in quotes"
            ));
        }
    };
    let parsed = parse(&text).map_err(|why| format!("{name} = {shown}: {why}"))?;
    Ok(Some(parsed))
}

/// A number that counts chunks or packets, depending on its field.
fn in_unit(
    (chunks, packets): (Named<'_>, Named<'_>),
    parse: impl Fn(&str) -> Result<f64, String>,
) -> Result<Option<(Unit, f64)>, String> {
    check_either(chunks, packets)?;
    let of_chunks = field(chunks.0, chunks.1, &parse)?;
    let of_packets = field(packets.0, packets.1, &parse)?;
    let of_chunks = of_chunks.map(|value| (Unit::Chunks, value));
    Ok(of_chunks.or(of_packets.map(|value| (Unit::Packets, value))))
}

/// Checks that at most one of two equivalent fields is present.
fn check_either(one: Named<'_>, other: Named<'_>) -> Result<(), String> {
    if one.1.is_some() && other.1.is_some() {
        let (one, other) = (one.0, other.0);
        return Err(format!(
            "{one} and {other} are two forms of the same value: give only one"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_with_its_units() {
        let parsed = parse(
            "# measured\nrate = \"400Gbit\"\ndistance = \"3750km\"\nloss_chunk = 1e-5\n\
             mean_burst_chunks = 2\nchunk = \"64KiB\"\nmtu = 4096\n",
        );
        let want = Description {
            rate_bps: Some(400e9),
            rtt_s: Some(0.025),
            loss: Some((Unit::Chunks, 1e-5)),
            burst: Some((Unit::Chunks, 2.0)),
            burst_time: None,
            chunk_bytes: Some(65536),
            mtu: Some(4096),
        };
        assert_eq!(parsed, Ok(want));
        let parsed =
            parse("rtt = \"37.5ms\"\nloss_packet = \"0.1%\"\nrate = 1000000000").expect("fine");
        assert_eq!(parsed.rtt_s, Some(0.0375));
        assert_eq!(parsed.loss, Some((Unit::Packets, 0.001)));
        assert_eq!(parsed.rate_bps, Some(1e9));
        let parsed = parse("mean_burst_time = \"2ms\"").expect("fine");
        assert_eq!(parsed.burst_time, Some(Duration::from_millis(2)));
        let parsed = parse("distance = \"2040km\"\nsignal = \"fibre\"").expect("fine");
        assert_eq!(parsed.rtt_s, Some(0.02));
        // 64 packets arrive with a probability of 0.5 if each arrives with 0.5^(1/64).
        let text = "loss_chunk = 0.5\nchunk = \"64KiB\"\nmtu = 1024";
        let loss = parse(text).expect("fine").loss_packet().expect("complete");
        let want = 1.0 - 0.5f64.powf(1.0 / 64.0);
        assert!(
            loss.is_some_and(|loss| (loss - want).abs() < 1e-12),
            "{loss:?}"
        );
        assert_eq!(parse(""), Ok(Description::default()));
    }

    #[test]
    fn what_is_wrong_is_told_with_field_and_value() {
        // Each line has a file, whose lines a semicolon divides, and the error.
        let cases = r#"
            rate = "400GB/s" => rate = "400GB/s": GB could mean bytes
            rate = -1 => rate = -1: a rate lies in 1kbit to 1000Tbit
            rate = nan => rate = NaN:
            rtt = 25 => rtt = 25: not a time; write it like 25ms
            rtt = "0s" => rtt = "0s": a round trip lies above 0
            rtt = "1s"; distance = "1km" => rtt and distance
            distance = 3750 => distance = 3750: not a distance; write it like 3750km
            signal = "fibre" => without distance
            distance = "1km"; signal = "copper" => signal = "copper"
            loss_chunk = 2 => loss_chunk = 2: a loss lies in 0 to 0.99
            loss_chunk = true => loss_chunk = true: want a number, or text in quotes
            loss_chunk = [1] => loss_chunk = [1]: want a number
            mean_burst_chunks = 0.5 => mean_burst_chunks = 0.5:
            mean_burst_packets = "2ms" => mean_burst_packets = "2ms": want a number
            mean_burst_time = 2 => mean_burst_time = 2: not a time
            mean_burst_time = "2ms"; mean_burst_packets = 2 => mean_burst_packets and mean_burst_time
            chunk = "0" => chunk = "0":
            mtu = 4097 => mtu = 4097: an MTU is a multiple of 4
            bandwidth = 1 => unknown field `bandwidth`, expected one of `rate`, `rtt`
            reordering_packets = -1 => reordering_packets = -1: an extent
            reordering_time = "1h" => reordering_time = "1h": a round trip lies in
            measured = 2026-03-01T12:00:00Z => measured = 2026-03-01T12:00:00Z: want
            rate = 10000000000000000000 => line 1: u64 value was too large, in "rate
            measured = "today" => measured = "today": not a moment
            rate = "1Gbit"; rate = 2 => line 2: duplicate key
            rate = "1Gbit"; = 2 => line 2:
        "#;
        for case in cases.trim().lines() {
            let (text, told) = case.trim().split_once(" => ").expect("a case");
            let text = &text.replace("; ", "\n");
            let error = parse(text).expect_err(text);
            assert!(error.contains(told), "{told:?} is not in {error:?}");
        }
    }
}
