//! Members of one group in a simulated network, and the loop that advances their common time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use farwrite::fabric::sim::{LinkConfig, Loss, SimFabric, SimNetwork};
use farwrite::{Endpoint, RateControl};
use farwrite_collectives::{
    Buffers, CollectiveError, ElementType, Finished, GroupOptions, Member, Operation, OperationId,
    OperationOptions, Report,
};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// The result of an operation at one rank: its report and output, or an error.
pub(crate) type Ended = Result<(Report, Vec<u8>), CollectiveError>;

pub(crate) struct World {
    pub(crate) network: SimNetwork,
    pub(crate) members: Vec<Member<SimFabric>>,
    /// Ranks that no longer run.
    pub(crate) stopped: Vec<bool>,
    finished: Vec<Vec<Finished>>,
}

pub(crate) fn address(rank: usize) -> SocketAddr {
    let host = u8::try_from(rank + 1).expect("few ranks");
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4791))
}

/// Returns a path with a round trip of 1 ms at 10 Gbit/s.
pub(crate) fn clean() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(500),
        rate_bps: Some(10_000_000_000),
        ..LinkConfig::default()
    }
}

/// A path that loses this share of its packets, and does nothing else to them.
pub(crate) fn losing(loss_packet: f64) -> LinkConfig {
    LinkConfig {
        loss: Loss::Iid { loss_packet },
        ..clean()
    }
}

/// Returns the same path, but it also loses, reorders, duplicates and damages packets.
pub(crate) fn faulty() -> LinkConfig {
    let mut link = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        duplicate: 0.01,
        corrupt: 0.002,
        ..clean()
    };
    link.reorder.probability = 0.05;
    link.reorder.extra_delay = Duration::from_micros(100);
    link
}

/// Small segments, so that operations have many.
pub(crate) fn options() -> GroupOptions {
    GroupOptions {
        packet_bytes: 512,
        packets_per_segment: 4,
        segments_in_flight: 4,
        initial_rtt: Duration::from_millis(1),
        rate_control: RateControl::Fixed {
            rate_bps: 1_000_000_000,
        },
        timeout: Duration::from_secs(20),
        ..GroupOptions::default()
    }
}

impl World {
    pub(crate) fn new(seed: u64, ranks: usize, link: LinkConfig, options: &GroupOptions) -> Self {
        Self::of_groups(seed, &[ranks], link, options)
    }

    /// Groups of these sizes on one network. The members of a group follow those of the group before
    /// it, and each has a host of its own.
    pub(crate) fn of_groups(
        seed: u64,
        sizes: &[usize],
        link: LinkConfig,
        options: &GroupOptions,
    ) -> Self {
        let network = SimNetwork::new(seed);
        let mut members = Vec::new();
        for &ranks in sizes {
            let first = members.len();
            for rank in 0..ranks {
                let host = first + rank;
                let fabric = network.endpoint(address(host), 1).expect("a free address");
                let byte = u8::try_from(host + 1).expect("few ranks");
                let endpoint = Endpoint::new(fabric, [byte; 32]);
                let member = Member::new(endpoint, rank, ranks, options.clone());
                members.push(member.expect("good options"));
            }
        }
        for a in 0..members.len() {
            for b in a + 1..members.len() {
                let (a, b) = (address(a).ip(), address(b).ip());
                network.connect(a, b, link, link).expect("a good link");
            }
        }
        let mut rest = &mut members[..];
        for &ranks in sizes {
            let group;
            (group, rest) = rest.split_at_mut(ranks);
            let infos = group.iter_mut().map(|m| m.info().expect("information"));
            let infos: Vec<_> = infos.collect();
            for member in group {
                member.connect(&infos).expect("equal options");
            }
        }
        Self {
            network,
            stopped: vec![false; members.len()],
            finished: members.iter().map(|_| Vec::new()).collect(),
            members,
        }
    }

    pub(crate) fn ranks(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn start(
        &mut self,
        rank: usize,
        operation: &Operation,
        options: OperationOptions,
        buffers: Buffers,
    ) -> OperationId {
        let now_ns = self.network.now_ns();
        let started = self.members[rank].start(now_ns, operation, options, buffers);
        started.expect("good arguments")
    }

    /// Polls all members at successive times until `done` returns true, for at most `span_ns`.
    /// Returns whether it was done.
    pub(crate) fn run(&mut self, span_ns: u64, mut done: impl FnMut(&Self) -> bool) -> bool {
        let limit_ns = self.network.now_ns() + span_ns;
        loop {
            let now_ns = self.network.now_ns();
            let mut wanted = self.network.next_ns();
            for rank in 0..self.ranks() {
                if self.stopped[rank] {
                    continue;
                }
                let next = self.members[rank].poll(now_ns);
                wanted = wanted.into_iter().chain(next).min();
                let member = &mut self.members[rank];
                self.finished[rank].extend(std::iter::from_fn(|| member.take_finished()));
            }
            if done(self) {
                return true;
            }
            let next = self.network.next_ns().into_iter().chain(wanted).min();
            // A member that wants to be polled at once makes no progress unless time passes.
            let next = next.map(|next| next.max(now_ns + 1));
            let Some(next) = next.filter(|&next| next <= limit_ns) else {
                self.network.advance_to(limit_ns);
                return false;
            };
            self.network.advance_to(next);
        }
    }

    /// Runs until this number of operations has ended at each running rank.
    pub(crate) fn run_until_over(&mut self, operations: usize) {
        let is_over = |world: &Self| {
            let finished = world.finished.iter().zip(&world.stopped);
            let mut finished = finished.filter(|(_, stopped)| !**stopped);
            finished.all(|(finished, _)| finished.len() >= operations)
        };
        assert!(self.run(100 * SECOND, is_over), "operations hang");
    }

    /// Returns the number of operations that have ended at a rank and were not taken.
    pub(crate) fn finished(&self, rank: usize) -> usize {
        self.finished[rank].len()
    }

    /// Returns the results of the operations at a rank, in the order of their end.
    pub(crate) fn take(&mut self, rank: usize) -> Vec<Ended> {
        let ended = |finished: Finished| {
            let output = finished.buffers.output.and_then(|buffer| buffer.into_vec());
            finished
                .result
                .map(|report| (report, output.unwrap_or_default()))
        };
        self.finished[rank].drain(..).map(ended).collect()
    }

    /// Runs one operation at all ranks, and returns their outputs.
    pub(crate) fn all(
        &mut self,
        operation: &Operation,
        options: OperationOptions,
        buffers: impl Fn(usize) -> Buffers,
    ) -> Vec<Vec<u8>> {
        for rank in 0..self.ranks() {
            self.start(rank, operation, options, buffers(rank));
        }
        self.run_until_over(1);
        let ranks = 0..self.ranks();
        let output = |rank| {
            let ended = self.take(rank).remove(0);
            ended.expect("the operation succeeds").1
        };
        ranks.map(output).collect()
    }
}

/// `count` values of a rank, whose sums depend on the order of adding.
pub(crate) fn values(element: ElementType, rank: usize, count: usize) -> Vec<u8> {
    let bytes = |i: usize| {
        let small = i32::try_from((i * 7 + rank * 13) % 31).expect("small") - 11;
        let exact = f64::from(small) * [1.0, 0.013, 170.5][(i + rank) % 3];
        #[expect(clippy::cast_possible_truncation, reason = "values are small")]
        match element {
            ElementType::F64 => exact.to_ne_bytes().to_vec(),
            ElementType::F32 => (exact as f32).to_ne_bytes().to_vec(),
            ElementType::F16 => half::f16::from_f64(exact).to_ne_bytes().to_vec(),
            ElementType::Bf16 => half::bf16::from_f64(exact).to_ne_bytes().to_vec(),
            ElementType::I64 => (i64::from(small) << 33).to_ne_bytes().to_vec(),
            ElementType::I32 => (small << 5).to_ne_bytes().to_vec(),
            ElementType::U8 => vec![(small & 0xff) as u8],
            ElementType::Bool => vec![u8::from(small > 0)],
            ElementType::I8 => (small as i8).to_ne_bytes().to_vec(),
        }
    };
    (0..count).flat_map(bytes).collect()
}
