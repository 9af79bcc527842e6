//! Two ends over fabrics that use the freedom of the fabric contract, and the loop that advances
//! their common time.

use farwrite::fabric::sim::SimNetwork;
use farwrite::{Endpoint, PeerStats, QpOptions, QpStats, QueuePair};

use crate::slow_fabric::{Controls, SlowFabric};
use crate::world::{addr, long_haul};

/// One end.
pub(crate) struct SlowEnd {
    pub(crate) endpoint: Endpoint<SlowFabric>,
    pub(crate) qps: Vec<QueuePair>,
    pub(crate) controls: Controls,
}

impl SlowEnd {
    pub(crate) fn stats(&self, index: usize) -> QpStats {
        let stats = self.endpoint.qp_stats(self.qps[index]);
        stats.expect("its own queue pair")
    }

    pub(crate) fn peer_stats(&self, index: usize) -> PeerStats {
        let stats = self.endpoint.peer_stats(self.qps[index]);
        stats.expect("a connected queue pair")
    }
}

/// Two ends, joined by any number of queue pairs, and the path between them.
pub(crate) struct SlowWorld {
    pub(crate) network: SimNetwork,
    pub(crate) a: SlowEnd,
    pub(crate) b: SlowEnd,
}

impl SlowWorld {
    /// Ends joined by one queue pair for each of `options`, over [`long_haul`].
    pub(crate) fn new(options: &[QpOptions]) -> Self {
        let network = SimNetwork::new(1);
        let link = long_haul();
        network
            .connect(addr(1).ip(), addr(2).ip(), link, link)
            .expect("a good link");
        let channels = options.iter().map(|options| options.sdr.channels);
        let ports = channels.max().unwrap_or(1).into();
        let [mut a, mut b] = [1, 2].map(|host| {
            let controls = Controls::default();
            let inner = network.endpoint(addr(host), ports).expect("a free address");
            let fabric = SlowFabric::new(&network, inner, &controls);
            let mut endpoint = Endpoint::new(fabric, [host; 32]);
            let qps = options.iter().map(|options| {
                let qp = endpoint.create_qp(options.clone());
                qp.expect("good options")
            });
            let qps = qps.collect();
            SlowEnd {
                endpoint,
                qps,
                controls,
            }
        });
        for (&qa, &qb) in a.qps.iter().zip(&b.qps) {
            let info_a = a.endpoint.qp_info(qa).expect("its own");
            let info_b = b.endpoint.qp_info(qb).expect("its own");
            a.endpoint.connect_qp(qa, &info_b).expect("equal options");
            b.endpoint.connect_qp(qb, &info_a).expect("equal options");
        }
        Self { network, a, b }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    /// Polls both ends at successive times until `done` returns true, or until `limit_ns`. Returns
    /// whether `done` returned true.
    pub(crate) fn run_until(
        &mut self,
        limit_ns: u64,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        loop {
            let now_ns = self.network.now_ns();
            let wanted = [&mut self.a, &mut self.b].map(|end| {
                let polled = end.endpoint.poll(now_ns);
                polled.expect("the simulated fabric does not fail")
            });
            if done(self) {
                return true;
            }
            let next = wanted.into_iter().chain([self.network.next_ns()]);
            let next = next.flatten().min().map(|next| next.max(now_ns + 1));
            let Some(next) = next.filter(|&next| next <= limit_ns) else {
                self.network.advance_to(limit_ns);
                return false;
            };
            self.network.advance_to(next);
        }
    }

    /// Runs for `span_ns`.
    pub(crate) fn run_for(&mut self, span_ns: u64) {
        let limit_ns = self.now_ns() + span_ns;
        self.run_until(limit_ns, |_| false);
    }
}
