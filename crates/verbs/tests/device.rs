//! What only a fabric over RDMA devices does. `make test-verbs` runs these tests; `tests/contract/main.rs`
//! describes the variables of the environment.
#![cfg(target_os = "linux")]

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Completion, Fabric, Lkey, QpAttr, Qpn, RealTime, RealTimeRx, Region, RemotePlace, RemoteQp,
    RxWorker, Sge, TxQueue, Waker, WindowKeys, WriteWr,
};
use farwrite_verbs::{VerbsConfig, VerbsFabric};

/// Longer than a test takes.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);
/// More windows than the lowest byte of a key has values.
const WINDOWS: usize = 300;

fn config() -> VerbsConfig {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let addresses = variable("FARWRITE_VERBS_ADDRESSES");
    let first = addresses.split(',').next().unwrap().parse().unwrap();
    VerbsConfig {
        addresses: vec![first],
        ..VerbsConfig::new(&variable("FARWRITE_VERBS_DEVICE"))
    }
}

fn open() -> VerbsFabric {
    VerbsFabric::open(&config()).unwrap()
}

const ATTR: QpAttr = QpAttr {
    mtu: 1024,
    port: 0,
    context: 0,
    recv_buffers: 16,
};

fn connect(a: &mut VerbsFabric, qa: Qpn, b: &mut VerbsFabric, qb: Qpn) {
    let remote = |addr, qpn| RemoteQp { addr, qpn };
    a.connect_qp(qa, remote(b.local_addr(0), qb)).unwrap();
    b.connect_qp(qb, remote(a.local_addr(0), qa)).unwrap();
}

fn write(local: &[Sge], place: RemotePlace) -> WriteWr<'_> {
    WriteWr {
        wr_id: 7,
        signaled: true,
        local,
        remote_addr: place.addr,
        rkey: place.rkey,
        imm: 0,
    }
}

/// Returns whether a completion comes within a time.
fn arrives(end: &mut Adapter<VerbsFabric>, at_most: Duration) -> bool {
    let start = Instant::now();
    let mut completions = Vec::new();
    while completions.is_empty() && start.elapsed() < at_most {
        thread::sleep(Duration::from_micros(50));
        end.poll(&mut completions).unwrap();
    }
    end.end_batch();
    !completions.is_empty()
}

/// The target of the writes of a [`Writer`].
const TARGET: usize = 64;
const TARGET_BYTES: u64 = TARGET as u64;

/// A queue pair that writes eight bytes to `b`.
struct Writer {
    a: Adapter<VerbsFabric>,
    b: Adapter<VerbsFabric>,
    qa: Qpn,
    qb: Qpn,
    source: Lkey,
    target: Lkey,
}

impl Writer {
    /// `memory_windows` of the end that is written to.
    fn new(memory_windows: Option<bool>) -> Self {
        let target = VerbsConfig {
            memory_windows,
            ..config()
        };
        let ends = [open(), VerbsFabric::open(&target).unwrap()];
        let [mut a, mut b] = ends.map(|end| Adapter::new(end).unwrap());
        let (qa, qb) = (a.create_qp(ATTR).unwrap(), b.create_qp(ATTR).unwrap());
        connect(&mut a, qa, &mut b, qb);
        let source = a.register(Region::owned(vec![0xff_u8; 8])).unwrap();
        let target = vec![0_u8; TARGET];
        let target = b.register(Region::owned(target)).unwrap();
        Self {
            a,
            b,
            qa,
            qb,
            source,
            target,
        }
    }

    fn keys(&self) -> WindowKeys {
        self.b.capabilities().window_keys
    }

    fn post(&mut self, place: RemotePlace) {
        let local = [Sge {
            lkey: self.source,
            offset: 0,
            length: 8,
        }];
        while self
            .a
            .post_writes(self.qa, &[write(&local, place)])
            .unwrap()
            == 0
        {}
    }

    /// Waits until everything has arrived that was posted before. Returns how many writes did, and whether the
    /// target has other bytes than zeros.
    fn arrived(&mut self) -> (usize, bool) {
        while !self.a.post_send(self.qa, &[1]).unwrap() {}
        let start = Instant::now();
        let (mut completions, mut writes) = (Vec::new(), 0);
        let is_last = |completion: &Completion| matches!(completion, Completion::Send(_));
        while !completions.iter().any(is_last) {
            assert!(start.elapsed() < LONG, "the queue pair does not work");
            writes += completions.len();
            completions.clear();
            thread::sleep(Duration::from_micros(50));
            self.b.poll(&mut completions).unwrap();
        }
        self.b.end_batch();
        writes += completions.len() - 1;
        let mut bytes = [1; TARGET];
        self.b.copy_out(self.target, 0, &mut bytes).unwrap();
        (writes, bytes != [0; TARGET])
    }
}

/// Opens and closes windows, and writes with the key of each while it is open, after it was closed, and when all
/// were closed.
fn closes_keys(memory_windows: Option<bool>) {
    let mut writer = Writer::new(memory_windows);
    let set = writer.b.create_windows(&[writer.qb], 1, 64).unwrap();
    let zeros = [0; TARGET];
    let mut closed = Vec::new();
    for _ in 0..WINDOWS {
        let (b, target) = (&mut writer.b, writer.target);
        let (window, place) = b.open_window(set, 0, target, 0, TARGET_BYTES).unwrap();
        writer.post(place);
        assert_eq!(writer.arrived(), (1, true), "the key is valid");
        writer.b.close_window(window).unwrap();
        assert!(writer.b.take_closed(window));
        writer.b.copy_in(writer.target, 0, &zeros).unwrap();
        writer.post(place);
        assert_eq!(
            writer.arrived(),
            (0, false),
            "the key is not valid any more"
        );
        closed.push(place);
    }
    let keys: HashSet<_> = closed.iter().map(|place| place.rkey).collect();
    assert_eq!(keys.len(), WINDOWS, "a key was used twice");
    // Also while another window onto the same bytes is open.
    let (b, target) = (&mut writer.b, writer.target);
    let (window, place) = b.open_window(set, 0, target, 0, TARGET_BYTES).unwrap();
    for &place in &closed {
        writer.post(place);
    }
    assert_eq!(writer.arrived(), (0, false));
    writer.post(place);
    assert_eq!(writer.arrived(), (1, true), "the queue pair still works");
    // Nothing holds the region any more.
    writer.b.close_window(window).unwrap();
    assert!(writer.b.take_closed(window));
    assert!(writer.b.deregister(writer.target).is_ok());
}

#[test]
fn no_closed_key_of_a_registration_writes_again() {
    closes_keys(Some(false));
}

/// There are more windows than a memory window has keys.
#[test]
fn no_closed_key_of_a_memory_window_writes_again() {
    assert_eq!(Writer::new(Some(true)).keys(), WindowKeys::MemoryWindows);
    closes_keys(Some(true));
}

#[test]
fn memory_windows_are_chosen_where_the_device_keeps_their_bounds() {
    let chosen = Writer::new(None).keys();
    let mut writer = Writer::new(Some(true));
    let set = writer.b.create_windows(&[writer.qb], 1, 64).unwrap();
    let opened = writer.b.open_window(set, 0, writer.target, 0, 8);
    let (_, place) = opened.unwrap();
    let beyond = RemotePlace {
        addr: place.addr + 8,
        ..place
    };
    writer.post(beyond);
    let (_, has_landed) = writer.arrived();
    let keeps_bounds = !has_landed;
    println!("the device keeps bounds: {keeps_bounds}, so keys are {chosen}");
    assert_eq!(chosen == WindowKeys::MemoryWindows, keeps_bounds);
}

/// More windows are open at once than one memory window can be.
#[test]
fn several_memory_windows_are_open_at_once() {
    let mut writer = Writer::new(Some(true));
    let set = writer.b.create_windows(&[writer.qb], 8, 64).unwrap();
    let mut open = Vec::new();
    for slot in 0..8 {
        let at = u64::from(slot) * 8;
        open.push(
            writer
                .b
                .open_window(set, slot, writer.target, at, 8)
                .unwrap(),
        );
    }
    // Those that are closed do not change the others.
    let (closed, left) = open.split_at(4);
    for (window, _) in closed {
        writer.b.close_window(*window).unwrap();
    }
    for (_, place) in &open {
        writer.post(*place);
    }
    assert_eq!(writer.arrived(), (left.len(), true));
    let mut bytes = [1; TARGET];
    writer.b.copy_out(writer.target, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [[0; 32], [0xff; 32]].concat()[..]);
    // The set closes the rest.
    writer.b.destroy_windows(set).unwrap();
    while writer.b.poll_closed().is_some() {}
    assert!(writer.b.deregister(writer.target).is_ok());
}

#[test]
fn packets_longer_than_the_queue_pair_takes_do_no_harm() {
    let [mut a, mut b] = [(); 2].map(|()| Adapter::new(open()).unwrap());
    let wide = QpAttr { mtu: 4096, ..ATTR };
    let (qa, qb) = (a.create_qp(wide).unwrap(), b.create_qp(ATTR).unwrap());
    connect(&mut a, qa, &mut b, qb);
    // The first packet breaks the queue pair of some devices. Other packets arrive while the queue pair is
    // broken. It only receives, so no post of its own mends it.
    for _ in 0..20 {
        assert!(a.post_send(qa, &[1; 2000]).unwrap());
        assert!(!arrives(&mut b, Duration::from_millis(1)));
    }
    let start = Instant::now();
    while !arrives(&mut b, SHORT) {
        assert!(start.elapsed() < LONG);
        assert!(a.post_send(qa, &[1; 1000]).unwrap());
    }
}

#[test]
fn what_comes_while_nobody_polls_is_lost_and_no_queue_pair_breaks() {
    const DEPTH: u32 = 32;
    let shallow = VerbsConfig {
        receive_depth: DEPTH,
        ..config()
    };
    let mut a = Adapter::new(open()).unwrap();
    let mut b = Adapter::new(VerbsFabric::open(&shallow).unwrap()).unwrap();
    let data = QpAttr {
        recv_buffers: 0,
        ..ATTR
    };
    // Two for writes and one for SENDs, which share the queue of completions.
    let pairs = [data, data, ATTR].map(|attr| {
        let (qa, qb) = (a.create_qp(attr).unwrap(), b.create_qp(attr).unwrap());
        connect(&mut a, qa, &mut b, qb);
        (qa, qb, attr.recv_buffers)
    });
    let target = b.register(Region::owned(vec![0_u8; 8])).unwrap();
    let set = b.create_windows(&[pairs[0].1], 1, 8).unwrap();
    let (_, place) = b.open_window(set, 0, target, 0, 8).unwrap();
    let post = |a: &mut Adapter<VerbsFabric>, qpn, buffers| {
        while !match buffers {
            0 => a.post_writes(qpn, &[write(&[], place)]).unwrap() == 1,
            _ => a.post_send(qpn, &[1]).unwrap(),
        } {}
    };
    for _ in 0..4 * DEPTH {
        for (qa, _, buffers) in pairs {
            post(&mut a, qa, buffers);
        }
    }
    thread::sleep(Duration::from_millis(200));
    let mut completions = Vec::new();
    while b.poll(&mut completions).unwrap() {}
    b.end_batch();
    for (_, qb, buffers) in pairs {
        let arrived = completions.iter().filter(|one| one.qpn() == qb);
        let most = if buffers == 0 { DEPTH } else { buffers };
        assert_eq!(arrived.count(), most as usize);
    }
    for (qa, _, buffers) in pairs {
        post(&mut a, qa, buffers);
        assert!(arrives(&mut b, LONG), "the queue pair still works");
    }
}

#[test]
fn queue_pairs_never_have_more_requests_than_their_queue_of_completions_has_room() {
    let deep = VerbsConfig {
        receive_depth: u32::MAX,
        ..config()
    };
    let (mut a, mut b) = (VerbsFabric::open(&deep).unwrap(), open());
    let mut worker = a.take_rx(0).unwrap();
    let attr = QpAttr {
        recv_buffers: 0,
        ..ATTR
    };
    let qb = b.create_qp(attr).unwrap();
    let remote = RemoteQp {
        addr: b.local_addr(0),
        qpn: qb,
    };
    for _ in 0..2 {
        let mut made = Vec::new();
        let error = loop {
            let qa = a.create_qp(attr).unwrap();
            made.push(qa);
            if let Err(error) = a.connect_qp(qa, remote) {
                break error.to_string();
            }
        };
        assert!(made.len() > 2, "there was no room for two: {error}");
        assert!(error.contains("no room for another queue pair"), "{error}");
        made.into_iter().for_each(|qa| a.destroy_qp(qa).unwrap());
        // The worker gives the room back.
        worker.poll(&mut Vec::new()).unwrap();
    }
}

/// Posts SENDs with these payloads, one after the other.
fn send(tx: &mut impl TxQueue, qpn: Qpn, payloads: std::ops::Range<u8>) {
    for payload in payloads {
        while !tx.post_send(qpn, &[payload; 4096]).unwrap() {}
    }
}

/// Takes completions until none comes for a while. Returns the payloads of SENDs.
fn payloads(worker: &mut impl RxWorker) -> Vec<u8> {
    let mut completions = Vec::new();
    thread::sleep(Duration::from_millis(200));
    while worker.poll(&mut completions).unwrap() {}
    worker.poll(&mut completions).unwrap();
    worker.end_batch();
    let sends = completions
        .iter()
        .filter_map(|completion| match completion {
            Completion::Send(arrival) => arrival.payload.first().copied(),
            _ => None,
        });
    sends.collect()
}

#[test]
fn connecting_again_while_packets_arrive_keeps_all_receive_requests() {
    const ROUNDS: usize = 100;
    // A batch of the worker takes as long as connecting.
    let attr = QpAttr {
        mtu: 4096,
        recv_buffers: 64,
        ..ATTR
    };
    let (mut a, mut b) = (open(), open());
    let (qa, qb) = (a.create_qp(attr).unwrap(), b.create_qp(attr).unwrap());
    connect(&mut a, qa, &mut b, qb);
    let (mut tx, mut worker) = (a.take_tx(0).unwrap(), b.take_rx(0).unwrap());
    let remote = RemoteQp {
        addr: a.local_addr(0),
        qpn: qa,
    };
    let stop = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            let mut completions = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                worker.poll(&mut completions).unwrap();
                completions.clear();
            }
        });
        // No packet arrives during a reset: after that, Soft-RoCE of Linux 6.1 may refuse requests.
        let result = (0..ROUNDS).try_for_each(|_| {
            send(&mut tx, qa, 1..65);
            b.disconnect_qp(qb)?;
            b.connect_qp(qb, remote)
        });
        stop.store(true, Ordering::Relaxed);
        result
    });
    result.unwrap();
    payloads(&mut worker);
    // Without a poll between them, each takes a request and a buffer of its own.
    for _ in 0..3 {
        send(&mut tx, qa, 1..65);
        assert_eq!(payloads(&mut worker), Vec::from_iter(1..65));
    }
}

/// Returns how long two waits take together. The first one returns at once, because its caller must poll
/// again.
fn time(mut wait: impl FnMut()) -> Duration {
    let start = Instant::now();
    wait();
    wait();
    start.elapsed()
}

/// Checks what every wait with a waker does.
fn keeps_the_promises(mut wait: impl FnMut(Duration) + Send, waker: &Waker) {
    assert!(time(|| wait(SHORT)) >= SHORT, "nothing ends it");
    waker.wake();
    let start = Instant::now();
    wait(LONG);
    assert!(start.elapsed() < LONG, "a wake before it ends it");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let start = Instant::now();
            wait(LONG);
            start.elapsed()
        });
        thread::sleep(SHORT);
        waker.wake();
        assert!(waiter.join().unwrap() < LONG, "a wake ends it");
    });
}

#[test]
fn waits_end_by_wakers_arrivals_and_departures() {
    let (mut a, mut b) = (open(), open());
    let waker = RealTime::waker(&a);
    keeps_the_promises(
        |at_most| RealTime::wait(&mut a, at_most, &[]).unwrap(),
        &waker,
    );
    let mut worker = b.take_rx(0).unwrap();
    let waker = worker.waker();
    keeps_the_promises(|at_most| worker.wait(at_most).unwrap(), &waker);

    let (qa, qb) = (a.create_qp(ATTR).unwrap(), b.create_qp(ATTR).unwrap());
    connect(&mut a, qa, &mut b, qb);
    let mut tx = a.take_tx(0).unwrap();
    let nowhere = RemotePlace {
        addr: 0,
        rkey: farwrite_fabric::contract::Rkey(1),
    };
    thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut completions = Vec::new();
            let start = Instant::now();
            for _ in 0..5 {
                while completions.is_empty() {
                    worker.wait(LONG).unwrap();
                    worker.poll(&mut completions).unwrap();
                }
                completions.clear();
            }
            start.elapsed()
        });
        for _ in 0..5 {
            thread::sleep(SHORT);
            assert_eq!(tx.post_writes(qa, &[write(&[], nowhere)]).unwrap(), 1);
            let (start, mut departed) = (Instant::now(), Vec::new());
            while departed.is_empty() {
                RealTime::wait(&mut a, LONG, &[]).unwrap();
                tx.poll(&mut departed).unwrap();
            }
            assert!(start.elapsed() < LONG, "a departure ends a wait");
        }
        assert!(receiver.join().unwrap() < LONG, "an arrival ends a wait");
    });
}

#[test]
fn no_wait_begins_before_all_departures_are_reported() {
    let (mut a, mut b) = (open(), open());
    let (qa, qb) = (a.create_qp(ATTR).unwrap(), b.create_qp(ATTR).unwrap());
    connect(&mut a, qa, &mut b, qb);
    let mut tx = a.take_tx(0).unwrap();
    let nowhere = RemotePlace {
        addr: 0,
        rkey: farwrite_fabric::contract::Rkey(1),
    };
    // The first wait asks for events.
    RealTime::wait(&mut a, SHORT, &[]).unwrap();
    assert_eq!(tx.post_writes(qa, &[write(&[], nowhere)]).unwrap(), 1);
    thread::sleep(SHORT);
    // This takes the completion.
    let region = a.register(Region::owned(vec![0_u8; 8])).unwrap();
    a.deregister(region).unwrap();
    let (start, at_most) = (Instant::now(), Duration::from_secs(5));
    RealTime::wait(&mut a, at_most, &[]).unwrap();
    assert!(start.elapsed() < at_most);
    let mut departed = Vec::new();
    tx.poll(&mut departed).unwrap();
    assert_eq!(departed.len(), 1);
}

#[test]
fn errors_say_what_is_wrong_and_what_there_is() {
    let message = |config: &VerbsConfig| VerbsFabric::open(config).err().unwrap().to_string();
    let good = config();
    let device = good.device.clone().unwrap();
    let unknown = message(&VerbsConfig::new("mlx9"));
    assert!(
        unknown.contains("mlx9") && unknown.contains(&device),
        "{unknown}"
    );
    let elsewhere: IpAddr = "203.0.113.9".parse().unwrap();
    let wrong = message(&VerbsConfig {
        addresses: vec![elsewhere],
        ..good.clone()
    });
    let right = good.addresses[0].to_string();
    assert!(
        wrong.contains("203.0.113.9") && wrong.contains(&right),
        "{wrong}"
    );
    let port = message(&VerbsConfig {
        device_port: 9,
        ..good
    });
    assert!(port.contains("port 9"), "{port}");
}
