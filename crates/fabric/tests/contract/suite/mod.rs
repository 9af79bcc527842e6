//! What every fabric has to do, as tests over a [`World`] that makes fabrics.
//!
//! A fabric joins the suite by a `World` and one line: `contract_tests!(its_world())`.

pub(crate) mod drops;
pub(crate) mod keys;
pub(crate) mod queue_pairs;
pub(crate) mod root_keys;
pub(crate) mod sends;
pub(crate) mod writes;

use std::net::SocketAddr;

use farwrite_fabric::contract::{
    Completion, Counters, DropReason, Fabric, Lkey, QpAttr, Qpn, RemoteQp, Rkey, Sge, WriteWr,
};

/// Makes fabrics that reach each other, and lets packets travel.
pub(crate) trait World {
    /// The fabric under test.
    type Fabric: Fabric;
    /// A new fabric with so many ports, which reaches all others of this world.
    fn end(&mut self, ports: u16) -> Self::Fabric;
    /// Lets a short time pass. Whatever was sent has arrived after some hundred steps.
    fn step(&mut self);
    /// Address of someone who is no fabric, but reaches all.
    fn stranger(&self) -> SocketAddr;
    /// Sends a UDP payload, right or wrong, from [`World::stranger`].
    fn forge(&mut self, to: SocketAddr, payload: &[u8]);
}

/// Makes a test of every function of the suite.
macro_rules! contract_tests {
    ($world:expr) => {
        $crate::suite::contract_tests! {
            @each $world,
            drops: [
                no_receive, unknown_queue_pair, stranger, other_port, not_connected, bad_icrc,
                truncated, empty, trailing_bytes, unsupported_opcodes, too_long,
                wrong_length_in_reth,
                first_fault_counts,
            ],
            keys: [
                memory_comes_and_goes, two_regions_at_once, bounds_of_a_window, bounds_of_exposing, unknown_key,
                revoked_key, revoking_is_synchronous, in_use_while_exposed, several_windows,
            ],
            queue_pairs: [
                attributes, connecting, disconnecting, destroying, receives, completions_wait,
                several_ports, both_directions,
            ],
            root_keys: [
                slots_are_apart, bounds_of_a_slot, straddling, null_key, unbinding_is_synchronous,
                binding, attributes, revoking,
            ],
            sends: [every_length, refusals, use_up_receives],
            writes: [
                land_where_sent, every_length, gather, zero_length, in_bulk, departures,
                refusals, counters_agree,
            ],
        }
    };
    (@each $world:expr, $($module:ident: [$($name:ident),* $(,)?]),* $(,)?) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                $crate::suite::$module::$name(&mut $world);
            })*
        })*
    };
}
pub(crate) use contract_tests;

/// Steps after which what has not arrived never will.
const PATIENCE: u32 = 5_000;
/// Steps after which a packet that was sent has surely arrived, or never will.
const LONG_ENOUGH: u32 = 200;
/// MTU of the queue pairs of [`Pair::new`].
pub(crate) const MTU: u32 = 1024;
/// Bytes of [`Pair::target`].
pub(crate) const TARGET_BYTES: usize = 8192;

/// Two fabrics joined by a queue pair each; `a` writes, `b` receives.
pub(crate) struct Pair<'w, W: World> {
    pub(crate) world: &'w mut W,
    pub(crate) a: W::Fabric,
    pub(crate) b: W::Fabric,
    pub(crate) qa: Qpn,
    pub(crate) qb: Qpn,
    /// Memory of `a`, with a byte pattern, to write from.
    pub(crate) source: Lkey,
    /// Memory of `b`, all zeros, to write to.
    pub(crate) target: Lkey,
}

impl<'w, W: World> Pair<'w, W> {
    /// With one port each, and no receives posted.
    pub(crate) fn new(world: &'w mut W) -> Self {
        let (mut a, mut b) = (world.end(1), world.end(1));
        let (qa, qb) = joined(&mut a, &mut b, 0);
        let source = a.register(Box::new(pattern(TARGET_BYTES))).unwrap();
        let target = b.register(Box::new(vec![0; TARGET_BYTES])).unwrap();
        Self {
            world,
            a,
            b,
            qa,
            qb,
            source,
            target,
        }
    }

    /// Posts one write of `local` bytes of the source, from `a`.
    pub(crate) fn write(&mut self, local: std::ops::Range<usize>, addr: u64, rkey: Rkey, imm: u32) {
        let local = [sge(self.source, local)];
        post(&mut self.a, self.qa, &write(&local, addr, rkey, imm));
    }

    /// What arrives at `b`: exactly `count` completions.
    #[track_caller]
    pub(crate) fn arrivals(&mut self, count: usize) -> Vec<Completion> {
        arrivals(self.world, &mut self.b, count)
    }

    /// Waits until `b` has dropped `count` more packets for `reason` than `before`, and sees to it
    /// that nothing completed, nothing else was dropped, and the target is as it was.
    #[track_caller]
    pub(crate) fn all_dropped(&mut self, before: &Before, reason: DropReason, count: u64) {
        let mut completions = Vec::new();
        let mut want = before.counters.dropped;
        want[reason as usize] += count;
        for _ in 0..PATIENCE {
            if self.b.counters().dropped(reason) >= want[reason as usize] {
                break;
            }
            self.world.step();
            self.b.poll(&mut completions).unwrap();
        }
        let counters = self.b.counters();
        assert_eq!(counters.dropped, want, "of {:?}", DropReason::ALL);
        assert_eq!(counters.received_packets, before.counters.received_packets);
        assert_eq!(completions, []);
        assert!(
            self.b.memory(self.target).unwrap() == before.target,
            "a packet dropped as {reason:?} changed memory"
        );
    }

    /// What `b` has seen so far.
    pub(crate) fn before(&self) -> Before {
        Before {
            counters: self.b.counters(),
            target: self.b.memory(self.target).unwrap().to_vec(),
        }
    }
}

/// How `b` was before something that shall not change it.
pub(crate) struct Before {
    counters: Counters,
    target: Vec<u8>,
}

/// Queue pairs of [`MTU`] on the same port of two fabrics, joined; 64 receives may be posted.
pub(crate) fn joined<F: Fabric>(a: &mut F, b: &mut F, port: u16) -> (Qpn, Qpn) {
    let (qa, qb) = (queue_pair(a, port, MTU), queue_pair(b, port, MTU));
    connect(a, qa, b.local_addr(port), qb);
    connect(b, qb, a.local_addr(port), qa);
    (qa, qb)
}

/// A queue pair that is not connected; 64 receives may be posted.
pub(crate) fn queue_pair(fabric: &mut impl Fabric, port: u16, mtu: u32) -> Qpn {
    let attr = QpAttr {
        mtu,
        port,
        recv_depth: 64,
    };
    fabric.create_qp(attr).unwrap()
}

/// Connects one side.
pub(crate) fn connect(fabric: &mut impl Fabric, own: Qpn, addr: SocketAddr, qpn: Qpn) {
    let remote = RemoteQp { addr, qpn };
    fabric.connect_qp(own, remote).unwrap();
}

/// Bytes that tell their place.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (1..=251).cycle().take(length).collect()
}

/// A scatter entry.
pub(crate) fn sge(lkey: Lkey, range: std::ops::Range<usize>) -> Sge {
    Sge {
        lkey,
        offset: range.start as u64,
        length: u32::try_from(range.len()).unwrap(),
    }
}

/// An unsignalled write.
pub(crate) fn write(local: &[Sge], remote_addr: u64, rkey: Rkey, imm: u32) -> WriteWr<'_> {
    WriteWr {
        wr_id: 0,
        signaled: false,
        local,
        remote_addr,
        rkey,
        imm,
    }
}

/// Posts one write, however often it takes.
#[track_caller]
pub(crate) fn post(fabric: &mut impl Fabric, qpn: Qpn, write: &WriteWr<'_>) {
    for _ in 0..PATIENCE {
        if fabric.post_writes(qpn, &[*write]).unwrap() == 1 {
            return;
        }
    }
    panic!("the carrier stayed full");
}

/// Posts one SEND, however often it takes.
#[track_caller]
pub(crate) fn send(fabric: &mut impl Fabric, qpn: Qpn, payload: &[u8]) {
    for _ in 0..PATIENCE {
        if fabric.post_send(qpn, payload).unwrap() {
            return;
        }
    }
    panic!("the carrier stayed full");
}

/// What arrives at a fabric: exactly `count` completions, and none after them.
#[track_caller]
pub(crate) fn arrivals<W: World>(
    world: &mut W,
    fabric: &mut W::Fabric,
    count: usize,
) -> Vec<Completion> {
    let mut completions = Vec::new();
    for _ in 0..PATIENCE {
        if completions.len() >= count {
            break;
        }
        world.step();
        fabric.poll(&mut completions).unwrap();
    }
    assert_eq!(completions.len(), count, "{:?}", fabric.counters());
    completions
}

/// Lets everything arrive without taking it in.
pub(crate) fn travel(world: &mut impl World) {
    (0..LONG_ENOUGH).for_each(|_| world.step());
}
