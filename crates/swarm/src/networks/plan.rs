//! The plan of a case in a network of switches, and how a seed draws it.

use std::ops::Range;
use std::time::Duration;

use farwrite::{DcqcnOptions, EqdsOptions, RateControl, SchemeName, SwiftOptions};
use farwrite_net::{
    CableConfig, CableId, Change, LeafSpine, Loss, MarkAt, Pfc, Policy, Red, Shape, SwitchConfig,
    Topology, XoffThreshold,
};
use farwrite_rc::{RdmaTransport, Recovery};

use super::nic;
use crate::plan::{MS, SECOND, US};
use farwrite_rng::SplitMix;

/// The traffic class of all packets.
pub(super) const PRIORITY: u8 = 3;
const GBIT: u64 = 1_000_000_000;
/// All flows must end within this time after the last start and the last change.
const PATIENCE_NS: u64 = 20 * SECOND;
/// Most messages of a flow.
pub(super) const MAX_MESSAGES: usize = 5;

/// A case: a network, flows over it, and faults. Hosts with even numbers run endpoints, the others
/// have NICs with reliable connections. Equal plans give equal runs.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    /// Seed of losses, marks, paths, keys and the bytes of messages.
    pub seed: u64,
    /// Hosts, switches and cables.
    pub shape: Shape,
    /// The settings of all switches.
    pub switch: SwitchConfig,
    /// How long after a failure switches get new routing tables; `None`: they keep the old ones.
    pub reroute: Option<Duration>,
    /// What the NICs run.
    pub transport: RdmaTransport,
    /// How fast endpoints send.
    pub rate_control: RateControl,
    /// The flows. Each has its own queue pair.
    pub flows: Vec<FlowPlan>,
    /// The changes of cables.
    pub changes: Vec<ChangePlan>,
}

/// Messages of one length over one queue pair, posted at the same time.
#[derive(Clone, Copy, Debug)]
pub struct FlowPlan {
    /// Number of the sending host.
    pub src: usize,
    /// Number of the receiving host.
    pub dst: usize,
    /// Number of messages, 1 to 5; 1 for endpoints.
    pub messages: usize,
    /// Length of each message in bytes, at least 1.
    pub bytes: usize,
    /// When it starts, in nanoseconds.
    pub start_ns: u64,
    /// How the bytes are moved.
    pub carrier: Carrier,
}

/// How the bytes of a message are moved.
#[derive(Clone, Copy, Debug)]
pub enum Carrier {
    /// By an endpoint, with a scheme.
    Endpoint(SchemeName),
    /// By a WRITE of a NIC.
    Write,
    /// By a WRITE with immediate of a NIC, which takes a posted buffer.
    WriteImmediate,
    /// By a SEND of a NIC into a posted buffer.
    Send,
    /// By a READ of the receiver's NIC.
    Read,
}

/// A change of a cable.
#[derive(Clone, Copy, Debug)]
pub struct ChangePlan {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// Which cable.
    pub cable: CableId,
    /// What.
    pub change: Change,
}

impl NetworkPlan {
    /// Draws the plan of a seed.
    pub(super) fn of_seed(seed: u64) -> Self {
        let mut rng = SplitMix::new(seed ^ 0x006e_6574_776f_726b);
        let shape = shape(&mut rng);
        let topology = shape.build().expect("shapes that are drawn are valid");
        let transport = rng.pick(&RdmaTransport::ALL);
        let has_pfc = rng.chance(0.4);
        let path = nic::path(rtt_ns(&shape));
        let mut switch = switch(&mut rng, transport.switch(&[PRIORITY], &path), has_pfc);
        if let (Shape::Datacenters { .. }, true) = (&shape, has_pfc) {
            // The headroom of long cables.
            switch.buffer_bytes = 1 << 30;
        }
        // With PFC, routing tables do not change: packets on detours in lossless queues can
        // deadlock, also in real networks.
        let reroute = (!has_pfc && rng.chance(0.7)).then(|| micros(&mut rng, 10..500));
        let rate_bps = rng.within(1..8) * GBIT;
        let first_window_bytes = rng.pick(&[1, 20_000, 200_000]);
        let rate_control = rng.pick(&[
            RateControl::default(),
            RateControl::Fixed { rate_bps },
            RateControl::Dcqcn(DcqcnOptions::paper(rate_bps)),
            // Any size of packets: the path sets its own.
            RateControl::Swift(swift(rate_bps, &shape)),
            RateControl::Eqds(EqdsOptions {
                line_rate_bps: rate_bps,
                first_window_bytes,
            }),
        ]);
        let hosts = topology.hosts().count();
        let flows = (0..rng.within(3..10)).map(|_| flow(&mut rng, hosts));
        let flows = flows.collect();
        let changes = (0..rng.within(0..4)).flat_map(|_| failure(&mut rng, &topology));
        let changes = changes.collect();
        Self {
            seed,
            shape,
            switch,
            reroute,
            transport,
            rate_control,
            flows,
            changes,
        }
    }

    /// What NICs assume to be the longest round trip, in nanoseconds.
    pub(super) fn rtt_ns(&self) -> u64 {
        rtt_ns(&self.shape)
    }

    /// Whether a flow crosses a long cable between two datacenters.
    pub(super) fn is_between_sites(&self, flow: &FlowPlan) -> bool {
        let Shape::Datacenters { site, .. } = self.shape else {
            return false;
        };
        let hosts = site.leaves * site.hosts_per_leaf;
        flow.src / hosts != flow.dst / hosts
    }

    /// Whether switches may drop no frame: all frames have a lossless priority, and the headroom of
    /// switches is made for the cables as they stay.
    pub(super) fn is_lossless(&self) -> bool {
        self.switch.pfc.is_some() && self.changes.is_empty()
    }

    /// How long after [`settled_ns`](Self::settled_ns) the flows may take. IRN repairs a lost tail,
    /// above which nothing arrived, by one packet per timeout. A failed cable can cause such a loss,
    /// so NICs with IRN get a timeout for each packet of their longest flow.
    pub(super) fn patience_ns(&self) -> u64 {
        let config = self.transport.config(0, &nic::path(self.rtt_ns()));
        let Recovery::Irn { .. } = config.recovery else {
            return PATIENCE_NS;
        };
        let packets =
            |flow: &FlowPlan| flow.messages * flow.bytes.div_ceil(config.mtu_bytes as usize);
        let most = self.flows.iter().map(packets).max().unwrap_or(0);
        PATIENCE_NS + most as u64 * config.ack_timeout_ns
    }

    /// The time of the last change of a cable or start of a flow.
    pub(super) fn settled_ns(&self) -> u64 {
        let changes = self.changes.iter().map(|change| change.at_ns);
        let starts = self.flows.iter().map(|flow| flow.start_ns);
        changes.chain(starts).max().unwrap_or(0)
    }
}

fn micros(rng: &mut SplitMix, range: Range<u64>) -> Duration {
    Duration::from_micros(rng.within(range))
}

fn cable(rng: &mut SplitMix) -> CableConfig {
    let mut cable = CableConfig::new(rng.pick(&[10, 25, 100]) * GBIT, micros(rng, 1..20));
    let loss_packet = rng.pick(&[0.0, 0.0, 1e-3, 1e-2]);
    cable.loss = match rng.unit() {
        _ if loss_packet == 0.0 => Loss::None,
        0.0..0.15 => Loss::in_bursts(loss_packet, 8.0),
        0.15..0.3 => Loss::in_timed_bursts(loss_packet, Duration::from_micros(5)),
        _ => Loss::Iid { loss_packet },
    };
    cable
}

/// Round trip of the long cable of a shape, in nanoseconds; 0 without one.
fn long_rtt_ns(shape: &Shape) -> u64 {
    match shape {
        Shape::Datacenters { long_cable, .. } => {
            2 * u64::try_from(long_cable.delay.as_nanos()).expect("a drawn delay")
        }
        _ => 0,
    }
}

/// What NICs assume to be the longest round trip over a shape.
fn rtt_ns(shape: &Shape) -> u64 {
    100 * US + long_rtt_ns(shape)
}

/// Swift with targets that a path without queues meets. A target below its round trip would keep
/// the window at its least.
fn swift(rate_bps: u64, shape: &Shape) -> SwiftOptions {
    let base = SwiftOptions::new(rate_bps, 1, 4);
    let long_ns = long_rtt_ns(shape);
    SwiftOptions {
        base_target_ns: base.base_target_ns + long_ns,
        endpoint_target_ns: base.endpoint_target_ns + long_ns,
        ..base
    }
}

fn shape(rng: &mut SplitMix) -> Shape {
    let (host_cable, other_cable) = (cable(rng), cable(rng));
    match rng.index(8) {
        0 => Shape::Star {
            hosts: rng.pick(&[4, 6, 8]),
            cable: host_cable,
        },
        1 => Shape::Dumbbell {
            left: 3,
            right: 3,
            host_cable,
            middle_cable: other_cable,
        },
        2 | 3 => Shape::FatTree {
            k: 4,
            host_cable,
            pod_cable: other_cable,
            core_cable: cable(rng),
        },
        4 | 5 => Shape::Datacenters {
            sites: rng.pick(&[2, 3]),
            site: LeafSpine {
                leaves: rng.pick(&[1, 2]),
                spines: rng.pick(&[1, 2]),
                hosts_per_leaf: rng.pick(&[2, 4]),
                host_cable,
                spine_cable: other_cable,
            },
            border_cable: cable(rng),
            long_cable: CableConfig {
                delay: micros(rng, 200..5_000),
                ..cable(rng)
            },
        },
        _ => Shape::LeafSpine(LeafSpine {
            leaves: rng.pick(&[2, 3]),
            spines: rng.pick(&[2, 3, 4]),
            hosts_per_leaf: rng.pick(&[2, 4]),
            host_cable,
            spine_cable: other_cable,
        }),
    }
}

/// Draws switches. `wanted` are those of the transport.
fn switch(rng: &mut SplitMix, wanted: SwitchConfig, has_pfc: bool) -> SwitchConfig {
    let red = Red {
        kmin_bytes: rng.within(1..100) * 1000,
        kmax_bytes: 200_000,
        pmax: rng.unit(),
        at: rng.pick(&[MarkAt::Arrival, MarkAt::Departure]),
        rate_bps: None,
    };
    let pfc = Pfc {
        xoff: rng.pick(&[XoffThreshold::Bytes(20_000), XoffThreshold::Alpha(0.125)]),
        ..Pfc::new(&[PRIORITY])
    };
    SwitchConfig {
        // With PFC, the buffer must include the headroom.
        buffer_bytes: match has_pfc {
            true => 16 << 20,
            false => rng.within(50..2000) * 1000,
        },
        latency: Duration::from_nanos(rng.within(0..1000)),
        ecn: rng.chance(0.6).then_some(red),
        pfc: has_pfc.then_some(pfc),
        // A lossless queue does not trim.
        trim: wanted.trim.filter(|_| !has_pfc),
        routing: match rng.index(4) {
            0 => Policy::Ecmp,
            1 => Policy::Spray,
            2 => Policy::Drill { d: 2, m: 1 },
            _ => Policy::Flowlet {
                gap: micros(rng, 1..50),
                flows: 256,
            },
        },
        ..wanted
    }
}

fn flow(rng: &mut SplitMix, hosts: usize) -> FlowPlan {
    let is_endpoint = rng.chance(0.5);
    // Two hosts of the same kind, so both numbers are even or both are odd.
    let kind = hosts / 2;
    let src = rng.index(kind);
    let dst = (src + 1 + rng.index(kind - 1)) % kind;
    let number = |place: usize| 2 * place + usize::from(!is_endpoint);
    let most = rng.pick(&[100, 20_000, 400_000]);
    FlowPlan {
        src: number(src),
        dst: number(dst),
        messages: match is_endpoint {
            true => 1,
            false => rng.pick(&[1, 1, 2, MAX_MESSAGES]),
        },
        bytes: 1 + rng.index(most),
        start_ns: rng.within(0..2 * MS),
        carrier: match is_endpoint {
            true => {
                let schemes = ["sr-rto", "sr-nack", "gbn", "ec-xor:8,4", "ec-mds:32,8"];
                let scheme = rng.pick(&schemes).parse();
                Carrier::Endpoint(scheme.expect("schemes that are drawn exist"))
            }
            false => rng.pick(&[
                Carrier::Write,
                Carrier::WriteImmediate,
                Carrier::Send,
                Carrier::Read,
            ]),
        },
    }
}

/// A cable that fails or degrades, and recovers after some time.
fn failure(rng: &mut SplitMix, topology: &Topology) -> [ChangePlan; 2] {
    let place = rng.index(topology.cables().len());
    let cable = CableId(u32::try_from(place).expect("few cables"));
    let before = topology.cables()[place].config;
    let mut worse = before;
    worse.rate_bps /= 10;
    worse.delay *= 10;
    worse.loss = Loss::Iid { loss_packet: 0.05 };
    let [change, back] = match rng.chance(0.6) {
        true => [Change::Down, Change::Up],
        false => [Change::Config(worse), Change::Config(before)],
    };
    let at_ns = rng.within(0..3 * MS);
    let back_ns = at_ns + rng.within(20 * US..4 * MS);
    [(at_ns, change), (back_ns, back)].map(|(at_ns, change)| ChangePlan {
        at_ns,
        cable,
        change,
    })
}
