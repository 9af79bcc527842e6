//! Writes into the window of a stream, with a deadline for each (P3.14).

use std::time::Duration;

use farwrite::{Error, Outcome, QpConfig, QpOptions, RateControl, RecvOptions, StreamError};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;

use crate::deadlines::PARTIAL;
use crate::parcel::Order;
use crate::seeds;
use crate::slow_fabric::HOLD;
use crate::slow_world::SlowWorld;
use crate::world::{MS, RTT, SECOND, Way, World, long_haul, options, tag};
use crate::writing::{CLOSED, EXPIRED, OUTSIDE, SENT, Window};

/// A path of 100 Mbit/s, and a pace of 90.
fn slow_path() -> (LinkConfig, QpOptions) {
    let link = LinkConfig {
        rate_bps: Some(100_000_000),
        ..long_haul()
    };
    let rate_control = RateControl::Fixed {
        rate_bps: 90_000_000,
    };
    let options = QpOptions {
        rate_control,
        ..options()
    };
    (link, options)
}

/// A world whose window is known at the sender.
fn world_with_window(bytes: usize) -> (World, Window) {
    let (link, options) = slow_path();
    let mut world = World::new(1, link, &options);
    let window = Window::open(&mut world, &options, bytes);
    world.run_for(2 * RTT);
    (world, window)
}

/// Ends a window, and checks everything about it.
fn end(mut world: World, window: Window) {
    world.run_for(SECOND);
    window.check_left(&mut world);
    window.check_window(&mut world);
    let b = &mut world.b;
    if window.inn.recv.outcome().is_none() {
        let ended = b.endpoint.complete_recv(&window.inn.recv, Outcome::Partial);
        ended.expect("it is open");
    }
    world.run_for(SECOND);
    assert!(window.stream.outcome().is_some());
    world.close(vec![], vec![(Way::Forth, window.inn)]);
}

#[test]
fn a_write_ends_when_its_last_packet_has_left() {
    let (mut world, mut window) = world_with_window(1 << 20);
    let start_ns = world.now_ns();
    let write = window.write(&mut world, 3, 100_000, None).expect("it fits");
    assert_eq!(window.outcome(write), None);
    let over = world.run_until(start_ns + RTT, |_| window.outcome(write).is_some());
    // 25 packets at 90 Mbit/s take 9 ms. No report of the receiver is needed.
    let took_ns = world.now_ns() - start_ns;
    assert!(over && took_ns < RTT / 2, "{took_ns}");
    assert_eq!(
        (window.outcome(write), window.sent_bytes(write)),
        (SENT, 100_000)
    );
    end(world, window);
}

#[test]
fn half_of_a_write_fits_before_its_deadline() {
    let (mut world, mut window) = world_with_window(1 << 20);
    let start_ns = world.now_ns();
    // 1 MiB takes 94 ms at 90 Mbit/s.
    let deadline_ns = start_ns + 47 * MS;
    let write = window.write(&mut world, 0, 1 << 20, Some(deadline_ns));
    let write = write.expect("it fits");
    assert!(world.run_until(start_ns + SECOND, |_| window.outcome(write).is_some()));
    assert_eq!(world.now_ns(), deadline_ns);
    assert_eq!(window.outcome(write), EXPIRED);
    let sent_bytes = window.sent_bytes(write);
    assert!((450_000..600_000).contains(&sent_bytes), "{sent_bytes}");
    world.run_for(RTT);
    let bitmap = window.inn.recv.bitmap();
    assert_eq!(bitmap.bytes(), sent_bytes);
    assert_eq!(u64::from(bitmap.count()), sent_bytes / 4096);
    end(world, window);
}

/// A newer write of the same range follows the older one, and overwrites what has left of it.
#[test]
fn a_newer_write_follows_an_older_one() {
    let (mut world, mut window) = world_with_window(1 << 20);
    let start_ns = world.now_ns();
    let older = window.write(&mut world, 0, 1 << 20, Some(start_ns + 47 * MS));
    let newer = window.write(&mut world, 0, 1 << 19, Some(start_ns + 200 * MS));
    let (older, newer) = (older.expect("it fits"), newer.expect("it fits"));
    assert!(world.run_until(start_ns + SECOND, |_| window.outcome(newer).is_some()));
    assert_eq!(
        (window.outcome(older), window.outcome(newer)),
        (EXPIRED, SENT)
    );
    let took_ns = world.now_ns() - start_ns;
    assert!((93 * MS..100 * MS).contains(&took_ns), "{took_ns}");
    end(world, window);
}

/// A write whose turn does not come before its deadline leaves nothing, and costs no time.
#[test]
fn a_write_that_waits_behind_another_expires_unsent() {
    let (mut world, mut window) = world_with_window(1 << 20);
    let start_ns = world.now_ns();
    let long = window.write(&mut world, 0, 1 << 20, None).expect("it fits");
    let short = window.write(&mut world, 0, 8192, Some(start_ns + 20 * MS));
    let (short, last) = (
        short.expect("it fits"),
        window.write(&mut world, 9, 4096, None),
    );
    let last = last.expect("it fits");
    assert!(world.run_until(start_ns + SECOND, |_| window.outcome(short).is_some()));
    assert_eq!(world.now_ns(), start_ns + 20 * MS);
    assert_eq!(
        (window.outcome(short), window.sent_bytes(short)),
        (EXPIRED, 0)
    );
    assert!(world.run_until(start_ns + SECOND, |_| window.outcome(last).is_some()));
    assert_eq!((window.outcome(long), window.outcome(last)), (SENT, SENT));
    end(world, window);
}

#[test]
fn open_writes_end_with_the_window() {
    let (mut world, mut window) = world_with_window(1 << 20);
    let deadline_ns = world.now_ns() + SECOND;
    for deadline_ns in [None, Some(deadline_ns)] {
        window
            .write(&mut world, 0, 1 << 20, deadline_ns)
            .expect("it fits");
    }
    world.run_for(RTT);
    let b = &mut world.b;
    let ended = b.endpoint.complete_recv(&window.inn.recv, Outcome::Partial);
    ended.expect("it is open");
    world.run_for(RTT);
    assert_eq!((window.outcome(0), window.outcome(1)), (CLOSED, CLOSED));
    assert_eq!(window.stream.outcome(), PARTIAL);
    let refused = window.write(&mut world, 0, 4096, None);
    assert!(
        matches!(refused, Err(Error::NoSuchMessage(0))),
        "{refused:?}"
    );
    world.run_for(SECOND);
    window.check_left(&mut world);
    world.close(vec![], vec![(Way::Forth, window.inn)]);
}

#[test]
fn open_writes_end_with_the_stream_and_with_the_queue_pair() {
    for destroys in [false, true] {
        let (mut world, mut window) = world_with_window(1 << 20);
        let write = window.write(&mut world, 0, 1 << 20, None).expect("it fits");
        // Between two batches of the pace.
        world.run_for(10 * MS + MS / 2);
        let a = &mut world.a;
        match destroys {
            true => a.endpoint.destroy_qp(a.qp).expect("it exists"),
            false => a.endpoint.cancel_send(&window.stream).expect("it exists"),
        }
        assert_eq!(window.outcome(write), CLOSED, "destroys: {destroys}");
        let sent_bytes = window.sent_bytes(write);
        assert!((60_000..200_000).contains(&sent_bytes), "{sent_bytes}");
        world.run_for(RTT);
        window.check_left(&mut world);
        if destroys {
            continue;
        }
        world.run_for(SECOND);
        world.close(vec![], vec![(Way::Forth, window.inn)]);
    }
}

#[test]
fn the_end_of_a_stream_ends_no_write() {
    let (mut world, mut window) = world_with_window(1 << 20);
    let deadline_ns = world.now_ns() + 47 * MS;
    let write = window.write(&mut world, 0, 1 << 20, Some(deadline_ns));
    let a = &mut world.a;
    a.endpoint.end_stream(&window.stream).expect("it is open");
    world.run_for(RTT);
    assert!(!window.stream.is_injected());
    world.run_for(SECOND);
    assert_eq!(window.outcome(write.expect("it fits")), EXPIRED);
    assert!(window.stream.is_injected(), "nothing more of it leaves");
    assert_eq!(window.inn.recv.length(), Some(1 << 20));
    // The chunks that were cut can be written again.
    let chunk = u32::try_from(window.sent_bytes(0) / 4096).expect("few");
    let rest_bytes = (1 << 20) - u64::from(chunk) * 4096;
    window
        .write(&mut world, chunk, rest_bytes, None)
        .expect("within the message");
    world.run_for(SECOND);
    assert!(window.inn.recv.bitmap().is_complete());
    end(world, window);
}

#[test]
fn writes_that_make_no_sense_are_refused() {
    let (mut world, mut window) = world_with_window(100_000);
    let mut refused = |first_chunk, bytes, deadline_ns| {
        let refused = window.write(&mut world, first_chunk, bytes, deadline_ns);
        match refused.expect_err("it is refused") {
            Error::Stream(why) => why,
            error => panic!("{error}"),
        }
    };
    let too_late = refused(0, 4096, Some(MS));
    assert!(
        matches!(too_late, StreamError::DeadlinePassed { .. }),
        "{too_late}"
    );
    let outside = StreamError::OutsideWindow {
        end_bytes: 24 * 4096 + 2000,
        window_bytes: 100_000,
    };
    assert_eq!(refused(24, 2000, None), outside);
    assert_eq!(refused(0, 0, None), StreamError::EmptyRun);
    window.write(&mut world, 0, 8192, None).expect("it fits");
    let mut refused = |first_chunk, bytes| {
        let refused = window.write(&mut world, first_chunk, bytes, None);
        refused.expect_err("it is refused").to_string()
    };
    assert_eq!(refused(0, 4098), StreamError::EndsWithinChunk.to_string());
    window
        .write(&mut world, 24, 1696, None)
        .expect("up to the end");
    end(world, window);
}

#[test]
fn a_message_with_a_scheme_takes_no_writes() {
    let mut world = World::new(1, long_haul(), &options());
    let parcel = world.ship(Order::new(vec![1; 100], tag("sr-nack")));
    let a = &mut world.a;
    let source = a.endpoint.register(vec![1; 4096]).expect("room");
    let written = a.endpoint.write(&parcel.out.send, source.whole(), 0, None);
    let is_refused = matches!(written, Err(Error::Stream(StreamError::HasScheme)));
    assert!(is_refused, "{written:?}");
    a.endpoint.deregister(source).expect("nothing uses it");
    world.deliver(std::slice::from_ref(&parcel), SECOND);
    world.finish(vec![parcel]);
}

#[test]
fn the_number_of_open_writes_is_bounded() {
    let (mut world, mut window) = world_with_window(4096);
    let deadline_ns = world.now_ns() + MS;
    let mut open = 0;
    let error = loop {
        match window.write(&mut world, 0, 4096, Some(deadline_ns)) {
            Ok(_) => open += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(open, 1024);
    let limit = StreamError::TooManyWrites { limit: 1024 };
    assert_eq!(error.to_string(), limit.to_string());
    world.run_for(2 * MS);
    window
        .write(&mut world, 0, 4096, None)
        .expect("the others have ended");
    end(world, window);
}

/// Writes wait for the window. Those that do not fit it end when it is known.
#[test]
fn writes_before_the_window_is_known() {
    let (link, options) = slow_path();
    let mut world = World::new(1, link, &options);
    let mut window = Window::open(&mut world, &options, 50_000);
    let fits = window
        .write(&mut world, 0, 40_960, None)
        .expect("not known yet");
    let outside = window
        .write(&mut world, 10, 40_960, None)
        .expect("not known yet");
    let expired = window
        .write(&mut world, 0, 4096, Some(5 * MS))
        .expect("not known yet");
    let over = |_: &mut World| (0..3).all(|number| window.outcome(number).is_some());
    assert!(world.run_until(SECOND, over));
    let outcomes = [fits, outside, expired].map(|number| window.outcome(number));
    assert_eq!(outcomes, [SENT, OUTSIDE, EXPIRED]);
    end(world, window);
}

/// The fabric holds packets that it took. A write that is cut has its outcome when they have left.
#[test]
fn packets_that_the_fabric_holds_belong_to_the_write() {
    let mut world = SlowWorld::new(&[options()]);
    let (a, b) = (&mut world.a, &mut world.b);
    let target = b.endpoint.register(vec![0; 1 << 20]).expect("room");
    let recv = b
        .endpoint
        .post_recv_with(b.qps[0], target.whole(), RecvOptions::default());
    let recv = recv.expect("a free slot");
    let stream = a
        .endpoint
        .start_stream(a.qps[0], None)
        .expect("a free slot");
    let source = a.endpoint.register(vec![7; 1 << 20]).expect("room");
    world.run_for(2 * RTT);
    for (hold, room) in [(true, 10), (true, 3), (false, 5)] {
        let a = &mut world.a;
        let delay_ns = if hold { HOLD } else { 0 };
        a.controls.delays_ns.borrow_mut().insert(0, delay_ns);
        a.controls.room.set(Some(room));
        let deadline_ns = world.network.now_ns() + MS;
        let write = a
            .endpoint
            .write(&stream, source.whole(), 0, Some(deadline_ns));
        let write = write.expect("it fits");
        // The fabric takes `room` packets between two polls.
        world.run_for(100_000);
        world.a.controls.room.set(Some(0));
        world.run_for(2 * MS);
        assert_eq!(write.outcome().is_none(), hold, "{room}");
        assert_eq!(write.sent_bytes() == 0, hold, "{room}");
        if hold {
            world
                .a
                .endpoint
                .deregister(source)
                .expect_err("the fabric reads it");
        }
        world.a.controls.room.set(None);
        world.a.controls.delays_ns.borrow_mut().clear();
        world.run_for(RTT);
        assert_eq!(write.outcome(), EXPIRED, "{room}");
        let packets = write.sent_bytes() / 4096;
        assert!(packets >= room as u64 && packets < 256, "{packets}");
        assert!(u64::from(recv.bitmap().count()) >= packets);
    }
    world
        .a
        .endpoint
        .deregister(source)
        .expect("nothing reads it");
}

/// Writes at any time with any range and deadline, and runs of the stream between them. What each
/// write reports is what has left, and the window shows it.
#[test]
fn any_writes_report_what_has_left() {
    seeds::each("any_writes", 60, |seed| {
        let mut rng = SplitMix::new(seed);
        let (link, mut options) = slow_path();
        options.sdr = QpConfig {
            mtu: rng.pick(&[256, 1000, 4096]),
            packets_per_chunk: rng.pick(&[1, 1, 4, 16]),
            max_message_bytes: 8 << 20,
            ..options.sdr
        };
        options.burst_bytes = rng.pick(&[4096, 256 * 1024]);
        let chunk_bytes = u64::from(options.sdr.mtu) * u64::from(options.sdr.packets_per_chunk);
        let chunks = rng.within(1..80);
        let mut world = World::new(seed, link, &options);
        let bytes = usize::try_from(chunks * chunk_bytes).expect("short");
        let mut window = Window::open(&mut world, &options, bytes);
        let closes = rng.chance(0.3);
        for _ in 0..rng.within(1..40) {
            let first = rng.within(0..chunks);
            let end = rng.within(first + 1..chunks + 1);
            let now_ns = world.now_ns();
            let limit_ns = rng.pick(&[MS / 10, MS, 10 * MS, 100 * MS]);
            let deadline_ns = rng
                .chance(0.8)
                .then(|| now_ns + 1 + rng.within(0..limit_ns));
            let first_chunk = u32::try_from(first).expect("few");
            let bytes = (end - first) * chunk_bytes;
            let written = window.write(&mut world, first_chunk, bytes, deadline_ns);
            written.expect("it fits");
            world.run_for(rng.within(0..3) * rng.within(0..5 * MS));
        }
        if closes {
            let a = &mut world.a;
            a.endpoint.cancel_send(&window.stream).expect("it is open");
        }
        world.run_for(10 * SECOND);
        let count = |outcome| {
            window
                .writes
                .iter()
                .filter(|w| w.handle.outcome() == outcome)
                .count()
        };
        println!(
            "{} sent, {} expired, {} closed",
            count(SENT),
            count(EXPIRED),
            count(CLOSED)
        );
        assert_eq!(closes, window.stream.outcome().is_some());
        assert!(closes || count(CLOSED) == 0);
        window.check_left(&mut world);
        if !closes {
            window.check_window(&mut world);
        }
    });
}

/// The packets that carry only the immediate belong to the end of the stream, and are not cut with
/// a write. Found by the swarm.
#[test]
fn an_immediate_is_no_part_of_a_write() {
    let sdr = QpConfig {
        packets_per_chunk: 16,
        ..QpConfig::default()
    };
    let slow = QpOptions {
        sdr,
        burst_bytes: 4096,
        ..slow_path().1
    };
    for limit_ns in [50_000, 500_000, 5 * MS] {
        let mut world = World::new(1, slow_path().0, &slow);
        let inn = world.post_recv(Way::Forth, 65_536).expect("a free slot");
        world.run_for(2 * RTT);
        let deadline_ns = world.now_ns() + limit_ns;
        let a = &mut world.a;
        let source = a.endpoint.register(vec![7; 4096]).expect("room");
        let stream = a
            .endpoint
            .start_stream(a.qp, Some(77))
            .expect("a free slot");
        let write = a
            .endpoint
            .write(&stream, source.whole(), 0, Some(deadline_ns));
        let write = write.expect("it fits");
        a.endpoint.end_stream(&stream).expect("it is open");
        world.run_for(SECOND);
        assert_eq!((write.outcome(), write.sent_bytes()), (SENT, 4096));
        assert_eq!(inn.recv.immediate(), Some(77));
        assert!(inn.recv.bitmap().is_complete());
    }
}

/// The receiver's bitmap shows what arrived, whatever the sender reports.
#[test]
fn losses_are_seen_at_the_receiver_only() {
    let (link, options) = slow_path();
    let link = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.2 },
        ..link
    };
    let mut world = World::new(3, link, &options);
    let mut window = Window::open(&mut world, &options, 1 << 20);
    let write = window.write(&mut world, 0, 1 << 20, None).expect("it fits");
    world.run_for(SECOND);
    assert_eq!(
        (window.outcome(write), window.sent_bytes(write)),
        (SENT, 1 << 20)
    );
    let bitmap = window.inn.recv.bitmap();
    assert!((160..250).contains(&bitmap.count()), "{}", bitmap.count());
    let buffer = world.buffer(Way::Forth, &window.inn);
    for (chunk, bytes) in (0..).zip(buffer.chunks(4096)) {
        assert_eq!(bitmap.get(chunk), bytes[..2] == [0, 0], "chunk {chunk}");
    }
    window.check_left(&mut world);
}

/// A window that is written again and again keeps the rate of the path, whichever the controller:
/// new bytes in old places are no sign of loss.
#[test]
fn a_window_that_is_rewritten_keeps_the_rate() {
    let link = LinkConfig {
        rate_bps: Some(100_000_000),
        delay: Duration::from_millis(5),
        queue_bytes: Some(250_000),
        ..LinkConfig::default()
    };
    let swift = farwrite::SwiftOptions {
        base_target_ns: 25 * MS,
        endpoint_target_ns: 25 * MS,
        ..farwrite::SwiftOptions::new(100_000_000, 1, 0)
    };
    for rate_control in [RateControl::default(), RateControl::Swift(swift)] {
        let name = rate_control.name();
        let options = QpOptions {
            rate_control,
            ..options()
        };
        let mut world = World::new(1, link, &options);
        let a = &mut world.a;
        let stream = a.endpoint.start_stream(a.qp, None).expect("a free slot");
        let source = a.endpoint.register(vec![7; 1 << 18]).expect("room");
        let _inn = world.post_recv(Way::Forth, 1 << 18).expect("a free slot");
        let mut sent_bytes = 0;
        let mut write = None;
        world.run_until(10 * SECOND, |world| {
            let is_over = |write: &farwrite::WriteHandle| write.outcome().is_some();
            if write.as_ref().is_none_or(is_over) {
                sent_bytes += write.as_ref().map_or(0, farwrite::WriteHandle::sent_bytes);
                let again = world.a.endpoint.write(&stream, source.whole(), 0, None);
                write = Some(again.expect("it fits"));
            }
            false
        });
        let bps = sent_bytes * 8 / 10;
        println!("{name}: {} Mbit/s", bps / 1_000_000);
        assert!((50_000_000..100_000_000).contains(&bps), "{name}: {bps}");
    }
}
