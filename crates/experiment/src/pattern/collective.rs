//! Workloads of collective operations: flows that wait for other flows.

use super::{MAX_FLOWS, PatternError, check, range};
use crate::{Flow, Start, TriggerKind, Workload};

pub(super) fn all_to_all(
    hosts: usize,
    size: u64,
    parallel: Option<usize>,
) -> Result<Workload, PatternError> {
    let others = hosts - 1;
    if hosts.saturating_mul(others) > MAX_FLOWS {
        let want = format!("at most 4096 for {MAX_FLOWS} flows");
        return Err(range("hosts", hosts, want));
    }
    let parallel = parallel.unwrap_or(others);
    check("parallel", parallel, 1, others)?;
    let mut workload = Workload::default();
    for src in 0..hosts {
        let done = (parallel < others).then(|| workload.add_trigger(TriggerKind::MultiShot));
        for step in 1..hosts {
            let mut flow = Flow::new(src, (src + step) % hosts, size, 0);
            flow.when_sent = done;
            if let Some(done) = done.filter(|_| step > parallel) {
                flow.start = Start::On(done);
            }
            workload.flows.push(flow);
        }
    }
    Ok(workload)
}

pub(super) fn ring(hosts: usize, size: u64) -> Workload {
    let part = size.div_ceil(hosts as u64);
    let steps = 2 * (hosts - 1);
    let mut workload = Workload::default();
    // A host sends in each step the part that it received from the previous host in the step
    // before.
    let received = |host: usize, step: usize| host + step * hosts;
    for _ in 0..hosts * (steps - 1) {
        workload.add_trigger(TriggerKind::OneShot);
    }
    for step in 0..steps {
        for src in 0..hosts {
            let dst = (src + 1) % hosts;
            let mut flow = Flow::new(src, dst, part, 0);
            if step > 0 {
                flow.start = Start::On(received(src, step - 1));
            }
            flow.when_received = (step + 1 < steps).then(|| received(dst, step));
            workload.flows.push(flow);
        }
    }
    workload
}

pub(super) fn tree(hosts: usize, size: u64) -> Workload {
    let mut workload = Workload::default();
    let children = |host: usize| {
        [2 * host + 1, 2 * host + 2]
            .into_iter()
            .filter(|at| *at < hosts)
    };
    // A host's sum is ready when the sums of all children have arrived. All hosts but the root
    // later receive the result.
    let summed: Vec<_> = (0..hosts)
        .map(|host| {
            let children = children(host).count() as u64;
            (children > 0).then(|| workload.add_trigger(TriggerKind::Barrier(children)))
        })
        .collect();
    let result: Vec<_> = (0..hosts)
        .map(|host| match host {
            0 => summed[0],
            _ => summed[host].map(|_| workload.add_trigger(TriggerKind::OneShot)),
        })
        .collect();
    for host in 1..hosts {
        let mut up = Flow::new(host, (host - 1) / 2, size, 0);
        up.start = summed[host].map_or(up.start, Start::On);
        up.when_received = summed[(host - 1) / 2];
        workload.flows.push(up);
    }
    for host in 0..hosts {
        for child in children(host) {
            let mut down = Flow::new(host, child, size, 0);
            down.start = result[host].map_or(down.start, Start::On);
            down.when_received = result[child];
            workload.flows.push(down);
        }
    }
    workload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_moves_every_part_twice_around() {
        let workload = ring(4, 1000);
        assert_eq!(workload.flows.len(), 4 * 6);
        assert!(workload.flows.iter().all(|flow| flow.bytes == 250));
        let first = workload
            .flows
            .iter()
            .filter(|flow| flow.start == Start::At(0));
        assert_eq!(first.count(), 4);
        workload.validate(4).unwrap();
    }

    #[test]
    fn a_tree_goes_up_and_down_each_edge() {
        let workload = tree(6, 1000);
        assert_eq!(workload.flows.len(), 2 * 5);
        // The leaves 3, 4 and 5 begin.
        let first = workload
            .flows
            .iter()
            .filter(|flow| flow.start == Start::At(0));
        assert_eq!(first.map(|flow| flow.src).collect::<Vec<_>>(), [3, 4, 5]);
        workload.validate(6).unwrap();
    }

    #[test]
    fn hosts_have_as_many_messages_under_way_as_asked_for() {
        let workload = all_to_all(5, 1000, Some(2)).unwrap();
        let first = workload
            .flows
            .iter()
            .filter(|flow| flow.start == Start::At(0));
        assert_eq!((workload.flows.len(), first.count()), (20, 10));
        assert!(all_to_all(5, 1000, None).unwrap().triggers.is_empty());
        assert!(all_to_all(5, 1000, Some(5)).is_err());
    }
}
