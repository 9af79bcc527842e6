//! The devices of a case.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use farwrite_boxes::{BoxDevice, Middlebox};
use farwrite_link::Datagram;
use farwrite_net::header::Header;
use farwrite_net::{Device, Frame, Output, Ports};
use farwrite_rc::Nic;

use super::forge;
use super::headers::{Converted, Headers};
use super::plan::{BoxPlan, Rates};
use super::singles::{Singles, is_single};
use farwrite_rng::SplitMix;

/// Highest number of box messages that the path remembers.
const MAX_SEEN: usize = 40;

pub(crate) enum Node<B: Middlebox> {
    Host(Box<BoxHost>),
    Box(Box<BoxNode<B>>),
    /// Forwards all frames; stands in place of a missing box.
    Wire(Vec<Output>),
    Path(Box<FaultyPath>),
}

/// A box, and the frames that take a way around it.
pub(crate) struct BoxNode<B: Middlebox> {
    pub(crate) device: BoxDevice<Converted<B>>,
    /// Whether the frames that arrive at a port do.
    pub(crate) around: [bool; 2],
    pub(crate) out: Vec<Output>,
}

/// Packets that a NIC has sent.
pub(crate) type Sent = Rc<RefCell<HashSet<Vec<u8>>>>;

/// A NIC, with a record of the packets that it sends.
pub(crate) struct BoxHost {
    pub(crate) nic: Nic,
    pub(crate) singles: Singles,
    pub(crate) sent: Sent,
    pub(crate) peer_sent: Sent,
    /// The first packet from the path that the peer's NIC did not send.
    pub(crate) made_up: Option<Frame>,
}

/// Offset of the byte with FECN and BECN. The ICRC does not cover it.
const CONGESTION: usize = 4;

/// The bytes of a packet that the ICRC covers.
pub(crate) fn identity(frame: &Frame) -> Vec<u8> {
    let datagram = frame.to_datagram();
    let Datagram {
        src,
        dst,
        id,
        payload,
        ..
    } = datagram.expect("NICs send whole packets");
    let mut identity = payload;
    identity[CONGESTION] = 0;
    identity.extend_from_slice(&id.to_be_bytes());
    identity.extend_from_slice(format!("{src} {dst}").as_bytes());
    identity
}

/// The path between the boxes.
pub(crate) struct FaultyPath {
    pub(crate) rates: Rates,
    pub(crate) end_ns: u64,
    /// The key with which messages are forged.
    pub(crate) key: [u8; 32],
    pub(crate) rng: SplitMix,
    pub(crate) counts: PathCounts,
    /// The single packets that it delivered unchanged, by the port to which they went.
    pub(crate) passed: [HashSet<Vec<u8>>; 2],
    headers: Headers,
    seen: Vec<(usize, Frame)>,
    /// Remaining frames of the current burst of losses.
    burst: u64,
    /// Frames by the time of their departure, and a serial number.
    waiting: BTreeMap<(u64, u64), Output>,
    number: u64,
}

/// Counts of the faults of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounts {
    pub(crate) lost: u64,
    pub(crate) changed: u64,
    pub(crate) doubled: u64,
    pub(crate) late: u64,
    pub(crate) replayed: u64,
    pub(crate) forged: u64,
}

impl FaultyPath {
    /// A path with the faults of a plan. Box messages are forged with `key`.
    pub(crate) fn new(plan: &BoxPlan, key: [u8; 32]) -> Self {
        Self {
            rates: plan.rates,
            end_ns: plan.faults_end_ns,
            key,
            rng: SplitMix::new(plan.path_seed),
            counts: PathCounts::default(),
            passed: Default::default(),
            headers: plan.headers,
            seen: Vec::new(),
            burst: 0,
            waiting: BTreeMap::new(),
            number: 0,
        }
    }

    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        let to = 1 - port;
        if now_ns >= self.end_ns {
            return self.send(now_ns, to, frame);
        }
        if forge::message(&frame).is_some() && self.seen.len() < MAX_SEEN {
            self.seen.push((to, frame.clone()));
        }
        if self.rng.chance(self.rates.forge) {
            self.forge(now_ns);
        }
        if self.burst > 0 || self.rng.chance(self.rates.loss) {
            self.burst = match self.burst {
                0 => self.rng.within(0..self.rates.burst + 1),
                left => left - 1,
            };
            self.counts.lost += 1;
            return;
        }
        if self.rng.chance(self.rates.double) {
            self.counts.doubled += 1;
            self.delay(now_ns, to, frame.clone());
        }
        if self.rng.chance(self.rates.change)
            && let Some(changed) = forge::changed(&frame, &mut self.rng)
        {
            self.counts.changed += 1;
            return self.delay(now_ns, to, changed);
        }
        self.delay(now_ns, to, frame);
    }

    fn delay(&mut self, now_ns: u64, to: usize, frame: Frame) {
        let mut at_ns = now_ns;
        if self.rng.chance(self.rates.late) {
            self.counts.late += 1;
            at_ns += self.rng.within(0..self.rates.late_ns + 1);
        }
        self.send(at_ns, to, frame);
    }

    /// Sends a box message again, unchanged or changed.
    fn forge(&mut self, now_ns: u64) {
        if self.seen.is_empty() {
            return;
        }
        let (to, genuine) = &self.seen[self.rng.index(self.seen.len())];
        let (to, genuine) = (*to, genuine.clone());
        if self.rng.chance(0.3) {
            self.counts.replayed += 1;
            self.send(now_ns, to, genuine);
        } else if let Some(forged) = self.forged(&genuine) {
            self.counts.forged += 1;
            self.send(now_ns, to, forged);
        }
    }

    fn forged(&mut self, genuine: &Frame) -> Option<Frame> {
        forge::forged(genuine, self.headers, &self.key, &mut self.rng)
    }

    fn send(&mut self, at_ns: u64, port: usize, frame: Frame) {
        if is_single(&frame) {
            self.passed[port].insert(identity(&frame));
        }
        self.number += 1;
        let output = Output::Send { port, frame };
        self.waiting.insert((at_ns, self.number), output);
    }

    fn next_ns(&self) -> Option<u64> {
        self.waiting.keys().next().map(|(at_ns, _)| *at_ns)
    }
}

impl<B: Middlebox> Device for Node<B> {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Host(host) => {
                let is_packet = matches!(frame.header, Header::Roce(_));
                if is_packet && !host.peer_sent.borrow().contains(&identity(&frame)) {
                    host.made_up.get_or_insert(frame.clone());
                }
                if !host.singles.take(&frame) {
                    host.nic.handle(now_ns, port, frame);
                }
            }
            Self::Box(node) if !node.around[port] => node.device.handle(now_ns, port, frame),
            Self::Box(node) => node.out.push(Output::Send {
                port: 1 - port,
                frame,
            }),
            Self::Wire(out) => out.push(Output::Send {
                port: 1 - port,
                frame,
            }),
            Self::Path(path) => path.handle(now_ns, port, frame),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Host(host) => {
                let single = |host: &mut BoxHost| {
                    let frame = host.singles.poll(now_ns)?;
                    Some(Output::Send { port: 0, frame })
                };
                let output = host.nic.poll(now_ns, ports).or_else(|| single(host));
                if let Some(Output::Send { frame, .. }) = &output {
                    host.sent.borrow_mut().insert(identity(frame));
                }
                output
            }
            Self::Box(node) => node.out.pop().or_else(|| node.device.poll(now_ns, ports)),
            Self::Wire(out) => out.pop(),
            Self::Path(path) => {
                let first = path.waiting.first_entry()?;
                (first.key().0 <= now_ns).then(|| first.remove())
            }
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Host(host) => {
                let times = [host.nic.next_ns(), host.singles.next_ns()];
                times.into_iter().flatten().min()
            }
            Self::Box(node) => node.device.next_ns(),
            Self::Wire(_) => None,
            Self::Path(path) => path.next_ns(),
        }
    }
}
