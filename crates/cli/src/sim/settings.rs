//! The plan in the directory of results, and the values of its settings.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use farwrite_experiment::Transport;
use farwrite_experiment::plan::{Case, Plan};
use farwrite_net::SwitchConfig;
use serde::Serialize;
use toml::Value;
use toml::de::{DeTable, DeValue};

use super::quick::quoted;

/// The values of a setting, defaults included. `None` for a transport: the default of its protocol.
#[derive(Debug, Serialize)]
pub(super) struct Values {
    /// The entries of the plan.
    topology: Option<Value>,
    workload: Option<Value>,
    switch: SwitchConfig,
    transport: Transport,
    framing_bytes: u32,
    /// As the plan has them.
    reroute: Option<Value>,
    until: Option<Value>,
    measure: Option<Value>,
}

impl Values {
    /// The values of a case of a plan, whose text has this table. `None` if its parts do not fit
    /// together, and then the case did not run.
    pub(super) fn new(plan: &Plan, table: &toml::Table, case: &Case) -> Option<Self> {
        let parts = plan.parts(case).ok()?;
        let names = plan.names(case);
        let entry = |kind: &str, name: &str| table.get(kind)?.get(name).cloned();
        Some(Self {
            topology: entry("topology", names.topology),
            workload: entry("workload", names.workload),
            switch: parts.options.switch,
            transport: parts.transport,
            framing_bytes: parts.options.framing_bytes,
            reroute: table.get("reroute").cloned(),
            until: table.get("until").cloned(),
            measure: table.get("measure").cloned(),
        })
    }
}

/// The text of a plan with absolute names for the files in `read`, which lie in `directory`. The
/// rest of the text stays as it is.
pub(super) fn with_absolute_files(text: &str, directory: &Path, read: &BTreeSet<String>) -> String {
    let Ok(table) = DeTable::parse(text) else {
        return text.to_owned();
    };
    let mut names = Vec::new();
    find_files(table.get_ref(), read, &mut names);
    names.sort_unstable_by_key(|(at, _)| at.start);
    let mut changed = String::new();
    let mut copied = 0;
    for (at, name) in names {
        let path = directory.join(name);
        let path = std::path::absolute(&path).unwrap_or(path);
        changed.push_str(&text[copied..at.start]);
        changed.push_str(&quoted(&path.to_string_lossy()));
        copied = at.end;
    }
    changed + &text[copied..]
}

/// Finds the values that name files: those of `file` and `sizes` that were read.
fn find_files<'a>(
    table: &'a DeTable<'_>,
    read: &BTreeSet<String>,
    found: &mut Vec<(Range<usize>, &'a str)>,
) {
    for (key, value) in table {
        let names_files = ["file", "sizes"].contains(&key.get_ref().as_ref());
        match value.get_ref() {
            DeValue::String(name) if names_files && read.contains(name.as_ref()) => {
                found.push((value.span(), name));
            }
            DeValue::Table(table) => find_files(table, read, found),
            DeValue::Array(list) => {
                for entry in list.iter() {
                    if let DeValue::Table(table) = entry.get_ref() {
                        find_files(table, read, found);
                    }
                }
            }
            _ => {}
        }
    }
}
