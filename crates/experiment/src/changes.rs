//! Cables that fail, come back, or change during a run.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_net::{Cable, CableConfig, CableId, Change, Loss, Topology};
use serde::Deserialize;

use crate::units::nanoseconds;

/// A change of all cables between two nodes, as a plan describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlannedChange {
    /// Time since the start of the run.
    #[serde(deserialize_with = "crate::units::time")]
    at: Duration,
    /// The names of the two nodes.
    cable: [String; 2],
    state: Option<CableState>,
    #[serde(default, deserialize_with = "crate::units::maybe_rate")]
    rate: Option<u64>,
    /// Rate from the second node to the first.
    #[serde(default, deserialize_with = "crate::units::maybe_rate")]
    back_rate: Option<u64>,
    #[serde(default, deserialize_with = "crate::units::maybe_time")]
    delay: Option<Duration>,
    /// Probability that a frame is lost.
    loss: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CableState {
    Up,
    Down,
}

/// A change of one cable during a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CableChange {
    /// Time since the start of the run, in nanoseconds.
    pub at_ns: u64,
    /// The cable.
    pub cable: CableId,
    /// What changes.
    pub change: Change,
}

impl PlannedChange {
    /// Whether switches need other routes after this change.
    pub(crate) fn moves_routes(&self) -> bool {
        self.state.is_some()
    }

    /// The configuration after this change; `None` if it stays. Both have the first of the two nodes at the
    /// first end.
    fn config(&self, before: CableConfig) -> Result<Option<CableConfig>, String> {
        let keeps_rates = self.rate.is_none() && self.back_rate.is_none();
        if keeps_rates && self.delay.is_none() && self.loss.is_none() {
            return match self.state {
                Some(_) => Ok(None),
                None => {
                    Err("nothing changes; set state, rate, back_rate, delay or loss".to_owned())
                }
            };
        }
        let config = CableConfig {
            rate_bps: self.rate.unwrap_or(before.rate_bps),
            back_rate_bps: self.back_rate.or(before.back_rate_bps),
            delay: self.delay.unwrap_or(before.delay),
            loss: match self.loss {
                None => before.loss,
                Some(0.0) => Loss::None,
                Some(loss_packet) => Loss::Iid { loss_packet },
            },
            ..before
        };
        config.validate().map_err(|why| why.to_string())?;
        Ok(Some(config))
    }
}

/// The cables between two nodes, given by name.
///
/// # Errors
/// A node or a cable does not exist.
pub(crate) fn between<'a>(
    topology: &'a Topology,
    names: &[String; 2],
) -> Result<Vec<(CableId, &'a Cable)>, String> {
    let find = |name: &String| {
        let node = topology.find(name);
        node.ok_or_else(|| {
            let names = node_names(topology.nodes().iter().map(|node| node.name.as_str()));
            format!("the topology has no node {name:?}; it has {names}")
        })
    };
    let [a, b] = names;
    let ends = [find(a)?, find(b)?];
    let joins = |cable: &Cable| cable.ends == ends || cable.ends == [ends[1], ends[0]];
    let cables = (0..).map(CableId).zip(topology.cables());
    let cables: Vec<_> = cables.filter(|(_, cable)| joins(cable)).collect();
    match cables.is_empty() {
        true => Err(format!(
            "no cable joins {a:?} and {b:?}, or boxes stand there already"
        )),
        false => Ok(cables),
    }
}

/// The names of nodes for an error: the first and the last of those that differ in a number only.
pub(crate) fn node_names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 8;
    let mut kinds: Vec<[&str; 3]> = Vec::new();
    for name in all {
        let kind = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
        match kinds.iter_mut().find(|[of, ..]| *of == kind) {
            Some([_, _, last]) => *last = name,
            None => kinds.push([kind, name, name]),
        }
        if kinds.len() > MOST {
            break;
        }
    }
    let has_more = kinds.len() > MOST;
    kinds.truncate(MOST);
    let range = |[_, first, last]: &[&str; 3]| match first == last {
        true => (*first).to_owned(),
        false => format!("{first} to {last}"),
    };
    let mut names: Vec<_> = kinds.iter().map(range).collect();
    names.extend(has_more.then(|| "others".to_owned()));
    names.join(", ")
}

/// The changes of a topology in the order of time. What a change does not name stays as the changes
/// before it left it.
///
/// # Errors
/// Names the change and its key.
pub(crate) fn resolve(
    planned: &[PlannedChange],
    topology: &Topology,
) -> Result<Vec<CableChange>, String> {
    let mut in_order: Vec<_> = planned.iter().enumerate().collect();
    in_order.sort_by_key(|(_, change)| change.at);
    let mut configs: BTreeMap<CableId, CableConfig> = BTreeMap::new();
    let mut changes = Vec::new();
    for (number, planned) in in_order {
        let at_error = |why: String| format!("changes[{number}]: {why}");
        let at_ns = nanoseconds(planned.at);
        let cables = between(topology, &planned.cable);
        let cables = cables.map_err(|why| at_error(format!("cable: {why}")))?;
        for (cable, Cable { ends, config }) in cables {
            let is_first = topology.find(&planned.cable[0]) == Some(ends[0]);
            let turned = |config: CableConfig| if is_first { config } else { config.reversed() };
            let mut add = |change| {
                changes.push(CableChange {
                    at_ns,
                    cable,
                    change,
                });
            };
            let config = configs.entry(cable).or_insert(*config);
            if let Some(changed) = planned.config(turned(*config)).map_err(at_error)? {
                *config = turned(changed);
                add(Change::Config(*config));
            }
            match planned.state {
                Some(CableState::Down) => add(Change::Down),
                Some(CableState::Up) => add(Change::Up),
                None => {}
            }
        }
    }
    Ok(changes)
}
