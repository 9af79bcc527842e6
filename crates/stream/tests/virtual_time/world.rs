//! Two endpoints with some streams between them, on a simulated path.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use farwrite::fabric::sim::{SimFabric, SimNetwork};
use farwrite::{Endpoint, QpOptions, QueuePair, RateControl};
use farwrite_link::LinkConfig;
use farwrite_stream::{ByteStream, StreamOptions};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// Four messages of 16 KiB, so that short tests see what happens when all are in use.
pub(crate) fn small() -> StreamOptions {
    StreamOptions {
        message_bytes: 16 * 1024,
        messages: 4,
        ..StreamOptions::default()
    }
}

/// A path of 20 ms there and back at 1 Gbit/s.
pub(crate) fn path() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        rate_bps: Some(1_000_000_000),
        ..LinkConfig::default()
    }
}

fn addr(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4791))
}

/// Options of queue pairs that fit the path.
pub(crate) fn base() -> QpOptions {
    QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: 900_000_000,
        },
        initial_rtt: Duration::from_millis(20),
        ..QpOptions::default()
    }
}

/// The ends `a` and `b`.
pub(crate) struct World {
    pub(crate) network: SimNetwork,
    pub(crate) a: Endpoint<SimFabric>,
    pub(crate) b: Endpoint<SimFabric>,
    pub(crate) streams: Vec<Ends>,
}

/// The two ends of a stream.
pub(crate) struct Ends {
    pub(crate) a: ByteStream,
    pub(crate) b: ByteStream,
    pub(crate) qa: QueuePair,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        link: LinkConfig,
        options: &StreamOptions,
        streams: usize,
    ) -> Self {
        Self::with_ends(seed, link, [options, options], streams)
    }

    /// Makes a world whose ends differ. The queue pairs are those of the first end.
    pub(crate) fn with_ends(
        seed: u64,
        link: LinkConfig,
        [a, b]: [&StreamOptions; 2],
        streams: usize,
    ) -> Self {
        let network = SimNetwork::new(seed);
        let [mut end_a, mut end_b] = [1, 2].map(|host| {
            let fabric = network.endpoint(addr(host), 1).expect("a free address");
            Endpoint::new(fabric, [host; 32])
        });
        let (ip_a, ip_b) = (addr(1).ip(), addr(2).ip());
        network
            .connect(ip_a, ip_b, link, link)
            .expect("a good link");
        let queue_pair = a.queue_pair(&base());
        let streams = (0..streams).map(|_| {
            let qa = end_a.create_qp(queue_pair.clone()).expect("good options");
            let qb = end_b.create_qp(queue_pair.clone()).expect("good options");
            let (info_a, info_b) = (end_a.qp_info(qa), end_b.qp_info(qb));
            end_a
                .connect_qp(qa, &info_b.expect("info"))
                .expect("equal options");
            end_b
                .connect_qp(qb, &info_a.expect("info"))
                .expect("equal options");
            Ends {
                a: ByteStream::new(qa, a, &queue_pair),
                b: ByteStream::new(qb, b, &queue_pair),
                qa,
            }
        });
        let streams = streams.collect();
        Self {
            network,
            a: end_a,
            b: end_b,
            streams,
        }
    }

    /// Cuts the path in both directions, or restores it.
    pub(crate) fn set_down(&self, down: bool) {
        let (a, b) = (addr(1).ip(), addr(2).ip());
        for (from, to) in [(a, b), (b, a)] {
            self.network.set_down(from, to, down).expect("a link");
        }
    }

    /// Runs until `done` returns true, or for `span_ns`. `done` is called after every poll. Returns
    /// whether it returned true.
    pub(crate) fn run(&mut self, span_ns: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let limit_ns = self.network.now_ns() + span_ns;
        loop {
            let now_ns = self.network.now_ns();
            let polled = [self.a.poll(now_ns), self.b.poll(now_ns)];
            let wanted = polled.map(|next| next.expect("the simulated fabric does not fail"));
            let is_done = done(self);
            let mut changed = false;
            for stream in &mut self.streams {
                changed |= stream.a.progress(&mut self.a);
                changed |= stream.b.progress(&mut self.b);
            }
            if is_done {
                return true;
            }
            let next = wanted
                .into_iter()
                .chain([self.network.next_ns(), changed.then_some(0)]);
            // An end that wants to be polled at once makes no progress unless time passes.
            let next = next.flatten().min().map(|next| next.max(now_ns + 1));
            let Some(next) = next.filter(|&next| next <= limit_ns) else {
                self.network.advance_to(limit_ns);
                return false;
            };
            self.network.advance_to(next);
        }
    }

    pub(crate) fn run_for(&mut self, span_ns: u64) {
        self.run(span_ns, |_| false);
    }
}

/// The bytes of a direction, which no two directions share.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    farwrite_rng::SplitMix::new(seed).bytes(length)
}

/// Writes `bytes` from `*written` on, as far as there is room, and ends the direction behind them.
pub(crate) fn feed(stream: &mut ByteStream, bytes: &[u8], written: &mut usize) {
    if *written < bytes.len() {
        *written += stream
            .sender
            .write(&bytes[*written..])
            .expect("the stream is open");
    }
    if *written == bytes.len() {
        stream.sender.finish();
    }
}

/// Reads what has arrived. Returns whether the direction has ended.
pub(crate) fn drain(stream: &mut ByteStream, heard: &mut Vec<u8>) -> bool {
    let mut piece = [0; 5000];
    loop {
        match stream
            .receiver
            .read(&mut piece)
            .expect("the stream is open")
        {
            None => return false,
            Some(0) => return true,
            Some(length) => heard.extend_from_slice(&piece[..length]),
        }
    }
}
