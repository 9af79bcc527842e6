//! What tests outside of the crate cannot see: queue pairs to one other rank, and their buffers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use farwrite::fabric::sim::{LinkConfig, SimFabric, SimNetwork};
use farwrite::{Endpoint, SchemeName};

use super::Member;
use crate::buffer::Buffers;
use crate::operation::Operation;
use crate::options::{GroupOptions, OperationOptions};

/// Options with short segments.
fn options() -> GroupOptions {
    GroupOptions {
        packets_per_segment: 4,
        ..GroupOptions::default()
    }
}

/// Connected ranks in a network without loss.
fn group(
    network: &SimNetwork,
    ranks: u8,
    link: LinkConfig,
    options: &GroupOptions,
) -> Vec<Member<SimFabric>> {
    let address = |rank: u8| SocketAddr::from((Ipv4Addr::new(10, 0, 0, rank + 1), 4791));
    let member = |rank| {
        let fabric = network.endpoint(address(rank), 1).unwrap();
        let endpoint = Endpoint::new(fabric, [rank + 1; 32]);
        Member::new(endpoint, rank.into(), ranks.into(), options.clone()).unwrap()
    };
    let mut members: Vec<_> = (0..ranks).map(member).collect();
    for (a, b) in (0..ranks).flat_map(|a| (a + 1..ranks).map(move |b| (a, b))) {
        let [a, b] = [a, b].map(|rank| address(rank).ip());
        network.connect(a, b, link, link).unwrap();
    }
    let infos: Vec<_> = members
        .iter()
        .map(|member| member.info().unwrap())
        .collect();
    for member in &mut members {
        member.connect(&infos).unwrap();
    }
    members
}

/// Polls all members until `done` holds.
fn run_until(
    network: &SimNetwork,
    members: &mut [Member<SimFabric>],
    mut done: impl FnMut(&mut [Member<SimFabric>]) -> bool,
) {
    for _ in 0..100_000 {
        let now_ns = network.now_ns();
        let next = members.iter_mut().map(|member| member.poll(now_ns));
        let next = next.chain([network.next_ns()]).flatten().min();
        if done(members) {
            return;
        }
        network.advance_to(next.unwrap_or(now_ns).clamp(now_ns + 1, now_ns + 1_000_000));
    }
    panic!("it does not end");
}

#[test]
fn buffers_grow_for_long_messages_only_and_within_their_memory() {
    let network = SimNetwork::new(1);
    let link = LinkConfig {
        delay: Duration::from_millis(20),
        rate_bps: Some(100_000_000),
        ..LinkConfig::default()
    };
    // The sum of both directions: 30 segments of 5632 bytes. A round trip has 88.
    let options = GroupOptions {
        buffer_growth_bytes: 30 * 5632,
        rate_control: farwrite::RateControl::Fixed {
            rate_bps: 95_000_000,
        },
        ..options()
    };
    let mut members = group(&network, 2, link, &options);
    let mut broadcast = |bytes: usize| {
        let now_ns = network.now_ns();
        for member in &mut members {
            let (broadcast, how) = (
                Operation::Broadcast { root: 0 },
                OperationOptions::default(),
            );
            let buffers = Buffers::in_place(vec![0; bytes]);
            member.start(now_ns, &broadcast, how, buffers).unwrap();
        }
        let mut left = 2;
        run_until(&network, &mut members, |members| {
            for ended in members.iter_mut().filter_map(Member::take_finished) {
                ended.result.unwrap();
                left -= 1;
            }
            left == 0
        });
        let buffers = |rank: usize| {
            members[rank].in_order.qps[1 - rank]
                .as_ref()
                .unwrap()
                .buffers()
        };
        (buffers(0)[1], buffers(1)[0])
    };
    for _ in 0..20 {
        let (sends, receives) = broadcast(5000);
        assert!(sends <= 16 && receives == 16, "{sends}, {receives}");
    }
    let (sends, receives) = broadcast(2_000_000);
    assert!(sends > 20 && receives > 20, "{sends}, {receives}");
    assert!(sends <= 46 && receives <= 46, "{sends}, {receives}");
}

#[test]
fn a_control_message_that_cannot_be_read_does_not_silence_a_rank() {
    let network = SimNetwork::new(1);
    let mut members = group(&network, 3, LinkConfig::default(), &options());
    let culprit = &mut members[1];
    let qp = culprit.peers.qp_mut(0).unwrap();
    let sent = qp.send(&mut culprit.endpoint, &[99], &[], 0);
    assert_eq!(sent.unwrap(), Some(SchemeName::SrNack));
    run_until(&network, &mut members, |members| {
        members.iter().all(|member| member.failure.is_some())
    });
    let problem = "the connection to rank 1 is broken: a control message cannot be read";
    let failure = |rank: usize| members[rank].failure.as_ref().map(ToString::to_string);
    assert_eq!(failure(0).as_deref(), Some(problem));
    let heard = format!("rank 0 ended the group: {problem}");
    for rank in [1, 2] {
        assert_eq!(failure(rank).as_ref(), Some(&heard), "rank {rank}");
    }
}
