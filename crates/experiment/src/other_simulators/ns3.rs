//! Files of the RDMA trees of ns-3 (HPCC, `ConWeave`).

use std::time::Duration;

use farwrite_net::{CableConfig, Loss, NodeId, Role, Topology};

use super::words::{Line, at_end, lines};
use super::{ImportedTopology, InputError};
use crate::{Flow, Sizes, Workload};

/// Reads a topology: `nodes switches cables`, the numbers of the switches, and one line for each
/// cable: `A B RATE DELAY LOSS`, for example `0 16 100Gbps 1000ns 0`.
///
/// # Errors
/// [`InputError`].
pub fn topology(file: &str, text: &str) -> Result<ImportedTopology, InputError> {
    const COUNT: &str = "a whole number from 0 on";
    let lines = lines(file, text);
    let Some((first, rest)) = lines.split_first() else {
        return Err(at_end(
            file,
            text,
            "the file is empty: it begins with NODES SWITCHES CABLES",
        ));
    };
    let nodes: usize = first.number(0, "the number of nodes", COUNT)?;
    refuse_simai(first)?;
    let switches: usize = first.number(1, "the number of switches", COUNT)?;
    let cables: usize = first.number(2, "the number of cables", COUNT)?;
    if nodes == 0 {
        return Err(first.error("0 nodes: at least 1"));
    }
    if nodes > farwrite_net::MAX_NODES {
        let most = farwrite_net::MAX_NODES;
        return Err(first.error(format!("{nodes} nodes: at most {most} are possible")));
    }
    if switches > nodes {
        return Err(first.error(format!(
            "{nodes} nodes, {switches} of them switches: NODES counts hosts and switches"
        )));
    }
    let ids = rest
        .first()
        .filter(|line| line.words.len() == switches && switches > 0);
    let mut is_switch = vec![false; nodes];
    if switches > 0 {
        let Some(line) = ids else {
            return Err(first.error(format!(
                "the next line must have {switches} numbers of switches"
            )));
        };
        for at in 0..switches {
            let node: usize = line.number(at, "a switch", COUNT)?;
            let known = is_switch.get_mut(node);
            *known.ok_or_else(|| {
                line.error(format!("switch {node}: nodes are 0 to {}", nodes - 1))
            })? = true;
        }
    }
    let (mut topology, host_of) = add_nodes(&is_switch);
    let rest = &rest[usize::from(switches > 0)..];
    for line in rest.iter().take(cables) {
        let (ends, config) = cable(line, nodes)?;
        topology.connect(ends[0], ends[1], config);
    }
    if topology.cables().len() != cables {
        let found = topology.cables().len();
        let what = format!(
            "the first line announces {cables} cables, and the file has {found}: make it {found}"
        );
        return Err(at_end(file, text, what));
    }
    let mut notes = notes(&topology);
    notes.extend(further(rest, cables, "cables"));
    let switches = topology
        .with_role(Role::Switch)
        .map(|node| (node, 0, None))
        .collect();
    Ok(ImportedTopology {
        topology,
        switches,
        host_of,
        notes,
    })
}

/// Refuses a topology of `SimAI`, whose first line has six words.
fn refuse_simai(first: &Line<'_>) -> Result<(), InputError> {
    if first.words.len() != 6 {
        return Ok(());
    }
    Err(first.error(
        "6 words, as in SimAI's topologies: NODES GPUS_PER_SERVER NVSWITCHES SWITCHES CABLES GPU; \
         here the first line is NODES SWITCHES CABLES, where SWITCHES counts NVSwitches too",
    ))
}

/// Makes nodes in the order of the file's numbers. Also returns the host index of each node.
fn add_nodes(is_switch: &[bool]) -> (Topology, Vec<Option<usize>>) {
    let mut topology = Topology::new();
    let mut host_of = Vec::new();
    let mut hosts = 0;
    for (number, is_switch) in is_switch.iter().enumerate() {
        if *is_switch {
            topology.add(Role::Switch, format!("switch{number}"));
            host_of.push(None);
        } else {
            topology.add(Role::Host, format!("host{number}"));
            host_of.push(Some(hosts));
            hosts += 1;
        }
    }
    (topology, host_of)
}

/// A note about the lines that ns-3 does not read: those after the number that the first line
/// announces. Published files have explanations or more flows there.
fn further(rest: &[Line<'_>], announced: usize, what: &str) -> Option<String> {
    let line = rest.get(announced)?;
    let number = line.number;
    Some(format!(
        "lines from {number} on are ignored, as in ns-3: the first line announces {announced} {what}"
    ))
}

/// Notes about the parts of a file of flows that are ignored.
pub(crate) fn notes_of_flows(file: &str, text: &str) -> Vec<String> {
    let lines = lines(file, text);
    let announced = lines.first().and_then(|line| line.words[0].parse().ok());
    let note = announced.and_then(|announced| further(&lines[1..], announced, "flows"));
    note.into_iter().collect()
}

/// Notes about hosts that send only through their first cable.
fn notes(topology: &Topology) -> Vec<String> {
    let mut ports = vec![0; topology.nodes().len()];
    for end in topology.cables().iter().flat_map(|cable| cable.ends) {
        ports[end.0 as usize] += 1;
    }
    let several = topology.hosts().filter(|host| ports[host.0 as usize] > 1);
    match several.count() {
        0 => Vec::new(),
        count => vec![format!(
            "{count} hosts have several cables: their NICs send by the first one, and receive by all"
        )],
    }
}

fn cable(line: &Line<'_>, nodes: usize) -> Result<([NodeId; 2], CableConfig), InputError> {
    const CABLE: &str = "a cable is written A B RATE DELAY LOSS, such as 0 16 100Gbps 1000ns 0";
    let end = |at| {
        let node: u32 = line.number(at, "an end", CABLE)?;
        let known = (node as usize) < nodes;
        let error = || line.error(format!("node {node}: nodes are 0 to {}", nodes - 1));
        known.then_some(NodeId(node)).ok_or_else(error)
    };
    if line.words.len() > 5 {
        return Err(line.error(format!("{} words: {CABLE}", line.words.len())));
    }
    let ends = [end(0)?, end(1)?];
    if ends[0] == ends[1] {
        return Err(line.error(format!("the cable joins {} to itself", ends[0])));
    }
    let word = |at: usize| line.words.get(at).copied().unwrap_or("");
    let [rate_text, delay_text] = [2, 3].map(word);
    let scales = [
        ("Gbps", 1e9),
        ("Mbps", 1e6),
        ("Kbps", 1e3),
        ("kbps", 1e3),
        ("bps", 1.0),
    ];
    let rate = with_unit(rate_text, &scales).filter(|bps| (1e3..=1e15).contains(bps));
    let rate = rate.ok_or_else(|| line.error(format!("rate {rate_text:?}: {CABLE}")))?;
    let scales = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let delay = with_unit(delay_text, &scales).filter(|ns| (0.0..=8.64e13).contains(ns));
    let delay = delay.ok_or_else(|| line.error(format!("delay {delay_text:?}: {CABLE}")))?;
    let loss: f64 = line.number(4, "the loss", CABLE)?;
    if !(0.0..=1.0).contains(&loss) {
        return Err(line.error(format!("loss {loss}: a probability from 0 to 1")));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "both ranges were checked"
    )]
    let (rate_bps, delay_ns) = (rate.round() as u64, delay.round() as u64);
    let mut config = CableConfig::new(rate_bps, Duration::from_nanos(delay_ns));
    if loss > 0.0 {
        config.loss = Loss::Iid { loss_packet: loss };
    }
    Ok((ends, config))
}

fn with_unit(text: &str, scales: &[(&str, f64)]) -> Option<f64> {
    let (unit, scale) = scales.iter().find(|(unit, _)| text.ends_with(unit))?;
    let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
    Some(number * scale)
}

/// Reads flows: their number, and one line for each: `SRC DST PRIORITY BYTES START`, with the start
/// in seconds. A line with six numbers has HPCC's form, with a port before the bytes. `host_of`
/// comes from the topology.
///
/// # Errors
/// [`InputError`].
pub fn flows(file: &str, text: &str, host_of: &[Option<usize>]) -> Result<Workload, InputError> {
    const FLOW: &str = "a flow is written SRC DST PRIORITY [PORT] BYTES START_SECONDS";
    let lines = lines(file, text);
    let Some((first, rest)) = lines.split_first() else {
        return Err(at_end(
            file,
            text,
            "the file is empty: it begins with the number of flows",
        ));
    };
    let count: usize = first.number(0, "the number of flows", "a whole number from 1 on")?;
    let mut flows = Vec::new();
    for line in rest.iter().take(count) {
        let host = |at| {
            let number: usize = line.number(at, "a host", FLOW)?;
            let last = host_of.len().saturating_sub(1);
            match host_of.get(number) {
                Some(Some(host)) => Ok(*host),
                Some(None) => Err(line.error(format!("node {number} is a switch: choose a host"))),
                None => Err(line.error(format!("node {number}: nodes are 0 to {last}"))),
            }
        };
        let (src, dst) = (host(0)?, host(1)?);
        if src == dst {
            return Err(line.error(format!("node {} sends to itself: {FLOW}", line.words[0])));
        }
        let priority: u8 = line.number(2, "the priority", FLOW)?;
        if priority > 7 {
            return Err(line.error(format!("the priority is {priority}: 0 to 7")));
        }
        if line.words.len() > 6 {
            return Err(line.error(format!("{} words: {FLOW}", line.words.len())));
        }
        let at = 3 + usize::from(line.words.len() == 6);
        let bytes: u64 = line.number(at, "the size", FLOW)?;
        let start: f64 = line.number(at + 1, "the start", FLOW)?;
        if bytes == 0 {
            return Err(line.error("the size is 0: at least 1 byte"));
        }
        if !(0.0..=1e9).contains(&start) {
            let word = line.words[at + 1];
            return Err(line.error(format!("the start is {word}: 0 to 1e9 seconds")));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked just above"
        )]
        let start_ns = (start * 1e9).round() as u64;
        flows.push(Flow {
            priority: Some(priority),
            ..Flow::new(src, dst, bytes, start_ns)
        });
    }
    if flows.len() != count {
        let what = format!(
            "the first line announces {count} flows, and the file has {found}: make it {found}",
            found = flows.len()
        );
        return Err(at_end(file, text, what));
    }
    Ok(Workload::of(flows))
}

/// Reads a size distribution: lines of bytes and percents, or shares if the last is 1. The
/// distribution is linear between points.
///
/// # Errors
/// [`InputError`].
pub fn sizes(file: &str, text: &str) -> Result<Sizes, InputError> {
    const POINT: &str = "a point is written BYTES PERCENT";
    const NS2: &str =
        "The files of ns-2 have packets, a number and a share: write the bytes and the share";
    let mut points = Vec::new();
    let lines = lines(file, text);
    for line in &lines {
        if line.words.len() > 2 {
            let what = format!("{} words: {POINT}. {NS2}", line.words.len());
            return Err(line.error(what));
        }
        points.push((
            line.number(0, "bytes", POINT)?,
            line.number(1, "percent", POINT)?,
        ));
    }
    Sizes::from_percents(&points).map_err(|why| {
        let line = why.point().and_then(|point| lines.get(point - 1));
        match line {
            Some(line) => line.error(why.to_string()),
            None => at_end(file, text, why.to_string()),
        }
    })
}
