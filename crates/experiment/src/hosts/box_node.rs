//! A box in the path.

use farwrite_boxes::BoxDevice;
use farwrite_boxes::lowar::Lowar;
use farwrite_boxes::netrt::NetRt;
use farwrite_net::{Device, Frame, Output, Ports};

use crate::boxes::{BoxKind, BoxLink, BoxTotals};

/// The port of a box toward the NICs ([`farwrite_net::Topology::insert_box`]).
const NEAR_PORT: usize = 1;

/// A box of a run.
#[derive(Debug)]
pub(crate) enum BoxNode {
    Lowar(Box<BoxDevice<Lowar>>),
    Netrt(Box<BoxDevice<NetRt>>),
}

impl BoxNode {
    pub(super) fn new(kind: BoxKind, at: &BoxLink) -> Self {
        let backpressure = kind.backpressure(at);
        match kind {
            BoxKind::Lowar(own) => {
                let device = BoxDevice::new(own.config(at), NEAR_PORT, backpressure);
                Self::Lowar(Box::new(device))
            }
            BoxKind::Netrt(own) => {
                let device = BoxDevice::new(own.config(at), NEAR_PORT, backpressure);
                Self::Netrt(Box::new(device))
            }
        }
    }

    pub(crate) fn totals(&self) -> BoxTotals {
        match self {
            Self::Lowar(device) => {
                let counters = device.counters();
                BoxTotals {
                    repairs: counters.repairs_sent,
                    recovered: counters.recovered,
                    given_up: counters.given_up,
                    peak_held: counters.peak_held,
                }
            }
            Self::Netrt(device) => {
                let counters = device.counters();
                BoxTotals {
                    repairs: counters.repeated,
                    recovered: counters.recovered,
                    given_up: counters.given_up,
                    peak_held: counters.peak_held,
                }
            }
        }
    }
}

impl Device for BoxNode {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Lowar(device) => device.handle(now_ns, port, frame),
            Self::Netrt(device) => device.handle(now_ns, port, frame),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Lowar(device) => device.poll(now_ns, ports),
            Self::Netrt(device) => device.poll(now_ns, ports),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Lowar(device) => device.next_ns(),
            Self::Netrt(device) => device.next_ns(),
        }
    }
}
