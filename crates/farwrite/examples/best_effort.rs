//! Messages that end by a deadline, complete or not. The example shows what arrived of each
//! message, and how the timeout adapts.

use std::error::Error;
use std::time::Duration;

use farwrite::fabric::sim::{LinkConfig, Loss, SimNetwork};
use farwrite::{
    Endpoint, Partial, QpOptions, RateControl, RecvHandle, RecvOptions, SchemeName, SendOptions,
};
use farwrite_deadline::{Bounds, Collective, Observation, Policy, TimeoutKey, Timeouts};

const BYTES: u64 = 1 << 20;

/// Returns an observation of a message that began and ended at these times.
fn observe(
    recv: &RecvHandle,
    [start_ns, ended_ns]: [u64; 2],
    limit_ns: Option<u64>,
) -> Observation {
    Observation {
        elapsed_ns: ended_ns - start_ns,
        received_bytes: recv.partial().map_or(BYTES, Partial::bytes),
        timed_out: limit_ns.is_some_and(|at_ns| at_ns <= ended_ns),
        ..Observation::whole(0, BYTES)
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let network = SimNetwork::new(1); // two ends and a path between them, in virtual time
    let (left, right) = ("10.0.0.1:4792".parse()?, "10.0.0.2:4792".parse()?);
    let mut a = Endpoint::new(network.endpoint(left, 1)?, [1; 32]);
    let mut b = Endpoint::new(network.endpoint(right, 1)?, [2; 32]);
    let lossy = LinkConfig {
        delay: Duration::from_micros(100),
        loss: Loss::Iid { loss_packet: 0.01 },
        ..LinkConfig::default()
    };
    network.connect(left.ip(), right.ip(), lossy, lossy)?;
    let options = QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: 10_000_000_000,
        },
        ..QpOptions::datacenter()
    };
    let (qa, qb) = (a.create_qp(options.clone())?, b.create_qp(options)?);
    a.connect_qp(qa, &b.qp_info(qb)?)?;
    b.connect_qp(qb, &a.qp_info(qa)?)?;
    let source = a.register(vec![7_u8; 1 << 20])?;
    let target = b.register(vec![0_u8; 1 << 20])?;
    let scheme = SchemeName::BestEffort.tag();
    let bounds = Bounds {
        min_ns: 100_000,
        max_ns: 100_000_000,
    };
    let mut timeouts = Timeouts::new(Policy::OptiNic, bounds);
    let timeout = timeouts.get_mut(TimeoutKey::new(Collective::SendRecv, BYTES, 0));
    for _ in 0..20 {
        let start_ns = network.now_ns();
        // The first message, the warm-up, has no deadline.
        let deadline_ns = timeout.timeout_ns(BYTES).map(|ns| start_ns + ns);
        let terms = RecvOptions {
            scheme: Some(scheme),
            exact_length: true,
            deadline_ns,
            ..RecvOptions::default()
        };
        let recv = b.post_recv_with(qb, target.whole(), terms)?;
        let options = SendOptions {
            scheme,
            deadline_ns,
            ..SendOptions::default()
        };
        let send = a.post_send(qa, source.whole(), options)?;
        let mut ended_ns = None;
        while send.outcome().is_none() || ended_ns.is_none() {
            network.advance_to(network.now_ns() + 1_000);
            a.poll(network.now_ns())?;
            b.poll(network.now_ns())?;
            ended_ns = ended_ns.or(recv.outcome().map(|_| network.now_ns()));
        }
        let ended_ns = ended_ns.unwrap_or(u64::MAX);
        let observation = observe(&recv, [start_ns, ended_ns], deadline_ns);
        println!(
            "{} of {BYTES} bytes in {} us",
            observation.received_bytes,
            observation.elapsed_ns / 1_000
        );
        // Of a larger group, the proposals of all members.
        let proposal = timeout.propose(&observation);
        timeout.agree(BYTES, proposal.as_slice());
    }
    let cut_counts = timeout.cut_counts();
    println!(
        "cut: {}, missing: {:.3}",
        cut_counts.share_cut(),
        cut_counts.share_missing()
    );
    assert_eq!(cut_counts.operations, 19);
    assert!(cut_counts.share_missing() < 0.5);
    Ok(())
}
