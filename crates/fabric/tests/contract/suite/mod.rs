//! The guarantees of every fabric, as tests over a [`World`] that makes fabrics.
//!
//! A fabric joins the suite with a `World` and one line: `contract_tests!(its_world())`.

pub(crate) mod memory;
pub(crate) mod queue_pairs;
pub(crate) mod sends;
pub(crate) mod windows;
pub(crate) mod writes;

use std::net::SocketAddr;
use std::ops::Range;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Completion, Departed, Fabric, Lkey, QpAttr, Qpn, Region, RemotePlace, RemoteQp, Sender, Sge,
    Window, WriteWr,
};

/// Makes fabrics that can reach each other, and transports their packets.
pub(crate) trait World {
    /// The fabric under test.
    type Fabric: Fabric;
    /// Adds a fabric with this number of ports. It can reach all other fabrics of this world.
    fn end(&mut self, ports: u16) -> Adapter<Self::Fabric>;
    /// Lets a short time pass. After some hundred steps, all sent packets have arrived.
    fn step(&mut self);
    /// Returns an address that can be reached and does not belong to a fabric.
    fn stranger(&self) -> SocketAddr;
}

/// Generates a test for every function of the suite that applies to all fabrics.
macro_rules! contract_tests {
    ($world:expr) => {
        $crate::suite::contract_tests! {
            @each suite, $world,
            memory: [
                comes_and_goes, copies_stay_in_bounds, in_use_while_a_window_is_open,
                a_callers_memory, read_only, comes_back_after_departure, sent_while_a_peer_may_write,
                ghosts,
            ],
            queue_pairs: [
                attributes, halves_are_handed_out_once, connecting, disconnecting, destroying,
                completions_wait, contexts, several_ports, both_directions,
                only_control_takes_sends, a_new_route,
            ],
            sends: [every_length, refusals],
            windows: [
                bounds, bounds_of_opening, several_onto_one_region, slots_are_apart, straddling,
                late_packets_write_nothing, closed_after_the_batch, a_slot_is_free_at_once,
                closing_twice, destroying_a_set,
                guessed_keys, keys_of_other_queue_pairs, attributes,
            ],
            writes: [
                land_where_sent, every_length, gather, zero_length, in_bulk, departures,
                departures_of_many_queue_pairs, refusals,
            ],
        }
    };
    (@each $suite:ident, $world:expr, $($module:ident: [$($name:ident),* $(,)?]),* $(,)?) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                $crate::suite::contract_tests!(@path $suite, $module, $name)(&mut $world);
            })*
        })*
    };
    (@path suite, $module:ident, $name:ident) => { $crate::suite::$module::$name };
    (@path software, $module:ident, $name:ident) => { $crate::software::$module::$name };
}
pub(crate) use contract_tests;

/// Number of steps after which a packet that has not arrived will never arrive.
pub(crate) const PATIENCE: u32 = 200_000;
/// Number of steps in which any sent packet arrives, unless it is lost.
const LONG_ENOUGH: u32 = 200;
/// MTU of the queue pairs of [`Pair::new`].
pub(crate) const MTU: u32 = 1024;
/// Bytes of [`Pair::target`].
pub(crate) const TARGET_BYTES: usize = 8192;

/// Two fabrics, joined by a queue pair on each; `a` writes, `b` receives.
pub(crate) struct Pair<'w, W: World> {
    pub(crate) world: &'w mut W,
    pub(crate) a: Adapter<W::Fabric>,
    pub(crate) b: Adapter<W::Fabric>,
    pub(crate) qa: Qpn,
    pub(crate) qb: Qpn,
    /// Memory of `a`, with a byte pattern, to write from.
    pub(crate) source: Lkey,
    /// Memory of `b`, all zeros, to write to.
    pub(crate) target: Lkey,
}

impl<'w, W: World> Pair<'w, W> {
    /// Both fabrics have one port.
    pub(crate) fn new(world: &'w mut W) -> Self {
        let (mut a, mut b) = (world.end(1), world.end(1));
        let (qa, qb) = joined(&mut a, &mut b, 0);
        let source = a.register(Region::owned(pattern(TARGET_BYTES))).unwrap();
        let target = b.register(Region::owned(vec![0; TARGET_BYTES])).unwrap();
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

    /// Opens a window for `a` to write to a range of the target.
    pub(crate) fn open(&mut self, range: Range<usize>) -> (Window, RemotePlace) {
        window(&mut self.b, &[self.qb], self.target, range)
    }

    /// Posts one write of `local` bytes of the source from `a` to `at` bytes after `place`.
    pub(crate) fn write(&mut self, local: Range<usize>, place: RemotePlace, at: u64, imm: u32) {
        let local = [sge(self.source, local)];
        post(&mut self.a, self.qa, &write(&local, beyond(place, at), imm));
    }

    /// Receives exactly `count` completions at `b`.
    #[track_caller]
    pub(crate) fn arrivals(&mut self, count: usize) -> Vec<Got> {
        arrivals(self.world, &mut self.b, count)
    }

    /// Delivers everything to `b`, and checks that nothing completes and the target does not
    /// change.
    #[track_caller]
    pub(crate) fn nothing_lands(&mut self) {
        let before = self.target();
        travel(self.world);
        let mut completions = Vec::new();
        while self.b.poll(&mut completions).unwrap() {}
        self.b.end_batch();
        assert_eq!(completions, []);
        assert!(self.target() == before, "memory changed");
    }

    /// Returns the current bytes of the target.
    pub(crate) fn target(&self) -> Vec<u8> {
        bytes(&self.b, self.target, TARGET_BYTES)
    }
}

/// A completion without arrival time and ECN bits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Got {
    Write { qpn: Qpn, imm: u32, bytes: u32 },
    Send { qpn: Qpn, payload: Vec<u8> },
}

impl Got {
    #[track_caller]
    fn new(completion: Completion) -> Self {
        match completion {
            Completion::Write {
                qpn, imm, bytes, ..
            } => Self::Write { qpn, imm, bytes },
            Completion::Send(send) => {
                assert_eq!(send.from, Sender::Validated);
                let (qpn, payload) = (send.qpn, send.payload);
                Self::Send { qpn, payload }
            }
        }
    }
}

/// Makes and joins queue pairs with [`MTU`] on the same port of two fabrics. They accept writes and
/// SENDs.
pub(crate) fn joined<F: Fabric>(a: &mut Adapter<F>, b: &mut Adapter<F>, port: u16) -> (Qpn, Qpn) {
    let (qa, qb) = (queue_pair(a, port, MTU), queue_pair(b, port, MTU));
    connect(a, qa, b.local_addr(port), qb);
    connect(b, qb, a.local_addr(port), qa);
    (qa, qb)
}

/// Returns a queue pair that is not connected and accepts writes and SENDs.
pub(crate) fn queue_pair<F: Fabric>(end: &mut Adapter<F>, port: u16, mtu: u32) -> Qpn {
    let attr = QpAttr {
        mtu,
        port,
        context: 0,
        recv_buffers: 64,
    };
    end.create_qp(attr).unwrap()
}

/// Connects one side.
pub(crate) fn connect<F: Fabric>(end: &mut Adapter<F>, own: Qpn, addr: SocketAddr, qpn: Qpn) {
    let remote = RemoteQp { addr, qpn };
    end.connect_qp(own, remote).unwrap();
}

/// Returns a window onto a range of a region, in a set of its own that is bound to `of`.
pub(crate) fn window<F: Fabric>(
    end: &mut Adapter<F>,
    of: &[Qpn],
    lkey: Lkey,
    range: Range<usize>,
) -> (Window, RemotePlace) {
    let length = range.len() as u64;
    let set = end.create_windows(of, 1, length.max(1)).unwrap();
    let opened = end.open_window(set, 0, lkey, range.start as u64, length);
    opened.unwrap()
}

/// Closes a window and waits until it is reported as closed.
#[track_caller]
pub(crate) fn close<W: World>(world: &mut W, end: &mut Adapter<W::Fabric>, window: Window) {
    end.close_window(window).unwrap();
    assert_eq!(closed(world, end), window);
}

/// Returns the next closed window.
#[track_caller]
pub(crate) fn closed<W: World>(world: &mut W, end: &mut Adapter<W::Fabric>) -> Window {
    for _ in 0..PATIENCE {
        if let Some(window) = end.poll_closed() {
            return window;
        }
        world.step();
    }
    panic!("no window was closed");
}

/// Returns the remote address `at` bytes after another one.
pub(crate) fn beyond(place: RemotePlace, at: u64) -> RemotePlace {
    let addr = place.addr.wrapping_add(at);
    RemotePlace { addr, ..place }
}

/// Returns the first current bytes of a region.
pub(crate) fn bytes<F: Fabric>(end: &Adapter<F>, lkey: Lkey, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    end.copy_out(lkey, 0, &mut bytes).unwrap();
    bytes
}

/// Returns bytes that depend on their position.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (1..=251).cycle().take(length).collect()
}

/// Returns a scatter entry.
pub(crate) fn sge(lkey: Lkey, range: Range<usize>) -> Sge {
    Sge {
        lkey,
        offset: range.start as u64,
        length: u32::try_from(range.len()).unwrap(),
    }
}

/// Returns an unsignalled write.
pub(crate) fn write(local: &[Sge], to: RemotePlace, imm: u32) -> WriteWr<'_> {
    WriteWr {
        wr_id: 0,
        signaled: false,
        local,
        remote_addr: to.addr,
        rkey: to.rkey,
        imm,
    }
}

/// Posts one write, and repeats the call until the fabric takes it.
#[track_caller]
pub(crate) fn post<F: Fabric>(end: &mut Adapter<F>, qpn: Qpn, write: &WriteWr<'_>) {
    for _ in 0..PATIENCE {
        if end.post_writes(qpn, &[*write]).unwrap() == 1 {
            return;
        }
    }
    panic!("the carrier stayed full");
}

/// Posts one SEND, and repeats the call until the fabric takes it.
#[track_caller]
pub(crate) fn send<F: Fabric>(end: &mut Adapter<F>, qpn: Qpn, payload: &[u8]) {
    for _ in 0..PATIENCE {
        if end.post_send(qpn, payload).unwrap() {
            return;
        }
    }
    panic!("the carrier stayed full");
}

/// Receives exactly `count` completions at a fabric. After that, no worker is in a batch.
#[track_caller]
pub(crate) fn completions<W: World>(
    world: &mut W,
    end: &mut Adapter<W::Fabric>,
    count: usize,
) -> Vec<Completion> {
    let mut completions = Vec::new();
    for _ in 0..PATIENCE {
        if completions.len() >= count {
            break;
        }
        world.step();
        end.poll(&mut completions).unwrap();
    }
    end.end_batch();
    assert_eq!(completions.len(), count, "{:?}", end.counters());
    completions
}

/// Like [`completions`], without arrival times and ECN bits.
#[track_caller]
pub(crate) fn arrivals<W: World>(
    world: &mut W,
    end: &mut Adapter<W::Fabric>,
    count: usize,
) -> Vec<Got> {
    let completions = completions(world, end, count);
    completions.into_iter().map(Got::new).collect()
}

/// Polls exactly `count` departures of a fabric.
#[track_caller]
pub(crate) fn departures<W: World>(
    world: &mut W,
    end: &mut Adapter<W::Fabric>,
    count: usize,
) -> Vec<Departed> {
    let mut departed = Vec::new();
    for _ in 0..PATIENCE {
        end.poll_departed(&mut departed).unwrap();
        if departed.len() >= count {
            break;
        }
        world.step();
    }
    assert_eq!(departed.len(), count);
    departed
}

/// Lets everything arrive without receiving it.
pub(crate) fn travel(world: &mut impl World) {
    (0..LONG_ENOUGH).for_each(|_| world.step());
}
