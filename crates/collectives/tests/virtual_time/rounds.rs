//! Ranks that run a bounded operation again and again, as in training.

use std::time::Duration;

use farwrite::fabric::sim::LinkConfig;
use farwrite_collectives::{
    Algorithm, Buffers, Delivery, ElementType, GroupOptions, Operation, OperationOptions, Report,
    replay,
};

use crate::world::{Ended, SECOND, World, values};

pub(crate) const F32: ElementType = ElementType::F32;
/// The number of values of a part.
pub(crate) const COUNT: usize = 3_000;
/// How much later than its deadline an operation may end in virtual time.
pub(crate) const MARGIN: Duration = Duration::from_micros(1);

fn bounded(timeout: Duration) -> OperationOptions {
    OperationOptions {
        algorithm: Algorithm::Auto,
        timeout: Some(timeout),
        delivery: Delivery::Bounded,
    }
}

pub(crate) fn input(operation: &Operation, rank: usize, ranks: usize) -> Vec<u8> {
    let parts = match operation {
        Operation::AllReduce { .. } | Operation::AllGather => 1,
        _ => ranks,
    };
    values(F32, rank, COUNT * parts)
}

pub(crate) fn buffers(operation: &Operation, rank: usize, ranks: usize) -> Buffers {
    let parts = match operation {
        Operation::ReduceScatter { .. } => 1,
        _ => ranks,
    };
    if matches!(operation, Operation::AllReduce { .. }) {
        return Buffers::in_place(input(operation, rank, ranks));
    }
    Buffers::new(input(operation, rank, ranks), vec![7; 4 * COUNT * parts])
}

/// Ranks that each run a list of operations, one after the other.
pub(crate) struct Loop {
    pub(crate) world: World,
    group: GroupOptions,
    pub(crate) operation: Operation,
    pub(crate) options: OperationOptions,
    /// By rank: the results of the operations that have ended, in order.
    pub(crate) ended: Vec<Vec<Ended>>,
    /// By rank: whether an operation runs.
    runs: Vec<bool>,
}

impl Loop {
    pub(crate) fn new(
        (seed, ranks): (u64, usize),
        link: LinkConfig,
        group: &GroupOptions,
        operation: Operation,
        timeout: Duration,
    ) -> Self {
        Self {
            world: World::new(seed, ranks, link, group),
            group: group.clone(),
            operation,
            options: bounded(timeout),
            ended: (0..ranks).map(|_| Vec::new()).collect(),
            runs: vec![false; ranks],
        }
    }

    /// Runs until each rank that does not stand still has ended this number of operations, or has
    /// failed.
    pub(crate) fn run(&mut self, operations: usize) {
        let ranks = self.world.ranks();
        loop {
            for rank in 0..ranks {
                let has_failed = self.ended[rank].last().is_some_and(Result::is_err);
                let is_due = self.ended[rank].len() < operations && !has_failed;
                if is_due && !self.runs[rank] && !self.world.stopped[rank] {
                    self.start(rank);
                }
            }
            let live = |rank: &usize| self.runs[*rank] && !self.world.stopped[*rank];
            let waiting: Vec<usize> = (0..ranks).filter(live).collect();
            if waiting.is_empty() {
                return;
            }
            let any = |world: &World| waiting.iter().any(|&rank| world.finished(rank) > 0);
            assert!(self.world.run(100 * SECOND, any), "operations hang");
            for rank in waiting {
                let ended = self.world.take(rank);
                self.runs[rank] &= ended.is_empty();
                self.ended[rank].extend(ended);
            }
        }
    }

    pub(crate) fn start(&mut self, rank: usize) {
        let now_ns = self.world.network.now_ns();
        let buffers = buffers(&self.operation, rank, self.world.ranks());
        let member = &mut self.world.members[rank];
        match member.start(now_ns, &self.operation, self.options, buffers) {
            Ok(_) => self.runs[rank] = true,
            Err(error) => self.ended[rank].push(Err(error)),
        }
    }

    /// The report of an operation at a rank. Checks the result: it has exactly the contributions
    /// that the report does not name.
    pub(crate) fn report(&self, rank: usize, number: usize) -> &Report {
        let (report, output) = self.ended[rank][number].as_ref().expect("it succeeds");
        assert_eq!(report.operation, number as u64);
        let ranks = self.world.ranks();
        let inputs: Vec<_> = (0..ranks)
            .map(|from| input(&self.operation, from, ranks))
            .collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let again = replay(&self.group, rank, &self.operation, &inputs, &report.missing);
        assert!(again.unwrap() == *output, "rank {rank}, operation {number}");
        report
    }
}
