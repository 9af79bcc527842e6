//! Counts what the two ends send each other, and drops or keeps it as a scenario requires.

use std::cell::RefCell;
use std::rc::Rc;

use farwrite::fabric::sim::{Datagram, SimNetwork, Verdict};
use farwrite_wire::control::{self, Control};
use farwrite_wire::opcode;
use farwrite_wire::packet::Packet;

use crate::world::Way;

/// A sent datagram, before any fault of the path.
pub(crate) struct Seen<'a> {
    pub(crate) now_ns: u64,
    pub(crate) way: Way,
    pub(crate) datagram: &'a Datagram,
    /// The content of a control packet. `None` for a data packet.
    pub(crate) control: Option<Vec<Control>>,
}

impl Seen<'_> {
    pub(crate) fn is_data(&self) -> bool {
        self.control.is_none()
    }

    /// Returns whether this is a control packet with a message for which `what` returns true.
    pub(crate) fn says(&self, what: impl Fn(&Control) -> bool) -> bool {
        self.control.iter().flatten().any(what)
    }
}

type Filter = Box<dyn FnMut(&Seen<'_>) -> Verdict>;

/// All datagrams sent so far.
#[derive(Clone)]
pub(crate) struct Traffic(Rc<RefCell<TrafficState>>);

struct TrafficState {
    network: SimNetwork,
    /// Keys of the control packets forth and back.
    keys: [[u8; 32]; 2],
    tally: Tally,
    filter: Option<Filter>,
}

/// Numbers of sent packets, in both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) data: u64,
    pub(crate) controls: u64,
    pub(crate) control_bytes: u64,
}

impl Traffic {
    /// Watches a network whose control packets are sealed with `keys`, forth and back.
    pub(crate) fn watch(network: &SimNetwork, keys: [[u8; 32]; 2]) -> Self {
        let traffic = Self(Rc::new(RefCell::new(TrafficState {
            network: network.clone(),
            keys,
            tally: Tally::default(),
            filter: None,
        })));
        let tap = traffic.clone();
        network.set_tap(move |datagram| tap.0.borrow_mut().see(datagram));
        traffic
    }

    pub(crate) fn tally(&self) -> Tally {
        self.0.borrow().tally
    }

    /// Lets `filter` decide what happens to each later datagram.
    pub(crate) fn filter(&self, filter: impl FnMut(&Seen<'_>) -> Verdict + 'static) {
        self.0.borrow_mut().filter = Some(Box::new(filter));
    }

    /// Drops the first `count` datagrams for which `which` is true.
    pub(crate) fn drop_first(&self, mut count: u64, which: impl Fn(&Seen<'_>) -> bool + 'static) {
        self.filter(move |seen| {
            if count == 0 || !which(seen) {
                return Verdict::Pass;
            }
            count -= 1;
            Verdict::Drop
        });
    }

    pub(crate) fn pass_all(&self) {
        self.0.borrow_mut().filter = None;
    }
}

impl TrafficState {
    fn see(&mut self, datagram: &Datagram) -> Verdict {
        let packet = Packet::parse(&datagram.payload).expect("ends send whole packets");
        let way = Way::of(datagram);
        let control = (packet.bth().opcode == opcode::UC_SEND_ONLY).then(|| {
            let key = &self.keys[usize::from(way == Way::Back)];
            let (_, messages) = control::open(key, packet.payload()).expect("ends seal well");
            messages.map(|m| m.expect("ends speak well")).collect()
        });
        if control.is_some() {
            self.tally.controls += 1;
            self.tally.control_bytes += datagram.ip_bytes();
        } else {
            self.tally.data += 1;
        }
        let seen = Seen {
            now_ns: self.network.now_ns(),
            way,
            datagram,
            control,
        };
        match &mut self.filter {
            Some(filter) => filter(&seen),
            None => Verdict::Pass,
        }
    }
}
