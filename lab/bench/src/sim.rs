//! Two endpoints in virtual time, driven by one thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use farwrite::fabric::sim::{LinkConfig, SimFabric, SimNetwork};
use farwrite::{Endpoint, QpOptions, QueuePair};

use crate::Failure;
use crate::connect::connect;

/// Two endpoints, and the simulated network between them.
pub(crate) struct SimEnds {
    network: SimNetwork,
    pub(crate) tx: Endpoint<SimFabric>,
    pub(crate) rx: Endpoint<SimFabric>,
}

impl SimEnds {
    /// Connects two new endpoints by `link` in both directions.
    pub(crate) fn new(seed: u64, link: LinkConfig) -> Result<Self, Failure> {
        let network = SimNetwork::new(seed);
        let addrs = [1, 2].map(|host| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 5000)));
        network.connect(addrs[0].ip(), addrs[1].ip(), link, link)?;
        let [tx, rx] = addrs.map(|addr| network.endpoint(addr, 1));
        Ok(Self {
            tx: Endpoint::new(tx?, [7; 32]),
            rx: Endpoint::new(rx?, [7; 32]),
            network,
        })
    }

    /// Creates a queue pair at each end, and connects them.
    pub(crate) fn connect(&mut self, options: &QpOptions) -> Result<[QueuePair; 2], Failure> {
        Ok(connect(&mut self.tx, &mut self.rx, options)?)
    }

    /// Polls both ends whenever one of them or the network is due, but at most once per `grain`,
    /// until `done`.
    pub(crate) fn run_until(
        &mut self,
        grain: Duration,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), Failure> {
        while !done() {
            let next_ns = self.poll()?.ok_or("both ends wait forever")?;
            self.advance(next_ns, grain)?;
        }
        Ok(())
    }

    /// Advances the time by `time` without requests to the ends. They are polled at most once per
    /// `grain`.
    pub(crate) fn rest(&mut self, grain: Duration, time: Duration) -> Result<(), Failure> {
        let end_ns = self.network.now_ns() + u64::try_from(time.as_nanos())?;
        while let Some(next_ns) = self.poll()?.filter(|&next_ns| next_ns < end_ns) {
            self.advance(next_ns, grain)?;
        }
        self.network
            .advance_to(end_ns.max(self.network.now_ns() + 1));
        Ok(())
    }

    /// Polls both ends. Returns when to poll next.
    fn poll(&mut self) -> Result<Option<u64>, Failure> {
        let now_ns = self.network.now_ns();
        let wanted = [self.tx.poll(now_ns)?, self.rx.poll(now_ns)?];
        let wanted = wanted.into_iter().chain([self.network.next_ns()]);
        Ok(wanted.flatten().min())
    }

    fn advance(&mut self, next_ns: u64, grain: Duration) -> Result<(), Failure> {
        let grain_ns = u64::try_from(grain.as_nanos())?.max(1);
        self.network
            .advance_to(next_ns.max(self.network.now_ns() + grain_ns));
        Ok(())
    }
}
