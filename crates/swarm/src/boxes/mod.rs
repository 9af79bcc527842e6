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

use std::collections::BTreeSet;

use farwrite_boxes::lowar::Lowar;
use farwrite_boxes::netrt::NetRt;

use crate::quietly;
use crate::violation::{Rule, Violation};

pub use headers::Headers;
pub use plan::{BoxPlan, Boxes, Rates, Restart};
pub use singles::SinglesPlan;

use world::Watched;

/// All kinds of events that cases of boxes can meet. If many cases do not meet a kind, the plans
/// have a hole.
pub const KINDS: [&str; 37] = [
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

/// The result of a case.
#[derive(Clone, Debug)]
pub struct BoxReport {
    /// The rule that the case broke, if any.
    pub violation: Option<Violation>,
    /// A hash over all events of frames.
    pub hash: u64,
    /// The events of [`KINDS`] that the case met.
    pub met: BTreeSet<&'static str>,
}

/// Runs a case. If `twice`, runs it again and compares the hashes.
#[must_use]
pub fn check(plan: &BoxPlan, twice: bool) -> BoxReport {
    let mut report = run(plan);
    if twice && report.violation.is_none() {
        report.violation = Violation::of_hashes(report.hash, run(plan).hash);
    }
    report
}

fn run(plan: &BoxPlan) -> BoxReport {
    match &plan.boxes {
        Boxes::Lowar(configs) => run_world::<Lowar>(plan, configs),
        Boxes::NetRt(configs) => run_world::<NetRt>(plan, configs),
    }
}

fn run_world<B: Watched>(plan: &BoxPlan, configs: &[Option<B::Config>; 2]) -> BoxReport {
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
    BoxReport {
        violation,
        hash: world.hash(),
        met: world.met(),
    }
}
