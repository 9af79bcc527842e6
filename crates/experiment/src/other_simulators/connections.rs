//! Connection matrices of htsim.

use std::collections::{BTreeMap, BTreeSet};

use super::InputError;
use super::words::{Line, at_end, lines};
use crate::{Flow, Start, Trigger, TriggerKind, Workload};

/// The content of a connection matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionMatrix {
    /// Number of hosts that the matrix is for.
    pub nodes: usize,
    /// Flows in the order of the file, and triggers in the order of their numbers.
    pub workload: Workload,
    /// The `id` of each flow, where the file has one.
    pub ids: Vec<Option<u64>>,
    /// Cables that are absent from the topology.
    pub failures: Vec<CableFailure>,
    /// Warnings about parts of the file that were ignored.
    pub notes: Vec<String>,
}

/// An absent cable: one of the uplinks of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CableFailure {
    /// The tier of the switch.
    pub tier: Tier,
    /// Index of the switch in its tier.
    pub switch: usize,
    /// Index of the cable among the uplinks of the switch.
    pub link: usize,
    /// Line of the file.
    pub line: usize,
}

/// The tier of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Switches next to hosts (`TOR`).
    Leaf,
    /// Switches above the leaves (`AGG`).
    Spine,
    /// Switches of the third tier (`CORE`).
    Core,
}

const FLOW: &str = "a flow is written SRC->DST id N start PICOSECONDS size BYTES, or with trigger N \
                    in place of start; without size, or with size 0, it sends until the run ends";
/// UEC's htsim sends flows with this word and the same `id` over one connection.
const MSG: &str = "msg: several messages of one connection are not simulated: each flow has a \
                   connection of its own. Remove msg, give each flow an id of its own, and write start in \
                   picoseconds: with -conn_reuse, UEC's htsim takes it for microseconds";

/// Reads a connection matrix. Times are in picoseconds and are rounded to nanoseconds.
///
/// # Errors
/// [`InputError`].
pub fn connections(file: &str, text: &str) -> Result<ConnectionMatrix, InputError> {
    let mut reader = Reader::default();
    for line in lines(file, text) {
        reader.take(&line)?;
    }
    reader.finish(file, text)
}

/// The start of a flow in nanoseconds, from picoseconds.
fn start_ns(line: &Line<'_>, at: usize) -> Result<u64, InputError> {
    const WANT: &str = "picoseconds, from 0 to 8.64e16 (a day)";
    let ps: f64 = line.number(at, "start", WANT)?;
    if !(0.0..=Flow::MAX_START_NS as f64 * 1000.0).contains(&ps) {
        return Err(line.error(format!("start is {ps}: {WANT}")));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked just above"
    )]
    Ok((ps / 1000.0).round() as u64)
}

#[derive(Default)]
struct Reader {
    nodes: Option<usize>,
    /// Numbers of connections, triggers and failures that the header announces.
    announced: [Option<usize>; 3],
    flows: Vec<Flow>,
    ids: Vec<Option<u64>>,
    used_ids: BTreeSet<u64>,
    /// Index and kind of each trigger, and the first line that names it.
    triggers: BTreeMap<u64, (usize, Option<TriggerKind>, usize)>,
    failures: Vec<CableFailure>,
    has_priorities: bool,
}

impl Reader {
    fn take(&mut self, line: &Line<'_>) -> Result<(), InputError> {
        let count = |name| line.number(1, name, "a whole number from 0 on");
        match line.words[0] {
            "Nodes" => {
                let nodes: usize = count("Nodes")?;
                if nodes < 2 {
                    return Err(line.error(format!("Nodes is {nodes}: at least 2")));
                }
                line.store(&mut self.nodes, nodes)?;
            }
            "Connections" => line.store(&mut self.announced[0], count("Connections")?)?,
            "Triggers" => line.store(&mut self.announced[1], count("Triggers")?)?,
            "Failures" => line.store(&mut self.announced[2], count("Failures")?)?,
            "trigger" => self.trigger(line)?,
            "failure" => self.failure(line)?,
            word if word.contains("->") => self.flow(line)?,
            word => {
                return Err(line.error(format!(
                    "{word:?} begins no line: Nodes, Connections, Triggers, Failures, SRC->DST, \
                     trigger and failure do"
                )));
            }
        }
        Ok(())
    }

    fn flow(&mut self, line: &Line<'_>) -> Result<(), InputError> {
        let nodes = self
            .nodes
            .ok_or_else(|| line.error("a flow comes before the line Nodes N"))?;
        let word = line.words[0];
        let host = |text: &str| {
            let host = text.parse().ok().filter(|host: &usize| *host < nodes);
            host.ok_or_else(|| line.error(format!("{word:?}: hosts are 0 to {}", nodes - 1)))
        };
        let (src, dst) = word.split_once("->").unwrap_or((word, ""));
        let mut flow = Flow::new(host(src)?, host(dst)?, 0, 0);
        if flow.src == flow.dst {
            return Err(line.error(format!("{word:?}: a flow is between two hosts")));
        }
        let mut id = None;
        let mut starts = 0;
        let mut at = 1;
        let mut keys = Vec::new();
        while let Some(&key) = line.words.get(at) {
            if keys.contains(&key) {
                return Err(line.error(format!("{key} is there twice: keep one")));
            }
            keys.push(key);
            match key {
                "start" => {
                    flow.start = Start::At(start_ns(line, at + 1)?);
                    starts += 1;
                }
                "trigger" => {
                    flow.start = Start::On(self.named(line, at)?);
                    starts += 1;
                }
                "size" => {
                    let want = "a whole number of bytes, or 0 for a flow without an end";
                    flow.bytes = line.number(at + 1, key, want)?;
                }
                "id" => id = Some(self.id(line, at + 1)?),
                "prio" => {
                    let _: u64 = line.number(at + 1, key, "a whole number from 0 on")?;
                    self.has_priorities = true;
                }
                "send_done_trigger" => flow.when_sent = Some(self.named(line, at)?),
                "recv_done_trigger" => flow.when_received = Some(self.named(line, at)?),
                // htsim reads this word and ignores it.
                "addon" => at -= 1,
                "msg" => return Err(line.error(MSG)),
                _ => return Err(line.error(format!("{key:?} is no part of a flow: {FLOW}"))),
            }
            at += 2;
        }
        if starts != 1 {
            let what = format!("{word} has {starts} of start and trigger, and needs one: {FLOW}");
            return Err(line.error(what));
        }
        // In htsim, a flow without a size and one of size 0 send until the simulation ends.
        if flow.bytes == 0 {
            flow.bytes = Flow::ENDLESS_BYTES;
        }
        self.flows.push(flow);
        self.ids.push(id);
        Ok(())
    }

    /// The `id` of a flow, which no flow before it has.
    fn id(&mut self, line: &Line<'_>, at: usize) -> Result<u64, InputError> {
        let id: u64 = line.number(at, "id", "a whole number from 1 on")?;
        if id == 0 {
            return Err(line.error("id is 0: a whole number from 1 on"));
        }
        match self.used_ids.insert(id) {
            true => Ok(id),
            false => Err(line.error(format!("id {id} is that of another flow"))),
        }
    }

    /// Index of the trigger that the word after `at` names.
    fn named(&mut self, line: &Line<'_>, at: usize) -> Result<usize, InputError> {
        let id: u64 = line.number(at + 1, line.words[at], "a whole number from 1 on")?;
        if id == 0 {
            return Err(line.error(format!("{} is 0: a number from 1 on", line.words[at])));
        }
        let next = self.triggers.len();
        let entry = self.triggers.entry(id).or_insert((next, None, line.number));
        Ok(entry.0)
    }

    fn trigger(&mut self, line: &Line<'_>) -> Result<(), InputError> {
        const WANT: &str =
            "a trigger is written trigger id N oneshot, multishot, or barrier count M";
        let id_at = line.words.iter().position(|word| *word == "id");
        let id_at = id_at.ok_or_else(|| line.error(format!("no id: {WANT}")))?;
        self.named(line, id_at)?;
        let mut kind = None;
        let mut count = None;
        let mut at = 1;
        while let Some(&word) = line.words.get(at) {
            match word {
                "id" => at += 1,
                "count" => {
                    count = Some(line.number(at + 1, "count", "a whole number from 1 on")?);
                    at += 1;
                }
                "oneshot" => kind = Some(TriggerKind::OneShot),
                "multishot" => kind = Some(TriggerKind::MultiShot),
                "barrier" => kind = Some(TriggerKind::Barrier(0)),
                _ => return Err(line.error(format!("{word:?} is no part of a trigger: {WANT}"))),
            }
            at += 1;
        }
        let kind = match (kind, count) {
            (Some(TriggerKind::Barrier(_)), Some(count @ 1..)) => TriggerKind::Barrier(count),
            (Some(TriggerKind::Barrier(_)), _) => {
                return Err(line.error(format!("a barrier needs a count of at least 1: {WANT}")));
            }
            (Some(kind), _) => kind,
            (None, _) => return Err(line.error(format!("no kind: {WANT}"))),
        };
        let id: u64 = line.number(id_at + 1, "id", WANT)?;
        let before = self
            .triggers
            .get_mut(&id)
            .and_then(|entry| entry.1.replace(kind));
        match before {
            None => Ok(()),
            Some(_) => Err(line.error(format!("trigger {id} is there twice: keep one line"))),
        }
    }

    fn failure(&mut self, line: &Line<'_>) -> Result<(), InputError> {
        const WANT: &str =
            "a failure is written failure switch_type TOR|AGG|CORE switch_id N link_id N";
        let after = |name: &str| {
            let at = line.words.iter().position(|word| *word == name);
            at.map(|at| at + 1)
                .ok_or_else(|| line.error(format!("no {name}: {WANT}")))
        };
        let tier = match line.words.get(after("switch_type")?) {
            Some(&"TOR") => Tier::Leaf,
            Some(&"AGG") => Tier::Spine,
            Some(&"CORE") => Tier::Core,
            Some(other) => return Err(line.error(format!("switch_type is {other:?}: {WANT}"))),
            None => return Err(line.error(format!("switch_type has no value: {WANT}"))),
        };
        self.failures.push(CableFailure {
            tier,
            switch: line.number(after("switch_id")?, "switch_id", WANT)?,
            link: line.number(after("link_id")?, "link_id", WANT)?,
            line: line.number,
        });
        Ok(())
    }

    fn finish(self, file: &str, text: &str) -> Result<ConnectionMatrix, InputError> {
        let Some(nodes) = self.nodes else {
            return Err(at_end(file, text, "the line Nodes N is missing"));
        };
        let specified = self.triggers.values().filter(|entry| entry.1.is_some());
        let found = [self.flows.len(), specified.count(), self.failures.len()];
        let names = ["Connections", "Triggers", "Failures"];
        for ((announced, found), name) in self.announced.into_iter().zip(found).zip(names) {
            let announced = announced.unwrap_or(0);
            if announced != found {
                let what =
                    format!("{name} is {announced}, and the file has {found}: make it {found}");
                return Err(at_end(file, text, what));
            }
        }
        let blank = Trigger {
            kind: TriggerKind::OneShot,
            delay_ns: 0,
        };
        let mut triggers = vec![blank; self.triggers.len()];
        for (id, (index, kind, line)) in self.triggers {
            let Some(kind) = kind else {
                let what =
                    format!("trigger {id} has no line of its own: add trigger id {id} oneshot");
                let file = file.to_owned();
                return Err(InputError { file, line, what });
            };
            triggers[index].kind = kind;
        }
        let mut notes = Vec::new();
        if self.has_priorities {
            notes.push("prio is left out: NICs here serve flows equally".to_owned());
        }
        Ok(ConnectionMatrix {
            nodes,
            workload: Workload {
                flows: self.flows,
                triggers,
            },
            ids: self.ids,
            failures: self.failures,
            notes,
        })
    }
}
