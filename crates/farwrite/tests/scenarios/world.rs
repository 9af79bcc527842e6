//! Two ends joined by a simulated path, and the loop that advances their common time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use farwrite::fabric::sim::{Datagram, SimFabric, SimNetwork};
use farwrite::{Endpoint, QpInfo, QpOptions, QpStats, QueuePair, RateControl, SchemeTag};
use farwrite_link::LinkConfig;
use farwrite_schemes::registry::SchemeName;

use crate::traffic::Traffic;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;
/// Round trip of [`long_haul`].
pub(crate) const RTT: u64 = 25 * MS;
pub(crate) const SCHEMES: [&str; 5] = ["sr-rto", "sr-nack", "gbn", "ec-xor:32,8", "ec-mds:32,8"];

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From a to b.
    Forth,
    /// From b to a.
    Back,
}

impl Way {
    pub(crate) fn of(datagram: &Datagram) -> Self {
        if datagram.src.ip() == addr(1).ip() {
            Self::Forth
        } else {
            Self::Back
        }
    }
}

/// One end.
pub(crate) struct End {
    pub(crate) endpoint: Endpoint<SimFabric>,
    pub(crate) qp: QueuePair,
}

impl End {
    pub(crate) fn stats(&self) -> QpStats {
        self.endpoint.qp_stats(self.qp).expect("its own queue pair")
    }
}

/// Two ends, `a` and `b`, and the network between them.
pub(crate) struct World {
    pub(crate) network: SimNetwork,
    pub(crate) traffic: Traffic,
    pub(crate) a: End,
    pub(crate) b: End,
    /// Number of times that both ends were polled, sent nothing and had received nothing.
    pub(crate) idle_polls: u64,
}

pub(crate) fn addr(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4791))
}

/// Returns a path of 25 ms there and back at 10 Gbit/s, without faults.
pub(crate) fn long_haul() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(12_500),
        rate_bps: Some(10_000_000_000),
        ..LinkConfig::default()
    }
}

pub(crate) fn options() -> QpOptions {
    QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: 9_000_000_000,
        },
        initial_rtt: Duration::from_millis(25),
        ..QpOptions::default()
    }
}

pub(crate) fn tag(name: &str) -> SchemeTag {
    name.parse::<SchemeName>().expect("a scheme").tag()
}

impl World {
    /// Makes a world in which both directions of the path have the same configuration.
    pub(crate) fn new(seed: u64, link: LinkConfig, options: &QpOptions) -> Self {
        Self::with_links(seed, link, link, options)
    }

    pub(crate) fn with_links(
        seed: u64,
        forth: LinkConfig,
        back: LinkConfig,
        options: &QpOptions,
    ) -> Self {
        Self::with_infos(seed, [forth, back], options, |_| ())
    }

    /// Makes a world in which the ends connect with the information that `change` leaves of theirs.
    pub(crate) fn with_infos(
        seed: u64,
        [forth, back]: [LinkConfig; 2],
        options: &QpOptions,
        change: impl Fn(&mut QpInfo),
    ) -> Self {
        let network = SimNetwork::new(seed);
        let ports = u16::from(options.sdr.channels);
        let mut ends = [1, 2].map(|host| {
            let fabric = network.endpoint(addr(host), ports).expect("a free address");
            let mut endpoint = Endpoint::new(fabric, [host; 32]);
            let qp = endpoint.create_qp(options.clone()).expect("good options");
            End { endpoint, qp }
        });
        network
            .connect(addr(1).ip(), addr(2).ip(), forth, back)
            .expect("a good link");
        let mut infos = ends
            .each_ref()
            .map(|end| end.endpoint.qp_info(end.qp).expect("own queue pair"));
        infos.iter_mut().for_each(change);
        for (end, peer) in ends.iter_mut().zip(infos.iter().rev()) {
            end.endpoint
                .connect_qp(end.qp, peer)
                .expect("equal options");
        }
        // The end that opens control packets with a key has made this key.
        let keys = [infos[1].control_key, infos[0].control_key];
        let [a, b] = ends;
        Self {
            traffic: Traffic::watch(&network, keys),
            network,
            a,
            b,
            idle_polls: 0,
        }
    }

    /// Returns the end that sends in a direction.
    pub(crate) fn sender(&mut self, way: Way) -> &mut End {
        match way {
            Way::Forth => &mut self.a,
            Way::Back => &mut self.b,
        }
    }

    /// Returns the end that receives in a direction.
    pub(crate) fn receiver(&mut self, way: Way) -> &mut End {
        match way {
            Way::Forth => &mut self.b,
            Way::Back => &mut self.a,
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    /// Cuts the path in both directions, or restores it.
    pub(crate) fn set_down(&self, down: bool) {
        let (a, b) = (addr(1).ip(), addr(2).ip());
        for (from, to) in [(a, b), (b, a)] {
            self.network.set_down(from, to, down).expect("a link");
        }
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
            let before = self.packets();
            let wanted = [&mut self.a, &mut self.b].map(|end| {
                let polled = end.endpoint.poll(now_ns);
                polled.expect("the simulated fabric does not fail")
            });
            if before == self.packets() {
                self.idle_polls += 1;
            }
            if done(self) {
                return true;
            }
            let next = wanted.into_iter().chain([self.network.next_ns()]);
            // An end that wants to be polled at once makes no progress unless time passes.
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

    /// Returns the number of packets that both ends have sent and received.
    fn packets(&self) -> u64 {
        let counters = [&self.a, &self.b].map(|end| end.endpoint.counters());
        let moved = counters.map(|c| c.sent_packets + c.received_packets);
        moved.iter().sum()
    }
}
