//! Exact operations whose schemes the planner chooses.

use std::time::Duration;

use farwrite::SchemeName;
use farwrite::fabric::sim::{LinkConfig, Loss};
use farwrite_collectives::{
    Buffers, ElementType, GroupOptions, Operation, OperationOptions, Reduction, Report,
    SchemeSetting,
};

use crate::world::{World, address, options, values};

/// The operations of a group, one after the other.
const OPERATIONS: usize = 4;
/// The values of an operation: 63 segments.
const VALUES: usize = 120_000;

/// A round trip of 50 ms at 1 Gbit/s.
fn far(loss_packet: f64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(25),
        rate_bps: Some(1_000_000_000),
        loss: Loss::Iid { loss_packet },
        ..LinkConfig::default()
    }
}

/// Options that leave the choice to the planner. A segment has 16 packets of 512 bytes, which is
/// room for the parity of all candidates.
fn choosing() -> GroupOptions {
    GroupOptions {
        scheme: SchemeSetting::Auto,
        packets_per_segment: 16,
        segments_in_flight: 16,
        ..options()
    }
}

/// Runs sums at all ranks. Returns the reports and results of the last one.
fn run(world: &mut World) -> Vec<(Report, Vec<u8>)> {
    let sum = Operation::AllReduce {
        element: ElementType::F32,
        reduction: Reduction::Sum,
    };
    for operation in 0..OPERATIONS {
        for rank in 0..world.ranks() {
            let buffers = Buffers::in_place(values(ElementType::F32, rank, VALUES));
            world.start(rank, &sum, OperationOptions::default(), buffers);
        }
        world.run_until_over(operation + 1);
    }
    let ranks = 0..world.ranks();
    let last = |rank| {
        world
            .take(rank)
            .pop()
            .expect("an end")
            .expect("it succeeds")
    };
    ranks.map(last).collect()
}

fn has_parity(report: &Report) -> bool {
    let is_code = |scheme: &SchemeName| matches!(scheme, SchemeName::Ec(_));
    report.schemes.iter().any(is_code)
}

#[test]
fn without_losses_nothing_is_coded() {
    let ended = run(&mut World::new(1, 3, far(0.0), &choosing()));
    for (rank, (report, _)) in ended.iter().enumerate() {
        assert_eq!(report.schemes, [SchemeName::SrNack], "rank {rank}");
    }
}

#[test]
fn losses_over_a_long_path_are_coded_and_the_result_stays_the_same() {
    let repeated = run(&mut World::new(1, 3, far(0.0), &options()));
    let ended = run(&mut World::new(1, 3, far(0.02), &choosing()));
    for (rank, ((report, result), (_, wanted))) in ended.iter().zip(&repeated).enumerate() {
        assert!(has_parity(report), "rank {rank}: {:?}", report.schemes);
        assert_eq!(result, wanted, "rank {rank}");
    }
}

/// The offer of a segment names its scheme, so ranks need not choose the same one.
#[test]
fn each_rank_chooses_for_the_path_from_it() {
    let mut world = World::new(1, 2, far(0.0), &choosing());
    let (first, second) = (address(0).ip(), address(1).ip());
    let changed = world.network.connect(first, second, far(0.02), far(0.0));
    changed.expect("a good link");
    let ended = run(&mut world);
    assert_eq!(ended[0].1, ended[1].1);
    let coded: Vec<_> = ended.iter().map(|(report, _)| has_parity(report)).collect();
    assert_eq!(coded, [true, false], "{:?}", ended[1].0.schemes);
}

#[test]
fn an_expected_loss_counts_from_the_first_segment() {
    let options = GroupOptions {
        expected_loss: Some(0.02),
        initial_rtt: Duration::from_millis(50),
        ..choosing()
    };
    let mut world = World::new(1, 2, far(0.02), &options);
    let input = Buffers::in_place(values(ElementType::F32, 0, 1000));
    for (rank, buffers) in [(0, input), (1, Buffers::in_place(vec![0; 4000]))] {
        let broadcast = Operation::Broadcast { root: 0 };
        world.start(rank, &broadcast, OperationOptions::default(), buffers);
    }
    world.run_until_over(1);
    let (report, _) = world.take(0).remove(0).expect("it succeeds");
    assert!(has_parity(&report), "{:?}", report.schemes);
}
