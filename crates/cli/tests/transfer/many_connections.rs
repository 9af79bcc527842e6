//! Many senders, one after the other, and many connections that never send anything.

use std::time::Duration;

use farwrite_connection::{Keys, connect_any};
use farwrite_transfer::{RECEIVER, connection_options};

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
    let receiver = rig.recv(V4, &[]);
    let keys = Keys::of_psk(&rig.psk);
    let options = connection_options(Duration::from_secs(20));
    let connect = |_| connect_any(&[receiver.addr], &keys, RECEIVER, &options).expect("connect");
    let idle: Vec<_> = (0..40).map(connect).collect();
    // The receiver gives up after 10 s each that opens no channel.
    let sender = rig.send(receiver.addr, &["--timeout", "8s"], &[&file]);
    sender.end().assert(0, "");
    drop(idle);
    receiver.running.signal("INT");
    receiver.end().assert(130, "");
}
