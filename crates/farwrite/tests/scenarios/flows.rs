//! Senders and receivers that share one path, and the loop that advances their common time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use farwrite::fabric::sim::{SimFabric, SimNetwork};
use farwrite::{
    Endpoint, MemoryRegion, PeerStats, QpConfig, QpOptions, QueuePair, RateControl, Region,
    SendHandle, SendOptions,
};
use farwrite_link::{LinkConfig, Loss};

use crate::world::{MS, SECOND};

/// Bytes of a message.
pub(crate) const MESSAGE: u64 = 4 << 20;
/// Messages that a busy queue pair has posted.
const POSTED: usize = 8;
/// Round trip of [`path`].
pub(crate) const RTT_NS: u64 = 20 * MS;
pub(crate) const RATE_BPS: u64 = 500_000_000;
/// Lower bound of payload bytes divided by bytes on the wire.
pub(crate) const PAYLOAD_SHARE: f64 = 0.98;

/// Returns a path of 500 Mbit/s and 20 ms. Its queue has room for one bandwidth-delay product. The
/// return path has enough room.
pub(crate) fn path(loss_packet: f64) -> [LinkConfig; 2] {
    let forth = LinkConfig {
        delay: Duration::from_nanos(RTT_NS / 2),
        rate_bps: Some(RATE_BPS),
        queue_bytes: Some(RATE_BPS / 8 * RTT_NS / SECOND),
        loss: match loss_packet {
            0.0 => Loss::None,
            _ => Loss::Iid { loss_packet },
        },
        ..LinkConfig::default()
    };
    let back = LinkConfig {
        rate_bps: Some(10 * RATE_BPS),
        queue_bytes: None,
        loss: Loss::None,
        ..forth
    };
    [forth, back]
}

pub(crate) fn adaptive() -> RateControl {
    RateControl::default()
}

/// A sender and its receiver, joined by queue pairs.
pub(crate) struct Flow {
    pub(crate) tx: Endpoint<SimFabric>,
    pub(crate) rx: Endpoint<SimFabric>,
    pub(crate) pairs: Vec<[QueuePair; 2]>,
    source: MemoryRegion,
    target: MemoryRegion,
    /// Sends in progress of each queue pair.
    sends: Vec<Vec<SendHandle>>,
    /// Whether a new message is posted whenever one ends.
    busy: bool,
}

impl Flow {
    fn new(network: &SimNetwork, number: u16, pairs: usize, control: RateControl) -> Self {
        let options = QpOptions {
            sdr: QpConfig {
                max_message_bytes: MESSAGE,
                slots: 16,
                ..QpConfig::default()
            },
            rate_control: control,
            ..QpOptions::default()
        };
        let [mut tx, mut rx] = [1, 2].map(|host| {
            let addr = SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 5000 + number));
            let fabric = network.endpoint(addr, 1).expect("a free address");
            Endpoint::new(fabric, [host + u8::try_from(number).expect("few") * 2; 32])
        });
        let pairs = (0..pairs).map(|_| {
            let [qa, qb] = [&mut tx, &mut rx].map(|end| {
                let qp = end.create_qp(options.clone());
                qp.expect("good options")
            });
            let (info_a, info_b) = (tx.qp_info(qa).expect("own"), rx.qp_info(qb).expect("own"));
            tx.connect_qp(qa, &info_b).expect("equal options");
            rx.connect_qp(qb, &info_a).expect("equal options");
            [qa, qb]
        });
        let pairs: Vec<_> = pairs.collect();
        // The test does not check the received bytes.
        let [source, target] = [&mut tx, &mut rx].map(|end| {
            let region = end.register_region(Region::ghost(MESSAGE));
            region.expect("the simulation takes ghosts")
        });
        Self {
            sends: vec![Vec::new(); pairs.len()],
            tx,
            rx,
            pairs,
            source,
            target,
            busy: false,
        }
    }

    /// Sends a message of `bytes` bytes through one of the queue pairs.
    pub(crate) fn send(&mut self, pair: usize, bytes: u64) -> SendHandle {
        let [qa, qb] = self.pairs[pair];
        let posted = self.rx.post_recv(qb, self.target.whole());
        posted.expect("a free slot");
        let source = self.source.slice(0..bytes);
        let send = self.tx.post_send(qa, source, SendOptions::default());
        send.expect("a free slot")
    }

    fn refill(&mut self) {
        for pair in 0..self.pairs.len() {
            self.sends[pair].retain(|send| send.outcome().is_none());
            while self.busy && self.sends[pair].len() < POSTED {
                let send = self.send(pair, MESSAGE);
                self.sends[pair].push(send);
            }
        }
    }

    pub(crate) fn stats(&self) -> PeerStats {
        let stats = self.tx.peer_stats(self.pairs[0][0]);
        stats.expect("a connected queue pair")
    }

    /// Returns the payload bytes that have arrived through each queue pair, without duplicates.
    pub(crate) fn arrived(&self) -> Vec<u64> {
        let stats = self.pairs.iter().map(|[_, qb]| {
            let stats = self.rx.qp_stats(*qb).expect("own");
            stats.received_bytes - stats.duplicate_packets * 4096
        });
        stats.collect()
    }
}

/// Flows between two hosts.
pub(crate) struct Flows {
    pub(crate) network: SimNetwork,
    pub(crate) flows: Vec<Flow>,
    /// Receivers that are not polled.
    pub(crate) stalled: bool,
}

impl Flows {
    pub(crate) fn new(links: [LinkConfig; 2]) -> Self {
        let network = SimNetwork::new(7);
        let flows = Self {
            network,
            flows: Vec::new(),
            stalled: false,
        };
        flows.set_links(links);
        flows
    }

    /// Replaces the links.
    pub(crate) fn set_links(&self, [forth, back]: [LinkConfig; 2]) {
        let [a, b] = [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host).into());
        let joined = self.network.connect(a, b, forth, back);
        joined.expect("good links");
    }

    /// Adds a sender with `pairs` queue pairs. Returns its number.
    pub(crate) fn add(&mut self, pairs: usize, control: RateControl) -> usize {
        let number = u16::try_from(self.flows.len()).expect("few");
        let flow = Flow::new(&self.network, number, pairs, control);
        self.flows.push(flow);
        self.flows.len() - 1
    }

    /// Sets whether a sender always has data to send.
    pub(crate) fn set_busy(&mut self, flow: usize, busy: bool) {
        self.flows[flow].busy = busy;
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    /// Polls all ends until `done`, at most until `limit_ns`. Returns whether `done` was reached.
    pub(crate) fn run_until(
        &mut self,
        limit_ns: u64,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        loop {
            let now_ns = self.network.now_ns();
            let mut next = self.network.next_ns();
            for flow in &mut self.flows {
                flow.refill();
                let ends = [Some(&mut flow.tx), (!self.stalled).then_some(&mut flow.rx)];
                for end in ends.into_iter().flatten() {
                    let wanted = end.poll(now_ns).expect("the simulation does not fail");
                    next = [next, wanted].into_iter().flatten().min();
                }
            }
            if done(self) {
                return true;
            }
            let next = next.map(|next| next.max(now_ns + 1));
            let Some(next) = next.filter(|&next| next <= limit_ns) else {
                self.network.advance_to(limit_ns);
                return false;
            };
            self.network.advance_to(next);
        }
    }

    pub(crate) fn run_for(&mut self, span_ns: u64) {
        let limit_ns = self.now_ns() + span_ns;
        self.run_until(limit_ns, |_| false);
    }

    /// Runs for `span_ns`. Returns the rate at which payload arrives through each queue pair of a
    /// flow, in bits per second.
    pub(crate) fn rates_bps(&mut self, flow: usize, span_ns: u64) -> Vec<f64> {
        let before = self.flows[flow].arrived();
        self.run_for(span_ns);
        let after = self.flows[flow].arrived();
        let pairs = after.into_iter().zip(before);
        let bits = pairs.map(|(after, before)| (after - before) as f64 * 8.0);
        bits.map(|bits| bits * 1e9 / span_ns as f64).collect()
    }

    pub(crate) fn rate_bps(&mut self, flow: usize, span_ns: u64) -> f64 {
        self.rates_bps(flow, span_ns).into_iter().sum()
    }
}
