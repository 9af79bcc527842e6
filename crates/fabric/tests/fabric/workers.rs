//! Queues and workers on threads of their own, over loopback sockets.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_fabric::contract::{
    Completion, Fabric, Lkey, QpAttr, Qpn, RealTimeRx, Region, RemotePlace, RemoteQp, RxWorker,
    Sge, TxQueue, WindowSet, WriteWr,
};
use farwrite_fabric::nic::{NicRx, NicTx};
use farwrite_fabric::udp::{SocketConfig, UdpConfig, UdpFabric, UdpRx, UdpTx};

/// Packets are long, so that a worker is likely to be inside one when a window is closed.
const MTU: usize = 32 * 1024;
/// Longer than any successful wait takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of windows that are opened and closed.
const ROUNDS: usize = 60;

/// A sender and a receiver, joined by one queue pair on each port.
struct Ends {
    sender: UdpFabric,
    receiver: UdpFabric,
    joints: Vec<(Qpn, Qpn)>,
    /// Memory of the sender, filled with ones.
    source: Lkey,
    /// Window set of the receiver, with one slot.
    set: WindowSet,
    place: RemotePlace,
}

fn bind(ports: u16) -> UdpFabric {
    let socket = SocketConfig::new(([127, 0, 0, 1], 0).into());
    UdpFabric::bind(&UdpConfig { socket, ports }).unwrap()
}

fn joined(a: &mut UdpFabric, b: &mut UdpFabric, port: u16) -> (Qpn, Qpn) {
    let attr = QpAttr {
        mtu: u32::try_from(MTU).unwrap(),
        port,
        context: 0,
        recv_buffers: 0,
    };
    let (qa, qb) = (a.create_qp(attr).unwrap(), b.create_qp(attr).unwrap());
    let remote = |addr, qpn| RemoteQp { addr, qpn };
    a.connect_qp(qa, remote(b.local_addr(port), qb)).unwrap();
    b.connect_qp(qb, remote(a.local_addr(port), qa)).unwrap();
    (qa, qb)
}

impl Ends {
    fn new(ports: u16) -> Self {
        let (mut sender, mut receiver) = (bind(ports), bind(ports));
        let joints = (0..ports).map(|port| joined(&mut sender, &mut receiver, port));
        let joints: Vec<_> = joints.collect();
        let of: Vec<_> = joints.iter().map(|&(_, qb)| qb).collect();
        let source = sender.register(Region::owned(vec![1; MTU])).unwrap();
        let set = receiver.create_windows(&of, 1, MTU as u64).unwrap();
        let empty = receiver.register(Region::owned(Vec::new())).unwrap();
        let (window, place) = receiver.open_window(set, 0, empty, 0, 0).unwrap();
        receiver.close_window(window).unwrap();
        Self {
            sender,
            receiver,
            joints,
            source,
            set,
            place,
        }
    }
}

/// Returns a write of one scatter entry to a remote address.
fn write<'a>(local: &'a [Sge; 1], place: RemotePlace, imm: u32) -> WriteWr<'a> {
    WriteWr {
        wr_id: 0,
        signaled: true,
        local,
        remote_addr: place.addr + local[0].offset,
        rkey: place.rkey,
        imm,
    }
}

/// `length` bytes of a region.
fn sge(lkey: Lkey, offset: usize, length: usize) -> [Sge; 1] {
    [Sge {
        lkey,
        offset: offset as u64,
        length: u32::try_from(length).unwrap(),
    }]
}

/// Posts the same writes repeatedly until `stop`.
fn flood(
    tx: &mut NicTx<UdpTx>,
    qpn: Qpn,
    writes: &[WriteWr<'_>],
    landed: &AtomicU64,
    stop: &AtomicBool,
) {
    let (mut sent, mut departed) = (0, Vec::new());
    let mut posts = writes.chunks(4).cycle();
    while !stop.load(Ordering::Relaxed) {
        // Limit the packets in flight to what the socket holds. Otherwise the receiver would only
        // see losses.
        if sent < landed.load(Ordering::Relaxed) + 32 {
            sent += tx.post_writes(qpn, posts.next().unwrap()).unwrap() as u64;
        } else {
            sent = landed.load(Ordering::Relaxed);
            thread::yield_now();
        }
        tx.poll(&mut departed).unwrap();
        departed.clear();
    }
}

/// Receives until `stop`.
fn receive(rx: &mut NicRx<UdpRx>, landed: &AtomicU64, stop: &AtomicBool) {
    let mut completions = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let more = rx.poll(&mut completions).unwrap();
        let is_idle = !more && completions.is_empty();
        let writes = completions.drain(..).map(|completion| match completion {
            Completion::Write { bytes, .. } => u64::from(bytes > 0),
            Completion::Send(send) => panic!("{send:?}"),
        });
        landed.fetch_add(writes.sum(), Ordering::Relaxed);
        rx.end_batch();
        if is_idle {
            rx.wait(Duration::from_millis(1)).unwrap();
        }
    }
}

/// Opens and closes windows while workers write through them. Fills each region after it was
/// returned.
fn open_and_close(receiver: &mut UdpFabric, set: WindowSet, landed: &AtomicU64) {
    const MARK: u8 = 0x55;
    let mut back = Vec::new();
    let mut written = 0;
    for _ in 0..ROUNDS {
        let lkey = receiver.register(Region::owned(vec![0; MTU])).unwrap();
        let opened = receiver.open_window(set, 0, lkey, 0, MTU as u64);
        let (window, _) = opened.unwrap();
        let start = Instant::now();
        let before = landed.load(Ordering::Relaxed);
        while landed.load(Ordering::Relaxed) < before + 2 {
            assert!(start.elapsed() < PATIENCE, "nothing lands");
            thread::yield_now();
        }
        receiver.close_window(window).unwrap();
        while receiver.poll_closed() != Some(window) {
            assert!(start.elapsed() < PATIENCE, "no batch ends");
        }
        let mut region = receiver.deregister(lkey).unwrap();
        written += usize::from(region.contains(&1));
        region.fill(MARK);
        back.push(region);
    }
    assert!(
        written > ROUNDS / 2,
        "most windows were written through: {written}"
    );
    for region in &back {
        assert!(
            region.iter().all(|&byte| byte == MARK),
            "written when closed"
        );
    }
}

fn windows_close_under_load(ports: u16) {
    let Ends {
        mut sender,
        mut receiver,
        joints,
        source,
        set,
        place,
    } = Ends::new(ports);
    let (landed, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (landed, stop) = (&landed, &stop);
    while receiver.poll_closed().is_some() {}
    thread::scope(|scope| {
        for (port, (qpn, _)) in (0..).zip(joints) {
            let mut tx = sender.take_tx(port).unwrap();
            let mut rx = receiver.take_rx(port).unwrap();
            scope.spawn(move || {
                let local = sge(source, 0, MTU);
                flood(&mut tx, qpn, &[write(&local, place, 0); 4], landed, stop);
            });
            scope.spawn(move || receive(&mut rx, landed, stop));
        }
        // The threads also stop if this one panics.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            open_and_close(&mut receiver, set, landed);
        }));
        stop.store(true, Ordering::Relaxed);
        result.unwrap();
    });
}

#[test]
fn a_window_closes_while_a_worker_receives() {
    windows_close_under_load(1);
}

#[test]
fn a_window_closes_while_three_workers_receive() {
    windows_close_under_load(3);
}

/// Two copies of one packet arrive through two ports. They are written at the same time, and
/// another thread reads the memory meanwhile.
#[test]
fn two_workers_place_copies_of_the_same_packets() {
    const PACKETS: usize = 16;
    const BYTES: usize = MTU / PACKETS;
    let Ends {
        mut sender,
        mut receiver,
        joints,
        set,
        place,
        ..
    } = Ends::new(2);
    let pattern: Vec<u8> = (1..=251).cycle().take(MTU).collect();
    let source = sender.register(Region::owned(pattern.clone())).unwrap();
    let target = receiver.register(Region::owned(vec![0; MTU])).unwrap();
    let opened = receiver.open_window(set, 0, target, 0, MTU as u64);
    let (window, _) = opened.unwrap();
    let (landed, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (landed, stop) = (&landed, &stop);
    while receiver.poll_closed().is_some() {}
    let (mut seen, mut is_whole) = (vec![0; MTU], true);
    thread::scope(|scope| {
        for (port, (qpn, _)) in (0..).zip(joints) {
            let mut tx = sender.take_tx(port).unwrap();
            let mut rx = receiver.take_rx(port).unwrap();
            scope.spawn(move || {
                let packets: [_; PACKETS] = std::array::from_fn(|i| sge(source, i * BYTES, BYTES));
                let writes: Vec<_> = packets.iter().map(|sge| write(sge, place, 0)).collect();
                flood(&mut tx, qpn, &writes, landed, stop);
            });
            scope.spawn(move || receive(&mut rx, landed, stop));
        }
        let start = Instant::now();
        while (landed.load(Ordering::Relaxed) < 4000 || seen != pattern)
            && start.elapsed() < PATIENCE
        {
            receiver.copy_out(target, 0, &mut seen).unwrap();
            let mut bytes = seen.iter().zip(&pattern);
            is_whole &= bytes.all(|(&byte, &sent)| byte == 0 || byte == sent);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(is_whole, "a byte came that was never sent");
    assert!(
        seen == pattern,
        "{} packets landed",
        landed.load(Ordering::Relaxed)
    );
    receiver.close_window(window).unwrap();
    assert_eq!(receiver.poll_closed(), Some(window));
    assert!(*receiver.deregister(target).unwrap() == pattern);
}

/// A worker that has ended, was never taken, or sleeps does not delay the closing of windows.
#[test]
fn workers_that_do_not_work_hold_no_window_open() {
    let Ends {
        mut receiver, set, ..
    } = Ends::new(3);
    while receiver.poll_closed().is_some() {}
    drop(receiver.take_rx(0).unwrap());
    let mut sleeping = receiver.take_rx(1).unwrap();
    sleeping.poll(&mut Vec::new()).unwrap();
    let waker = sleeping.waker();
    let lkey = receiver.register(Region::owned(vec![0; 8])).unwrap();
    let (window, _) = receiver.open_window(set, 0, lkey, 0, 8).unwrap();
    thread::scope(|scope| {
        receiver.close_window(window).unwrap();
        assert_eq!(receiver.poll_closed(), None, "it is in a batch");
        let sleeper = scope.spawn(move || sleeping.wait(PATIENCE).map(|()| sleeping));
        let start = Instant::now();
        while receiver.poll_closed() != Some(window) {
            assert!(start.elapsed() < PATIENCE, "the sleeper's batch goes on");
            thread::yield_now();
        }
        waker.wake();
        sleeper.join().unwrap().unwrap();
    });
    receiver.deregister(lkey).unwrap();
}

/// A batch includes the handling of its completions. It ends with the worker at the latest.
#[test]
fn a_worker_that_is_dropped_ends_its_batch() {
    let Ends {
        mut receiver, set, ..
    } = Ends::new(2);
    while receiver.poll_closed().is_some() {}
    let [mut first, mut second] = [0, 1].map(|port| receiver.take_rx(port).unwrap());
    let lkey = receiver.register(Region::owned(vec![0; 8])).unwrap();
    let (window, _) = receiver.open_window(set, 0, lkey, 0, 8).unwrap();
    for worker in [&mut first, &mut second] {
        worker.poll(&mut Vec::new()).unwrap();
    }
    receiver.close_window(window).unwrap();
    assert_eq!(receiver.poll_closed(), None);
    drop(first);
    assert_eq!(receiver.poll_closed(), None);
    drop(second);
    assert_eq!(receiver.poll_closed(), Some(window));
}

/// The memory of a window lives as long as a worker may write to it.
#[test]
fn a_worker_outlives_its_fabric() {
    let Ends {
        mut sender,
        mut receiver,
        joints,
        source,
        set,
        place,
    } = Ends::new(1);
    let lkey = receiver.register(Region::owned(vec![0; MTU])).unwrap();
    receiver.open_window(set, 0, lkey, 0, MTU as u64).unwrap();
    let mut rx = receiver.take_rx(0).unwrap();
    drop(receiver);
    let mut tx = sender.take_tx(0).unwrap();
    let local = sge(source, 0, 64);
    let write = write(&local, place, 7);
    drop(sender);
    assert_eq!(tx.post_writes(joints[0].0, &[write]).unwrap(), 1);
    rx.wait(PATIENCE).unwrap();
    let mut completions = Vec::new();
    rx.poll(&mut completions).unwrap();
    assert!(matches!(
        completions[..],
        [Completion::Write {
            imm: 7,
            bytes: 64,
            ..
        }]
    ));
}
