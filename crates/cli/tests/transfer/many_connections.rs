//! Many senders, one after the other, and many connections that never send anything.

use std::net::TcpStream;

use crate::rig::{Rig, V4};

#[test]
fn senders_one_right_after_the_other_all_succeed() {
    let rig = Rig::new();
    let receiver = rig.recv(V4, &[]);
    for number in 0..30 {
        let file = rig.file(&format!("file-{number}"), 1000);
        rig.send(receiver.addr, &[], &[&file]).end().assert(0, "");
    }
    receiver.running.signal("INT");
    receiver.end().assert(130, "");
    assert_eq!(rig.received().len(), 30);
}

#[test]
fn idle_connections_do_not_lock_a_sender_out() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    let receiver = rig.recv(V4, &["--once"]);
    let connect = |_| TcpStream::connect(receiver.addr).expect("connect");
    let idle: Vec<_> = (0..40).map(connect).collect();
    // The receiver gives idle connections up after 10 s.
    let sender = rig.send(receiver.addr, &["--timeout", "8s"], &[&file]);
    sender.end().assert(0, "");
    drop(idle);
    receiver.end().assert(0, "");
}
