//! Messages over a channel (P7.4).

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Bytes, PATIENT, channels, hand_made, sockets};
use farwrite_session::{Channel, ChannelMessage, Error, Psk};
use proptest::prelude::*;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

/// A message type with a small size limit.
#[derive(Debug, Serialize, Deserialize)]
struct Short(Vec<u8>);

impl ChannelMessage for Short {
    const NAME: &'static str = "short message";
    const MAX_BYTES: usize = 100;
}

/// Returns serialised bytes after their length, like the start of a message.
fn prefixed(length: u32, body: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes()[..], body].concat()
}

#[test]
fn messages_of_all_lengths_arrive_in_order() {
    let (initiator, mut responder) = channels();
    let (reader, mut writer) = initiator.split();
    // Lengths near the ends of one, two and three records.
    let lengths = [
        0,
        1,
        65_512,
        65_513,
        65_514,
        65_515,
        65_516,
        65_519,
        131_036,
        3 << 20,
    ];
    let sends = thread::spawn(move || {
        for length in lengths {
            let fill = u8::try_from(length % 251).expect("a byte");
            writer.send(&Bytes(vec![fill; length])).expect("send");
        }
    });
    for length in lengths {
        let came: Bytes = responder.recv().expect("receive");
        assert_eq!(came.0.len(), length);
        assert!(came.0.iter().all(|byte| usize::from(*byte) == length % 251));
    }
    sends.join().expect("no panic");
    drop(reader);
    assert!(matches!(responder.recv::<Bytes>(), Err(Error::Closed)));
}

#[test]
fn both_ways_at_once() {
    let (initiator, responder) = channels();
    let ends = [initiator, responder].map(|channel| {
        let (mut reader, mut writer) = channel.split();
        let reads = thread::spawn(move || {
            for round in 0..200 {
                let came: Bytes = reader.recv().expect("receive");
                assert_eq!(came.0, vec![round; 20_000]);
            }
        });
        let writes = thread::spawn(move || {
            for round in 0..200 {
                writer.send(&Bytes(vec![round; 20_000])).expect("send");
            }
            writer
        });
        (reads, writes)
    });
    for (reads, writes) in ends {
        let _open_until_here = writes.join().expect("no panic");
        reads.join().expect("no panic");
    }
}

#[test]
fn too_long_a_message_is_refused_before_sending() {
    let (mut initiator, mut responder) = channels();
    let error = initiator.send(&Short(vec![0; 100])).expect_err("101 bytes");
    assert!(
        matches!(
            error,
            Error::TooLong {
                came: 101,
                max: 100,
                ..
            }
        ),
        "{error}"
    );
    initiator
        .send(&Short(vec![7; 99]))
        .expect("100 bytes, and the channel is whole");
    assert_eq!(responder.recv::<Short>().expect("receive").0, [7; 99]);
}

#[test]
fn announced_length_over_the_limit_is_refused_at_once() {
    for claim in [101, 4096, u32::MAX] {
        let (mut peer, mut channel) = hand_made();
        let record = peer.record(&prefixed(claim, b"only this"));
        peer.write(&record);
        let error = channel.recv::<Short>().expect_err("over the limit");
        let told = usize::try_from(claim).expect("64 bits");
        assert!(
            matches!(error, Error::TooLong { came, .. } if came == told),
            "{error}"
        );
        assert!(matches!(channel.recv::<Short>(), Err(Error::Over)));
    }
}

#[test]
fn record_too_short_for_a_tag_is_refused() {
    for length in 0..16 {
        let (mut peer, mut channel) = hand_made();
        peer.write(&[0, length]);
        let error = channel.recv::<Short>().expect_err("no room for a tag");
        let told = usize::from(length);
        assert!(
            matches!(error, Error::RecordLength { came, .. } if came == told),
            "{error}"
        );
    }
}

#[test]
fn records_that_make_no_message_are_refused() {
    for (records, what) in [
        (vec![vec![]], "no length"),
        (vec![vec![0, 0, 1]], "half a length"),
        (
            vec![prefixed(3, &[2, 8, 8, 8])],
            "more bytes than announced",
        ),
        (vec![prefixed(3, &[])], "an empty first record"),
        (vec![prefixed(3, &[2]), vec![]], "an empty later record"),
        (vec![prefixed(3, &[2]), vec![8, 8, 8]], "more bytes later"),
        (vec![prefixed(0, &[])], "no body"),
        (vec![prefixed(3, &[9, 8, 8])], "a count beyond the end"),
        (vec![prefixed(4, &[2, 8, 8, 8])], "a byte left over"),
        (
            vec![prefixed(11, &[0xff; 11])],
            "a number that does not end",
        ),
    ] {
        let (mut peer, mut channel) = hand_made();
        for plain in records {
            let record = peer.record(&plain);
            peer.write(&record);
        }
        let error = channel.recv::<Short>().expect_err(what);
        assert!(matches!(error, Error::Malformed { .. }), "{what}: {error}");
        assert!(
            matches!(channel.recv::<Short>(), Err(Error::Over)),
            "{what}"
        );
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    let plain = prefixed(3, &[2, 8, 8]);
    for byte in 2..2 + plain.len() + 16 {
        let (mut peer, mut channel) = hand_made();
        let mut record = peer.record(&plain);
        record[byte] ^= 1 << (byte % 8);
        peer.write(&record);
        let error = channel.recv::<Short>().expect_err("changed");
        assert!(matches!(error, Error::Forged), "{byte}: {error}");
    }
}

#[test]
fn forged_record_ends_the_connection() {
    let (mut peer, mut channel) = hand_made();
    peer.write(&[&[0, 20][..], &[0; 20]].concat());
    assert!(matches!(channel.recv::<Short>(), Err(Error::Forged)));
    assert_eq!(peer.stream.read(&mut [0; 8]).expect("closed"), 0);
}

#[test]
fn repeated_left_out_and_swapped_records_are_noticed() {
    for order in [&[0, 0][..], &[1], &[1, 0]] {
        let (mut peer, mut channel) = hand_made();
        let records = [1, 2].map(|fill| peer.record(&prefixed(2, &[1, fill])));
        for index in order {
            peer.write(&records[*index]);
        }
        let results: Vec<_> = order.iter().map(|_| channel.recv::<Short>()).collect();
        let forged = results
            .iter()
            .any(|result| matches!(result, Err(Error::Forged)));
        assert!(forged, "{order:?}: {results:?}");
    }
}

#[test]
fn cut_at_every_byte() {
    let body = [200, 1]
        .iter()
        .chain(&[5; 200])
        .copied()
        .collect::<Vec<u8>>();
    let length = u32::try_from(body.len()).expect("short");
    for cut in 0..250 {
        let (mut peer, mut channel) = hand_made();
        let mut records = peer.record(&prefixed(length, &body[..90]));
        records.extend(peer.record(&body[90..]));
        assert_eq!(records.len(), 2 * 18 + 4 + 202);
        peer.write(&records[..cut.min(records.len())]);
        peer.stream.shutdown(Shutdown::Write).expect("close");
        match channel.recv::<Bytes>() {
            Err(Error::Closed) => assert_eq!(cut, 0),
            Err(Error::Truncated) => assert!((1..records.len()).contains(&cut)),
            Ok(came) => assert!(cut >= records.len() && came.0 == [5; 200]),
            Err(error) => panic!("{cut}: {error}"),
        }
    }
}

#[test]
fn message_goes_on_after_a_timeout() {
    let (mut peer, mut channel) = hand_made();
    channel.set_read_timeout(Some(Duration::from_millis(20)));
    let mut records = peer.record(&prefixed(4, &[3, 1]));
    records.extend(peer.record(&[2, 3]));
    for byte in &records {
        let error = channel.recv::<Short>().expect_err("not whole yet");
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        peer.write(&[*byte]);
    }
    assert_eq!(channel.recv::<Short>().expect("whole").0, [1, 2, 3]);
}

/// The time limit applies to a whole call, whether its bytes arrive at once or slowly.
#[test]
fn dripping_message_times_out() {
    let (mut peer, mut channel) = hand_made();
    let timeout = Duration::from_millis(300);
    channel.set_read_timeout(Some(timeout));
    let record = peer.record(&prefixed(99, &[&[98][..], &[7; 98]].concat()));
    thread::scope(|scope| {
        scope.spawn(move || {
            for byte in record {
                peer.write(&[byte]);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let start = Instant::now();
        let error = channel.recv::<Short>().expect_err("121 bytes in 2.4 s");
        let took = start.elapsed();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(took >= timeout, "{took:?}");
        // The channel keeps the bytes that have arrived.
        channel.set_read_timeout(Some(PATIENT));
        assert_eq!(channel.recv::<Short>().expect("the rest").0, [7; 98]);
    });
}

#[test]
fn no_time_takes_what_is_there() {
    let (mut peer, mut channel) = hand_made();
    channel.set_read_timeout(Some(Duration::ZERO));
    let error = channel.recv::<Short>().expect_err("nothing is there");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let record = peer.record(&prefixed(2, &[1, 8]));
    peer.write(&record);
    let start = Instant::now();
    let came = loop {
        match channel.recv::<Short>() {
            Err(Error::Timeout { .. }) if start.elapsed() < PATIENT => thread::yield_now(),
            came => break came.expect("a message"),
        }
    };
    assert_eq!(came.0, [8]);
}

/// A peer that always takes some bytes, but slowly, delays a call by no more than its limit.
#[test]
fn slowly_taken_message_times_out() {
    let (dialled, mut accepted) = sockets("127.0.0.1:0");
    for stream in [&dialled, &accepted] {
        sockopt::set_socket_send_buffer_size(stream, 32 << 10).expect("small buffers");
        sockopt::set_socket_recv_buffer_size(stream, 32 << 10).expect("small buffers");
    }
    let psk = Psk::generate().expect("key");
    thread::scope(|scope| {
        let reading = accepted.try_clone().expect("clone");
        let responds = scope.spawn(|| Channel::accept(reading, &psk, PATIENT));
        let initiator = Channel::initiate(dialled, &psk, PATIENT).expect("initiator");
        let _responder = responds.join().expect("no panic").expect("responder");
        let close_handle = initiator.close_handle();
        let (_reader, mut writer) = initiator.split();
        scope.spawn(move || {
            let mut taken = vec![0; 16 << 10];
            loop {
                match accepted.read(&mut taken) {
                    Ok(1..) => thread::sleep(Duration::from_millis(20)),
                    // The responder's channel made the socket nonblocking.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                    Ok(0) | Err(_) => return,
                }
            }
        });
        let timeout = Duration::from_millis(400);
        writer.set_timeout(Some(timeout));
        let start = Instant::now();
        let sent = writer.send(&Bytes(vec![0; 3 << 20]));
        let took = start.elapsed();
        close_handle.close();
        let error = sent.expect_err("4 seconds of bytes");
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(took >= timeout, "{took:?}");
    });
}

#[test]
fn closer_wakes_the_reader() {
    let (initiator, mut responder) = channels();
    let close_handle = initiator.close_handle();
    let (mut reader, mut writer) = initiator.split();
    reader.set_timeout(None);
    let waits = thread::spawn(move || reader.recv::<Bytes>());
    thread::sleep(Duration::from_millis(50));
    close_handle.clone().close();
    let ended = waits.join().expect("no panic");
    assert!(matches!(ended, Err(Error::Over)), "{ended:?}");
    assert!(matches!(writer.send(&Bytes(vec![])), Err(Error::Over)));
    assert!(matches!(responder.recv::<Bytes>(), Err(Error::Closed)));
}

#[test]
fn closer_wakes_the_writer() {
    let (initiator, _responder) = channels();
    let close_handle = initiator.close_handle();
    let (mut reader, mut writer) = initiator.split();
    let waits = thread::spawn(move || {
        loop {
            if let Err(error) = writer.send(&Bytes(vec![0; 4 << 19])) {
                return error;
            }
        }
    });
    // Wait until the socket buffers are full.
    thread::sleep(Duration::from_millis(300));
    close_handle.close();
    let error = waits.join().expect("no panic");
    assert!(matches!(error, Error::Over), "{error}");
    assert!(matches!(reader.recv::<Bytes>(), Err(Error::Over)));
}

#[test]
fn closer_does_not_keep_the_connection() {
    let (initiator, mut responder) = channels();
    let close_handle = initiator.close_handle();
    drop(initiator);
    assert!(matches!(responder.recv::<Bytes>(), Err(Error::Closed)));
    close_handle.close();
}

#[test]
fn peer_that_takes_nothing_times_out() {
    let (initiator, _responder) = channels();
    let (_reader, mut writer) = initiator.split();
    writer.set_timeout(Some(Duration::from_millis(100)));
    let error = (0..100)
        .find_map(|_| writer.send(&Bytes(vec![0; 4 << 19])).err())
        .expect("no socket holds 200 MiB");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(matches!(writer.send(&Bytes(vec![])), Err(Error::Over)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A peer that holds the key can still send arbitrary bytes.
    #[test]
    fn any_plaintext_is_a_message_or_an_error(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..4)
    ) {
        let (mut peer, mut channel) = hand_made();
        for plain in &records {
            let record = peer.record(plain);
            peer.write(&record);
        }
        drop(peer);
        while channel.recv::<Short>().is_ok() {}
        prop_assert!(matches!(channel.recv::<Short>(), Err(Error::Over)));
    }
}
