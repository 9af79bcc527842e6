//! Interprets every schedule step by step for all ranks, and checks its result.

#![allow(clippy::cast_possible_truncation, reason = "there are few ranks")]

use std::collections::VecDeque;
use std::ops::Range;

use farwrite_collectives::schedule::{self, Action, Step};

const MOST_RANKS: usize = 17;

/// A value that records how it was computed.
type Value = String;

/// The memory of a rank: one value per byte.
#[derive(Clone)]
struct Memory {
    input: Vec<Value>,
    work: Vec<Value>,
}

/// Executes the lists, with at most `most` messages in flight between two ranks. Panics if the
/// ranks wait for each other.
fn interpret(memories: &mut [Memory], lists: &[Vec<Step>], most: usize) {
    let ranks = lists.len();
    let mut wires = vec![VecDeque::<Vec<Value>>::new(); ranks * ranks];
    let mut at = vec![0; ranks];
    loop {
        let mut moved = false;
        for rank in 0..ranks {
            let Some(step) = lists[rank].get(at[rank]) else {
                continue;
            };
            let range = usize_range(&step.range);
            if step.action.is_send() {
                let wire = &mut wires[rank * ranks + step.peer];
                if wire.len() == most {
                    continue;
                }
                wire.push_back(match step.action {
                    Action::SendInput => memories[rank].input[range].to_vec(),
                    _ => memories[rank].work[range].to_vec(),
                });
            } else {
                let Some(values) = wires[step.peer * ranks + rank].pop_front() else {
                    continue;
                };
                let target = &mut memories[rank].work[range];
                assert_eq!(values.len(), target.len(), "rank {rank}, {step:?}");
                for (target, value) in target.iter_mut().zip(values) {
                    *target = match step.action {
                        Action::Reduce { .. } => format!("({value}+{target})"),
                        _ => value,
                    };
                }
            }
            at[rank] += 1;
            moved = true;
        }
        if !moved {
            break;
        }
    }
    for (rank, list) in lists.iter().enumerate() {
        assert_eq!(
            at[rank],
            list.len(),
            "rank {rank} waits in {:?}",
            list.get(at[rank])
        );
    }
    assert!(
        wires.iter().all(VecDeque::is_empty),
        "nobody takes a message"
    );
}

fn usize_range(range: &Range<u64>) -> Range<usize> {
    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
}

/// Memories of `bytes` bytes, in which each byte contains its rank.
fn memories(ranks: usize, bytes: usize) -> Vec<Memory> {
    let memory = |rank: usize| Memory {
        input: vec![rank.to_string(); bytes],
        work: vec![rank.to_string(); bytes],
    };
    (0..ranks).map(memory).collect()
}

/// Returns the ranks that contributed to a value, each once, in ascending order.
fn contributors(value: &str) -> Vec<usize> {
    let ranks = value.split(|c: char| !c.is_ascii_digit());
    let ranks = ranks.filter(|rank| !rank.is_empty());
    let mut ranks: Vec<usize> = ranks.map(|rank| rank.parse().unwrap()).collect();
    ranks.sort_unstable();
    ranks
}

fn each_case(mut check: impl FnMut(usize, &[Range<u64>])) {
    for ranks in 1..=MOST_RANKS {
        // Fewer values than ranks, and parts of different lengths.
        for values in [1, ranks as u64, 2 * ranks as u64 + 1] {
            check(ranks, &schedule::cut(values, 1, ranks));
        }
    }
}

fn lists(ranks: usize, list: impl Fn(usize) -> Vec<Step>) -> Vec<Vec<Step>> {
    (0..ranks).map(list).collect()
}

/// Returns the sum over `ranks` ranks from the first on, written as the interpreter does for a
/// ring.
fn ring_order(part: usize, ranks: usize) -> Value {
    let order = (1..=ranks).map(|distance| ((part + distance) % ranks).to_string());
    order.reduce(|sum, rank| format!("({sum}+{rank})")).unwrap()
}

#[test]
fn parts_cover_everything_in_order() {
    each_case(|ranks, parts| {
        assert_eq!(parts.len(), ranks);
        assert_eq!(parts[0].start, 0);
        assert!(parts.windows(2).all(|two| two[0].end == two[1].start));
        let sizes = parts.iter().map(|part| part.end - part.start);
        let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
        assert!(most - least <= 1);
    });
    assert_eq!(schedule::cut(3, 4, 2), [0..8, 8..12]);
}

#[test]
fn a_ring_reduces_in_its_order_and_gathers() {
    each_case(|ranks, parts| {
        let mut memories = memories(ranks, usize_range(&(0..parts[ranks - 1].end)).end);
        interpret(
            &mut memories,
            &lists(ranks, |r| schedule::ring_reduce_scatter(r, parts)),
            1,
        );
        for (rank, memory) in memories.iter().enumerate() {
            let own = &memory.work[usize_range(&parts[rank])];
            assert!(own.iter().all(|value| *value == ring_order(rank, ranks)));
        }
        interpret(
            &mut memories,
            &lists(ranks, |r| schedule::ring_all_gather(r, parts)),
            1,
        );
        for memory in &memories {
            for (part, range) in parts.iter().enumerate() {
                let values = &memory.work[usize_range(range)];
                assert!(values.iter().all(|value| *value == ring_order(part, ranks)));
            }
        }
    });
}

#[test]
fn a_direct_reduction_joins_from_its_owner_on() {
    each_case(|ranks, parts| {
        let mut memories = memories(ranks, usize_range(&(0..parts[ranks - 1].end)).end);
        interpret(
            &mut memories,
            &lists(ranks, |r| schedule::direct_reduce_scatter(r, parts)),
            1,
        );
        interpret(
            &mut memories,
            &lists(ranks, |r| schedule::direct_gather(r, parts)),
            1,
        );
        for memory in &memories {
            for (part, range) in parts.iter().enumerate() {
                let order = (0..ranks).map(|distance| ((part + distance) % ranks).to_string());
                // The received value is written on the left.
                let expected = order.reduce(|sum, rank| format!("({rank}+{sum})")).unwrap();
                let values = &memory.work[usize_range(range)];
                assert!(values.iter().all(|value| *value == expected));
            }
        }
    });
}

#[test]
fn a_tree_reduces_to_any_root_and_spreads() {
    for ranks in 1..=MOST_RANKS {
        for root in 0..ranks {
            let mut memories = memories(ranks, 1);
            interpret(
                &mut memories,
                &lists(ranks, |r| schedule::tree_reduce(r, ranks, root, &(0..1))),
                1,
            );
            let sum = memories[root].work[0].clone();
            assert_eq!(contributors(&sum), (0..ranks).collect::<Vec<_>>());
            interpret(
                &mut memories,
                &lists(ranks, |r| schedule::tree_broadcast(r, ranks, root, &(0..1))),
                1,
            );
            assert!(memories.iter().all(|memory| memory.work[0] == sum));
        }
    }
}

#[test]
fn the_last_reduction_of_a_value_is_marked() {
    for ranks in 2..=MOST_RANKS {
        let parts = schedule::cut(ranks as u64, 1, ranks);
        let marked = |lists: Vec<Vec<Step>>| {
            let steps = lists.into_iter().enumerate();
            let steps = steps.flat_map(|(rank, steps)| steps.into_iter().map(move |s| (rank, s)));
            let last = steps.filter(|(_, step)| step.action == Action::Reduce { last: true });
            last.map(|(rank, step)| (rank, step.range))
                .collect::<Vec<_>>()
        };
        let owners: Vec<_> = parts.iter().cloned().enumerate().collect();
        assert_eq!(
            marked(lists(ranks, |r| schedule::ring_reduce_scatter(r, &parts))),
            owners
        );
        assert_eq!(
            marked(lists(ranks, |r| schedule::direct_reduce_scatter(r, &parts))),
            owners
        );
        for root in 0..ranks {
            let tree = lists(ranks, |r| schedule::tree_reduce(r, ranks, root, &(0..1)));
            assert_eq!(marked(tree), [(root, 0..1)]);
        }
    }
}

#[test]
fn everybody_gets_what_is_theirs() {
    for ranks in 1..=MOST_RANKS {
        // Rank a sends (a + b) % 3 bytes to rank b.
        let table = |sizes: &dyn Fn(usize) -> usize| {
            let mut end = 0;
            let part = |peer| {
                let start = end;
                end += sizes(peer) as u64;
                start..end
            };
            (0..ranks).map(part).collect::<Vec<_>>()
        };
        let size = |a: usize, b: usize| (a + 2 * b) % 3;
        let sends = |rank: usize| table(&|peer| size(rank, peer));
        let receives = |rank: usize| table(&|peer| size(peer, rank));
        let mut memories: Vec<Memory> = (0..ranks)
            .map(|rank| Memory {
                input: (0..ranks)
                    .flat_map(|to| vec![format!("{rank}>{to}"); size(rank, to)])
                    .collect(),
                work: vec!["nothing".into(); usize_range(&(0..receives(rank)[ranks - 1].end)).end],
            })
            .collect();
        let steps = lists(ranks, |r| schedule::all_to_all(r, &sends(r), &receives(r)));
        interpret(&mut memories, &steps, 1);
        for (rank, memory) in memories.iter().enumerate() {
            for (from, range) in receives(rank)
                .iter()
                .enumerate()
                .filter(|(from, _)| *from != rank)
            {
                let values = &memory.work[usize_range(range)];
                assert!(
                    values
                        .iter()
                        .all(|value| *value == format!("{from}>{rank}"))
                );
            }
        }
    }
}

#[test]
fn a_root_gathers_and_scatters() {
    each_case(|ranks, parts| {
        for root in 0..ranks {
            let bytes = usize_range(&(0..parts[ranks - 1].end)).end;
            let mut gathered = memories(ranks, bytes);
            interpret(
                &mut gathered,
                &lists(ranks, |r| schedule::gather(r, root, parts)),
                1,
            );
            for (rank, range) in parts.iter().enumerate() {
                let values = &gathered[root].work[usize_range(range)];
                assert!(values.iter().all(|value| *value == rank.to_string()));
            }
            let mut scattered = memories(ranks, bytes);
            let places: Vec<Value> = (0..bytes).map(|place| format!("place {place}")).collect();
            scattered[root].input.clone_from(&places);
            interpret(
                &mut scattered,
                &lists(ranks, |r| schedule::scatter(r, root, parts)),
                1,
            );
            for (rank, range) in parts.iter().enumerate().filter(|(rank, _)| *rank != root) {
                let range = usize_range(range);
                assert_eq!(scattered[rank].work[..range.len()], places[range]);
            }
        }
    });
}

/// Checks that every rank has the same values, that every rank has contributed once to each value,
/// and that the last reduction of each is marked once.
fn check_all_reduced(ranks: usize, values: usize, steps: &[Vec<Step>]) {
    let mut memories = memories(ranks, values);
    interpret(&mut memories, steps, 1);
    for memory in &memories {
        assert_eq!(memory.work, memories[0].work);
    }
    for value in &memories[0].work {
        assert_eq!(contributors(value), (0..ranks).collect::<Vec<_>>());
    }
    let mut marked = vec![0; values];
    let steps = steps.iter().flatten();
    for step in steps.filter(|step| step.action == Action::Reduce { last: true }) {
        for mark in &mut marked[usize_range(&step.range)] {
            *mark += 1;
        }
    }
    let expected = usize::from(ranks > 1);
    assert!(
        marked.iter().all(|&mark| mark == expected),
        "{ranks}: {marked:?}"
    );
}

#[test]
fn halving_and_doubling_reduces_all() {
    for ranks in 1..=MOST_RANKS {
        for values in [1, ranks, 2 * ranks + 1] {
            let parts = schedule::cut(values as u64, 1, schedule::halving_parts(ranks));
            let steps = lists(ranks, |r| schedule::halving_all_reduce(r, ranks, &parts));
            check_all_reduced(ranks, values, &steps);
        }
    }
    let parts = schedule::cut(4, 1, 4);
    let mut memories = memories(4, 4);
    let steps = lists(4, |r| schedule::halving_all_reduce(r, 4, &parts));
    interpret(&mut memories, &steps, 1);
    // The received value is written on the left.
    assert_eq!(memories[3].work[0], "((3+1)+(2+0))");
}

#[test]
fn sites_of_any_sizes_reduce_all() {
    for ranks in 1..=MOST_RANKS {
        let patterns: [&dyn Fn(usize) -> u32; 5] = [
            &|_| 7,
            &|rank| rank as u32,
            &|rank| rank as u32 % 2,
            &|rank| rank as u32 / 3,
            &|rank| u32::from(rank == 0),
        ];
        for site in patterns {
            let sites: Vec<u32> = (0..ranks).map(site).collect();
            for values in [1, 2 * ranks + 1] {
                let steps = lists(ranks, |r| {
                    schedule::site_all_reduce(r, &sites, values as u64, 1)
                });
                check_all_reduced(ranks, values, &steps);
            }
        }
    }
}

#[test]
fn between_even_sites_each_byte_goes_once_in_each_direction() {
    let sites = [0, 0, 0, 0, 1, 1, 1, 1];
    let steps = lists(8, |r| schedule::site_all_reduce(r, &sites, 64, 4));
    let sent = |from: u32| {
        let ranks = steps
            .iter()
            .enumerate()
            .filter(|(rank, _)| sites[*rank] == from);
        let sends = ranks
            .flat_map(|(_, steps)| steps)
            .filter(|step| step.action.is_send());
        let across = sends.filter(|step| sites[step.peer] != from);
        across
            .map(|step| step.range.end - step.range.start)
            .sum::<u64>()
    };
    assert_eq!([sent(0), sent(1)], [256, 256]);
}
