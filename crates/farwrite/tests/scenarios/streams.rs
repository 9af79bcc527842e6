//! Sends without a scheme: whole messages whose losses are not repaired, and streams whose receiver
//! watches the bitmap and requests what is missing.

use farwrite::{
    Error, Outcome, QpConfig, QpOptions, RateControl, RecvHandle, SchemeTag, SendOptions,
};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;

use crate::parcel::{Order, UNTOUCHED};
use crate::seeds;
use crate::world::{MS, RTT, SECOND, Way, World, long_haul, options, tag};

const MESSAGE: usize = 1_000_003;
const CHUNK: u64 = 4 * 1024;

fn lossy() -> LinkConfig {
    LinkConfig {
        loss: Loss::Iid { loss_packet: 0.1 },
        ..long_haul()
    }
}

fn four_packets_a_chunk() -> QpOptions {
    let sdr = QpConfig {
        mtu: 1024,
        packets_per_chunk: 4,
        slots: 16,
        max_message_bytes: 4 << 20,
        ..QpConfig::default()
    };
    QpOptions { sdr, ..options() }
}

fn missing(recv: &RecvHandle) -> Vec<u32> {
    let bitmap = recv.bitmap();
    (0..bitmap.len())
        .filter(|&chunk| !bitmap.get(chunk))
        .collect()
}

#[test]
fn a_message_without_a_scheme_arrives_in_part() {
    let mut world = World::new(1, lossy(), &four_packets_a_chunk());
    let order = Order::new(SplitMix::new(1).bytes(MESSAGE), SchemeTag::default());
    let parcel = world.ship(order);
    assert!(!parcel.out.send.is_injected());
    world.run_for(10 * RTT);
    assert!(parcel.out.send.is_injected());
    assert_eq!(
        parcel.inn.recv.outcome(),
        None,
        "nobody but its user ends it"
    );
    assert_eq!(parcel.inn.recv.length(), Some(MESSAGE as u64));
    let lost = missing(&parcel.inn.recv);
    let chunks = parcel.inn.recv.bitmap().len();
    println!("{} of {chunks} chunks are missing", lost.len());
    // A chunk of four packets is lost with the probability 1 - 0.9^4.
    assert!((chunks / 5..chunks / 2).contains(&u32::try_from(lost.len()).expect("small")));
    let recv = &parcel.inn.recv;
    world
        .b
        .endpoint
        .complete_recv(recv, Outcome::Partial)
        .expect("open");
    world.deliver(std::slice::from_ref(&parcel), SECOND);
    assert_eq!(parcel.out.send.outcome(), Some(Outcome::Partial));
    world.close(
        vec![(Way::Forth, parcel.out)],
        vec![(Way::Forth, parcel.inn)],
    );
}

#[test]
fn a_message_without_a_scheme_begins_where_its_sender_says() {
    let mut world = World::new(1, long_haul(), &four_packets_a_chunk());
    let inn = world.post_recv(Way::Forth, MESSAGE).expect("a free slot");
    let bytes = SplitMix::new(1).bytes(20 * 1024 + 5);
    let source = world.a.endpoint.register(bytes.clone()).expect("room");
    let (a, qp) = (&mut world.a.endpoint, world.a.qp);
    let options = |first_chunk, immediate| SendOptions {
        scheme: SchemeTag::NONE,
        immediate,
        first_chunk,
        ..SendOptions::default()
    };
    let mut refused = |bytes: u64, options: SendOptions| {
        let error = a.post_send(qp, source.slice(0..bytes), options);
        error.expect_err("it is wrong").to_string()
    };
    // Wrong sends take no message number: the next one comes into the first buffer.
    let with_scheme = SendOptions {
        scheme: tag("sr-nack"),
        ..options(1, None)
    };
    assert!(refused(10, with_scheme).contains("first_chunk = 1"));
    assert!(refused(0, options(1, None)).contains("at least one byte"));
    assert!(refused(10, options(1 << 20, None)).contains("exceed"));
    let short = refused(7 * 1024, options(3, Some(77)));
    assert!(short.contains("7 packets that begins at chunk 3") && short.contains("takes 8"));

    let sent = a.post_send(qp, source.whole(), options(3, Some(77)));
    let send = sent.expect("a free slot");
    world.run_for(4 * RTT);
    assert!(send.is_injected());
    assert_eq!(missing(&inn.recv), [0, 1, 2]);
    assert_eq!(inn.recv.length(), Some(3 * CHUNK + bytes.len() as u64));
    assert_eq!(inn.recv.immediate(), Some(77));
    let buffer = world.buffer(Way::Forth, &inn);
    let (before, arrived) = buffer.split_at(3 * 4096);
    assert!(before.iter().all(|&byte| byte == UNTOUCHED));
    assert!(arrived.starts_with(&bytes));
    let recv = &inn.recv;
    let done = world.b.endpoint.complete_recv(recv, Outcome::Partial);
    done.expect("open");
}

#[test]
fn all_packet_bits_of_a_long_chunk_can_be_read() {
    let mut options = four_packets_a_chunk();
    options.sdr.packets_per_chunk = 128;
    let mut world = World::new(1, long_haul(), &options);
    let order = Order::new(vec![7; 100 * 1024], SchemeTag::NONE);
    let parcel = world.ship(order);
    world.run_for(4 * RTT);
    let bitmap = parcel.inn.recv.bitmap();
    let words = [0, 1, 2].map(|word| bitmap.packet_word(0, word));
    assert_eq!(words, [u64::MAX, (1 << 36) - 1, 0]);
    let recv = &parcel.inn.recv;
    let done = world.b.endpoint.complete_recv(recv, Outcome::Whole);
    done.expect("open");
}

#[test]
fn a_direction_that_is_switched_off_is_refused() {
    let mut world = World::new(1, long_haul(), &options());
    let end = &mut world.a.endpoint;
    let region = end.register(vec![0; 10]).expect("room");
    let mut create = |sends, receives| {
        let options = QpOptions {
            sends,
            receives,
            ..options()
        };
        let qp = end.create_qp(options).expect("good options");
        [
            end.post_recv(qp, region.whole()).err(),
            end.start_stream(qp, None).err(),
            end.post_send(qp, region.whole(), SendOptions::default())
                .err(),
            end.expose(qp, region.whole()).err(),
        ]
        .map(|error| error.map_or_else(String::new, |error| error.to_string()))
    };
    let off = |error: &str, switch: &str| error.contains(&format!("{switch} = false"));
    let [recv, stream, send, expose] = create(false, true);
    assert_eq!(recv, "");
    assert!(
        [stream, send, expose]
            .iter()
            .all(|error| off(error, "sends"))
    );
    let [recv, stream, ..] = create(true, false);
    assert!(off(&recv, "receives") && stream.contains("not connected"));
}

#[test]
fn a_stream_repaired_by_its_user_from_the_bitmap() {
    seeds::each("a_stream_repaired", 4, |seed| {
        let mut world = World::new(seed, lossy(), &four_packets_a_chunk());
        let mut rng = SplitMix::new(seed);
        let bytes = rng.bytes(MESSAGE);
        let source = world.a.endpoint.register(bytes.clone()).expect("room");
        let inn = world.post_recv(Way::Forth, MESSAGE).expect("a free slot");
        let qp = world.a.qp;
        let stream = world
            .a
            .endpoint
            .start_stream(qp, Some(77))
            .expect("a free slot");
        let run = |world: &mut World, chunks: std::ops::Range<u32>| {
            let end = (u64::from(chunks.end) * CHUNK).min(MESSAGE as u64);
            let slice = source.slice(u64::from(chunks.start) * CHUNK..end);
            let sent = world.a.endpoint.send_chunks(&stream, slice, chunks.start);
            sent.expect("within the message");
        };
        // Sends runs of any length while earlier runs are still in flight.
        let chunks = u32::try_from(MESSAGE.div_ceil(4096)).expect("small");
        let mut next = 0;
        while next < chunks {
            let end = chunks.min(next + u32::try_from(rng.within(1..40)).expect("small"));
            run(&mut world, next..end);
            world.run_for(rng.within(0..3) * MS);
            next = end;
        }
        assert_eq!(inn.recv.length(), None, "not known before the end");
        world.a.endpoint.end_stream(&stream).expect("open");
        // The path loses offers too.
        let limit_ns = world.now_ns() + 40 * RTT;
        world.run_until(limit_ns, |_| inn.recv.length().is_some());
        assert_eq!(inn.recv.length(), Some(MESSAGE as u64));
        let mut rounds = 0;
        while !inn.recv.bitmap().is_complete() {
            for chunk in missing(&inn.recv) {
                run(&mut world, chunk..chunk + 1);
            }
            world.run_for(RTT);
            rounds += 1;
            assert!(rounds < 50);
        }
        println!("whole after {rounds} rounds");
        assert_eq!(inn.recv.immediate(), Some(77));
        assert!(world.buffer(Way::Forth, &inn) == bytes);
        world
            .b
            .endpoint
            .complete_recv(&inn.recv, Outcome::Whole)
            .expect("open");
        let limit_ns = world.now_ns() + 40 * RTT;
        world.run_until(limit_ns, |_| stream.outcome().is_some());
        assert_eq!(stream.outcome(), Some(Outcome::Whole));
        world.a.endpoint.deregister(source).expect("over");
        world.close(vec![], vec![(Way::Forth, inn)]);
    });
}

/// Returns the window of Swift after some streams whose last byte fills a part of a chunk.
fn window_after_streams(immediate: Option<u32>) -> u64 {
    // Five packets. An immediate needs eight, so three packets without bytes follow.
    const BYTES: usize = 5_000;
    // The targets of a data center would be far below this round trip.
    let swift = farwrite::SwiftOptions {
        base_target_ns: 2 * RTT,
        endpoint_target_ns: 2 * RTT,
        ..farwrite::SwiftOptions::new(1_000_000_000, 1, 0)
    };
    let options = QpOptions {
        rate_control: RateControl::Swift(swift),
        ..four_packets_a_chunk()
    };
    let mut world = World::new(1, long_haul(), &options);
    let (endpoint, qp) = (&mut world.a.endpoint, world.a.qp);
    let source = endpoint.register(vec![7; BYTES]).expect("room");
    for _ in 0..8 {
        let inn = world.post_recv(Way::Forth, BYTES).expect("a free slot");
        let endpoint = &mut world.a.endpoint;
        let stream = endpoint.start_stream(qp, immediate).expect("a free slot");
        let sent = endpoint.send_chunks(&stream, source.whole(), 0);
        sent.expect("within the message");
        world.run_for(2 * RTT);
        world.a.endpoint.end_stream(&stream).expect("open");
        world.run_for(2 * RTT);
        assert!(inn.recv.bitmap().is_complete());
        assert_eq!(inn.recv.immediate(), immediate);
        let completed = world.b.endpoint.complete_recv(&inn.recv, Outcome::Whole);
        completed.expect("open");
        world.run_for(2 * RTT);
        assert_eq!(stream.outcome(), Some(Outcome::Whole));
    }
    let stats = world.a.endpoint.peer_stats(qp).expect("connected");
    stats.window_bytes.expect("Swift has a window")
}

/// The packets that end a stream carry the rest of its immediate. They share a chunk with the last
/// byte, but do not repeat it.
#[test]
fn the_end_of_a_stream_is_no_sign_of_loss() {
    let [with, without] = [Some(77), None].map(window_after_streams);
    println!("{with} and {without} bytes");
    assert!(with > without / 10 * 9, "{with} bytes instead of {without}");
}

#[test]
fn streams_refuse_what_they_cannot_mean() {
    let mut world = World::new(1, long_haul(), &four_packets_a_chunk());
    let inn = world.post_recv(Way::Forth, 3 * 4096).expect("a free slot");
    let (qp, endpoint) = (world.a.qp, &mut world.a.endpoint);
    let source = endpoint.register(vec![5; 8 << 20]).expect("room");
    let stream = endpoint.start_stream(qp, None).expect("a free slot");
    let stream_error = |result: Result<(), Error>| matches!(result, Err(Error::Stream(_)));
    assert!(stream_error(endpoint.send_chunks(
        &stream,
        source.slice(0..0),
        0
    )));
    let too_long = endpoint.send_chunks(&stream, source.slice(0..5 << 20), 0);
    assert!(
        matches!(too_long, Err(Error::TooLong { .. })),
        "{too_long:?}"
    );
    let outside = endpoint.send_chunks(&stream, source.slice(0..9 << 20), 0);
    assert!(
        matches!(outside, Err(Error::OutOfBounds { .. })),
        "{outside:?}"
    );
    // The last chunk may be short. No chunk can follow it.
    endpoint
        .send_chunks(&stream, source.slice(0..5000), 0)
        .expect("two chunks");
    assert!(stream_error(endpoint.send_chunks(
        &stream,
        source.slice(0..4096),
        2
    )));
    endpoint.end_stream(&stream).expect("open");
    assert!(stream_error(endpoint.end_stream(&stream)));
    assert!(stream_error(endpoint.send_chunks(
        &stream,
        source.slice(0..4096),
        2
    )));
    endpoint
        .send_chunks(&stream, source.slice(0..4096), 0)
        .expect("a chunk again");
    world.run_for(2 * RTT);
    assert_eq!(inn.recv.length(), Some(5000));
    assert!(inn.recv.bitmap().is_complete());
    world
        .b
        .endpoint
        .complete_recv(&inn.recv, Outcome::Whole)
        .expect("open");
    world.run_for(2 * RTT);
    world.a.endpoint.deregister(source).expect("over");
    world.close(vec![], vec![(Way::Forth, inn)]);
}

#[test]
fn a_stream_longer_than_its_buffer_fails() {
    let mut world = World::new(1, long_haul(), &four_packets_a_chunk());
    let inn = world.post_recv(Way::Forth, 4096).expect("a free slot");
    let qp = world.a.qp;
    let source = world.a.endpoint.register(vec![5; 1 << 20]).expect("room");
    let stream = world
        .a
        .endpoint
        .start_stream(qp, None)
        .expect("a free slot");
    world
        .a
        .endpoint
        .send_chunks(&stream, source.whole(), 0)
        .expect("allowed so far");
    world.run_for(RTT);
    let ended = world.a.endpoint.end_stream(&stream);
    println!("{ended:?}");
    if ended.is_err() {
        world
            .a
            .endpoint
            .cancel_send(&stream)
            .expect("its queue pair");
    }
    world.run_for(SECOND);
    assert_eq!(stream.outcome(), Some(Outcome::Failed));
    assert_eq!(inn.recv.outcome(), Some(Outcome::Failed));
    world.buffer(Way::Forth, &inn);
    world.a.endpoint.deregister(source).expect("over");
    world.close(vec![], vec![(Way::Forth, inn)]);
}

/// A stream that is not ended may write each part of its buffer again, with other bytes and without
/// another receive, until the receiver closes the buffer.
#[test]
fn an_open_stream_writes_over_what_it_has_written() {
    let mut world = World::new(1, long_haul(), &options());
    let inn = world.post_recv(Way::Forth, 8 * 4096).expect("a free slot");
    let a = &mut world.a;
    let stream = a.endpoint.start_stream(a.qp, None).expect("a free slot");
    let mut expected = vec![UNTOUCHED; 8 * 4096];
    let mut regions = Vec::new();
    for (value, chunk) in [(1_u8, 5_u32), (2, 0), (3, 5), (4, 7), (5, 0), (6, 5)] {
        let a = &mut world.a;
        let region = a.endpoint.register(vec![value; 4096]).expect("room");
        let sent = a.endpoint.send_chunks(&stream, region.whole(), chunk);
        sent.expect("it is open");
        regions.push(region);
        let at = chunk as usize * 4096;
        expected[at..at + 4096].fill(value);
        world.run_for(2 * RTT);
        assert!(world.buffer(Way::Forth, &inn) == expected, "write {value}");
    }
    assert_eq!((inn.recv.outcome(), inn.recv.bitmap().count()), (None, 3));
    let b = &mut world.b;
    b.endpoint
        .complete_recv(&inn.recv, Outcome::Partial)
        .expect("it is open");
    let a = &mut world.a;
    a.endpoint
        .send_chunks(&stream, regions[0].whole(), 0)
        .expect("the end has not arrived");
    world.run_for(2 * RTT);
    assert!(world.buffer(Way::Forth, &inn) == expected, "it is closed");
    assert_eq!(stream.outcome(), Some(Outcome::Partial));
}
