//! Cases of boxes in the path: reliable connections between two RDMA NICs, messages of one packet on
//! an unreliable connection as SDR sends them, a LoWAR or NetRT box beside each NIC, and a path
//! between the boxes that loses, changes, doubles and delays frames and forges messages of the boxes.
//! Frames are IPv4 or IPv6, with or without VLAN tags. Some take a way around a box. Fragments, and
//! other datagrams to the port of RoCEv2, come between them.
//!
//! In every case, both NICs get only packets that the other one has sent, all requests complete
//! after the faults end, memory has the right contents, a message of one packet arrives if the path
//! delivers it, and boxes pass foreign frames at once and unchanged. One seed decides a case.

mod device;
mod foreign;
mod forge;
mod headers;
mod plan;
mod singles;
mod traffic;
mod world;

use farwrite_boxes::lowar::Lowar;
use farwrite_boxes::netrt::NetRt;

use crate::case::{Case, CaseReport};
use crate::quietly;
use crate::violation::{Rule, Violation};

pub use headers::Headers;
pub use plan::{BoxPlan, Boxes, Rates, Restart};
pub use singles::SinglesPlan;

use world::Watched;

/// All kinds of events that cases of boxes can meet.
const KINDS: [&str; 37] = [
    "frames lost",
    "frames changed",
    "frames doubled",
    "frames late",
    "message replayed",
    "message forged with the right key",
    "message forged with another key",
    "restart",
    "one box missing",
    "frames around a box",
    "foreign frames",
    "different keys",
    "several connections",
    "IPv6",
    "VLAN tags",
    "single packets",
    "lowar: recovered single packet",
    "lowar: recovered over IPv6",
    "lowar: coded",
    "lowar: recovered",
    "lowar: not verified",
    "lowar: given up",
    "lowar: hold ended",
    "lowar: damaged packet",
    "lowar: repair too long",
    "lowar: no units",
    "lowar: no connections",
    "lowar: no room",
    "netrt: copied",
    "netrt: recovered",
    "netrt: notice",
    "netrt: copy dropped",
    "netrt: given up",
    "netrt: hold ended",
    "netrt: damaged packet",
    "netrt: no connections",
    "netrt: no room",
];

impl Case for BoxPlan {
    const TEST: &'static str = "boxes";
    const KINDS: &'static [&'static str] = &KINDS;

    fn draw(seed: u64) -> Self {
        Self::of_seed(seed)
    }

    fn run(&self) -> CaseReport {
        match &self.boxes {
            Boxes::Lowar(configs) => run_world::<Lowar>(self, configs),
            Boxes::NetRt(configs) => run_world::<NetRt>(self, configs),
        }
    }

    fn show(&self) -> String {
        format!("{self:#?}")
    }
}

fn run_world<B: Watched>(plan: &BoxPlan, configs: &[Option<B::Config>; 2]) -> CaseReport {
    let mut world = world::BoxWorld::<B>::new(plan, configs);
    let ran = quietly(|| world.run());
    let violation = match ran {
        Ok(result) => result.err(),
        Err(what) => Some(Violation {
            rule: Rule::Panic,
            at_ns: world.now_ns(),
            what,
        }),
    };
    CaseReport {
        violation,
        hash: world.hash(),
        messages: plan.requests.len() as u64,
        coverage: world.coverage(),
        ..CaseReport::default()
    }
}
