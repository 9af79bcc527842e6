//! Two endpoints joined by a simulated path, and the loop that advances their common time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use farwrite::fabric::sim::{SimFabric, SimNetwork};
use farwrite::{
    Endpoint, MemoryRegion, QpOptions, QueuePair, RecvHandle, SchemeTag, SendHandle, SendOptions,
};
use farwrite_link::LinkConfig;
use farwrite_schemes::registry::SchemeName;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// One end.
pub(crate) struct End {
    pub(crate) endpoint: Endpoint<SimFabric>,
    pub(crate) qp: QueuePair,
}

/// Two ends, `a` and `b`, and the network between them.
pub(crate) struct World {
    pub(crate) network: SimNetwork,
    pub(crate) a: End,
    pub(crate) b: End,
}

pub(crate) fn addr(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4791))
}

/// A path of 25 ms there and back at 10 Gbit/s, without faults.
pub(crate) fn long_haul() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(12_500),
        rate_bps: Some(10_000_000_000),
        ..LinkConfig::default()
    }
}

pub(crate) fn options() -> QpOptions {
    QpOptions {
        rate_bps: 9_000_000_000,
        initial_rtt: Duration::from_millis(25),
        ..QpOptions::default()
    }
}

pub(crate) fn tag(name: &str) -> SchemeTag {
    name.parse::<SchemeName>().expect("a scheme").scheme().tag()
}

impl World {
    /// Both directions of the path alike.
    pub(crate) fn new(seed: u64, link: LinkConfig, options: &QpOptions) -> Self {
        Self::with_links(seed, link, link, options)
    }

    pub(crate) fn with_links(
        seed: u64,
        forward: LinkConfig,
        backward: LinkConfig,
        options: &QpOptions,
    ) -> Self {
        println!("seed {seed:#018x}");
        let network = SimNetwork::new(seed);
        let ports = u16::from(options.sdr.channels);
        let mut ends = [1, 2].map(|host| {
            let fabric = network.endpoint(addr(host), ports).expect("a free address");
            let mut endpoint = Endpoint::new(fabric, [host; 32]);
            let qp = endpoint.create_qp(options.clone()).expect("good options");
            End { endpoint, qp }
        });
        network
            .connect(addr(1).ip(), addr(2).ip(), forward, backward)
            .expect("a good link");
        let infos = ends
            .each_ref()
            .map(|end| end.endpoint.qp_info(end.qp).expect("own queue pair"));
        for (end, peer) in ends.iter_mut().zip(infos.iter().rev()) {
            end.endpoint
                .connect_qp(end.qp, peer)
                .expect("equal options");
        }
        let [a, b] = ends;
        Self { network, a, b }
    }

    /// Polls both ends at one moment after another until `done`, at most to `limit_ns`. Returns
    /// whether it was done.
    pub(crate) fn run_until(
        &mut self,
        limit_ns: u64,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        loop {
            let now_ns = self.network.now_ns();
            let a = self
                .a
                .endpoint
                .poll(now_ns)
                .expect("the simulated fabric does not fail");
            let b = self
                .b
                .endpoint
                .poll(now_ns)
                .expect("the simulated fabric does not fail");
            if done(self) {
                return true;
            }
            let next = [a, b, self.network.next_ns()].into_iter().flatten().min();
            // An end that wants to be polled at once makes no progress without time passing.
            let Some(next) = next.map(|next| next.max(now_ns + 1)) else {
                return false;
            };
            if next > limit_ns {
                return false;
            }
            self.network.advance_to(next);
        }
    }

    /// Sends `bytes` from a to b with a scheme, and says when the sender knew the outcome.
    pub(crate) fn transfer(&mut self, bytes: &[u8], scheme: SchemeTag, limit_ns: u64) -> Transfer {
        let source = self.a.endpoint.register(bytes.to_vec()).expect("room");
        let target = self
            .b
            .endpoint
            .register(vec![0; bytes.len()])
            .expect("room");
        let recv = self
            .b
            .endpoint
            .post_recv(self.b.qp, target.whole())
            .expect("a free slot");
        let options = SendOptions {
            scheme,
            immediate: None,
        };
        let send = self
            .a
            .endpoint
            .post_send(self.a.qp, source.whole(), options)
            .expect("a free slot");
        let start_ns = self.network.now_ns();
        self.run_until(limit_ns, |_| send.outcome().is_some());
        let took_ns = self.network.now_ns() - start_ns;
        Transfer {
            target,
            recv,
            send,
            took_ns,
        }
    }
}

/// What [`World::transfer`] did.
pub(crate) struct Transfer {
    pub(crate) target: MemoryRegion,
    pub(crate) recv: RecvHandle,
    pub(crate) send: SendHandle,
    pub(crate) took_ns: u64,
}

/// Bytes that differ everywhere and follow from the seed.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}
