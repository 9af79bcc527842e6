//! Two endpoints, connected by a cable in virtual time, and messages without memory.

use std::time::Duration;

use farwrite::fabric::contract::Region;
use farwrite::fabric::net::{HostOptions, NetFabric, NetHost, NetPorts, Program, host};
use farwrite::{
    Endpoint, MemoryRegion, Outcome, QueuePair, RecvHandle, RecvOptions, SendHandle, SendOptions,
};
use farwrite_net::{Device, Frame, Network, NodeId, Options, Output, Ports, Shape};
use farwrite_rng::SplitMix;

use crate::Failure;
use crate::cell::Cell;

/// Round trips from the end of a message to the next one. By then, all repeats of its end have
/// arrived, and the next clear-to-send too.
const REST_RTTS: u32 = 10;

/// A host, and what the path loses on the way to it beyond what its cable loses.
struct LossyHost {
    host: NetHost<End>,
    /// Probability that a packet to this host is lost.
    loss: f64,
    rng: SplitMix,
}

impl Device for LossyHost {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        if self.loss == 0.0 || !self.rng.chance(self.loss) {
            self.host.handle(now_ns, port, frame);
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        self.host.poll(now_ns, ports)
    }

    fn next_ns(&self) -> Option<u64> {
        self.host.next_ns()
    }
}

/// The application of an end.
struct End {
    endpoint: Endpoint<NetFabric>,
    qp: QueuePair,
    memory: MemoryRegion,
    role: Role,
}

enum Role {
    Sender(Box<Sender>),
    /// Its open receive, and the options of each.
    Receiver(Option<RecvHandle>, RecvOptions),
}

/// Sends messages, one after another.
struct Sender {
    options: SendOptions,
    rest_ns: u64,
    /// The current message, and when it was posted.
    current: Option<(SendHandle, u64)>,
    /// When to post the next.
    next_ns: u64,
    times_ns: Vec<u64>,
}

impl Program for End {
    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        self.act(now_ns).expect("memory and slots suffice")
    }
}

impl End {
    fn act(&mut self, now_ns: u64) -> Result<Option<u64>, farwrite::Error> {
        match &mut self.role {
            Role::Sender(sender) if sender.current.is_none() && now_ns >= sender.next_ns => {
                let memory = self.memory.whole();
                let send = self.endpoint.post_send(self.qp, memory, sender.options)?;
                sender.current = Some((send, now_ns));
            }
            Role::Receiver(open, options)
                if open.as_ref().is_none_or(|recv| recv.outcome().is_some()) =>
            {
                let memory = self.memory.whole();
                *open = Some(self.endpoint.post_recv_with(self.qp, memory, *options)?);
            }
            _ => {}
        }
        let next_ns = self.endpoint.poll(now_ns)?;
        let Role::Sender(sender) = &mut self.role else {
            return Ok(next_ns);
        };
        if let Some((send, start_ns)) = &sender.current
            && let Some(outcome) = send.outcome()
        {
            assert_eq!(outcome, Outcome::Whole, "no message is given up");
            sender.times_ns.push(now_ns - start_ns);
            sender.next_ns = now_ns + sender.rest_ns;
            sender.current = None;
        }
        let post_ns = sender.current.is_none().then_some(sender.next_ns);
        Ok(next_ns.into_iter().chain(post_ns).min())
    }
}

/// The time of each message of a cell, in seconds.
pub(crate) fn run(cell: &Cell) -> Result<Vec<f64>, Failure> {
    let shape = Shape::PointToPoint {
        cable: cell.cable(1),
    };
    let topology = shape.build()?;
    let hosts: Vec<_> = topology.hosts().collect();
    let mut ends = connect(cell, &hosts)?;
    let options = network_options();
    let device = |_, _: &_| ends.remove(0);
    let mut network = Network::new(&topology, &options, cell.seed, device)?;
    let times_ns = |network: &Network<LossyHost>| {
        let sender = network.device(hosts[0]).expect("a host");
        match &sender.host.program().role {
            Role::Sender(sender) => sender.times_ns.clone(),
            Role::Receiver(..) => Vec::new(),
        }
    };
    loop {
        network.run_until(network.now_ns() + 1_000_000_000);
        let times_ns = times_ns(&network);
        if times_ns.len() >= cell.samples {
            let times = times_ns.into_iter().take(cell.samples);
            let seconds = times.map(|ns| Duration::from_nanos(ns).as_secs_f64());
            return Ok(seconds.collect());
        }
    }
}

/// The sender and the receiver, connected to each other.
fn connect(cell: &Cell, hosts: &[NodeId]) -> Result<Vec<LossyHost>, Failure> {
    let rest_ns = rest_ns(cell);
    let sender = Role::Sender(Box::new(Sender {
        options: SendOptions {
            scheme: cell.scheme.tag(),
            ..SendOptions::default()
        },
        rest_ns,
        current: None,
        next_ns: rest_ns,
        times_ns: Vec::new(),
    }));
    let receiver = Role::Receiver(None, cell.recv_options());
    let mut ends = Vec::new();
    for (node, role) in hosts.iter().zip([sender, receiver]) {
        ends.push(end(cell, *node, role)?);
    }
    let mut infos = Vec::new();
    for (end, _) in &ends {
        infos.push(end.endpoint.qp_info(end.qp)?);
    }
    for ((end, _), peer) in ends.iter_mut().zip(infos.iter().rev()) {
        end.endpoint.connect_qp(end.qp, peer)?;
    }
    let station = |(end, ports): (End, NetPorts)| {
        let loses = cell.keeps_reports && matches!(end.role, Role::Receiver(..));
        LossyHost {
            host: NetHost::new(ports, end),
            loss: if loses { cell.loss_packet } else { 0.0 },
            rng: SplitMix::new(cell.seed),
        }
    };
    Ok(ends.into_iter().map(station).collect())
}

fn end(cell: &Cell, node: NodeId, role: Role) -> Result<(End, NetPorts), Failure> {
    let (mut endpoint, ports) = endpoint(node)?;
    let qp = endpoint.create_qp(cell.options())?;
    let memory = endpoint.register_region(Region::ghost(cell.bytes))?;
    let end = End {
        endpoint,
        qp,
        memory,
        role,
    };
    Ok((end, ports))
}

/// Time from the end of a message, or of a ring, to the next.
pub(crate) fn rest_ns(cell: &Cell) -> u64 {
    nanos(cell.rtt()) * u64::from(REST_RTTS)
}

/// An endpoint at a host, and the ports of the host.
pub(crate) fn endpoint(node: NodeId) -> Result<(Endpoint<NetFabric>, NetPorts), Failure> {
    let options = HostOptions {
        // Much less than a round trip, but several packets of a fast path.
        poll_interval: Duration::from_micros(5),
        recv_buffer_bytes: u64::MAX,
        ..HostOptions::default()
    };
    let seed = [u8::try_from(node.0)?; 32];
    let (fabric, ports) = host(node, options, seed)?;
    Ok((Endpoint::new(fabric, seed), ports))
}

/// A network in which frames occupy cables for the length of their IP packets.
pub(crate) fn network_options() -> Options {
    Options {
        framing_bytes: 0,
        ..Options::default()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
