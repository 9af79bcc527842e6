//! Cases in networks of switches: endpoints and NICs with reliable connections share queues that
//! mark, pause, trim and drop, over paths that reorder packets and cables that fail.
//!
//! The rules: a finished message has the right bytes, and nothing is written behind it. Each
//! request and each receive has exactly one outcome. Endpoints deliver every message whole, because
//! every failure ends; a NIC may give up. Everything ends in bounded time. No frame is lost without
//! being counted. With PFC and cables that stay as they are, switches drop no frame.

mod endpoint;
mod nic;
mod plan;
mod world;

use farwrite::fabric::net::NetHost;
use farwrite_net::{Device, Frame, Output, Ports};

use crate::case::{Case, CaseReport};
use crate::quietly;
use crate::violation::{Rule, Violation};
use endpoint::Worker;
use farwrite_rng::mix;
use nic::NicHost;
use plan::MAX_MESSAGES;
pub use plan::{Carrier, ChangePlan, FlowPlan, NetworkPlan};
use world::NetworkWorld;

/// Guard bytes behind each receive buffer. Nothing may write them.
const GUARD: usize = 64;

impl Case for NetworkPlan {
    const TEST: &'static str = "networks";
    const KINDS: &'static [&'static str] = &world::KINDS;

    fn draw(seed: u64) -> Self {
        Self::of_seed(seed)
    }

    fn run(&self) -> CaseReport {
        let mut world = NetworkWorld::new(self);
        let violation = match quietly(|| world.run()) {
            Ok(result) => result.err(),
            Err(what) => Some(world.violation(Rule::Panic, what)),
        };
        CaseReport {
            violation,
            hash: world.hash(),
            messages: self.flows.len() as u64,
            faults: self.changes.len() as u64,
            packets: world.frames(),
            coverage: world.coverage(),
        }
    }

    fn show(&self) -> String {
        let Some(violation) = self.run().violation else {
            return format!("{self:#?}");
        };
        let (small, violation) = shrink(self.clone(), violation);
        let (left, all) = (small.flows.len(), self.flows.len());
        format!("{left} of {all} flows left\n{small:#?}\n{violation}")
    }
}

/// Removes flows and changes from a plan as long as it breaks the same rule.
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
        match less.run().violation {
            Some(same) if same.rule == violation.rule => (plan, violation) = (less, same),
            _ => at += 1,
        }
    }
    (plan, violation)
}

/// The bytes of a message. Each group of eight bytes differs from all other positions and messages.
#[derive(Clone, Copy)]
struct Bytes {
    seed: u64,
    length: usize,
}

impl Bytes {
    fn new(plan: &NetworkPlan, flow: usize, message: usize) -> Self {
        let number = flow * MAX_MESSAGES + message;
        Self {
            seed: mix(plan.seed ^ mix(number as u64)),
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

    /// The first position at which a buffer differs from the message, or its guard from zero.
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

/// A host. Both kinds are boxed because they are large.
enum NetworkHost {
    Endpoint(Box<NetHost<Worker>>),
    Nic(Box<NicHost>),
}

impl Device for NetworkHost {
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
