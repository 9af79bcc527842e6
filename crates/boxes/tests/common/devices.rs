//! The devices of the networks in [`super`].

use std::collections::BTreeMap;

use farwrite_boxes::BoxDevice;
use farwrite_boxes::lowar::Lowar;
use farwrite_boxes::netrt::NetRt;
use farwrite_net::header::Header;
use farwrite_net::{Device, Frame, NodeId, Output, Ports};
use farwrite_rc::{Completion, Nic};

pub(crate) enum Node {
    Host(Box<Host>),
    Box(Box<BoxDevice<NetRt>>),
    Lowar(Box<BoxDevice<Lowar>>),
    /// Forwards all frames. It takes the place of a box.
    Wire(Vec<Output>),
    /// Loses frames that go to its port 1.
    Lossy(Lossy),
    /// Records the data packets that go to its port 1.
    Tap(Tap),
}

/// A NIC that records when its requests complete.
pub(crate) struct Host {
    pub(crate) nic: Nic,
    /// Completion times by the id of the request, for all queue pairs of the NIC.
    pub(crate) done_ns: BTreeMap<u64, u64>,
}

impl Host {
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            nic: Nic::new(node),
            done_ns: BTreeMap::new(),
        }
    }
}

/// A link that records the data packets of one direction.
#[derive(Default)]
pub(crate) struct Tap {
    out: Vec<Output>,
    /// Queue pair of the receiver, and PSN.
    pub(crate) passed: Vec<(u32, u32)>,
}

impl Tap {
    fn handle(&mut self, port: usize, frame: Frame) {
        if let Header::Roce(roce) = &frame.header
            && port == 0
            && frame.payload.carried_bytes() > 0
        {
            self.passed.push((roce.bth.dest_qp, roce.bth.psn));
        }
        self.out.push(Output::Send {
            port: 1 - port,
            frame,
        });
    }
}

/// A link that loses a share of the frames of one direction.
pub(crate) struct Lossy {
    share: f64,
    state: u64,
    out: Vec<Output>,
    pub(crate) lost: u64,
}

impl Lossy {
    pub(crate) fn new(share: f64, seed: u64) -> Self {
        Self {
            share,
            state: seed * 2 + 0x9E37_79B9_7F4A_7C15,
            out: Vec::new(),
            lost: 0,
        }
    }

    fn handle(&mut self, port: usize, frame: Frame) {
        // Marsaglia's xorshift64. `farwrite_rng` is the generator of other tests, but tables of
        // lab/results/boxes.md depend on the draws of this one, through the examples.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let draw = (self.state >> 11) as f64 / (1u64 << 53) as f64;
        if port == 0 && draw < self.share {
            self.lost += 1;
            return;
        }
        self.out.push(Output::Send {
            port: 1 - port,
            frame,
        });
    }
}

impl Device for Node {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Host(host) => {
                let qpn = match &frame.header {
                    Header::Roce(roce) => roce.bth.dest_qp,
                    Header::Other(_) => 0,
                };
                host.nic.handle(now_ns, port, frame);
                while let Some(done) = host.nic.poll_completion(qpn) {
                    let Completion::Acknowledged { id } = done else {
                        panic!("{done:?}");
                    };
                    host.done_ns.insert(id, now_ns);
                }
            }
            Self::Box(device) => device.handle(now_ns, port, frame),
            Self::Lowar(device) => device.handle(now_ns, port, frame),
            Self::Lossy(lossy) => lossy.handle(port, frame),
            Self::Tap(tap) => tap.handle(port, frame),
            Self::Wire(out) => out.push(Output::Send {
                port: 1 - port,
                frame,
            }),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Host(host) => host.nic.poll(now_ns, ports),
            Self::Box(device) => device.poll(now_ns, ports),
            Self::Lowar(device) => device.poll(now_ns, ports),
            Self::Lossy(lossy) => lossy.out.pop(),
            Self::Tap(tap) => tap.out.pop(),
            Self::Wire(out) => out.pop(),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Host(host) => host.nic.next_ns(),
            Self::Box(device) => device.next_ns(),
            Self::Lowar(device) => device.next_ns(),
            Self::Wire(_) | Self::Lossy(_) | Self::Tap(_) => None,
        }
    }
}
