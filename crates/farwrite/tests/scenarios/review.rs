//! Corner cases that a code review questioned.

use farwrite::fabric::contract::FabricError;
use farwrite::{Error, Outcome, QpConfig, QpOptions, SchemeTag, SendHandle, SendOptions};
use farwrite_rng::SplitMix;
use farwrite_wire::control::Control;

use crate::parcel::{Inbound, Order};
use crate::slow_world::SlowWorld;
use crate::traffic::Seen;
use crate::world::{MS, RTT, SCHEMES, SECOND, Way, World, long_haul, options, tag};

fn four_packets_a_chunk() -> QpOptions {
    let sdr = QpConfig {
        mtu: 1024,
        packets_per_chunk: 4,
        max_message_bytes: 1 << 20,
        ..QpConfig::default()
    };
    QpOptions { sdr, ..options() }
}

fn is_offer(seen: &Seen<'_>) -> bool {
    seen.says(|c| matches!(c, Control::Offer(_)))
}

fn with_immediate(scheme: &str) -> Order {
    Order {
        immediate: Some(0xfeed_beef),
        ..Order::new(SplitMix::new(1).bytes(32 << 10), tag(scheme))
    }
}

/// Posts a receive and waits until its clear-to-send has reached the sender.
fn cleared(world: &mut World, capacity: usize) -> Inbound {
    let inn = world.post_recv(Way::Forth, capacity).expect("a free slot");
    world.run_for(RTT);
    inn
}

#[test]
fn an_immediate_whose_packets_overtake_the_offer() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        let inn = cleared(&mut world, 32 << 10);
        world.traffic.drop_first(1, is_offer);
        let out = world.post_send(&with_immediate(scheme)).expect("a slot");
        world.run_for(SECOND);
        assert_eq!(inn.recv.outcome(), Some(Outcome::Whole), "{scheme}");
        assert_eq!(inn.recv.immediate(), Some(0xfeed_beef), "{scheme}");
        world.close(vec![(Way::Forth, out)], vec![(Way::Forth, inn)]);
    }
}

#[test]
fn an_immediate_that_comes_with_its_offer_in_one_poll() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        let inn = cleared(&mut world, 32 << 10);
        let out = world.post_send(&with_immediate(scheme)).expect("a slot");
        let now_ns = world.now_ns();
        world.a.endpoint.poll(now_ns).expect("works");
        // The receiver is polled only when the whole message has arrived.
        world.network.advance_to(now_ns + RTT);
        world.run_for(SECOND);
        assert_eq!(inn.recv.outcome(), Some(Outcome::Whole), "{scheme}");
        assert_eq!(inn.recv.immediate(), Some(0xfeed_beef), "{scheme}");
        world.close(vec![(Way::Forth, out)], vec![(Way::Forth, inn)]);
    }
}

#[test]
fn a_departure_is_looked_for_before_any_sleep() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        cleared(&mut world, 4096);
        let order = Order::new(SplitMix::new(1).bytes(4096), tag(scheme));
        world.post_send(&order).expect("a slot");
        let now_ns = world.now_ns();
        let mut poll = || world.a.endpoint.poll(now_ns).expect("works");
        // The timeout of a departed packet begins when the departure is known, so one more poll is
        // due at once.
        assert_eq!(poll(), Some(now_ns), "{scheme}");
        assert!(poll() > Some(now_ns), "{scheme}: no end of polling");
    }
}

fn start_stream(world: &mut World, immediate: Option<u32>) -> SendHandle {
    let qp = world.a.qp;
    let stream = world.a.endpoint.start_stream(qp, immediate);
    stream.expect("a free slot")
}

#[test]
fn a_stream_does_not_wait_for_one_whose_buffer_is_not_posted() {
    let mut world = World::new(1, long_haul(), &options());
    let inn = cleared(&mut world, 4096);
    let source = world.a.endpoint.register(vec![5; 4096]).expect("room");
    let (first, second) = (
        start_stream(&mut world, None),
        start_stream(&mut world, None),
    );
    for stream in [&second, &first] {
        let endpoint = &mut world.a.endpoint;
        endpoint
            .send_chunks(stream, source.whole(), 0)
            .expect("open");
        endpoint.end_stream(stream).expect("open");
    }
    world.run_for(2 * RTT);
    assert!(inn.recv.bitmap().is_complete());
}

#[test]
fn a_short_last_chunk_sent_before_its_stream_ended() {
    for immediate in [None, Some(77)] {
        let mut world = World::new(1, long_haul(), &four_packets_a_chunk());
        let inn = cleared(&mut world, 1 << 16);
        let source = world.a.endpoint.register(vec![5; 1500]).expect("room");
        let stream = start_stream(&mut world, immediate);
        let endpoint = &mut world.a.endpoint;
        endpoint
            .send_chunks(&stream, source.whole(), 0)
            .expect("open");
        world.run_for(RTT);
        world.a.endpoint.end_stream(&stream).expect("open");
        world.run_for(2 * RTT);
        assert_eq!(inn.recv.outcome(), None, "nobody but its user ends it");
        assert_eq!(inn.recv.length(), Some(1500));
        assert!(inn.recv.bitmap().is_complete());
        assert_eq!(inn.recv.immediate(), immediate);
        assert!(stream.is_injected());
        let endpoint = &mut world.b.endpoint;
        endpoint
            .complete_recv(&inn.recv, Outcome::Whole)
            .expect("open");
        world.run_for(RTT);
        assert_eq!(stream.outcome(), Some(Outcome::Whole));
        world.a.endpoint.deregister(source).expect("over");
        world.close(vec![], vec![(Way::Forth, inn)]);
    }
}

#[test]
fn a_run_must_not_end_within_a_chunk_that_goes_on() {
    let mut world = World::new(1, long_haul(), &four_packets_a_chunk());
    let source = world.a.endpoint.register(vec![5; 5000]).expect("room");
    let stream = start_stream(&mut world, None);
    let endpoint = &mut world.a.endpoint;
    endpoint
        .send_chunks(&stream, source.whole(), 0)
        .expect("two chunks");
    let short = endpoint.send_chunks(&stream, source.slice(0..100), 0);
    assert!(matches!(short, Err(Error::Stream(_))), "{short:?}");
    let last = endpoint.send_chunks(&stream, source.slice(4096..5000), 1);
    last.expect("the last chunk may be short");
}

#[test]
fn a_stream_too_long_for_its_buffer_stays_open() {
    let mut world = World::new(1, long_haul(), &four_packets_a_chunk());
    let _inn = cleared(&mut world, 4096);
    let source = world.a.endpoint.register(vec![5; 8192]).expect("room");
    let stream = start_stream(&mut world, None);
    let endpoint = &mut world.a.endpoint;
    endpoint
        .send_chunks(&stream, source.whole(), 0)
        .expect("open");
    for _ in 0..2 {
        let ended = endpoint.end_stream(&stream);
        assert!(matches!(ended, Err(Error::Sdr(_))), "{ended:?}");
    }
}

#[test]
fn memory_of_another_endpoint_is_refused_when_it_is_posted() {
    let mut world = World::new(1, long_haul(), &options());
    let foreign = world.b.endpoint.register(vec![5; 1 << 16]).expect("room");
    let (qp, scheme) = (world.a.qp, tag("sr-nack"));
    let stream = start_stream(&mut world, None);
    let endpoint = &mut world.a.endpoint;
    let send = SendOptions {
        scheme,
        ..SendOptions::default()
    };
    let refused = [
        endpoint.post_send(qp, foreign.whole(), send).err(),
        endpoint.send_chunks(&stream, foreign.whole(), 0).err(),
    ];
    for error in refused {
        assert!(
            matches!(error, Some(Error::Fabric(FabricError::UnknownKey(_)))),
            "{error:?}"
        );
    }
    endpoint.cancel_send(&stream).expect("its queue pair");
    world.post_recv(Way::Forth, 0).expect("the stream's");
    world.run_for(2 * RTT);
    let parcel = world.ship(Order::new(vec![7; 1000], scheme));
    world.deliver(std::slice::from_ref(&parcel), SECOND);
    world.finish(vec![parcel]);
}

#[test]
fn packets_that_wait_for_room_keep_their_memory() {
    let SlowWorld { network, a, b } = SlowWorld::new(&[options()]);
    let (qa, controls, mut a) = (a.qps[0], a.controls, a.endpoint);
    let (qb, mut b) = (b.qps[0], b.endpoint);
    let target = b.register(vec![0; 4096]).expect("room");
    b.post_recv(qb, target.whole()).expect("a free slot");
    b.poll(0).expect("works");
    network.advance_to(RTT);
    a.poll(RTT).expect("works");
    controls.room.set(Some(0));
    let source = a.register(vec![5; 4096]).expect("room");
    let stream = a.start_stream(qa, None).expect("a free slot");
    a.send_chunks(&stream, source.whole(), 0).expect("open");
    a.poll(RTT).expect("works");
    let early = a.deregister(source).map(drop);
    assert!(
        matches!(early, Err(Error::Fabric(FabricError::InUse(_)))),
        "{early:?}"
    );
    controls.room.set(None);
    a.poll(RTT + MS).expect("works");
    a.deregister(source).expect("it has left");
}

#[test]
fn a_control_packet_that_waits_for_room_is_tried_again_soon() {
    let SlowWorld { a, .. } = SlowWorld::new(&[options()]);
    let (qa, controls, mut a) = (a.qps[0], a.controls, a.endpoint);
    a.poll(0).expect("works");
    controls.room.set(Some(0));
    let source = a.register(vec![5; 4096]).expect("room");
    let scheme = SchemeTag::NONE;
    let send = SendOptions {
        scheme,
        ..SendOptions::default()
    };
    a.post_send(qa, source.whole(), send).expect("a free slot");
    let next_ns = a.poll(MS).expect("works").expect("an offer waits");
    assert!(next_ns <= MS + 100_000, "{next_ns}");
}

#[test]
fn what_a_queue_pair_took_is_given_back() {
    let SlowWorld { a, .. } = SlowWorld::new(&[options()]);
    let (qa, controls, mut a) = (a.qps[0], a.controls, a.endpoint);
    let before = controls.live.get();
    let sdr = QpConfig {
        channels: 2,
        ..QpConfig::default()
    };
    // The fabric has one port only.
    let refused = a.create_qp(QpOptions { sdr, ..options() });
    assert!(matches!(refused, Err(Error::Fabric(_))), "{refused:?}");
    assert_eq!(controls.live.get(), before);
    a.destroy_qp(qa).expect("it is there");
    assert_eq!(controls.live.get(), 0);
}
