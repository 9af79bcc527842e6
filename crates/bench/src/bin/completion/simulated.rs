//! Messages over the virtual-time fabric.

use std::net::{Ipv4Addr, SocketAddr};

use farwrite::fabric::sim::{SimFabric, SimNetwork};
use farwrite::{Endpoint, MemoryRegion, Outcome, QueuePair, SchemeName, SendOptions};

use crate::Failure;
use crate::path::Path;

struct World {
    network: SimNetwork,
    ends: [End; 2],
}

struct End {
    endpoint: Endpoint<SimFabric>,
    qp: QueuePair,
    memory: MemoryRegion,
}

/// Seconds that each of `samples` messages took, one after another.
pub(crate) fn run(
    path: &Path,
    scheme: SchemeName,
    bytes: u64,
    samples: usize,
) -> Result<Vec<f64>, Failure> {
    let mut world = World::new(path, scheme, bytes)?;
    let mut times_s = Vec::new();
    for _ in 0..samples {
        let recv = {
            let [_, receiver] = &mut world.ends;
            receiver
                .endpoint
                .post_recv(receiver.qp, receiver.memory.whole())?
        };
        // The buffer becomes known to the sender.
        world.run_for(2 * path.rtt.as_nanos())?;
        let start_ns = world.network.now_ns();
        let [sender, _] = &mut world.ends;
        let options = SendOptions {
            scheme: scheme.tag(),
            immediate: None,
            deadline_ns: None,
        };
        let send = sender
            .endpoint
            .post_send(sender.qp, sender.memory.whole(), options)?;
        loop {
            let next_ns = world.poll()?;
            if send.outcome().is_some() {
                break;
            }
            world.advance(next_ns.ok_or("nothing happens any more")?);
        }
        let over_ns = world.network.now_ns();
        // The receiver told three times that it is over.
        world.run_for(10 * path.rtt.as_nanos())?;
        if (send.outcome(), recv.outcome()) != (Some(Outcome::Whole), Some(Outcome::Whole)) {
            return Err(format!("{scheme}: a message is not whole").into());
        }
        times_s.push(std::time::Duration::from_nanos(over_ns - start_ns).as_secs_f64());
    }
    world.compare()?;
    Ok(times_s)
}

impl World {
    fn new(path: &Path, scheme: SchemeName, bytes: u64) -> Result<Self, Failure> {
        let network = SimNetwork::new(path.seed);
        let addrs = [1, 2].map(|host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 5000)));
        let [there, back] = path.links();
        network.connect(addrs[0].ip(), addrs[1].ip(), there, back)?;
        let end = |addr, fill| -> Result<End, Failure> {
            let mut endpoint = Endpoint::new(network.endpoint(addr, 1)?, [fill; 32]);
            let qp = endpoint.create_qp(path.options(scheme, bytes))?;
            let memory = endpoint.register(vec![fill; usize::try_from(bytes)?])?;
            Ok(End {
                endpoint,
                qp,
                memory,
            })
        };
        let mut ends = [end(addrs[0], 0x5a)?, end(addrs[1], 0)?];
        let info = |end: &End| end.endpoint.qp_info(end.qp);
        let infos = [info(&ends[1])?, info(&ends[0])?];
        for (end, peer) in ends.iter_mut().zip(&infos) {
            end.endpoint.connect_qp(end.qp, peer)?;
        }
        Ok(Self { network, ends })
    }

    /// Polls both ends; answers when there is more to do.
    fn poll(&mut self) -> Result<Option<u64>, Failure> {
        let now_ns = self.network.now_ns();
        let [a, b] = &mut self.ends;
        let wanted = [a.endpoint.poll(now_ns)?, b.endpoint.poll(now_ns)?];
        let next = wanted.into_iter().chain([self.network.next_ns()]);
        Ok(next.flatten().min())
    }

    /// Lets time pass to that moment, or a little where it has come.
    fn advance(&mut self, to_ns: u64) {
        let now_ns = self.network.now_ns();
        self.network.advance_to(to_ns.max(now_ns + 1));
    }

    fn run_for(&mut self, span_ns: u128) -> Result<(), Failure> {
        let limit_ns = self.network.now_ns() + u64::try_from(span_ns)?;
        while self.network.now_ns() < limit_ns {
            let next_ns = self.poll()?.unwrap_or(limit_ns);
            self.advance(next_ns.min(limit_ns));
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), Failure> {
        let [a, b] = &self.ends;
        if a.endpoint.memory(a.memory)? == b.endpoint.memory(b.memory)? {
            Ok(())
        } else {
            Err("a message arrived damaged".into())
        }
    }
}
