//! A ring of endpoints in virtual time, and all-reduces of buffers without memory (paper section
//! 5.3).
//!
//! Each site sends 1/N of its buffer to the next site, 2N - 2 times. It starts a round when its
//! message of the previous round is acknowledged, and the message from the previous site has
//! arrived.

use std::collections::VecDeque;
use std::time::Duration;

use farwrite::fabric::contract::Region;
use farwrite::fabric::net::{NetFabric, NetHost, NetPorts, Program};
use farwrite::{
    Endpoint, MemoryRegion, Outcome, QueuePair, RecvHandle, RecvOptions, SendHandle, SendOptions,
};
use farwrite_net::{Network, NodeId, Shape};

use crate::Failure;
use crate::cell::Cell;
use crate::world::{endpoint, network_options, rest_ns};

/// Number of cables between two sites: one from each site to the switch in the middle, which adds
/// no delay.
const CABLES: u32 = 2;

/// A site of the ring.
struct Site {
    endpoint: Endpoint<NetFabric>,
    to_next: QueuePair,
    from_previous: QueuePair,
    memory: MemoryRegion,
    options: SendOptions,
    terms: RecvOptions,
    rounds: usize,
    /// When the all-reduce starts.
    begin_ns: u64,
    /// Number of messages started.
    begun: usize,
    acknowledged: usize,
    sending: Option<SendHandle>,
    received: usize,
    receiving: VecDeque<RecvHandle>,
    /// When both messages of the last round ended.
    done_ns: Option<u64>,
}

impl Site {
    /// Prepares an all-reduce that starts at `begin_ns`.
    fn prepare(&mut self, begin_ns: u64) -> Result<(), farwrite::Error> {
        self.begin_ns = begin_ns;
        (self.begun, self.acknowledged, self.received) = (0, 0, 0);
        self.done_ns = None;
        for _ in 0..self.rounds {
            let memory = self.memory.whole();
            let (qp, terms) = (self.from_previous, self.terms);
            let receive = self.endpoint.post_recv_with(qp, memory, terms)?;
            self.receiving.push_back(receive);
        }
        Ok(())
    }

    fn act(&mut self, now_ns: u64) -> Result<Option<u64>, farwrite::Error> {
        loop {
            if self.may_begin_round(now_ns) {
                let memory = self.memory.whole();
                let send = self
                    .endpoint
                    .post_send(self.to_next, memory, self.options)?;
                self.sending = Some(send);
                self.begun += 1;
            }
            let next_ns = self.endpoint.poll(now_ns)?;
            self.take_outcomes(now_ns);
            if !self.may_begin_round(now_ns) {
                let begin_ns = (now_ns < self.begin_ns).then_some(self.begin_ns);
                return Ok(next_ns.into_iter().chain(begin_ns).min());
            }
        }
    }

    fn may_begin_round(&self, now_ns: u64) -> bool {
        let rounds_over = self.acknowledged.min(self.received);
        now_ns >= self.begin_ns && self.begun < self.rounds && self.begun <= rounds_over
    }

    fn take_outcomes(&mut self, now_ns: u64) {
        let sent = self.sending.as_ref().and_then(SendHandle::outcome);
        if let Some(outcome) = sent {
            assert_eq!(outcome, Outcome::Whole, "no message is given up");
            self.sending = None;
            self.acknowledged += 1;
        }
        while let Some(receive) = self.receiving.front()
            && let Some(outcome) = receive.outcome()
        {
            assert_eq!(outcome, Outcome::Whole, "no message is given up");
            self.receiving.pop_front();
            self.received += 1;
        }
        if self.acknowledged.min(self.received) == self.rounds {
            self.done_ns.get_or_insert(now_ns);
        }
    }
}

impl Program for Site {
    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        self.act(now_ns).expect("memory and slots suffice")
    }
}

/// The time of each all-reduce of a cell, in seconds, until the last site has finished.
pub(crate) fn run(cell: &Cell, sites: u32) -> Result<Vec<f64>, Failure> {
    let shape = Shape::Star {
        hosts: sites as usize,
        cable: cell.cable(CABLES),
    };
    let topology = shape.build()?;
    let hosts: Vec<_> = topology.hosts().collect();
    let mut made: VecDeque<_> = connect(cell, &hosts)?.into();
    let device = |_, _: &_| made.pop_front().expect("as many sites as hosts");
    let mut network = Network::new(&topology, &network_options(), cell.seed, device)?;
    let mut times_s = Vec::with_capacity(cell.samples);
    while times_s.len() < cell.samples {
        let begin_ns = network.now_ns() + rest_ns(cell);
        for &host in &hosts {
            let site = network.device_mut(host).expect("a host").program_mut();
            site.prepare(begin_ns)?;
        }
        let done_ns = loop {
            network.run_until(network.now_ns() + rest_ns(cell));
            let sites = hosts.iter().map(|&host| network.device(host));
            let done_ns = sites.map(|site| site.expect("a host").program().done_ns);
            if let Some(done_ns) = done_ns.collect::<Option<Vec<_>>>() {
                break done_ns.into_iter().max().unwrap_or(begin_ns);
            }
        };
        times_s.push(Duration::from_nanos(done_ns - begin_ns).as_secs_f64());
    }
    Ok(times_s)
}

/// The sites, each connected to the previous and the next one.
fn connect(cell: &Cell, hosts: &[NodeId]) -> Result<Vec<NetHost<Site>>, Failure> {
    let mut sites: Vec<_> = hosts
        .iter()
        .map(|&node| site(cell, node))
        .collect::<Result<_, _>>()?;
    for number in 0..sites.len() {
        let next = (number + 1) % sites.len();
        let (one, other) = (&sites[number].0, &sites[next].0);
        let from_one = one.endpoint.qp_info(one.to_next)?;
        let from_other = other.endpoint.qp_info(other.from_previous)?;
        let one = &mut sites[number].0;
        one.endpoint.connect_qp(one.to_next, &from_other)?;
        let other = &mut sites[next].0;
        other.endpoint.connect_qp(other.from_previous, &from_one)?;
    }
    let sites = sites.into_iter();
    Ok(sites
        .map(|(site, ports)| NetHost::new(ports, site))
        .collect())
}

fn site(cell: &Cell, node: NodeId) -> Result<(Site, NetPorts), Failure> {
    let (mut endpoint, ports) = endpoint(node)?;
    let site = Site {
        to_next: endpoint.create_qp(cell.options())?,
        from_previous: endpoint.create_qp(cell.options())?,
        memory: endpoint.register_region(Region::ghost(cell.message_bytes()))?,
        endpoint,
        options: SendOptions {
            scheme: cell.scheme.tag(),
            ..SendOptions::default()
        },
        terms: cell.recv_options(),
        rounds: cell.rounds() as usize,
        begin_ns: u64::MAX,
        begun: 0,
        acknowledged: 0,
        sending: None,
        received: 0,
        receiving: VecDeque::new(),
        done_ns: None,
    };
    Ok((site, ports))
}
