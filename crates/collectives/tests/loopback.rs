//! Groups over loopback sockets, with one communicator per rank.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farwrite_collectives::{
    Buffers, CollectiveError, Communicator, CommunicatorOptions, Delivery, ElementType, Operation,
    OperationOptions, Reduction, Ticket,
};

const WAIT: Duration = Duration::from_secs(60);
const SUM: Operation = Operation::AllReduce {
    element: ElementType::F32,
    reduction: Reduction::Sum,
};

fn options() -> CommunicatorOptions {
    CommunicatorOptions::new("127.0.0.1:0".parse().expect("an address"))
}

fn group(ranks: usize, options: &CommunicatorOptions) -> Vec<Communicator> {
    let group: Vec<Communicator> = (0..ranks)
        .map(|rank| Communicator::new(rank, ranks, options.clone()).expect("a socket"))
        .collect();
    meet(&group);
    group
}

/// Joins all ranks.
fn meet(group: &[Communicator]) {
    let mut messages = Vec::new();
    loop {
        let said = group
            .iter()
            .map(|rank| rank.meet(messages.clone()).expect("equal options"));
        let said: Vec<Option<Vec<u8>>> = said.collect();
        match said.into_iter().collect() {
            Some(said) => messages = said,
            None => return,
        }
    }
}

/// Starts the operation at every rank.
fn submit(
    group: &[Communicator],
    operation: &Operation,
    buffers: impl Fn(usize) -> Buffers,
) -> Vec<Ticket> {
    let submit = |rank: &Communicator| rank.submit(operation.clone(), buffers(rank.rank()));
    group
        .iter()
        .map(|rank| submit(rank).expect("good arguments"))
        .collect()
}

fn outputs(tickets: &[Ticket]) -> Vec<Vec<u8>> {
    let output = |ticket: &Ticket| {
        ticket.wait(WAIT).expect("the operation succeeds");
        let buffers = ticket.take_buffers().expect("taken once");
        buffers
            .output
            .and_then(|buffer| buffer.into_vec())
            .unwrap_or_default()
    };
    tickets.iter().map(output).collect()
}

fn floats(rank: usize, count: usize) -> Vec<u8> {
    let value = |i: usize| (i % 1000) as f32 + rank as f32 / 8.0;
    (0..count).flat_map(|i| value(i).to_ne_bytes()).collect()
}

#[test]
fn all_ranks_get_the_sum() {
    for ranks in [1, 2, 3, 4] {
        let group = group(ranks, &options());
        for count in [0, 1, ranks, 1000, 700_001] {
            let tickets = submit(&group, &SUM, |rank| Buffers::in_place(floats(rank, count)));
            let outputs = outputs(&tickets);
            let total: f32 = (0..ranks).map(|rank| rank as f32 / 8.0).sum();
            let expected = |i: usize| (i % 1000) as f32 * ranks as f32 + total;
            let expected: Vec<u8> = (0..count).flat_map(|i| expected(i).to_ne_bytes()).collect();
            for (rank, output) in outputs.iter().enumerate() {
                assert!(
                    *output == expected,
                    "rank {rank} of {ranks}, {count} values"
                );
            }
        }
    }
}

#[test]
fn what_the_root_has_reaches_all() {
    let group = group(3, &options());
    for root in 0..3 {
        let operation = Operation::Broadcast { root };
        let tickets = submit(&group, &operation, |rank| {
            Buffers::in_place(floats(rank, 300_000))
        });
        let outputs = outputs(&tickets);
        assert!(
            outputs
                .iter()
                .all(|output| *output == floats(root, 300_000))
        );
    }
}

#[test]
fn parts_are_gathered_in_the_order_of_ranks() {
    let group = group(3, &options());
    let tickets = submit(&group, &Operation::AllGather, |rank| {
        Buffers::new(floats(rank, 100_000), vec![0; 3 * 400_000])
    });
    let expected = [0, 1, 2].map(|rank| floats(rank, 100_000)).concat();
    assert!(outputs(&tickets).iter().all(|output| *output == expected));
}

#[test]
fn nobody_passes_a_barrier_before_everybody_came() {
    let group = group(3, &options());
    let early =
        [0, 1].map(|rank: usize| group[rank].submit(Operation::Barrier, Buffers::default()));
    let early = early.map(Result::unwrap);
    for ticket in &early {
        let waited = ticket.wait(Duration::from_millis(50));
        assert!(matches!(waited, Err(CollectiveError::StillRunning)));
        assert!(!ticket.is_done());
    }
    let last = group[2]
        .submit(Operation::Barrier, Buffers::default())
        .unwrap();
    for ticket in early.iter().chain([&last]) {
        ticket.wait(WAIT).unwrap();
        assert!(ticket.is_done());
    }
}

#[test]
fn many_operations_are_in_flight() {
    let group = group(2, &options());
    let tickets: Vec<Vec<Ticket>> = (0..50)
        .map(|i| {
            submit(&group, &SUM, |rank| {
                Buffers::in_place(floats(rank + i, 5_000))
            })
        })
        .collect();
    for (i, tickets) in tickets.iter().enumerate() {
        let sums = outputs(tickets);
        let first = f32::from_ne_bytes(*sums[0].first_chunk().unwrap());
        assert_eq!(first, (2 * i + 1) as f32 / 8.0, "operation {i}");
        assert_eq!(sums[0], sums[1]);
    }
}

#[test]
fn sends_meet_receives_by_their_tags() {
    let group = group(3, &options());
    let send = |from: usize, to: usize, tag: u32, count: usize| {
        let buffers = Buffers::input(floats(from * 10 + tag as usize, count));
        group[from]
            .submit(Operation::Send { to, tag }, buffers)
            .unwrap()
    };
    let receive = |at: usize, from: usize, tag: u32, count: usize| {
        let buffers = Buffers::in_place(vec![0; 4 * count]);
        let operation = Operation::Receive { from, tag };
        group[at].submit(operation, buffers).unwrap()
    };
    // The order differs between the two ends. Large messages are included, and a collective
    // operation runs in between.
    let sent = [
        send(0, 1, 1, 400_000),
        send(0, 1, 2, 3),
        send(1, 0, 1, 3),
        send(2, 1, 1, 0),
    ];
    let barriers = submit(&group, &Operation::Barrier, |_| Buffers::default());
    outputs(&barriers);
    let received = [
        receive(1, 0, 2, 3),
        receive(1, 2, 1, 0),
        receive(1, 0, 1, 400_000),
        receive(0, 1, 1, 3),
    ];
    let expected = [floats(2, 3), vec![], floats(1, 400_000), floats(11, 3)];
    assert!(outputs(&received) == expected);
    outputs(&sent);

    let _send = send(0, 1, 5, 8);
    let error = receive(1, 0, 5, 9).wait(WAIT).unwrap_err().to_string();
    let expected =
        "rank 0 ended the group: operation 3: rank 1 has bytes of the receive = 36, this rank 32:";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_key_seals_the_information_of_ranks() {
    let with_key = |key: u8| CommunicatorOptions {
        key: Some([key; 32]),
        ..options()
    };
    let keyed = group(2, &with_key(1));
    outputs(&submit(&keyed, &SUM, |rank| {
        Buffers::in_place(floats(rank, 10))
    }));

    let ours = Communicator::new(0, 2, with_key(1)).unwrap();
    let theirs = Communicator::new(1, 2, with_key(2)).unwrap();
    let said = [&ours, &theirs].map(|rank| rank.meet(Vec::new()).unwrap().unwrap());
    let error = ours.meet(said.to_vec()).unwrap_err().to_string();
    assert_eq!(
        error,
        "rank 1: its information was not sealed with the key of this rank"
    );
}

/// Forwards packets between `inside`, which is reached at the address of `outside`, and one other
/// address until `stop`. Returns whether a packet contained `pattern`.
fn relay(outside: &UdpSocket, inside: SocketAddr, pattern: &[u8], stop: &AtomicBool) -> bool {
    let (mut found, mut other, mut packet) = (false, None, vec![0; 1 << 16]);
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = outside.recv_from(&mut packet) else {
            continue;
        };
        let packet = &packet[..length];
        found |= packet.windows(pattern.len()).any(|bytes| bytes == pattern);
        let to = match from == inside {
            true => other,
            false => {
                other = Some(from);
                Some(inside)
            }
        };
        if let Some(to) = to {
            // A packet that is not forwarded is lost.
            let _ = outside.send_to(packet, to);
        }
    }
    found
}

#[test]
fn with_a_key_the_values_cannot_be_read_between_ranks() {
    for key in [None, Some([1; 32])] {
        let outside = UdpSocket::bind("127.0.0.2:0").expect("a socket");
        outside
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let inside = SocketAddr::from(([127, 0, 0, 3], outside.local_addr().unwrap().port()));
        let with_key = CommunicatorOptions {
            key,
            packet_bytes: Some(1024),
            ..options()
        };
        let reached = CommunicatorOptions {
            address: inside,
            advertised: Some(outside.local_addr().unwrap().ip()),
            ..with_key.clone()
        };
        let pattern = b"a value that nobody else may see";
        let stop = AtomicBool::new(false);
        let seen = thread::scope(|scope| {
            let seen = scope.spawn(|| relay(&outside, inside, pattern, &stop));
            let group = [
                Communicator::new(0, 2, reached).expect("a free port"),
                Communicator::new(1, 2, with_key).expect("a socket"),
            ];
            meet(&group);
            let tickets = submit(
                &group,
                &Operation::Broadcast { root: 0 },
                |rank| match rank {
                    0 => Buffers::in_place(pattern.repeat(100)),
                    _ => Buffers::in_place(vec![0; 100 * pattern.len()]),
                },
            );
            assert_eq!(outputs(&tickets)[1], pattern.repeat(100));
            drop(group);
            stop.store(true, Ordering::Relaxed);
            seen.join().expect("no panic")
        });
        assert_eq!(seen, key.is_none());
    }
}

#[test]
fn a_message_of_another_group_is_refused_though_its_key_is_the_same() {
    let of_group = |rank, name: &str| {
        let options = CommunicatorOptions {
            key: Some([1; 32]),
            context: name.into(),
            ..options()
        };
        Communicator::new(rank, 2, options).unwrap()
    };
    let (ours, theirs) = (of_group(0, "job 1, group 1"), of_group(1, "job 1, group 2"));
    let offers = round([&ours, &theirs], &[]);
    let error = ours.meet(offers).unwrap_err().to_string();
    let foreign = "rank 1: its message belongs to another job, group, attempt or round";
    assert_eq!(error, foreign);
    // The message of an earlier attempt takes the place of that of this one.
    let [zero, one, earlier] = [0, 1, 1].map(|rank| of_group(rank, "job 1, group 1"));
    let mut offers = round([&zero, &one], &[]);
    let said = one.meet(offers.clone()).unwrap().unwrap();
    offers[1] = earlier.meet(Vec::new()).unwrap().unwrap();
    let joined = zero.meet(offers).unwrap().unwrap();
    for (rank, error) in [
        (0, one.meet(vec![joined.clone(), said.clone()])),
        (1, zero.meet(vec![joined, said])),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("rank {rank}: its message belongs")),
            "{error}"
        );
    }
}

#[test]
fn ranks_agree_on_the_packets_that_all_paths_carry() {
    let found = CommunicatorOptions {
        packet_bytes: None,
        ..options()
    };
    let group = group(3, &found);
    // Packets of jumbo frames over IPv4, whole elements of 8 bytes.
    assert!(group.iter().all(|rank| rank.packet_bytes() == Some(8936)));
    let sums = outputs(&submit(&group, &SUM, |rank| {
        Buffers::in_place(floats(rank, 100_000))
    }));
    assert_eq!(sums[0], sums[1]);
    let first = f32::from_ne_bytes(sums[2][..4].try_into().unwrap());
    assert_eq!(first, 0.375);
}

/// Passes the messages of one round of two ranks.
fn round(ranks: [&Communicator; 2], messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let said = ranks.map(|rank| rank.meet(messages.to_vec()).expect("equal options"));
    said.map(|said| said.expect("not the last round")).to_vec()
}

#[test]
fn packet_sizes_that_differ_are_refused_by_name() {
    let rank = |rank: usize, packet_bytes: u32| {
        let packet_bytes = Some(packet_bytes);
        let options = CommunicatorOptions {
            packet_bytes,
            ..options()
        };
        Communicator::new(rank, 2, options).unwrap()
    };
    let (zero, one) = (rank(0, 4096), rank(1, 1024));
    let mut messages = Vec::new();
    for _ in 0..3 {
        messages = round([&zero, &one], &messages);
    }
    let error = zero.meet(messages.clone()).unwrap_err().to_string();
    assert!(
        error.starts_with("rank 1: it has packets of 1024 bytes, this rank of 4096"),
        "{error}"
    );
    assert_eq!(zero.packet_bytes(), None);
    // Messages of another round.
    let error = one.meet(messages[..1].to_vec()).unwrap_err().to_string();
    assert!(error.contains("one for each of 2 ranks"), "{error}");
}

#[test]
fn a_message_of_another_round_is_refused_by_name() {
    let [zero, one] = [0, 1].map(|rank| Communicator::new(rank, 2, options()).unwrap());
    let offers = round([&zero, &one], &[]);
    let joined = round([&zero, &one], &offers);
    let mixed = vec![joined[0].clone(), offers[1].clone()];
    let error = zero.meet(mixed).unwrap_err().to_string();
    assert!(
        error.starts_with("rank 1: its message belongs to another job, group, attempt or round"),
        "{error}"
    );
    let swapped = vec![joined[1].clone(), joined[0].clone()];
    let error = one.meet(swapped).unwrap_err().to_string();
    assert!(
        error.contains("pass the messages of one round in the order of ranks"),
        "{error}"
    );
}

#[test]
fn unspecified_addresses_are_refused() {
    let any = "0.0.0.0".parse().unwrap();
    let bound = CommunicatorOptions::new(SocketAddr::new(any, 0));
    let advertised = CommunicatorOptions {
        advertised: Some(any),
        ..options()
    };
    for (options, argument) in [(bound, "address"), (advertised, "advertised")] {
        let error = Communicator::new(0, 2, options).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("rank 0: {argument} = 0.0.0.0")),
            "{error}"
        );
    }
}

#[test]
fn ranks_that_differ_are_named() {
    let group = group(2, &options());
    let tickets = submit(&group, &SUM, |rank| {
        Buffers::in_place(floats(rank, 10 + rank))
    });
    let error = tickets[0].wait(WAIT).unwrap_err().to_string();
    // The rank that detects the difference first informs the other.
    let ways = [
        "operation 0: rank 1 has bytes = 44, this rank 40:",
        "rank 1 ended the group: operation 0: rank 0 has bytes = 40, this rank 44:",
    ];
    assert!(ways.iter().any(|way| error.starts_with(way)), "{error}");
    // The group has ended, and later operations report the reason.
    let later = submit(&group, &SUM, |rank| Buffers::in_place(floats(rank, 10)));
    assert_eq!(later[0].wait(WAIT).unwrap_err().to_string(), error);
}

#[test]
fn a_dropped_communicator_ends_its_tickets() {
    let mut group = group(2, &options());
    let ticket = group[0]
        .submit(SUM, Buffers::in_place(floats(0, 10)))
        .unwrap();
    drop(group.remove(0));
    let error = ticket.wait(Duration::ZERO).unwrap_err().to_string();
    assert_eq!(error, "rank 0 ended the group: it has left");
    assert!(ticket.take_buffers().is_some());
}

#[test]
fn bounded_sums_are_the_same_at_all_ranks() {
    let group = group(3, &options());
    let bounded = OperationOptions {
        delivery: Delivery::Bounded,
        ..OperationOptions::default()
    };
    for round in 0..5 {
        let submit = |rank: &Communicator| {
            let buffers = Buffers::in_place(floats(rank.rank(), 300_000));
            rank.submit_with(SUM, bounded, buffers).unwrap()
        };
        let tickets: Vec<Ticket> = group.iter().map(submit).collect();
        let reports: Vec<_> = tickets.iter().map(|t| t.wait(WAIT).unwrap()).collect();
        let outputs = outputs(&tickets);
        assert!(outputs.iter().all(|output| *output == outputs[0]));
        assert!(
            reports
                .iter()
                .all(|report| report.missing == reports[0].missing)
        );
        assert_eq!(reports[0].limit.is_none(), round == 0);
        assert_eq!(group[0].cut_counts().operations, round);
        if reports[0].missing.is_empty() {
            assert!(outputs[0][..4] == 0.375_f32.to_ne_bytes());
        }
    }
}

#[test]
fn an_aborted_group_ends_at_all_ranks() {
    let group = group(3, &options());
    let early =
        [0, 1].map(|rank: usize| group[rank].submit(SUM, Buffers::in_place(floats(rank, 9))));
    group[2].abort("the user pressed a key");
    for ticket in early {
        let error = ticket.unwrap().wait(WAIT).unwrap_err().to_string();
        assert_eq!(error, "rank 2 ended the group: the user pressed a key");
    }
    assert!(!format!("{:?}", group[0]).contains("key"));
}
