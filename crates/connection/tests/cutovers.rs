//! Connections whose path comes to carry only smaller packets, as when a tunnel comes up.

mod translator;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farwrite::routes::RouteError;
use farwrite::{Error, Outcome, RecvHandle, SchemeName, SendHandle, SendOptions};
use farwrite_connection::{Ended, MessageOptions, Messages, OpenedQueuePair};
use farwrite_rng::SplitMix;

use translator::{LONG, exchange, messages, opened, pair};

/// Bytes of the longest datagram that the path carries.
const SMALL: usize = 1400;
const SMALLER: usize = 1300;

/// A message that shows its number.
fn numbered(number: u8) -> Vec<u8> {
    // Short ones pass the path that carries less, and arrive before longer ones.
    let most = if number.is_multiple_of(4) {
        500
    } else {
        200_000
    };
    let length = SplitMix::new(number.into()).below(most);
    vec![number; usize::try_from(length + 1).expect("in memory")]
}

/// Takes the messages `numbers`.
fn take(from: &Messages, numbers: std::ops::Range<u8>) {
    for number in numbers {
        let came = from
            .receive(4 * LONG)
            .expect("no failure")
            .expect("in time");
        assert!(came == numbered(number), "message {number}");
    }
}

/// Messages of both directions are under way when the path shrinks, more than the buffers take, and the path loses
/// packets, so that later ones are whole before earlier ones. It shrinks twice.
#[test]
fn messages_go_on_with_smaller_packets() {
    let (translator, near, far) = pair(2 * LONG);
    let ends = opened(&near, &far).map(|pair| {
        let options = MessageOptions {
            buffers: 6,
            most_buffers: 6,
            ..MessageOptions::default()
        };
        pair.into_messages(options).expect("buffers")
    });
    let [of_near, of_far] = &ends;
    let first_mtu = near.mtu();
    let first_largest = of_near.largest_message();
    translator.loss.store(2, Ordering::Relaxed);
    let mut sent = Vec::new();
    for (first, carries) in [(0, SMALL), (30, SMALLER)] {
        let numbers = first..first + 30;
        for number in numbers.clone() {
            sent.extend(ends.each_ref().map(|end| end.send(numbered(number))));
        }
        let soon = numbers.start..numbers.start + 8;
        take(of_near, soon.clone());
        take(of_far, soon.clone());
        translator.carry(carries);
        take(of_far, soon.end..numbers.end);
        take(of_near, soon.end..numbers.end);
    }
    for message in sent {
        assert_eq!(message.wait(LONG).expect("alive"), Some(Outcome::Whole));
    }
    for end in [&near, &far] {
        assert!(end.ended().is_none());
        let mtu = end.mtu();
        assert!((1024..1300).contains(&mtu), "{first_mtu} to {mtu}");
    }
    assert!(of_near.largest_message() < first_largest);
    exchange(of_near, of_far, "afterwards");
    // Both ends know the size for further queue pairs.
    let (further_near, further_far) = messages(&near, &far);
    exchange(&further_near, &further_far, &"long".repeat(10_000));
}

/// Either end may find that the path shrinks, while the other one has sent nothing.
#[test]
fn the_end_that_sends_finds_the_size() {
    for sends_near in [true, false] {
        let (translator, near, far) = pair(2 * LONG);
        let (of_near, of_far) = messages(&near, &far);
        exchange(&of_near, &of_far, "before");
        translator.carry(SMALL);
        let (from, to) = if sends_near {
            (&of_near, &of_far)
        } else {
            (&of_far, &of_near)
        };
        let sent = from.send(numbered(5));
        let start = Instant::now();
        take(to, 5..6);
        assert_eq!(sent.wait(LONG).expect("alive"), Some(Outcome::Whole));
        assert!(start.elapsed() < 2 * LONG, "before the limit of silence");
    }
}

/// Posts a receive at one end and a message at the other.
fn post(
    [from, to]: [&OpenedQueuePair; 2],
    options: SendOptions,
    bytes: usize,
) -> (SendHandle, RecvHandle) {
    let recv = to.call(move |endpoint, qp| {
        let region = endpoint.register(vec![0; bytes])?;
        endpoint.post_recv(qp, region.whole())
    });
    let send = from.call(move |endpoint, qp| {
        let region = endpoint.register(vec![7; bytes])?;
        endpoint.post_send(qp, region.whole(), options)
    });
    let recv = recv.expect("it runs").expect("posted");
    (send.expect("it runs").expect("posted"), recv)
}

/// A program that uses the queue pair itself learns the size, and opens another queue pair.
#[test]
fn a_plain_queue_pair_ends_with_the_size_and_another_one_has_it() {
    let (translator, near, far) = pair(2 * LONG);
    let plain = opened(&near, &far);
    let [of_near, of_far] = &plain;
    let of_messages = messages(&near, &far);
    let first_mtu = near.mtu();
    let reliable = || SendOptions {
        scheme: "sr-nack".parse::<SchemeName>().expect("a name").tag(),
        ..SendOptions::default()
    };
    let (send, recv) = post([of_near, of_far], reliable(), 10_000);
    let whole = near.thread().wait(LONG, || send.outcome());
    assert_eq!(whole.expect("it runs"), Some(Outcome::Whole));
    assert_eq!(recv.outcome(), Some(Outcome::Whole));
    translator.carry(SMALL);
    let (send, recv) = post([of_near, of_far], reliable(), 100_000);
    for (end, outcome) in [
        (&near, near.thread().wait(3 * LONG, || send.outcome())),
        (&far, far.thread().wait(LONG, || recv.outcome())),
    ] {
        assert_eq!(outcome.expect("it runs"), Some(Outcome::Failed));
        assert!(end.ended().is_none());
    }
    for pair in &plain {
        let posted = pair.call(|endpoint, qp| {
            let region = endpoint.register(vec![0; 10])?;
            endpoint.post_recv(qp, region.whole())
        });
        let error = posted.expect("it runs").expect_err("broken");
        let carries = near.mtu();
        let Error::BrokenQueuePair { reason, .. } = &error else {
            panic!("{error}");
        };
        let Error::Route(RouteError::Shrunk(shrunk)) = &**reason else {
            panic!("{error}");
        };
        assert_eq!((shrunk.mtu, shrunk.carries), (4096.min(first_mtu), carries));
        let text = format!("packets of {} bytes any more, but of {carries}", shrunk.mtu);
        assert!(error.to_string().contains(&text), "{error}");
    }
    exchange(&of_messages.0, &of_messages.1, &"go on ".repeat(10_000));
    let [further_near, further_far] = opened(&near, &far);
    let (send, recv) = post([&further_near, &further_far], reliable(), 100_000);
    let whole = near.thread().wait(LONG, || send.outcome());
    assert_eq!(whole.expect("it runs"), Some(Outcome::Whole));
    assert_eq!(recv.outcome(), Some(Outcome::Whole));
}

/// Not even the packets with which the ends speak of new queue pairs pass. Those that show that the peer lives do.
#[test]
fn a_path_that_carries_too_little_ends_a_connection_with_the_sizes() {
    let limit = Duration::from_secs(3);
    let (translator, near, far) = pair(limit);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    translator.carry(900);
    // Nothing waits for an acknowledgement, so nothing is stuck.
    assert_eq!(of_far.receive(limit + limit / 2).expect("alive"), None);
    assert!(near.ended().is_none() && far.ended().is_none());
    of_near.send(vec![7; 100_000]);
    let start = Instant::now();
    let why = near.wait_ended(3 * LONG).expect("no failure");
    let why = why.expect("over");
    let Ended::Stuck { shrunk, .. } = &why else {
        panic!("{why}");
    };
    let Some(shrunk) = shrunk else {
        // On a machine that is too busy, probes of all sizes come late.
        assert!(start.elapsed() > LONG, "{why}");
        return;
    };
    assert!((256..900).contains(&shrunk.carries), "{why}");
    assert!(shrunk.mtu > 1400, "{why}");
    let theirs = far.wait_ended(LONG).expect("no failure").expect("over");
    assert!(matches!(theirs, Ended::ByPeer { .. }), "{theirs}");
    let text = theirs.to_string();
    assert!(
        text.contains(&format!("but of {}", shrunk.carries)),
        "{text}"
    );
    let text = of_near.receive(LONG).expect_err("over").to_string();
    assert!(text.contains("has acknowledged nothing"), "{text}");
}
