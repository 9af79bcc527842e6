//! Measures the speed of the simulator on one core: events, and frames over cables ("hops"), per
//! second of processor time.
//!
//! `cargo run --release -p farwrite-bench --example network_speed`
//!
//! Every host sends 4096-byte payloads to another host at line rate and acknowledges each frame
//! that it receives.

use std::collections::VecDeque;
use std::time::Duration;

use farwrite_net::{
    CableConfig, Device, Frame, LeafSpine, Network, NodeId, Options, Output, Payload, Pfc, Policy,
    Ports, Red, Shape, SwitchConfig,
};
use farwrite_wire::header::Bth;

/// RC RDMA WRITE Middle and RC Acknowledge. A BTH alone is enough for this measurement.
const WRITE: [u8; 12] = [0x07, 0x40, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0];
const ACK: [u8; 12] = [0x11, 0x40, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0];

struct Host {
    this: NodeId,
    peer: NodeId,
    left: u32,
    acks: VecDeque<NodeId>,
}

impl Device for Host {
    fn handle(&mut self, _now_ns: u64, _port: usize, frame: Frame) {
        if frame.payload.sent_bytes() > 0 {
            self.acks.push_back(frame.src);
        }
    }

    fn poll(&mut self, _now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        let (dst, bth, payload) = if let Some(dst) = self.acks.pop_front() {
            (dst, &ACK, 0)
        } else if self.left > 0 && ports.ready(0, 0) {
            self.left -= 1;
            (self.peer, &WRITE, 4096)
        } else {
            return None;
        };
        let payload = Payload::Ghost(payload);
        let frame = Frame::new(self.this, dst, 49_152, Bth::parse(bth), payload);
        Some(Output::Send { port: 0, frame })
    }

    fn next_ns(&self) -> Option<u64> {
        None
    }
}

/// Processor time of this thread, so that other work on the machine does not count.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat");
    let text = text.expect("Linux says here how long a thread has run");
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.expect("the first number is in nanoseconds"))
}

fn measure(name: &str, shape: &Shape, switch: SwitchConfig, frames: u32) {
    let topology = shape.build().expect("the shapes below can be built");
    let hosts: Vec<_> = topology.hosts().collect();
    let half = hosts.len() / 2;
    let host = |this, _: &farwrite_net::Node| {
        let at = hosts.iter().position(|host| *host == this);
        Host {
            this,
            peer: hosts[(at.unwrap_or(0) + half) % hosts.len()],
            left: frames,
            acks: VecDeque::new(),
        }
    };
    let options = Options::with_switches(switch);
    let network = Network::new(&topology, &options, 1, host);
    let mut network = network.expect("the options below fit the shapes");
    let begun = processor_time();
    network.run();
    let took = processor_time() - begun;
    let totals = network.totals();
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let per_second = |count: u64| count as f64 / took.as_secs_f64() / 1e6;
    println!(
        "{name:<44} {:>6} ms in {:>6} ms: {:.1} M events/s, {:.1} M hops/s, {} dropped",
        network.now_ns() / 1_000_000,
        took.as_millis(),
        per_second(network.events()),
        per_second(totals.transmitted),
        totals.all_dropped(),
    );
}

fn main() {
    let cable = CableConfig::new(100_000_000_000, Duration::from_micros(1));
    let star = Shape::Star { hosts: 2, cable };
    let clos = |leaves, spines, hosts_per_leaf| {
        Shape::LeafSpine(LeafSpine {
            leaves,
            spines,
            hosts_per_leaf,
            host_cable: cable,
            spine_cable: cable,
        })
    };
    let tree = Shape::FatTree {
        k: 12,
        host_cable: cable,
        pod_cable: cable,
        core_cable: cable,
    };
    let policy = |routing| SwitchConfig {
        routing,
        ..SwitchConfig::default()
    };
    let ecn = Red {
        kmin_bytes: 100_000,
        kmax_bytes: 400_000,
        pmax: 0.2,
        at: farwrite_net::MarkAt::Departure,
        rate_bps: None,
    };
    let lossless = SwitchConfig {
        ecn: Some(ecn),
        pfc: Some(Pfc::new(&[0])),
        ..policy(Policy::Ecmp)
    };
    measure(
        "2 hosts, one switch",
        &star,
        SwitchConfig::default(),
        500_000,
    );
    measure(
        "128 hosts, two levels, spraying",
        &clos(16, 8, 8),
        policy(Policy::Spray),
        6000,
    );
    let drill = Policy::Drill { d: 2, m: 1 };
    measure(
        "128 hosts, two levels, DRILL(2, 1)",
        &clos(16, 8, 8),
        policy(drill),
        6000,
    );
    measure(
        "128 hosts, two levels, ECMP, PFC and ECN",
        &clos(16, 8, 8),
        lossless,
        6000,
    );
    measure(
        "432 hosts, three levels, spraying",
        &tree,
        policy(Policy::Spray),
        500,
    );
}
