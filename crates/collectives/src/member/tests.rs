//! A rank that breaks its connection to one other rank can still communicate with the rest.

use std::net::{Ipv4Addr, SocketAddr};

use farwrite::fabric::sim::{LinkConfig, SimFabric, SimNetwork};
use farwrite::{Endpoint, SchemeName};

use super::Member;
use crate::options::GroupOptions;

/// Connected ranks in a network without loss.
fn group(network: &SimNetwork, ranks: u8) -> Vec<Member<SimFabric>> {
    let address = |rank: u8| SocketAddr::from((Ipv4Addr::new(10, 0, 0, rank + 1), 4791));
    let member = |rank| {
        let fabric = network.endpoint(address(rank), 1).unwrap();
        let endpoint = Endpoint::new(fabric, [rank + 1; 32]);
        let options = GroupOptions {
            packets_per_segment: 4,
            ..GroupOptions::default()
        };
        Member::new(endpoint, rank.into(), ranks.into(), options).unwrap()
    };
    let mut members: Vec<_> = (0..ranks).map(member).collect();
    for (a, b) in (0..ranks).flat_map(|a| (a + 1..ranks).map(move |b| (a, b))) {
        let [a, b] = [a, b].map(|rank| address(rank).ip());
        let link = LinkConfig::default();
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

#[test]
fn a_control_message_that_cannot_be_read_does_not_silence_a_rank() {
    let network = SimNetwork::new(1);
    let mut members = group(&network, 3);
    let culprit = &mut members[1];
    let qp = culprit.peers.qp_mut(0).unwrap();
    let sent = qp.send(&mut culprit.endpoint, &[99], &[], 0);
    assert_eq!(sent.unwrap(), Some(SchemeName::SrNack));
    for _ in 0..10_000 {
        let now_ns = network.now_ns();
        let next = members.iter_mut().map(|member| member.poll(now_ns));
        let next = next.chain([network.next_ns()]).flatten().min();
        network.advance_to(next.unwrap_or(now_ns).clamp(now_ns + 1, now_ns + 1_000_000));
    }
    let problem = "the connection to rank 1 is broken: a control message cannot be read";
    let failure = |rank: usize| members[rank].failure.as_ref().map(ToString::to_string);
    assert_eq!(failure(0).as_deref(), Some(problem));
    let heard = format!("rank 0 ended the group: {problem}");
    for rank in [1, 2] {
        assert_eq!(failure(rank).as_ref(), Some(&heard), "rank {rank}");
    }
}
