//! Releasing receives.
#![allow(unsafe_code)]

use farwrite_sdr::{Arrival, SdrQp};
use farwrite_wire::control::Outcome;

use crate::{arrive, connected, post, small};

/// Releases a receive in a test with a single thread.
pub(crate) fn release(qp: &mut SdrQp, message: u64) {
    // SAFETY: only this thread handles packets of the queue pair, and it does not do so now.
    unsafe { qp.release_recv(message) };
}

#[test]
fn only_a_receive_that_is_over_is_released() {
    let mut qp = connected(small());
    let bitmap = post(&mut qp, 1000);
    for message in [0, 1, u64::MAX] {
        release(&mut qp, message);
    }
    for packet in 0..4 {
        arrive(&qp, 0, packet, 64);
    }
    assert_eq!((bitmap.word(0), qp.received().word(0, 0)), (1, 1));
    qp.complete_recv(0, Outcome::Partial).unwrap();
    for _ in 0..2 {
        release(&mut qp, 0);
    }
    assert_eq!((bitmap.word(0), qp.received().word(0, 0)), (1, 0));
}

#[test]
fn a_table_outlives_its_queue_pair() {
    let mut qp = connected(small());
    let bitmaps = [post(&mut qp, 64), post(&mut qp, 64)];
    arrive(&qp, 0, 0, 64);
    qp.complete_recv(0, Outcome::Partial).unwrap();
    let table = qp.table().clone();
    drop(qp);
    // The first slot is empty. The second still has its message.
    let late = Arrival::Late { message: 0 };
    assert_eq!(table.handle_packet(0, 0, 64), late);
    let arrival = table.handle_packet(0, 1 << 22, 64);
    assert!(matches!(arrival, Arrival::New { message, .. } if message == 1));
    drop(table);
    assert_eq!(bitmaps.map(|bitmap| bitmap.bytes()), [64, 64]);
}

#[test]
fn the_memory_of_a_bitmap_serves_a_later_receive() {
    let mut qp = connected(small());
    let bitmap = post(&mut qp, 1000);
    arrive(&qp, 0, 0, 64);
    let (packets, address) = (bitmap.packets(0), bitmap.as_ptr());
    assert_eq!(packets, 1);
    // It is kept only when nothing else can write or read it.
    assert!(!qp.reuse_bitmap(bitmap.clone()));
    qp.complete_recv(0, Outcome::Partial).unwrap();
    release(&mut qp, 0);
    assert!(qp.reuse_bitmap(bitmap));
    // A shorter message fits. Nothing of the older one is in it.
    let second = post(&mut qp, 300);
    assert_eq!(second.as_ptr(), address);
    assert_eq!((second.message(), second.len()), (1, 2));
    assert_eq!(
        (second.word(0), second.packets(0), second.bytes()),
        (0, 0, 0)
    );
    for packet in 0..4 {
        arrive(&qp, 1, packet, 64);
    }
    // The packets of the older message do not count for it.
    arrive(&qp, 0, 1, 64);
    assert_eq!((second.word(0), second.bytes()), (1, 256));
    assert_ne!(post(&mut qp, 300).as_ptr(), address);
}
