//! All-reduces whose reduced parts have a deadline too: each value has exactly the contributors that
//! its rank names, and each rank ends by its deadline.

use std::time::Duration;

use farwrite_collectives::{
    CollectiveError, Delivery, GroupOptions, Member, Operation, Reduction, Report,
};

use crate::late_ranks;
use crate::rounds::{F32, Loop, MARGIN};
use crate::world::{MS, SECOND, address, clean, faulty};

const TIMEOUT: Duration = Duration::from_secs(20);

fn options() -> GroupOptions {
    let mut options = late_ranks::options();
    options.bounded.parts = Delivery::Bounded;
    options
}

fn all_reduce(reduction: Reduction) -> Operation {
    Operation::AllReduce {
        element: F32,
        reduction,
    }
}

/// The bytes of a result that are only the contribution of this rank.
fn own_bytes(report: &Report, ranks: usize) -> u64 {
    let alone = report.missing.iter().filter(|m| m.ranks.len() == ranks - 1);
    alone.map(|m| m.range.end - m.range.start).sum()
}

#[test]
fn without_losses_all_ranks_have_the_same() {
    for ranks in [1, 2, 5] {
        let setting = (31, ranks);
        let sum = all_reduce(Reduction::Sum);
        let mut rounds = Loop::new(setting, clean(), &options(), sum, TIMEOUT);
        rounds.run(5);
        for number in 0..5 {
            let (_, first) = rounds.ended[0][number].as_ref().unwrap();
            for rank in 0..ranks {
                assert_eq!(rounds.report(rank, number).missing, []);
                let (_, output) = rounds.ended[rank][number].as_ref().unwrap();
                assert!(output == first, "{ranks} ranks, operation {number}");
            }
        }
    }
}

#[test]
fn each_value_has_the_contributors_that_its_rank_names() {
    for reduction in [Reduction::Sum, Reduction::Mean] {
        let ranks = 4;
        let setting = (32, ranks);
        let mut rounds = Loop::new(
            setting,
            faulty(),
            &options(),
            all_reduce(reduction),
            TIMEOUT,
        );
        rounds.run(30);
        let (mut alone, mut others, mut differ) = (0, 0, 0);
        for number in 0..30 {
            for rank in 0..ranks {
                // Checks every value.
                let report = rounds.report(rank, number);
                alone += own_bytes(report, ranks);
                others += report.missing_bytes - own_bytes(report, ranks);
                assert!(
                    report
                        .limit
                        .is_none_or(|limit| report.elapsed <= limit + MARGIN)
                );
                let (_, output) = rounds.ended[rank][number].as_ref().unwrap();
                let (_, first) = rounds.ended[0][number].as_ref().unwrap();
                differ += usize::from(output != first);
            }
        }
        assert!(
            alone > 0 && others > 0 && differ > 0,
            "{alone} {others} {differ}"
        );
    }
}

#[test]
fn the_phases_share_the_time_of_the_operation() {
    let setting = (33, 2);
    let sum = all_reduce(Reduction::Sum);
    let mut rounds = Loop::new(setting, clean(), &options(), sum, TIMEOUT);
    rounds.run(5);
    // Rank 1 starts when the first phase of rank 0 has ended, and the second one has not.
    rounds.start(0);
    let limit = rounds.report(0, 4).limit.expect("a limit");
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap();
    rounds.world.run(limit_ns * 6 / 10, |_| false);
    assert_eq!(rounds.world.finished(0), 0);
    rounds.start(1);
    assert!(
        rounds
            .world
            .run(SECOND, |world| world.finished(0) + world.finished(1) == 2)
    );
    for rank in 0..2 {
        let ended = rounds.world.take(rank);
        rounds.ended[rank].extend(ended);
    }
    let late = rounds.report(0, 5);
    // The part of rank 0 lacks the contribution of rank 1, and the other part came in time or not
    // at all.
    assert!(late.was_cut, "{late:?}");
    assert_eq!(late.missing[0].range.start, 0);
    assert_eq!(late.missing[0].ranks, [1]);
    assert!(late.elapsed <= late.limit.unwrap() + MARGIN, "{late:?}");
}

#[test]
fn a_rank_that_stalls_or_dies_delays_no_other() {
    for link in [clean(), faulty()] {
        let (ranks, late, before, after) = (4, 2, 5, 25);
        let mean = all_reduce(Reduction::Mean);
        let setting = (34, ranks);
        let mut rounds = Loop::new(setting, link, &options(), mean, Duration::from_secs(2));
        rounds.run(before);
        rounds.world.stopped[late] = true;
        rounds.run(after);
        for rank in (0..ranks).filter(|&rank| rank != late) {
            for number in before..after {
                let report = rounds.report(rank, number);
                let limit = report.limit.expect("it is no warm-up");
                assert!(report.elapsed <= limit + MARGIN, "{report:?}");
                let lacks = report.missing.iter().filter(|m| m.ranks.contains(&late));
                let lacks: u64 = lacks.map(|m| m.range.end - m.range.start).sum();
                assert!(number == before || lacks == report.bytes, "{report:?}");
            }
        }
        rounds.world.stopped[late] = false;
        rounds.run(after);
        for number in 0..after {
            rounds.report(late, number);
        }
        rounds.world.stopped[late] = true;
        rounds.run(10_000);
        for rank in (0..ranks).filter(|&rank| rank != late) {
            let error = rounds.ended[rank].last().unwrap().as_ref().unwrap_err();
            let error = error.to_string();
            assert!(error.contains("rank 2 does not answer"), "{error}");
        }
    }
}

#[test]
fn operations_in_flight_keep_their_contributors_apart() {
    let setting = (35, 3);
    let sum = all_reduce(Reduction::Sum);
    let mut rounds = Loop::new(setting, faulty(), &options(), sum, TIMEOUT);
    rounds.run(3);
    for late in 0..3 {
        for rank in (0..3).filter(|&rank| rank != late).chain([late]) {
            if rank == late {
                rounds.world.run(20 * MS, |_| false);
            }
            (0..4).for_each(|_| rounds.start(rank));
        }
        rounds.world.run_until_over(4);
        for rank in 0..3 {
            let ended = rounds.world.take(rank);
            rounds.ended[rank].extend(ended);
        }
    }
    for (rank, number) in (0..3).flat_map(|rank| (0..15).map(move |number| (rank, number))) {
        rounds.report(rank, number);
    }
}

#[test]
fn options_that_do_not_fit_are_refused_by_name() {
    let member = |ranks, options: &GroupOptions| {
        let network = farwrite::fabric::sim::SimNetwork::new(1);
        let fabric = network.endpoint(address(0), 1).unwrap();
        let endpoint = farwrite::Endpoint::new(fabric, [1; 32]);
        Member::new(endpoint, 0, ranks, options.clone())
    };
    let small = GroupOptions {
        packet_bytes: 64,
        segments_in_flight: 1,
        ..options()
    };
    assert!(member(200, &small).is_ok());
    let error = member(300, &small).err().map(|error| error.to_string());
    let expected = "rank 0: packet_bytes = 64: packets with room for bounded parts and the names \
                    of 300 ranks";
    assert_eq!(error.as_deref(), Some(expected));
    // One rank has exact parts, the other one not.
    let mut ours = member(2, &options()).unwrap();
    let theirs = {
        let network = farwrite::fabric::sim::SimNetwork::new(1);
        let fabric = network.endpoint(address(1), 1).unwrap();
        let endpoint = farwrite::Endpoint::new(fabric, [2; 32]);
        Member::new(endpoint, 1, 2, late_ranks::options())
            .unwrap()
            .info()
    };
    let infos = [ours.info().unwrap(), theirs.unwrap()];
    let error = ours.connect(&infos).unwrap_err();
    assert!(
        matches!(error, CollectiveError::Info { rank: 1, .. }),
        "{error}"
    );
}
