//! Threads that wait for a UDP fabric, and the events that end their waits.
#![cfg(target_os = "linux")]

use std::net::UdpSocket;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{
    Completion, Fabric, QpAttr, Qpn, RealTime, RealTimeRx, RemoteQp, RxWorker, TxQueue, Waker,
};
use farwrite_fabric::nic::NicRx;
use farwrite_fabric::udp::{SocketConfig, UdpConfig, UdpFabric, UdpRx};
use farwrite_wire::opcode::ROUTE_PACKET;

/// Longer than a test takes.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

fn bind(ports: u16) -> UdpFabric {
    let socket = SocketConfig::new(([127, 0, 0, 1], 0).into());
    UdpFabric::bind(&UdpConfig { socket, ports }).unwrap()
}

/// Joined queue pairs on a port of two fabrics.
fn joined(a: &mut UdpFabric, b: &mut UdpFabric, port: u16) -> (Qpn, Qpn) {
    let attr = QpAttr {
        mtu: 1024,
        port,
        context: 0,
        recv_buffers: 10,
    };
    let (qa, qb) = (a.create_qp(attr).unwrap(), b.create_qp(attr).unwrap());
    let remote = |addr, qpn| RemoteQp { addr, qpn };
    a.connect_qp(qa, remote(b.local_addr(port), qb)).unwrap();
    b.connect_qp(qb, remote(a.local_addr(port), qa)).unwrap();
    (qa, qb)
}

/// Returns the duration of a wait.
fn time(wait: impl FnOnce()) -> Duration {
    let start = Instant::now();
    wait();
    start.elapsed()
}

/// Checks the properties of every wait with a waker.
fn keeps_the_promises(mut wait: impl FnMut(Duration) + Send, waker: &Waker) {
    assert!(time(|| wait(SHORT)) >= SHORT, "nothing ends it");
    waker.wake();
    assert!(time(|| wait(LONG)) < LONG, "a wake before it ends it");
    (0..100).for_each(|_| waker.clone().wake());
    assert!(time(|| wait(LONG)) < LONG);
    assert!(time(|| wait(SHORT)) >= SHORT, "many wakes are one");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| time(|| wait(LONG)));
        // The thread usually sleeps by now. If it does not, it still must wake up.
        thread::sleep(SHORT);
        waker.wake();
        assert!(waiter.join().unwrap() < LONG, "a wake ends it");
    });
}

#[test]
fn wakes_end_waits_of_the_control_object() {
    let mut fabric = Adapter::new(bind(2)).unwrap();
    let waker = fabric.waker();
    keeps_the_promises(|at_most| fabric.wait(at_most).unwrap(), &waker);
}

#[test]
fn wakes_end_waits_of_a_worker() {
    let mut worker = bind(1).take_rx(0).unwrap();
    let waker = worker.waker();
    keeps_the_promises(|at_most| worker.wait(at_most).unwrap(), &waker);
}

#[test]
fn a_wake_is_for_one_owner() {
    let mut fabric = bind(2);
    let [mut first, mut second] = [0, 1].map(|port| fabric.take_rx(port).unwrap());
    first.waker().wake();
    assert!(time(|| second.wait(SHORT).unwrap()) >= SHORT);
    assert!(time(|| fabric.wait(SHORT, &[]).unwrap()) >= SHORT);
    assert!(time(|| first.wait(LONG).unwrap()) < LONG);
}

#[test]
fn arrivals_end_waits_of_those_that_poll() {
    let (mut a, mut b) = (bind(2), bind(2));
    let (qpn, _) = joined(&mut a, &mut b, 1);
    let mut b = Adapter::new(b).unwrap();
    let mut tx = a.take_tx(1).unwrap();
    assert!(tx.post_send(qpn, b"first").unwrap());
    assert!(time(|| b.wait(LONG).unwrap()) < LONG);
    let mut completions = Vec::new();
    b.poll(&mut completions).unwrap();
    assert!(matches!(&completions[..], [Completion::Send(send)] if send.payload == b"first"));

    // Workers on other threads: the owner does not wait for their packets.
    let mut workers = b.take_workers();
    assert_eq!((workers.len(), b.take_workers().len()), (2, 0));
    let mut worker = workers.pop().unwrap();
    assert!(tx.post_send(qpn, b"second").unwrap());
    assert!(time(|| b.wait(SHORT).unwrap()) >= SHORT);
    assert!(time(|| worker.wait(LONG).unwrap()) < LONG);
    assert!(!b.poll(&mut completions).unwrap());
    assert_eq!(completions.len(), 1);
    worker.poll(&mut completions).unwrap();
    assert!(matches!(&completions[1..], [Completion::Send(send)] if send.payload == b"second"));
}

/// A peer has a socket of its own, so only strangers send to the open one. They end a wait once, and a
/// flood of them ends one wait a millisecond.
#[test]
fn strangers_end_few_waits() {
    let (mut a, mut b) = (bind(1), bind(1));
    joined(&mut a, &mut b, 0);
    let (_rx, mut worker) = (a.take_rx(0).unwrap(), b.take_rx(0).unwrap());
    let mut completions = Vec::new();
    let mut poll = |worker: &mut NicRx<UdpRx>| worker.poll(&mut completions).unwrap();
    poll(&mut worker);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = || {
        stranger
            .send_to(&[ROUTE_PACKET; 80], b.local_addr(0))
            .unwrap()
    };
    for _ in 0..3 {
        send();
        assert!(time(|| worker.wait(LONG).unwrap()) < LONG);
        poll(&mut worker);
        assert_eq!(b.take_route_packets().len(), 1);
        // After a packet, the socket is read a second time.
        assert!(time(|| worker.wait(LONG).unwrap()) < LONG);
        poll(&mut worker);
        assert!(
            time(|| worker.wait(SHORT).unwrap()) >= SHORT,
            "nothing comes"
        );
    }
    let start = Instant::now();
    let mut waits = 0;
    while start.elapsed() < Duration::from_millis(100) {
        (0..16).for_each(|_| _ = send());
        worker.wait(LONG).unwrap();
        poll(&mut worker);
        waits += 1;
    }
    assert!(waits < 110, "{waits} waits");
}

/// The setup of an endpoint with several threads: a worker receives, and wakes the owner.
#[test]
fn a_worker_wakes_the_owner() {
    let (mut a, mut b) = (bind(1), bind(1));
    let (qpn, _) = joined(&mut a, &mut b, 0);
    let (mut tx, mut worker) = (a.take_tx(0).unwrap(), b.take_rx(0).unwrap());
    let (to_owner, to_worker) = (b.waker(), worker.waker());
    let (done, is_done) = mpsc::channel();
    let (hand_over, handed) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut completions = Vec::new();
            while is_done.try_recv() == Err(TryRecvError::Empty) {
                worker.poll(&mut completions).unwrap();
                if completions.is_empty() {
                    worker.wait(LONG).unwrap();
                }
                for completion in completions.drain(..) {
                    hand_over.send(completion).unwrap();
                    to_owner.wake();
                }
            }
        });
        for round in 0..50_u8 {
            assert!(tx.post_send(qpn, &[round]).unwrap());
            let arrived = loop {
                match handed.try_recv() {
                    Ok(completion) => break completion,
                    Err(_) => assert!(time(|| b.wait(LONG, &[]).unwrap()) < LONG),
                }
            };
            assert!(matches!(arrived, Completion::Send(send) if send.payload == [round]));
        }
        done.send(()).unwrap();
        to_worker.wake();
    });
}
