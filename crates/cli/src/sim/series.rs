//! Links and flows over time as CSV. Only names are text, and they are quoted.

use std::io::{self, Write};

use farwrite_experiment::{Depths, LinkSample, Series, SeriesEvent};
use farwrite_net::{NodeId, Topology};
use farwrite_units::show::real;

use crate::table::quoted;

/// A port of a topology.
pub(super) struct Link<'a> {
    /// The nodes that send and receive.
    pub(super) names: [&'a str; 2],
    pub(super) rate_bps: u64,
}

impl Link<'_> {
    /// The names as two cells.
    fn cells(&self) -> String {
        self.names.map(quoted).join(",")
    }
}

/// The ports of each node.
pub(super) struct Links<'a>(Vec<Vec<Link<'a>>>);

impl<'a> Links<'a> {
    pub(super) fn of(topology: &'a Topology) -> Self {
        let nodes = topology.nodes();
        let mut links: Vec<Vec<_>> = nodes.iter().map(|_| Vec::new()).collect();
        for cable in topology.cables() {
            let [a, b] = cable.ends;
            for (from, to) in [(a, b), (b, a)] {
                links[from.0 as usize].push(Link {
                    names: [from, to].map(|node| nodes[node.0 as usize].name.as_str()),
                    rate_bps: cable.seen_from(from).rate_bps,
                });
            }
        }
        Self(links)
    }

    pub(super) fn get(&self, node: NodeId, port: usize) -> Option<&Link<'a>> {
        self.0.get(node.0 as usize)?.get(port)
    }
}

/// One row per port and sample. Samples without bytes in the queue or on the cable, and without PFC, have none.
pub(super) fn write_links(
    file: &mut impl Write,
    depths: &Depths,
    series: &Series,
    topology: &Topology,
) -> io::Result<()> {
    writeln!(
        file,
        "time_ns,from,to,queue_bytes,use,sent_bytes,pfc_frames,pfc_stopped_ns"
    )?;
    let links = Links::of(topology);
    for of_port in &series.links {
        let Some(link) = links.get(of_port.node, of_port.port) else {
            continue;
        };
        let names = link.cells();
        let mut before = LinkSample::default();
        for (&sample, (time_ns, _)) in of_port.samples.iter().zip(depths.by_time()) {
            let idle = LinkSample {
                queued_bytes: 0,
                ..before
            };
            if sample != idle {
                let bits = real(sample.sent_bytes - before.sent_bytes) * 8e9;
                let use_of = bits / (real(depths.interval_ns) * real(link.rate_bps));
                writeln!(
                    file,
                    "{time_ns},{names},{},{use_of:.4},{},{},{}",
                    sample.queued_bytes, sample.sent_bytes, sample.pfc_frames, sample.stopped_ns
                )?;
            }
            before = sample;
        }
    }
    Ok(())
}

/// One row per event: PFC stops or resumes a priority at a port, or a flow gets a congestion notification.
pub(super) fn write_events(
    file: &mut impl Write,
    series: &Series,
    topology: &Topology,
) -> io::Result<()> {
    writeln!(file, "time_ns,event,from,to,priority,flow")?;
    let links = Links::of(topology);
    for event in &series.events {
        match *event {
            SeriesEvent::Notification { at_ns, flow } => writeln!(file, "{at_ns},cnp,,,,{flow}")?,
            SeriesEvent::Pause(pause) => {
                let link = links.get(pause.node, usize::from(pause.port));
                let names = link.map_or_else(|| ",".to_owned(), Link::cells);
                let name = match pause.stops {
                    true => "pause",
                    false => "resume",
                };
                writeln!(file, "{},{name},{names},{},", pause.at_ns, pause.priority)?;
            }
        }
    }
    Ok(())
}

/// One row per flow and sample, from the start of the flow to its end. Packets of `mtu` bytes count as full.
pub(super) fn write_rates(
    file: &mut impl Write,
    depths: &Depths,
    series: &Series,
    mtu: u32,
) -> io::Result<()> {
    writeln!(file, "time_ns,flow,rate_bps,packets,repeated,notifications")?;
    for (flow, samples) in series.flows.iter().enumerate() {
        let mut packets_before = 0;
        for sample in samples {
            let time_ns = depths.start_ns + (sample.at as u64 + 1) * depths.interval_ns;
            let bits = real(sample.packets - packets_before) * f64::from(mtu) * 8e9;
            let rate_bps = bits / real(depths.interval_ns);
            packets_before = sample.packets;
            writeln!(
                file,
                "{time_ns},{flow},{rate_bps:.0},{},{},{}",
                sample.packets, sample.repeated, sample.notifications
            )?;
        }
    }
    Ok(())
}
