//! How a stream ends: by each end, in each order, by a reset, and by a reader that stops.

use farwrite_stream::{Error, StreamOptions};

use crate::world::{Ends, MS, SECOND, World, bytes, drain, feed, path, small};

#[test]
fn each_direction_ends_on_its_own() {
    for b_ends_first in [false, true] {
        let mut world = World::new(1, path(), &small(), 1);
        if b_ends_first {
            world.streams[0].b.sender.finish();
        } else {
            world.streams[0].a.sender.finish();
        }
        let mut heard = Vec::new();
        assert!(world.run(SECOND, |world| {
            let stream = &mut world.streams[0];
            let reader = if b_ends_first {
                &mut stream.a
            } else {
                &mut stream.b
            };
            drain(reader, &mut heard)
        }));
        assert!(heard.is_empty() && !world.streams[0].a.is_over());
        // The other direction still carries bytes.
        let (data, mut sent) = (bytes(1, 100_000), 0);
        assert!(world.run(10 * SECOND, |world| {
            let stream = &mut world.streams[0];
            let (writer, reader) = match b_ends_first {
                true => (&mut stream.a, &mut stream.b),
                false => (&mut stream.b, &mut stream.a),
            };
            feed(writer, &data, &mut sent);
            drain(reader, &mut heard) && stream.a.is_over() && stream.b.is_over()
        }));
        assert!(heard == data);
        let again = world.streams[0]
            .a
            .sender
            .write(b"x")
            .expect_err("it has ended");
        assert!(matches!(again, Error::Finished), "{again}");
    }
}

#[test]
fn a_reset_drops_what_has_not_left_and_the_other_direction_goes_on() {
    let options = StreamOptions {
        messages: 16,
        ..small()
    };
    let mut world = World::new(2, path(), &options, 1);
    let data = bytes(1, 1 << 20);
    let taken = world.streams[0].a.sender.write(&data).expect("open");
    assert_eq!(taken, 16 * (16 * 1024 - 1));
    world.run_for(MS);
    world.streams[0].a.sender.reset(42);
    let mut piece = [0; 1000];
    let mut error = None;
    world.run(SECOND, |world| {
        error = world.streams[0].b.receiver.read(&mut piece).err();
        error.is_some()
    });
    assert!(matches!(error, Some(Error::Reset(42))), "{error:?}");
    assert_eq!(world.streams[0].b.receiver.unread_bytes(), 0);
    let qa = world.streams[0].qa;
    let chunks = world.a.qp_stats(qa).expect("its own").sender.sent_chunks;
    assert!(chunks <= 5 * 4, "{chunks} chunks of 4 KiB");
    let refused = world.streams[0].a.sender.write(b"x").expect_err("given up");
    assert!(matches!(refused, Error::Finished), "{refused}");
    let (mut heard, mut sent) = (Vec::new(), 0);
    assert!(world.run(10 * SECOND, |world| {
        feed(&mut world.streams[0].b, &data[..100_000], &mut sent);
        drain(&mut world.streams[0].a, &mut heard) && world.streams[0].a.is_over()
    }));
    assert!(heard == data[..100_000]);
}

/// The writer is blocked when the reader stops.
#[test]
fn a_reader_that_stops_ends_a_blocked_writer() {
    let mut world = World::new(3, path(), &small(), 1);
    let (data, mut sent) = (bytes(1, 1 << 20), 0);
    world.run(5 * SECOND, |world| {
        feed(&mut world.streams[0].a, &data, &mut sent);
        false
    });
    assert!(!world.streams[0].a.sender.is_writable());
    world.streams[0].b.stop(7);
    let mut error = None;
    assert!(world.run(SECOND, |world| {
        error = world.streams[0].a.sender.write(&data).err();
        error.is_some()
    }));
    assert!(matches!(error, Some(Error::Stopped(7))), "{error:?}");
    let read = world.streams[0]
        .b
        .receiver
        .read(&mut [0; 10])
        .expect_err("it has stopped");
    assert!(matches!(read, Error::NotReading), "{read}");
    // The writer has answered with a reset, so the direction is over.
    assert!(world.run(SECOND, |world| world.streams[0].b.receiver.is_over()));
    let (mut heard, mut sent) = (Vec::new(), 0);
    assert!(world.run(10 * SECOND, |world| {
        let stream = &mut world.streams[0];
        feed(&mut stream.b, &data[..50_000], &mut sent);
        drain(&mut stream.a, &mut heard) && stream.a.is_over() && stream.b.is_over()
    }));
    assert!(heard == data[..50_000]);
}

/// Both ends stop and end at once, and no memory stays in use.
#[test]
fn everything_is_given_back() {
    let mut world = World::new(4, path(), &small(), 1);
    let data = bytes(1, 30_000);
    let Ends { a, b, qa } = &mut world.streams[0];
    let qa = *qa;
    for stream in [a, b] {
        stream.sender.write(&data).expect("open");
        stream.sender.finish();
        stream.stop(1);
    }
    assert!(world.run(10 * SECOND, |world| {
        world.streams[0].a.is_over() && world.streams[0].b.is_over()
    }));
    world.a.destroy_qp(qa).expect("its own queue pair");
    let before = world.streams[0].a.release(&mut world.a);
    assert!(
        world.run(SECOND, |world| {
            world.streams[0].a.release(&mut world.a) == 0
        }),
        "{before} regions at first"
    );
}
