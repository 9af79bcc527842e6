//! A user-defined scheme: it sends every chunk twice, and sends all chunks again if that was not
//! enough.
//!
//! A scheme consists of two state machines. They receive chunks, reports and the time, and return
//! what to do. This scheme spends bandwidth instead of round trips. Its receiver reports once, when
//! the message is whole. Run it with `cargo run --example new_scheme`.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;

use farwrite::schemes::scheme::{
    Ack, Arrivals, Chunks, Message, MessageId, Outcome, PeerView, Receiver, Report, Scheme,
    SchemeTag, Sender, SenderCounters,
};
use farwrite::{Endpoint, QpOptions, SendOptions, UdpConfig};

/// Ids from 128 on are for private use (P5.0).
const TWICE: SchemeTag = SchemeTag {
    id: 128,
    params: [0; 6],
};

struct Twice;

impl Scheme for Twice {
    fn tag(&self) -> SchemeTag {
        TWICE
    }

    fn sender(&self) -> Box<dyn Sender + Send> {
        Box::new(TwiceSender::default())
    }

    fn receiver(&self) -> Box<dyn Receiver + Send> {
        Box::new(TwiceReceiver::default())
    }
}

/// A message that is not yet known to be whole.
struct Open {
    chunks: u32,
    /// The next chunk to send, and how many more times to send all chunks.
    next: u32,
    passes: u32,
    /// When to start over, once all has been sent.
    again_ns: Option<u64>,
}

#[derive(Default)]
struct TwiceSender {
    open: BTreeMap<u64, Open>,
    over: VecDeque<(u64, Outcome)>,
    counters: SenderCounters,
}

impl TwiceSender {
    fn finish(&mut self, message: u64, outcome: Outcome) {
        if self.open.remove(&message).is_some() {
            self.over.push_back((message, outcome));
        }
    }
}

impl Sender for TwiceSender {
    fn start(&mut self, _: &PeerView, message: &Message) {
        let open = Open {
            chunks: message.chunks,
            next: 0,
            passes: 2,
            again_ns: None,
        };
        self.open.entry(message.number).or_insert(open);
    }

    fn handle_report(&mut self, _: &PeerView, report: &Report) {
        let Report::Ack(ack) = report else { return };
        if self
            .open
            .get(&ack.message)
            .is_some_and(|open| ack.cumulative == open.chunks)
        {
            self.finish(ack.message, Outcome::Whole);
        }
    }

    fn handle_departed(&mut self, view: &PeerView, chunks: &Chunks) {
        let Some(open) = self.open.get_mut(&chunks.message.data()) else {
            return;
        };
        if open.passes == 0 && chunks.range.end == open.chunks {
            open.again_ns = Some(view.now_ns + 3 * view.rtt_ns);
        }
    }

    fn handle_closed(&mut self, _: &PeerView, message: u64, outcome: Outcome) {
        self.finish(message, outcome);
    }

    fn abandon(&mut self, message: u64) {
        self.open.remove(&message);
    }

    fn handle_timeout(&mut self, view: &PeerView) {
        for open in self.open.values_mut() {
            if open.again_ns.is_some_and(|at| at <= view.now_ns) {
                (open.next, open.passes, open.again_ns) = (0, 1, None);
                self.counters.timeouts += 1;
            }
        }
    }

    fn poll_transmit(&mut self, _: &PeerView, max_chunks: u32) -> Option<Chunks> {
        let (&message, open) = self.open.iter_mut().find(|(_, open)| open.passes > 0)?;
        let range = open.next..open.chunks.min(open.next.saturating_add(max_chunks));
        let count = u64::from(range.end - range.start);
        self.counters.sent_chunks += count;
        self.counters.retransmitted_chunks += if open.passes == 2 { 0 } else { count };
        open.next = range.end;
        if open.next == open.chunks {
            (open.next, open.passes) = (0, open.passes - 1);
        }
        Some(Chunks {
            message: message.into(),
            range,
        })
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.over.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        self.open.values().filter_map(|open| open.again_ns).min()
    }

    fn counters(&self) -> SenderCounters {
        self.counters
    }
}

#[derive(Default)]
struct TwiceReceiver {
    /// Chunks of each message that is not whole.
    open: BTreeMap<u64, u32>,
    whole: VecDeque<Ack>,
    over: VecDeque<(u64, Outcome)>,
}

impl Receiver for TwiceReceiver {
    fn start(&mut self, _: &PeerView, message: &Message, _is_cleared: bool) {
        self.open.insert(message.number, message.chunks);
    }

    fn handle_arrivals(&mut self, _: &PeerView, message: MessageId, arrivals: &dyn Arrivals) {
        let number = message.data();
        let Some(&chunks) = self.open.get(&number) else {
            return;
        };
        if arrivals.count(message) == chunks {
            self.open.remove(&number);
            let bits = Vec::new();
            let window_start = chunks / 8 * 8;
            self.whole.push_back(Ack {
                message: number,
                cumulative: chunks,
                seen: chunks,
                window_start,
                bits,
            });
        }
    }

    fn abandon(&mut self, message: u64) {
        self.open.remove(&message);
    }

    fn handle_timeout(&mut self, _: &PeerView, _: &dyn Arrivals) {}

    fn poll_report(&mut self, _: &PeerView, _: &dyn Arrivals, _: usize) -> Option<Report> {
        let ack = self.whole.pop_front()?;
        self.over.push_back((ack.message, Outcome::Whole));
        Some(Report::Ack(ack))
    }

    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.over.pop_front()
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }
}

fn twice(tag: SchemeTag) -> Option<Box<dyn Scheme>> {
    (tag == TWICE).then(|| Box::new(Twice) as Box<dyn Scheme>)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let config = UdpConfig::new("127.0.0.1:0".parse()?);
    let (mut a, mut b) = (Endpoint::over_udp(&config)?, Endpoint::over_udp(&config)?);
    a.add_scheme(twice);
    b.add_scheme(twice);
    let (qa, qb) = (
        a.create_qp(QpOptions::default())?,
        b.create_qp(QpOptions::default())?,
    );
    let (info_a, info_b) = (a.qp_info(qa)?, b.qp_info(qb)?);
    a.connect_qp(qa, &info_b)?;
    b.connect_qp(qb, &info_a)?;

    let source = a.register(vec![7_u8; 1 << 20])?;
    let target = b.register(vec![0_u8; 1 << 20])?;
    let recv = b.post_recv(qb, target.whole())?;
    let send = a.post_send(
        qa,
        source.whole(),
        SendOptions {
            scheme: TWICE,
            ..SendOptions::default()
        },
    )?;
    while send.outcome().is_none() {
        a.poll_now()?;
        b.poll_now()?;
    }
    assert_eq!(recv.outcome(), Some(Outcome::Whole));
    assert!(b.memory(target)?.iter().all(|&byte| byte == 7));
    println!("{:?}", a.qp_stats(qa)?.sender);
    Ok(())
}
