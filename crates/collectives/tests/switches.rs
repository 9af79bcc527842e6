//! Operations of a group whose ranks are hosts of a network with a switch, which drops packets of incasts.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite::fabric::net::{HostOptions, NetFabric, NetHost, Program, host};
use farwrite::{Endpoint, RateControl, Timing};
use farwrite_collectives::{
    Algorithm, Buffers, Delivery, ElementType, Finished, GroupOptions, Member, Operation,
    OperationOptions, Reduction, Report,
};
use farwrite_deadline::Policy;
use farwrite_net::{CableConfig, Network, NodeId, Options, Shape, SwitchConfig};

const RANKS: usize = 4;
const VALUES: usize = 100_000;
const RATE_BPS: u64 = 10_000_000_000;

/// The program of a host.
struct Rank {
    member: Member<NetFabric>,
    finished: Option<Finished>,
}

impl Program for Rank {
    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        let next_ns = self.member.poll(now_ns);
        self.finished = self.finished.take().or_else(|| self.member.take_finished());
        next_ns
    }
}

struct Group {
    network: Network<NetHost<Rank>>,
    hosts: Vec<NodeId>,
}

impl Group {
    /// Each rank may send to each other one at the rate of a cable, so the small buffer of the switch overflows.
    fn new() -> Self {
        let cable = CableConfig::new(RATE_BPS, Duration::from_micros(1));
        let hosts = RANKS;
        let topology = Shape::Star { hosts, cable }
            .build()
            .expect("a good network");
        let hosts: Vec<_> = topology.hosts().collect();
        let mut options = GroupOptions {
            packet_bytes: 1024,
            packets_per_segment: 32,
            timing: Timing::datacenter(),
            initial_rtt: Duration::from_micros(10),
            rate_control: RateControl::Fixed { rate_bps: RATE_BPS },
            timeout: Duration::from_secs(20),
            ..GroupOptions::default()
        };
        // A loss target would repair what the switch drops.
        options.bounded.policy = Policy::OptiNic;
        let (mut members, mut ports) = (Vec::new(), Vec::new());
        for (rank, &node) in hosts.iter().enumerate() {
            let seed = [u8::try_from(rank + 1).expect("few ranks"); 32];
            let (fabric, own) = host(node, HostOptions::default(), seed).expect("an address");
            let endpoint = Endpoint::new(fabric, seed);
            let member = Member::new(endpoint, rank, RANKS, options.clone());
            members.push(member.expect("good options"));
            ports.push(own);
        }
        let infos = members
            .iter()
            .map(|member| member.info().expect("information"));
        let infos: Vec<_> = infos.collect();
        for member in &mut members {
            member.connect(&infos).expect("equal options");
        }
        let ranks = members.into_iter().map(|member| Rank {
            member,
            finished: None,
        });
        let ranks = ports.into_iter().zip(ranks);
        let ranks = ranks.map(|(ports, rank)| NetHost::new(ports, rank));
        let mut ranks: BTreeMap<_, _> = hosts.iter().copied().zip(ranks).collect();
        let switches = Options::with_switches(SwitchConfig {
            buffer_bytes: 10_000,
            ..SwitchConfig::default()
        });
        let network = Network::new(&topology, &switches, 1, |node, _| {
            ranks.remove(&node).expect("each host is asked for once")
        });
        Self {
            network: network.expect("a good network"),
            hosts,
        }
    }

    fn rank(&mut self, rank: usize) -> &mut Rank {
        let host = self.network.device_mut(self.hosts[rank]);
        host.expect("a host").program_mut()
    }

    fn is_over(&self) -> bool {
        let host = |node: &NodeId| self.network.device(*node).expect("a host");
        let mut hosts = self.hosts.iter().map(host);
        hosts.all(|host| host.program().finished.is_some())
    }

    /// Sums the values of all ranks. Each value of rank r is 2^r, so the sum shows which ranks have contributed.
    fn sum(&mut self, delivery: Delivery) -> Vec<(Report, Vec<f32>)> {
        let now_ns = self.network.now_ns();
        let operation = Operation::AllReduce {
            element: ElementType::F32,
            reduction: Reduction::Sum,
        };
        let options = OperationOptions {
            delivery,
            algorithm: Algorithm::Direct,
            ..OperationOptions::default()
        };
        for rank in 0..RANKS {
            let value = f32::from(1_u8 << rank);
            let buffers = Buffers::in_place(value.to_ne_bytes().repeat(VALUES));
            let started = self
                .rank(rank)
                .member
                .start(now_ns, &operation, options, buffers);
            started.expect("good arguments");
        }
        while !self.is_over() {
            assert!(self.network.step(), "the operation hangs");
        }
        let ended = |rank| {
            let finished = self.rank(rank).finished.take().expect("a result");
            let bytes = finished.buffers.output.and_then(|buffer| buffer.into_vec());
            let bytes = bytes.expect("a vector");
            let values = bytes
                .chunks_exact(4)
                .map(|value| f32::from_ne_bytes(value.try_into().expect("four bytes")));
            (finished.result.expect("a report"), values.collect())
        };
        (0..RANKS).map(ended).collect()
    }
}

#[test]
fn an_exact_sum_is_whole_where_a_switch_drops_packets() {
    let mut group = Group::new();
    for (report, values) in group.sum(Delivery::Exact) {
        assert_eq!(report.missing, []);
        assert!(values.iter().all(|value| *value == 15.0));
    }
    assert!(group.network.totals().all_dropped() > 0);
}

#[test]
fn a_bounded_sum_has_the_contributors_that_are_named_where_a_switch_drops_packets() {
    let mut group = Group::new();
    let mut missing_bytes = 0;
    for _ in 0..5 {
        for (report, values) in group.sum(Delivery::Bounded) {
            missing_bytes += report.missing_bytes;
            let mut expected = vec![15.0; VALUES];
            for missing in &report.missing {
                let range = missing.range.start / 4..missing.range.end / 4;
                let lacks: u8 = missing.ranks.iter().map(|rank| 1 << rank).sum();
                for at in range {
                    expected[usize::try_from(at).expect("small")] = f32::from(15 - lacks);
                }
            }
            assert!(values == expected, "{:?}", report.missing);
        }
    }
    assert!(missing_bytes > 0);
    assert!(group.network.totals().all_dropped() > 0);
}
