//! Notices of a peer that lies, or that takes none.

use super::*;

fn notice(bytes: Vec<u8>) -> Vec<u8> {
    Message::Notice { bytes }.encode()
}

/// Waits until the last notice that `end` has heard is this one. Returns how many it has heard.
fn heard(end: &Connection, last: &[u8]) -> u64 {
    let start = Instant::now();
    loop {
        match end.notice_after(0) {
            Some((count, notice)) if notice == last => return count,
            heard => assert!(start.elapsed() < LONG, "{heard:?}"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_last_of_many_notices_is_kept() {
    let world = World::new();
    for initiates in [true, false] {
        let [liar, honest] = world.with_liar(initiates);
        assert_eq!(honest.notice_after(0), None);
        say(&liar, (0..500).map(|length| notice(vec![7; length])));
        assert_eq!(heard(&honest, &[7; 499]), 500);
        assert_eq!(honest.notice_after(500), None);
        // Those that have not left are replaced.
        for number in 0..100 {
            honest.notify(vec![number]).expect("short");
        }
        assert!(heard(&liar, &[99]) <= 100);
        let [longest, longer] = [0, 1].map(|more| vec![0; MAX_NOTICE_BYTES + more]);
        honest.notify(longest).expect("short enough");
        honest.notify(longer).expect_err("too long");
        honest.notify(b"the end".to_vec()).expect("short");
        honest.finish(LONG);
        heard(&liar, b"the end");
    }
    let cut = notice(vec![1; 20])[..20].to_vec();
    for lie in [cut, notice(vec![1; MAX_NOTICE_BYTES + 1])] {
        let [liar, honest] = world.with_liar(true);
        say(&liar, [lie]);
        let why = honest.wait_ended(LONG).expect("no failure").expect("over");
        assert!(matches!(why, Ended::Malformed(_)), "{why}");
        assert_eq!(honest.notices_heard(), 0);
    }
    world.works();
}

#[test]
fn a_notice_leaves_before_its_end_departs() {
    let world = World::new();
    let [liar, honest] = world.with_liar(true);
    // The first ones keep the last one waiting.
    for number in 0..100 {
        honest.notify(vec![number]).expect("short");
    }
    honest.depart(LONG);
    heard(&liar, &[99]);
}

#[test]
fn notices_to_a_peer_that_takes_none_take_no_memory() {
    let world = World::new();
    let [liar, honest] = world.with_liar(true);
    at(&liar, |session, _| session.queue.take_no_more());
    for number in 0..2000_u64 {
        let notice = number.to_be_bytes().to_vec();
        honest.notify(notice).expect("short");
    }
    let unsent = at(&honest, |session, _| session.queue.unsent());
    // What the peer has taken is among them until it is acknowledged.
    assert!(unsent <= 2 * BUFFERS, "{unsent}");
    world.works();
}
