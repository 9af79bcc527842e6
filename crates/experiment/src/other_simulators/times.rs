//! Completion times that other simulators write.

use std::collections::BTreeMap;

use super::InputError;
use super::words::{Line, at_end, lines};

/// A completed flow in the results of another simulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OtherFlow {
    /// Line of the file.
    pub line: usize,
    /// Index of the sender among the hosts of the topology.
    pub src: usize,
    /// Index of the receiver among the hosts of the topology.
    pub dst: usize,
    /// Bytes of the message; `None`: the file does not have them.
    pub bytes: Option<u64>,
    /// The `id` of the flow in the connection matrix. htsim writes a number of its own for a flow
    /// without an `id`.
    pub id: Option<u64>,
    /// A number that rises in the order of the input file among the flows of two hosts.
    pub order: Option<u64>,
    /// Start in nanoseconds; `None`: the file does not have it.
    pub start_ns: Option<f64>,
    /// The time that the file has.
    pub time: OtherTime,
}

/// A time in the results of another simulator, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OtherTime {
    /// From the start of the flow to its end.
    Duration(f64),
    /// From the start of the run to the end of the flow.
    End(f64),
}

impl OtherFlow {
    /// The completion time in nanoseconds. `planned_ns` is the start of the flow in the input of the
    /// simulator; it counts if the results have no start. `None` if neither is known.
    #[must_use]
    pub fn time_ns(&self, planned_ns: Option<f64>) -> Option<f64> {
        match self.time {
            OtherTime::Duration(ns) => Some(ns),
            OtherTime::End(ns) => Some(ns - self.start_ns.or(planned_ns)?),
        }
    }
}

const FORMS: &str = "completion times are lines SRC DST SPORT DPORT BYTES START_NS FCT_NS [IDEAL_NS] \
                     of ns-3, or lines Flow NAME_SRC_DST ... finished at MICROSECONDS of htsim";

/// Reads completion times of the RDMA trees of ns-3 (`fct.txt`), or of a log of htsim. A line of a
/// log counts if its first word is `Flow` and it has the word `finished`. `host_of` comes from the
/// topology.
///
/// # Errors
/// [`InputError`].
pub fn completion_times(
    file: &str,
    text: &str,
    host_of: &[Option<usize>],
) -> Result<Vec<OtherFlow>, InputError> {
    let lines = lines(file, text);
    let flows = match lines.iter().any(is_finish) {
        true => log(&lines, host_of)?,
        false => lines
            .iter()
            .map(|line| row(line, host_of))
            .collect::<Result<_, _>>()?,
    };
    if flows.is_empty() {
        return Err(at_end(
            file,
            text,
            format!("no flow is complete here: {FORMS}"),
        ));
    }
    Ok(flows)
}

/// A line of ns-3. `ConWeave` writes the numbers of nodes, HPCC their IPv4 addresses. HPCC writes
/// the ideal time since June 2020.
fn row(line: &Line<'_>, host_of: &[Option<usize>]) -> Result<OtherFlow, InputError> {
    if !(7..=8).contains(&line.words.len()) {
        let first = line.words[0];
        let count = line.words.len();
        return Err(line.error(format!("{count} words from {first:?} on: {FORMS}")));
    }
    let whole = |at, name| line.number::<u64>(at, name, FORMS);
    let host = |at: usize, name| {
        let word = line.words[at];
        let node = match word.len() {
            8 => node_of_address(word),
            _ => word.parse().ok(),
        };
        let node = node.ok_or_else(|| line.error(format!("{name} is {word:?}: {FORMS}")))?;
        host_at(line, node, host_of)
    };
    let (src, dst) = (host(0, "the sender")?, host(1, "the receiver")?);
    let source_port = whole(2, "the source port")?;
    whole(3, "the destination port")?;
    let bytes = whole(4, "the size")?;
    let start_ns = whole(5, "the start")?;
    let time_ns = whole(6, "the completion time")?;
    if line.words.len() == 8 {
        whole(7, "the ideal time")?;
    }
    if time_ns == 0 {
        return Err(line.error(format!("the completion time is 0: {FORMS}")));
    }
    let real = farwrite_units::show::real;
    Ok(OtherFlow {
        line: line.number,
        src,
        dst,
        bytes: Some(bytes),
        id: None,
        order: Some(source_port),
        start_ns: Some(real(start_ns)),
        time: OtherTime::Duration(real(time_ns)),
    })
}

/// The number of a node with an address that HPCC gives: 11.HIGH.LOW.1, as 8 hexadecimal digits.
fn node_of_address(word: &str) -> Option<usize> {
    let address = u32::from_str_radix(word, 16).ok()?;
    let is_node = address & 0xFF00_00FF == 0x0B00_0001;
    is_node.then_some((address >> 8 & 0xFFFF) as usize)
}

fn host_at(line: &Line<'_>, node: usize, host_of: &[Option<usize>]) -> Result<usize, InputError> {
    let host = host_of.get(node).copied().flatten();
    host.ok_or_else(|| {
        let last = host_of.len().saturating_sub(1);
        line.error(format!(
            "node {node} is no host: the topology has nodes 0 to {last}"
        ))
    })
}

fn is_finish(line: &Line<'_>) -> bool {
    line.words[0] == "Flow" && line.words.contains(&"finished")
}

/// The completed flows of a log of htsim.
fn log(lines: &[Line<'_>], host_of: &[Option<usize>]) -> Result<Vec<OtherFlow>, InputError> {
    // Flows between the same hosts have the same name. Then, the log does not say which of them
    // started.
    let mut starts: BTreeMap<&str, Option<f64>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.words[0] == "startflow") {
        let name = line.words.get(1).copied().unwrap_or("");
        let at = microseconds_after(line, &["at"])?;
        let others = starts.insert(name, Some(at));
        if others.is_some() {
            starts.insert(name, None);
        }
    }
    let finishes = lines.iter().filter(|line| is_finish(line));
    let flows = finishes.map(|line| {
        let name = line.words[1];
        let start_ns = starts.get(name).copied().flatten();
        finish(line, start_ns, host_of)
    });
    flows.collect()
}

/// The line of a flow that finished: its name ends with the numbers of both hosts. A number after
/// the name is that of an object, and such numbers rise in the order of the connection matrix.
fn finish(
    line: &Line<'_>,
    start_ns: Option<f64>,
    host_of: &[Option<usize>],
) -> Result<OtherFlow, InputError> {
    let name = line.words[1];
    let mut parts = name.rsplit('_').map(str::parse::<usize>);
    let (Some(Ok(dst)), Some(Ok(src))) = (parts.next(), parts.next()) else {
        return Err(line.error(format!(
            "the flow {name:?} names no hosts: a name ends with _SRC_DST, such as Roce_0_15"
        )));
    };
    let id_at = line
        .words
        .iter()
        .position(|word| ["flowId", "flow_id"].contains(word));
    let want = "a whole number from 0 on";
    let id = id_at.map(|at| line.number(at + 1, line.words[at], want));
    let id: Option<u64> = id.transpose()?;
    Ok(OtherFlow {
        line: line.number,
        src: host_at(line, src, host_of)?,
        dst: host_at(line, dst, host_of)?,
        bytes: None,
        id,
        order: line.words[2].parse().ok().or(id),
        start_ns,
        time: OtherTime::End(microseconds_after(line, &["finished", "at"])?),
    })
}

/// The number of microseconds after some words, in nanoseconds.
fn microseconds_after(line: &Line<'_>, words: &[&str]) -> Result<f64, InputError> {
    const WANT: &str = "microseconds, 0 or more";
    let name = words.join(" ");
    let at = line
        .words
        .windows(words.len())
        .position(|found| found == words);
    let at = at.ok_or_else(|| line.error(format!("{name} is missing: {FORMS}")))?;
    let us: f64 = line.number(at + words.len(), &name, WANT)?;
    if !(0.0..1e15).contains(&us) {
        return Err(line.error(format!("{name} is {us}: {WANT}")));
    }
    Ok(us * 1e3)
}
