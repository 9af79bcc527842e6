//! Cases in networks of switches: endpoints and NICs with reliable connections share queues, which
//! mark, pause, trim and drop, over paths that reorder packets and cables that fail.
//!
//! The rules: a message that is done has the right bytes, and nothing is written behind it; each
//! request and each receive has exactly one outcome; endpoints deliver every message whole, since
//! every failure ends; a NIC may give up; all is over in bounded time; and no frame is lost
//! without being counted.

mod endpoint;
mod nic;
mod plan;
mod tally;
mod world;

use farwrite::fabric::net::NetHost;
use farwrite_net::{Device, Frame, Output, Ports};

use crate::dice::mix;
use crate::quietly;
use crate::violation::{Rule, Violation};
use endpoint::Worker;
use nic::NicHost;
pub use plan::{Carrier, ChangePlan, FlowPlan, NetworkPlan};
pub use tally::Tally;
use world::World;

/// Bytes behind each buffer of a receiver, which nobody may write.
const GUARD: usize = 64;

/// What a case in a network did.
#[derive(Clone, Debug)]
pub struct NetworkReport {
    /// The rule that it broke, if it broke one.
    pub violation: Option<Violation>,
    /// A hash of everything that happened to frames.
    pub hash: u64,
    /// Frames that hosts sent.
    pub frames: u64,
    /// What the case met. Complete only if no rule was broken.
    pub tally: Tally,
}

/// Runs a case, and if `twice` once more, and compares.
#[must_use]
pub fn check_network(plan: &NetworkPlan, twice: bool) -> NetworkReport {
    let mut report = run(plan);
    if twice && report.violation.is_none() {
        let again = run(plan);
        if again.hash != report.hash {
            report.violation = Some(Violation {
                rule: Rule::Determinism,
                at_ns: 0,
                what: format!("hashes {:#x} and {:#x}", report.hash, again.hash),
            });
        }
    }
    report
}

/// Leaves out flows and changes of a plan as long as it breaks the same rule, and says what is left,
/// what happens in it, and how to run the seed again.
#[must_use]
pub fn explain_network(seed: u64, plan: &NetworkPlan) -> String {
    let Some(violation) = run(plan).violation else {
        return format!("seed {seed:#018x}: no rule is broken when the case is run once");
    };
    let (small, violation) = shrink(plan.clone(), violation);
    format!(
        "seed {seed:#018x}, {} of {} flows left\n{small:#?}\n{violation}\n\
         FARWRITE_SWARM_SEED={seed:#x} \
         cargo test -p farwrite-swarm --test networks replay -- --nocapture",
        small.flows.len(),
        plan.flows.len(),
    )
}

fn shrink(mut plan: NetworkPlan, mut violation: Violation) -> (NetworkPlan, Violation) {
    let without = |plan: &NetworkPlan, at: usize| {
        let mut less = plan.clone();
        match at.checked_sub(plan.flows.len()) {
            None => drop(less.flows.remove(at)),
            Some(change) => drop(less.changes.remove(change)),
        }
        less
    };
    let mut at = 0;
    while at < plan.flows.len() + plan.changes.len() {
        let less = without(&plan, at);
        match run(&less).violation {
            Some(same) if same.rule == violation.rule => (plan, violation) = (less, same),
            _ => at += 1,
        }
    }
    (plan, violation)
}

fn run(plan: &NetworkPlan) -> NetworkReport {
    let mut world = World::new(plan);
    let violation = match quietly(|| world.run()) {
        Ok(result) => result.err(),
        Err(what) => Some(world.violation(Rule::Panic, what)),
    };
    NetworkReport {
        violation,
        hash: world.hash(),
        frames: world.frames(),
        tally: world.tally(),
    }
}

/// The bytes of a flow. Every eight of them are different from those of other places and flows.
#[derive(Clone, Copy)]
struct Bytes {
    seed: u64,
    length: usize,
}

impl Bytes {
    fn new(plan: &NetworkPlan, flow: usize) -> Self {
        Self {
            seed: mix(plan.seed ^ mix(flow as u64)),
            length: plan.flows[flow].bytes,
        }
    }

    fn length(&self) -> usize {
        self.length
    }

    fn message(&self) -> Vec<u8> {
        let words = (0..self.length.div_ceil(8) as u64).map(|at| mix(self.seed ^ at));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(self.length);
        bytes
    }

    /// Where a buffer first differs from the message, or from zeros in the guard behind it.
    fn differs_at(&self, buffer: &[u8]) -> Option<usize> {
        let message = self.message();
        let behind = buffer.len().saturating_sub(message.len());
        let wanted = message.iter().chain(std::iter::repeat_n(&0, behind));
        if buffer.len() < message.len() {
            return Some(buffer.len());
        }
        buffer
            .iter()
            .zip(wanted)
            .position(|(one, other)| one != other)
    }
}

/// A host. Either kind is large.
enum Host {
    Endpoint(Box<NetHost<Worker>>),
    Nic(Box<NicHost>),
}

impl Device for Host {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Endpoint(host) => host.handle(now_ns, port, frame),
            Self::Nic(host) => host.nic.handle(now_ns, port, frame),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Endpoint(host) => host.poll(now_ns, ports),
            Self::Nic(host) => host.nic.poll(now_ns, ports),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Endpoint(host) => host.next_ns(),
            Self::Nic(host) => host.nic.next_ns(),
        }
    }
}
