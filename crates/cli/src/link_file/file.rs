//! `link.toml`: a path, described in a file.

use std::fmt;
use std::fs;
use std::path::Path as FilePath;

use clap::ValueEnum;
use toml::{Table, Value};

use super::{Description, Medium, Unit};
use crate::exit::{Exit, Failure, OrExit};
use farwrite_units::parse::{
    parse_burst, parse_chunk, parse_distance, parse_extent, parse_moment, parse_mtu,
    parse_path_loss, parse_path_rate, parse_path_rtt, parse_rtt,
};

/// The fields that there are.
const FIELDS: [&str; 15] = [
    "rate",
    "rtt",
    "distance",
    "signal",
    "loss_chunk",
    "loss_packet",
    "mean_burst_chunks",
    "mean_burst_packets",
    "chunk",
    "mtu",
    "reordering_packets",
    "reordering_time",
    "measured",
    "measured_by",
    "peer",
];

/// Reads what a file says of a path.
///
/// # Errors
/// [`Exit::Files`] where it cannot be read, [`Exit::Usage`] for what it says.
pub(crate) fn read(file: &FilePath) -> Result<Description, Failure> {
    let text = fs::read_to_string(file)
        .or_exit(Exit::Files, format_args!("reading {}", file.display()))?;
    parse(&text)
        .map_err(|what| Failure::new(Exit::Usage, format_args!("{}: {what}", file.display())))
}

pub(super) fn parse(text: &str) -> Result<Description, String> {
    let table = text
        .parse::<Table>()
        .map_err(|error| syntax(text, &error))?;
    if let Some(unknown) = table.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(format!(
            "there is no field {unknown:?}; there are {}",
            FIELDS.join(", ")
        ));
    }
    let fields = Fields(&table);
    for [one, other] in [["rtt", "distance"], ["loss_chunk", "loss_packet"]] {
        fields.check_either(one, other)?;
    }
    let signal = fields.find("signal", |text| Medium::from_str(text, true))?;
    let distance_km = fields.find("distance", parse_distance)?;
    if signal.is_some() && distance_km.is_none() {
        return Err("signal says nothing without distance".to_owned());
    }
    let signal = signal.unwrap_or(Medium::Vacuum);
    let rtt = fields.find("rtt", parse_path_rtt)?;
    let rtt_s = rtt.map(|rtt| rtt.as_secs_f64());
    let either = |chunks: Option<f64>, packets: Option<f64>| {
        let chunks = chunks.map(|value| (Unit::Chunks, value));
        chunks.or(packets.map(|value| (Unit::Packets, value)))
    };
    fields.check_either("mean_burst_chunks", "mean_burst_packets")?;
    fields.check_record()?;
    Ok(Description {
        rate_bps: fields.find("rate", parse_path_rate)?,
        rtt_s: rtt_s.or(distance_km.map(|km| signal.rtt_s(km))),
        loss: either(
            fields.find("loss_chunk", parse_path_loss)?,
            fields.find("loss_packet", parse_path_loss)?,
        ),
        burst: either(
            fields.find("mean_burst_chunks", parse_burst)?,
            fields.find("mean_burst_packets", parse_burst)?,
        ),
        chunk_bytes: fields.find("chunk", parse_chunk)?,
        mtu: fields.find("mtu", parse_mtu)?,
    })
}

/// What is no TOML, with its line.
fn syntax(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!("line {line}: {}", error.message())
}

/// The fields of a file.
struct Fields<'a>(&'a Table);

impl Fields<'_> {
    /// A field, read as an option of the command line is.
    fn find<T, E: fmt::Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        let (text, shown) = match value {
            Value::String(text) => (text.clone(), format!("{text:?}")),
            Value::Integer(number) => (number.to_string(), number.to_string()),
            Value::Float(number) => (number.to_string(), format!("{number:?}")),
            other => {
                let kind = other.type_str();
                return Err(format!("{name} is of type {kind}; want a number, or text"));
            }
        };
        let parsed = parse(&text).map_err(|why| format!("{name} = {shown}: {why}"))?;
        Ok(Some(parsed))
    }

    /// The fields that only say where the others come from, or that nothing uses yet.
    fn check_record(&self) -> Result<(), String> {
        self.find("reordering_packets", parse_extent)?;
        self.find("reordering_time", parse_rtt)?;
        self.find("measured", parse_moment)?;
        let any = |text: &str| match text.len() {
            0..=200 => Ok(()),
            _ => Err("want at most 200 bytes"),
        };
        self.find("measured_by", any)?;
        self.find("peer", any)?;
        Ok(())
    }

    /// Of two fields that say the same there may be one.
    fn check_either(&self, one: &str, other: &str) -> Result<(), String> {
        if self.0.contains_key(one) && self.0.contains_key(other) {
            return Err(format!("{one} and {other} say the same twice; leave one"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_with_its_units() {
        let said = parse(
            "# measured\nrate = \"400Gbit\"\ndistance = \"3750km\"\nloss_chunk = 1e-5\n\
             mean_burst_chunks = 2\nchunk = \"64KiB\"\nmtu = 4096\n",
        );
        let want = Description {
            rate_bps: Some(400e9),
            rtt_s: Some(0.025),
            loss: Some((Unit::Chunks, 1e-5)),
            burst: Some((Unit::Chunks, 2.0)),
            chunk_bytes: Some(65536),
            mtu: Some(4096),
        };
        assert_eq!(said, Ok(want));
        let said =
            parse("rtt = \"37.5ms\"\nloss_packet = \"0.1%\"\nrate = 1000000000").expect("fine");
        assert_eq!(said.rtt_s, Some(0.0375));
        assert_eq!(said.loss, Some((Unit::Packets, 0.001)));
        assert_eq!(said.rate_bps, Some(1e9));
        let said = parse("distance = \"2040km\"\nsignal = \"fibre\"").expect("fine");
        assert_eq!(said.rtt_s, Some(0.02));
        assert_eq!(parse(""), Ok(Description::default()));
    }

    #[test]
    fn what_is_wrong_is_told_with_field_and_value() {
        for (text, told) in [
            (
                "rate = \"400GB/s\"",
                "rate = \"400GB/s\": GB could mean bytes",
            ),
            ("rate = -1", "rate = -1: a rate lies in 1kbit to 1000Tbit"),
            ("rate = nan", "rate = NaN: "),
            ("rtt = 25", "rtt = 25: not a time; write it like 25ms"),
            ("rtt = \"0s\"", "rtt = \"0s\": a round trip lies above 0"),
            ("rtt = \"1s\"\ndistance = \"1km\"", "rtt and distance"),
            (
                "distance = 3750",
                "distance = 3750: not a distance; write it like 3750km",
            ),
            ("signal = \"fibre\"", "without distance"),
            (
                "distance = \"1km\"\nsignal = \"copper\"",
                "signal = \"copper\"",
            ),
            ("loss_chunk = 2", "loss_chunk = 2: a loss lies in 0 to 0.99"),
            ("loss_chunk = true", "loss_chunk is of type boolean"),
            ("loss_chunk = [1]", "loss_chunk is of type array"),
            ("mean_burst_chunks = 0.5", "mean_burst_chunks = 0.5: "),
            ("chunk = \"0\"", "chunk = \"0\": "),
            ("mtu = 4097", "mtu = 4097: an MTU is a multiple of 4"),
            (
                "bandwidth = 1",
                "no field \"bandwidth\"; there are rate, rtt",
            ),
            (
                "reordering_packets = -1",
                "reordering_packets = -1: an extent",
            ),
            (
                "reordering_time = \"1h\"",
                "reordering_time = \"1h\": a round trip lies in",
            ),
            ("measured = \"today\"", "measured = \"today\": not a moment"),
            ("rate = \"1Gbit\"\nrate = 2", "line 2: duplicate key"),
            ("rate = \"1Gbit\"\n= 2", "line 2: "),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(told), "{told:?} is not in {error:?}");
        }
    }
}
