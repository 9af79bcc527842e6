//! Parsing the text of a plan.

use std::sync::OnceLock;
use std::time::Duration;

use farwrite_net::{Shape, SwitchConfig};
use farwrite_units::input::at_line;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::Plan;
use super::entries::{PlannedTopology, TopologySource, WorkloadSource};
use super::own_switches::OwnSwitch;
use crate::boxes::{BoxKind, BoxPosition};
use crate::changes::PlannedChange;
use crate::other_simulators::{self, FileKind};
use crate::transport::renamed;
use crate::{Extensions, Pattern, Transport, TransportSettings};

/// Largest number of seeds of a plan.
const MAX_SEEDS: u64 = 100_000;

/// Reads a file that the plan names.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// An error in a plan: the key, its value, and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(String);

impl PlanError {
    pub(super) fn at(key: &str, why: impl std::fmt::Display) -> Self {
        Self(format!("{key}: {why}"))
    }
}

/// The file. Tables of named entries are parsed entry by entry, so that errors name the entry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    topology: Table,
    #[serde(default)]
    workload: Table,
    #[serde(default)]
    switch: Table,
    transport: Option<Value>,
    loss: Option<Value>,
    #[serde(default = "one")]
    seeds: u64,
    #[serde(default = "one")]
    first_seed: u64,
    framing_bytes: Option<u32>,
    #[serde(default, deserialize_with = "crate::units::some_size")]
    buffer: Option<u64>,
    #[serde(default, deserialize_with = "crate::units::maybe_time")]
    reroute: Option<Duration>,
    #[serde(default, deserialize_with = "crate::units::maybe_wait")]
    until: Option<Duration>,
    #[serde(default)]
    measure: Measure,
}

/// Which flows statistics count: those that start from one time on, and before another one.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a table such as { from = \"1ms\", until = \"9ms\" }"
)]
pub(super) struct Measure {
    #[serde(deserialize_with = "crate::units::maybe_time")]
    from: Option<Duration>,
    #[serde(deserialize_with = "crate::units::maybe_wait")]
    until: Option<Duration>,
}

impl Measure {
    fn checked(self) -> Result<Self, PlanError> {
        let (Some(from), Some(until)) = (self.from, self.until) else {
            return Ok(self);
        };
        if from < until {
            return Ok(self);
        }
        let [from, until] = [from, until].map(humantime::format_duration);
        let why = format!("from = {from} is not before until = {until}");
        Err(PlanError::at("measure", why))
    }

    /// Whether statistics count a flow that has started at a time.
    pub(super) fn has(self, start_ns: u64) -> bool {
        let at = Duration::from_nanos(start_ns);
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }
}

impl File {
    fn parse(text: &str) -> Result<Self, PlanError> {
        toml::from_str(text).map_err(|why| {
            let hint = match other_simulators::kind_of(text) {
                FileKind::Htsim => "; files of htsim: --connections FILE --topology FILE",
                FileKind::Ns3 => "; files of ns-3: --flows FILE --topology FILE",
                FileKind::Toml => "",
            };
            let start = why.span().map_or(0, |span| span.start);
            let why = at_line(text, start, &with_number_ranges(why.message()));
            // A list and a table of the same name.
            let hint = match why.contains("cannot extend value of type array") {
                true => "; write transport as a list, or as tables [transport.NAME], not both",
                false => hint,
            };
            PlanError(why + hint)
        })
    }

    fn seeds(&self) -> Result<Vec<u64>, PlanError> {
        match self.seeds {
            1..=MAX_SEEDS => {
                let first = self.first_seed;
                let end = first.checked_add(self.seeds).ok_or_else(|| {
                    let why = format!("{first}: {} seeds from it on exceed 64 bits", self.seeds);
                    PlanError::at("first_seed", why)
                })?;
                Ok((first..end).collect())
            }
            wrong => Err(PlanError::at("seeds", format!("{wrong}: 1 to {MAX_SEEDS}"))),
        }
    }

    fn losses(&self) -> Result<Vec<Option<f64>>, PlanError> {
        let Some(losses) = &self.loss else {
            return Ok(vec![None]);
        };
        let wrong = |why: &str| PlanError::at("loss", format!("{losses}: {why}"));
        let losses = losses.clone().try_into::<Vec<f64>>();
        let losses =
            losses.map_err(|_| wrong("write a list of probabilities, such as [0, 1e-4]"))?;
        if losses.is_empty() {
            return Err(wrong("at least one probability, such as [0, 1e-4]"));
        }
        let mut sorted = losses.clone();
        sorted.sort_by(f64::total_cmp);
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(&format!("{} is in the list twice", pair[0])));
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

pub(super) fn read(
    text: &str,
    read_file: ReadFile<'_>,
    extensions: &Extensions,
) -> Result<Plan, PlanError> {
    let file = File::parse(text)?;
    let seeds = file.seeds()?;
    let losses = file.losses()?;
    let mut notes = Vec::new();
    let topologies = entries("topology", &file.topology, |table| {
        let mut table = table.clone();
        let boxes = table.remove("boxes").map_or(Ok(Vec::new()), boxes)?;
        let changes = table.remove("changes").map_or(Ok(Vec::new()), changes)?;
        let switches = table.remove("switch");
        let switches = switches.map_or(Ok(Vec::new()), |own| own_switches(own, extensions))?;
        let layout = match named_file(&table)? {
            Some(name) => {
                TopologySource::read(&name, &read_file(&name)?, &mut notes)?.resolved(extensions)?
            }
            None => typed::<Shape>(&table).map(|shape| TopologySource::Shape(Box::new(shape)))?,
        };
        Ok(PlannedTopology {
            layout,
            whole: OnceLock::new(),
            boxes,
            changes,
            switches,
        })
    })?;
    let workloads = entries("workload", &file.workload, |table| {
        match named_file(table)? {
            Some(name) => WorkloadSource::read(&name, &read_file(&name)?, &mut notes),
            None => WorkloadSource::of_pattern(typed::<Pattern>(table)?, read_file),
        }
    })?;
    let switches = entries("switch", &file.switch, |table| switch(table, extensions))?;
    let transports = transports(file.transport.as_ref(), extensions)?;
    notes.extend(file.transport.as_ref().and_then(old_spelling));
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
        buffer_bytes: file.buffer,
        reroute: file.reroute,
        until: file.until,
        measure: file.measure.checked()?,
        notes,
    })
}

fn switch(table: &Table, extensions: &Extensions) -> Result<SwitchConfig, String> {
    let mut switch: SwitchConfig = typed(table)?;
    let found = switch.resolve(extensions.balancers());
    found.map_err(|why| why.to_string())?;
    switch.validate().map_err(|why| why.to_string())?;
    Ok(switch)
}

/// Parses the settings of single switches of a topology.
fn own_switches(value: Value, extensions: &Extensions) -> Result<Vec<OwnSwitch>, String> {
    let form = "write [topology.NAME.switch.SWITCH] with keys of a switch below it";
    let Value::Table(switches) = value else {
        return Err(format!("switch = {}: {form}", shown(&value)));
    };
    let each = switches.into_iter().map(|(name, value)| {
        let Value::Table(table) = value else {
            return Err(format!("switch.{name} = {}: {form}", shown(&value)));
        };
        let config = switch(&table, extensions).map_err(|why| format!("switch.{name}: {why}"))?;
        let keys = table.keys().cloned().collect();
        Ok(OwnSwitch { name, keys, config })
    });
    each.collect()
}

/// Parses the boxes of a topology.
fn boxes(value: Value) -> Result<Vec<(BoxPosition, BoxKind)>, String> {
    let Value::Array(list) = value else {
        let why = "write [[topology.NAME.boxes]] with the keys kind and at below it";
        return Err(format!("boxes = {}: {why}", shown(&value)));
    };
    let each = list.into_iter().enumerate().map(|(number, value)| {
        let Value::Table(mut table) = value else {
            return Err(format!("boxes[{number}] = {}: a table", shown(&value)));
        };
        let at = table.remove("at");
        let read = position(at).and_then(|at| Ok((at, typed(&table)?)));
        read.map_err(|why| format!("boxes[{number}]: {why}"))
    });
    each.collect()
}

/// Parses the changes of a topology's cables.
fn changes(value: Value) -> Result<Vec<PlannedChange>, String> {
    let Value::Array(list) = value else {
        let why = "write [[topology.NAME.changes]] with the keys at and cable below it";
        return Err(format!("changes = {}: {why}", shown(&value)));
    };
    let each = list.into_iter().enumerate().map(|(number, value)| {
        let Value::Table(table) = value else {
            return Err(format!("changes[{number}] = {}: a table", shown(&value)));
        };
        typed(&table).map_err(|why| format!("changes[{number}]: {why}"))
    });
    each.collect()
}

const POSITIONS: &str =
    "\"hosts\", or the two nodes that a cable joins, such as [\"left\", \"right\"]";

fn position(at: Option<Value>) -> Result<BoxPosition, String> {
    let at = at.ok_or_else(|| format!("at is missing: {POSITIONS}"))?;
    let names = match &at {
        Value::String(text) if text == "hosts" => return Ok(BoxPosition::Hosts),
        Value::Array(names) => names.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    match names.as_deref() {
        Some([a, b]) => Ok(BoxPosition::Cable([a, b].map(|name| (*name).to_owned()))),
        _ => Err(format!("at = {at}: {POSITIONS}")),
    }
}

/// Parses `transport`: a list of protocols with default settings, or a table of named entries. If
/// it is missing, the plan has one default transport.
fn transports(
    value: Option<&Value>,
    extensions: &Extensions,
) -> Result<Vec<(String, Transport)>, PlanError> {
    let read = match value {
        None => Vec::new(),
        Some(Value::Table(table)) => entries("transport", table, |table| {
            let settings: TransportSettings = typed(table)?;
            let transport = settings.transport_with(extensions);
            transport.map_err(|why| why.to_string())
        })?,
        Some(Value::Array(list)) if list.is_empty() => {
            let why = format!("the list is empty; {TRANSPORT_FORMS}");
            return Err(PlanError::at("transport", why));
        }
        Some(Value::Array(list)) => {
            let read = list.iter().map(|name| listed_transport(name, extensions));
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
        let default = Transport::new(DEFAULT_TRANSPORT);
        let default = default.map_err(|why| PlanError::at("transport", why))?;
        return Ok(vec![(DEFAULT_TRANSPORT.to_owned(), default)]);
    }
    Ok(read)
}

/// A note if a transport has the name of the last release.
fn old_spelling(value: &Value) -> Option<String> {
    let mut protocols: Box<dyn Iterator<Item = Option<&str>>> = match value {
        Value::Array(list) => Box::new(list.iter().map(Value::as_str)),
        Value::Table(table) => {
            Box::new((table.values()).map(|entry| entry.get("protocol").and_then(Value::as_str)))
        }
        _ => return None,
    };
    protocols.find_map(|protocol| {
        let old = protocol?;
        let new = renamed(old)?;
        Some(format!(
            "{old} is now written {new}: @ precedes the control of the rate, and + the repair of best \
             effort; in this release, both names work"
        ))
    })
}

const DEFAULT_TRANSPORT: &str = "roce";
const TRANSPORT_FORMS: &str =
    "write a list of protocols, such as [\"roce\", \"irn\"], or [transport.NAME] with protocol";

fn listed_transport(value: &Value, extensions: &Extensions) -> Result<(String, Transport), String> {
    let Value::String(name) = value else {
        return Err(format!("{}: {TRANSPORT_FORMS}", shown(value)));
    };
    let transport = TransportSettings::new(name).transport_with(extensions);
    let transport = transport.map_err(|why| why.to_string())?;
    Ok((name.clone(), transport))
}

/// Parses each entry of a table of tables.
fn entries<T>(
    kind: &str,
    table: &Table,
    mut read: impl FnMut(&Table) -> Result<T, String>,
) -> Result<Vec<(String, T)>, PlanError> {
    let key = |name: &str| format!("{kind}.{name}");
    // A text or a number shows best that the name is missing: a table or a list may be the value of a key.
    let wrong = table.iter().filter(|(_, value)| !value.is_table());
    if let Some((name, value)) = wrong.min_by_key(|(_, value)| value.is_array()) {
        let why = format!(
            "{}: entries have names; write [{kind}.NAME] with the key below it",
            shown(value)
        );
        return Err(PlanError::at(&key(name), why));
    }
    let tables = (table.iter()).filter_map(|(name, value)| Some((name, value.as_table()?)));
    let entries = tables.map(|(name, table)| {
        let key = key(name);
        let read = read(table).map_err(|why| PlanError::at(&key, why + &misplaced(table)))?;
        Ok((name.clone(), read))
    });
    entries.collect()
}

/// What is said about a key of the plan that stands below the line of a table, and so belongs to it.
fn misplaced(table: &Table) -> String {
    let of_plan = PLAN_KEYS.into_iter().find(|key| table.contains_key(*key));
    of_plan.map_or_else(String::new, |key| {
        format!("; the key {key} of a plan stands before its first table")
    })
}

/// Keys that a plan has, and no entry.
const PLAN_KEYS: [&str; 6] = [
    "transport",
    "loss",
    "seeds",
    "first_seed",
    "framing_bytes",
    "reroute",
];

/// The file name of an entry.
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

/// Parses a table as a type. The errors of the parser do not name the keys above the one at fault,
/// and none for an enum with a tag. So this searches for the key: it parses parts of the table, at most
/// a few hundred times.
fn typed<T: DeserializeOwned>(table: &Table) -> Result<T, String> {
    let read = |table: &Table| {
        table
            .clone()
            .try_into::<T>()
            .map_err(|error| one_line(&error))
    };
    let error = |table: &Table| read(table).err();
    read(table).map_err(|text| match find_fault(table, &text, &error) {
        Some((key, Value::Table(_))) => format!("{key}: {text}"),
        Some((key, value)) => {
            let value = shown(&value);
            // The error may begin with the last part of the key. The error of a value that is
            // parsed from text begins with the text. Do not show them twice.
            let last = key.rsplit('.').next().unwrap_or(&key);
            let text = text.strip_prefix(&format!("{last}: ")).unwrap_or(&text);
            let text = text.strip_prefix(&format!("{value}: ")).unwrap_or(text);
            format!("{key} = {value}: {text}")
        }
        None => match misspelled_tag(table, &text, &error) {
            Some(key) => format!("{key}: unknown field `{key}`; {text}"),
            None => text,
        },
    })
}

/// No table that a plan can have has more keys. In a longer one, no key is searched for.
const MOST_KEYS: usize = 64;

/// The table without a key.
fn without(table: &Table, key: &str) -> Table {
    let others = table.iter().filter(|(name, _)| *name != key);
    others
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Keys whose value determines which other keys a table has.
const TAGS: [&str; 3] = ["shape", "pattern", "kind"];

/// The key at fault, with the keys above it, and its value, given an error text. `error` returns the
/// error of another table.
fn find_fault(
    table: &Table,
    text: &str,
    error: &dyn Fn(&Table) -> Option<String>,
) -> Option<(String, Value)> {
    if table.len() > MOST_KEYS {
        return None;
    }
    let is_unknown = |key: &String| text.contains(&format!("unknown field `{key}`"));
    let unknown = table.iter().find(|(key, _)| is_unknown(key));
    let (key, value) = unknown.or_else(|| {
        table
            .iter()
            .find(|(key, _)| is_at_fault(key, text, error(&without(table, key))))
    })?;
    let rest = without(table, key);
    let error_with = |part: Value| {
        let mut with = rest.clone();
        with.insert(key.clone(), part);
        error(&with)
    };
    let inner = match value {
        Value::Table(inner) => {
            let of_inner = |inner: &Table| error_with(Value::Table(inner.clone()));
            let found = find_fault(inner, text, &of_inner);
            found.map(|(below, value)| (format!("{key}.{below}"), value))
        }
        Value::Array(list) => {
            let of_list = |list: Vec<Value>| error_with(Value::Array(list));
            let found = find_in_list(list, text, &of_list);
            found.map(|(below, value)| (format!("{key}{below}"), value))
        }
        _ => None,
    };
    Some(inner.unwrap_or_else(|| (key.clone(), value.clone())))
}

/// The same for a list of tables: the entry that has this error alone, and the key in it. The parser
/// stops at the first fault, so the first entries have the error if the entry at fault is among them.
fn find_in_list(
    list: &[Value],
    text: &str,
    error: &dyn Fn(Vec<Value>) -> Option<String>,
) -> Option<(String, Value)> {
    let has_fault = |entries: &[Value]| error(entries.to_vec()).is_some_and(|own| own == text);
    let (mut at, mut end) = (0, list.len());
    while end - at > 1 {
        let middle = at + (end - at) / 2;
        match has_fault(&list[at..middle]) {
            true => end = middle,
            false => at = middle,
        }
    }
    let alone = list.get(at..end)?;
    if !has_fault(alone) {
        return None;
    }
    let of_entry = |entry: &Table| error(vec![Value::Table(entry.clone())]);
    Some(match find_fault(list[at].as_table()?, text, &of_entry) {
        Some((below, value)) => (format!("[{at}].{below}"), value),
        None => (format!("[{at}]"), list[at].clone()),
    })
}

/// The key that would be a missing tag if it had the name of the tag.
fn misspelled_tag<'a>(
    table: &'a Table,
    text: &str,
    error: &dyn Fn(&Table) -> Option<String>,
) -> Option<&'a String> {
    let is_missing = |tag: &&str| text.contains(&format!("missing field `{tag}`"));
    let tag = TAGS.into_iter().find(is_missing)?;
    if table.len() > MOST_KEYS {
        return None;
    }
    table.keys().find(|key| {
        let value = table.get(*key).filter(|value| value.is_str());
        value.is_some_and(|value| {
            let mut renamed = without(table, key);
            renamed.insert(tag.to_owned(), value.clone());
            error(&renamed).is_none_or(|text| !text.contains("unknown variant"))
        })
    })
}

/// Whether a key is at fault, given the error text with the key and the error without the key. A
/// key is at fault if removing it removes the error, or leaves only the error that the key is
/// missing. The tag itself is a special case: without it, a table always has that error.
fn is_at_fault(key: &str, text: &str, without: Option<String>) -> bool {
    let Some(without) = without else {
        return true;
    };
    let is_candidate = !TAGS.contains(&key) || text.contains("unknown variant");
    let is_missing = |text: &str| text.contains(&format!("missing field `{key}`"));
    is_candidate && is_missing(&without) && !is_missing(text) && !text.contains("missing field")
}

/// A value as text for an error, or the kind of the value.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        other => format!("({})", other.type_str()),
    }
}

/// The error of the parser in one line.
fn one_line(error: &toml::de::Error) -> String {
    with_number_ranges(&error.to_string())
}

/// The text in one line, in which the names of number types are replaced by their values.
fn with_number_ranges(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = text.replace("internally tagged enum Pattern", PATTERN);
    for (name, values) in NUMBERS {
        text = text.replace(&format!("expected {name}"), &format!("expected {values}"));
    }
    text
}

/// What a part of a mix is.
const PATTERN: &str = "a table such as { pattern = \"incast\", senders = 4, size = \"1MB\" }";

/// What the types of numbers accept.
const NUMBERS: [(&str, &str); 7] = [
    ("a nonzero u32", "a whole number from 1 to 4294967295"),
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number from 0 on"),
    ("usize", "a whole number from 0 on"),
    ("f64", "a number"),
];
