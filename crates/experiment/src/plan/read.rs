//! From the text of a plan to its parts.

use std::time::Duration;

use farwrite_net::{Shape, SwitchConfig};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::Plan;
use super::entries::{Flows, Layout};
use crate::{Pattern, Transport};

/// Most seeds of a plan.
const MAX_SEEDS: u64 = 100_000;

/// Reads the file that a plan names.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// What is wrong with a plan: the key, its value, and what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(String);

impl PlanError {
    pub(super) fn at(key: &str, why: impl std::fmt::Display) -> Self {
        Self(format!("{key}: {why}"))
    }
}

/// The file. Tables of named entries are read entry by entry, so that errors name them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    topology: Table,
    workload: Table,
    #[serde(default)]
    switch: Table,
    transport: Option<Value>,
    loss: Option<Vec<f64>>,
    #[serde(default = "one")]
    seeds: u64,
    #[serde(default = "one")]
    first_seed: u64,
    framing_bytes: Option<u32>,
    #[serde(default, deserialize_with = "crate::units::maybe_time")]
    until: Option<Duration>,
}

impl File {
    fn seeds(&self) -> Result<Vec<u64>, PlanError> {
        match self.seeds {
            1..=MAX_SEEDS => {
                let seeds = 0..self.seeds;
                Ok(seeds
                    .map(|seed| self.first_seed.wrapping_add(seed))
                    .collect())
            }
            wrong => Err(PlanError::at("seeds", format!("{wrong}: 1 to {MAX_SEEDS}"))),
        }
    }

    fn losses(&self) -> Result<Vec<Option<f64>>, PlanError> {
        let Some(losses) = &self.loss else {
            return Ok(vec![None]);
        };
        if losses.is_empty() {
            let why = "[]: at least one probability, such as [0, 1e-4]";
            return Err(PlanError::at("loss", why));
        }
        match losses.iter().find(|loss| !(0.0..=0.5).contains(*loss)) {
            None => Ok(losses.iter().copied().map(Some).collect()),
            Some(wrong) => {
                let why = format!("{wrong}: a probability from 0 to 0.5");
                Err(PlanError::at("loss", why))
            }
        }
    }
}

fn one() -> u64 {
    1
}

pub(super) fn read(text: &str, read_file: ReadFile<'_>) -> Result<Plan, PlanError> {
    let file: File = toml::from_str(text).map_err(|why| PlanError(why.to_string()))?;
    let seeds = file.seeds()?;
    let losses = file.losses()?;
    let mut notes = Vec::new();
    let topologies = entries("topology", &file.topology, |table| {
        match named_file(table)? {
            Some(name) => Layout::read(&name, &read_file(&name)?, &mut notes),
            None => typed::<Shape>(table).map(Layout::Shape),
        }
    })?;
    let workloads = entries("workload", &file.workload, |table| {
        match named_file(table)? {
            Some(name) => Flows::read(&name, &read_file(&name)?, &mut notes),
            None => Flows::of_pattern(typed::<Pattern>(table)?, read_file),
        }
    })?;
    let switches = entries("switch", &file.switch, |table| {
        let switch: SwitchConfig = typed(table)?;
        switch.validate().map_err(|why| why.to_string())?;
        Ok(switch)
    })?;
    let transports = transports(file.transport.as_ref())?;
    for (what, is_empty) in [
        ("topology", topologies.is_empty()),
        ("workload", workloads.is_empty()),
    ] {
        if is_empty {
            return Err(PlanError::at(
                what,
                format!("has no entries; add one as [{what}.NAME]"),
            ));
        }
    }
    Ok(Plan {
        topologies,
        workloads,
        switches,
        transports,
        losses,
        seeds,
        framing_bytes: file.framing_bytes,
        until: file.until,
        notes,
    })
}

/// Reads `transport`: a list of protocols with default settings, or a table of named entries.
/// Without any, there is one.
fn transports(value: Option<&Value>) -> Result<Vec<(String, Transport)>, PlanError> {
    let read = match value {
        None => Vec::new(),
        Some(Value::Table(table)) => entries("transport", table, |table| {
            let transport: Transport = typed(table)?;
            transport.validate().map_err(|why| why.to_string())?;
            Ok(transport)
        })?,
        Some(Value::Array(list)) if list.is_empty() => {
            let why = format!("the list is empty; {TRANSPORT_FORMS}");
            return Err(PlanError::at("transport", why));
        }
        Some(Value::Array(list)) => {
            let read = list.iter().map(listed_transport);
            let read = read.collect::<Result<Vec<_>, _>>();
            read.map_err(|why| PlanError::at("transport", why))?
        }
        Some(other) => {
            let why = format!("{}: {TRANSPORT_FORMS}", shown(other));
            return Err(PlanError::at("transport", why));
        }
    };
    let mut names: Vec<_> = read.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        let why = format!("{:?} is in the list twice", pair[0]);
        return Err(PlanError::at("transport", why));
    }
    if read.is_empty() {
        return Ok(vec![(
            DEFAULT_TRANSPORT.to_owned(),
            Transport::new(DEFAULT_TRANSPORT),
        )]);
    }
    Ok(read)
}

const DEFAULT_TRANSPORT: &str = "roce";
const TRANSPORT_FORMS: &str =
    "write a list of protocols, such as [\"roce\", \"irn\"], or [transport.NAME] with protocol";

fn listed_transport(value: &Value) -> Result<(String, Transport), String> {
    let Value::String(name) = value else {
        return Err(format!("{}: {TRANSPORT_FORMS}", shown(value)));
    };
    let transport = Transport::new(name);
    transport.validate().map_err(|why| why.to_string())?;
    Ok((name.clone(), transport))
}

/// Reads each entry of a table of tables.
fn entries<T>(
    kind: &str,
    table: &Table,
    mut read: impl FnMut(&Table) -> Result<T, String>,
) -> Result<Vec<(String, T)>, PlanError> {
    let entries = table.iter().map(|(name, value)| {
        let key = format!("{kind}.{name}");
        let Value::Table(table) = value else {
            let why = format!(
                "{}: entries have names; write [{kind}.NAME] with the key below it",
                shown(value)
            );
            return Err(PlanError::at(&key, why));
        };
        let read = read(table).map_err(|why| PlanError::at(&key, why))?;
        Ok((name.clone(), read))
    });
    entries.collect()
}

/// The name of an entry's file.
fn named_file(table: &Table) -> Result<Option<String>, String> {
    let Some(file) = table.get("file") else {
        return Ok(None);
    };
    if let Some(other) = table.keys().find(|key| *key != "file") {
        return Err(format!("{other}: an entry with a file has no other keys"));
    }
    match file {
        Value::String(name) => Ok(Some(name.clone())),
        other => Err(format!(
            "file = {}: the name of a file, as text",
            shown(other)
        )),
    }
}

/// Reads a table as a type. The error of a table whose kind a tag chooses names no key, so the key
/// at fault is sought.
fn typed<T: DeserializeOwned>(table: &Table) -> Result<T, String> {
    let read = |table: &Table| {
        table
            .clone()
            .try_into::<T>()
            .map_err(|error| one_line(&error))
    };
    read(table).map_err(|text| {
        let fault = table.iter().find(|(key, _)| {
            let mut without = table.clone();
            without.remove(*key);
            is_at_fault(key, &text, read(&without).err())
        });
        match fault {
            Some((key, value)) => format!("{key} = {}: {text}", shown(value)),
            None => text,
        }
    })
}

/// Whether a key is at fault for an error, by the error without the key: then there is none, or
/// only one that the key is missing. Without its tag, a table has that error whatever is wrong.
fn is_at_fault(key: &str, text: &str, without: Option<String>) -> bool {
    const TAGS: [&str; 2] = ["shape", "pattern"];
    let Some(without) = without else {
        return true;
    };
    if text.contains("unknown field") {
        return text.contains(&format!("unknown field `{key}`"));
    }
    let is_candidate = !TAGS.contains(&key) || text.contains("unknown variant");
    let is_missing = |text: &str| text.contains(&format!("missing field `{key}`"));
    is_candidate && is_missing(&without) && !is_missing(text) && !text.contains("missing field")
}

/// A value as it may stand in a plan, or what kind of value it is.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        other => format!("({})", other.type_str()),
    }
}

fn one_line(error: &toml::de::Error) -> String {
    let text = error.to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
