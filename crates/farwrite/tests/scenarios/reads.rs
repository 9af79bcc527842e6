//! Reads: one end requests bytes that the other exposes, and gets them as a message (P3.13).

use std::cell::Cell;
use std::rc::Rc;

use farwrite::fabric::sim::Verdict;
use farwrite::{Error, Outcome, QpOptions, RateControl, SendOptions};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;
use farwrite_wire::control::{Control, ReadRequest};

use crate::deadlines::{FAILED, PARTIAL, WHOLE};
use crate::parcel::Order;
use crate::reading::{
    ALL, EXPOSED, Read, by, end, expose, is_request, read, run_to_outcome, until,
};
use crate::seeds;
use crate::world::{MS, RTT, SECOND, Way, World, long_haul, options, tag};

#[test]
fn a_read_takes_a_round_trip() {
    for scheme in ALL {
        let mut world = World::new(1, long_haul(), &options());
        let shelf = expose(&mut world);
        world.run_for(RTT);
        let reads = vec![read(&mut world, shelf.exposed, 5, 1 << 19, by(scheme))];
        let took_ns = run_to_outcome(&mut world, &reads);
        assert_eq!(reads[0].recv.outcome(), WHOLE, "{scheme}");
        assert_eq!(reads[0].recv.length(), Some(1 << 19));
        assert!(
            (RTT..RTT + 5 * MS).contains(&took_ns),
            "{scheme}: {took_ns}"
        );
        end(world, &shelf, reads);
    }
}

#[test]
fn reads_of_all_lengths_arrive() {
    for length in [0, 1, 4095, 4096, 4097, EXPOSED] {
        for scheme in ["sr-nack", "best-effort"] {
            let mut world = World::new(1, long_haul(), &options());
            let shelf = expose(&mut world);
            let offset = (EXPOSED - length) as u64;
            let reads = vec![read(&mut world, shelf.exposed, offset, length, by(scheme))];
            run_to_outcome(&mut world, &reads);
            assert_eq!(reads[0].recv.outcome(), WHOLE, "{scheme}, {length} bytes");
            end(world, &shelf, reads);
        }
    }
}

#[test]
fn requests_that_are_lost_are_repeated() {
    let mut world = World::new(1, long_haul(), &options());
    let shelf = expose(&mut world);
    world.traffic.drop_first(4, is_request);
    let reads = vec![read(&mut world, shelf.exposed, 0, 1 << 16, by("sr-nack"))];
    let took_ns = run_to_outcome(&mut world, &reads);
    assert_eq!(reads[0].recv.outcome(), WHOLE);
    assert!(took_ns > 2 * RTT, "{took_ns}");
    end(world, &shelf, reads);
}

#[test]
fn a_request_that_arrives_again_is_answered_once() {
    let mut world = World::new(1, long_haul(), &options());
    let shelf = expose(&mut world);
    // No offer arrives, so the request is repeated.
    let requests = Rc::new(Cell::new(0));
    let count = Rc::clone(&requests);
    world.traffic.filter(move |seen| {
        count.set(count.get() + u64::from(is_request(seen)));
        match seen.way == Way::Back && seen.now_ns < 20 * RTT {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    });
    let reads = vec![read(&mut world, shelf.exposed, 0, 1 << 16, by("sr-nack"))];
    run_to_outcome(&mut world, &reads);
    assert_eq!(reads[0].recv.outcome(), WHOLE);
    assert!(requests.get() > 3, "{} requests", requests.get());
    let b = &mut world.b;
    let region = b.endpoint.register(vec![0; 8]).expect("room");
    let next = b
        .endpoint
        .post_send(b.qp, region.whole(), SendOptions::default());
    assert!(matches!(next, Err(Error::Direction { .. })), "{next:?}");
    // The next read has number 1, so there was one answer.
    end(world, &shelf, reads);
}

#[test]
fn a_deadline_shorter_than_the_round_trip_brings_nothing() {
    for scheme in ALL {
        for limit_ns in [0, RTT / 4, RTT - MS] {
            let mut world = World::new(1, long_haul(), &options());
            let shelf = expose(&mut world);
            world.run_for(2 * RTT);
            let deadline_ns = world.now_ns() + limit_ns;
            let reads = vec![read(
                &mut world,
                shelf.exposed,
                0,
                1 << 16,
                until(scheme, deadline_ns),
            )];
            let took_ns = run_to_outcome(&mut world, &reads);
            assert_eq!(took_ns, limit_ns, "{scheme}");
            let partial = reads[0].recv.partial().map(|partial| partial.bytes());
            let is_exact = scheme == "best-effort+exact";
            let outcome = if is_exact { FAILED } else { PARTIAL };
            assert_eq!(reads[0].recv.outcome(), outcome, "{scheme}");
            assert_eq!(partial, (!is_exact).then_some(0), "{scheme}");
            if limit_ns < RTT / 2 {
                world.run_for(3 * RTT);
                assert_eq!(world.traffic.tally().data, 0, "the request came too late");
            }
            end(world, &shelf, reads);
        }
    }
}

/// The path is too slow for the whole read. The notice that the read is over is lost, so the peer
/// knows the end of the read only from the request.
#[test]
fn the_peer_stops_sending_when_the_read_is_over() {
    let link = LinkConfig {
        rate_bps: Some(100_000_000),
        ..long_haul()
    };
    let slow = QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: 90_000_000,
        },
        ..options()
    };
    for scheme in ALL
        .into_iter()
        .filter(|scheme| *scheme != "best-effort+exact")
    {
        let mut world = World::new(1, link, &slow);
        let shelf = expose(&mut world);
        world.run_for(2 * RTT);
        let deadline_ns = world.now_ns() + 2 * RTT;
        let last_ns = Rc::new(Cell::new(0));
        let last = Rc::clone(&last_ns);
        world.traffic.filter(move |seen| {
            if seen.is_data() {
                last.set(seen.now_ns);
            }
            let is_late = seen.now_ns >= deadline_ns && seen.now_ns < deadline_ns + 10 * RTT;
            match is_late && seen.way == Way::Forth {
                true => Verdict::Drop,
                false => Verdict::Pass,
            }
        });
        let reads = vec![read(
            &mut world,
            shelf.exposed,
            0,
            EXPOSED,
            until(scheme, deadline_ns),
        )];
        run_to_outcome(&mut world, &reads);
        assert_eq!(world.now_ns(), deadline_ns, "{scheme}");
        assert_eq!(reads[0].recv.outcome(), PARTIAL, "{scheme}");
        let partial = reads[0].recv.partial().expect("partial");
        // A round trip at 90 Mbit/s carries about 270 KB.
        assert!(
            (200_000..320_000).contains(&partial.bytes()),
            "{scheme}: {}",
            partial.bytes()
        );
        world.run_for(9 * RTT);
        let over_ns = last_ns.get().saturating_sub(deadline_ns);
        assert!(
            over_ns < 2 * MS,
            "{scheme}: the peer sends for {over_ns} ns more"
        );
        end(world, &shelf, reads);
    }
}

#[test]
fn a_bounded_read_over_a_lossy_path_ends_by_its_deadline() {
    let link = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.1 },
        ..long_haul()
    };
    for scheme in [
        "best-effort",
        "best-effort+sr",
        "best-effort+ec-mds:32,8",
        "sr-nack",
    ] {
        seeds::each("bounded_read", 3, |seed| {
            let mut world = World::new(seed, link, &options());
            let shelf = expose(&mut world);
            world.run_for(2 * RTT);
            let deadline_ns = world.now_ns() + 4 * RTT;
            let reads: Vec<Read> = (0..4)
                .map(|i| {
                    let options = until(scheme, deadline_ns);
                    read(&mut world, shelf.exposed, i * 10_000, 1 << 18, options)
                })
                .collect();
            run_to_outcome(&mut world, &reads);
            assert!(world.now_ns() <= deadline_ns, "{scheme}");
            world.run_for(SECOND);
            end(world, &shelf, reads);
        });
    }
}

#[test]
fn several_reads_are_in_flight_and_end_in_their_order() {
    let few = QpOptions {
        max_answers: 3,
        ..options()
    };
    let link = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.05 },
        ..long_haul()
    };
    for (options, link) in [(options(), long_haul()), (few, link)] {
        let mut world = World::new(3, link, &options);
        let shelf = expose(&mut world);
        let reads: Vec<Read> = (0..40)
            .map(|i| {
                let scheme = ALL[i % 5];
                read(
                    &mut world,
                    shelf.exposed,
                    1000 * i as u64,
                    20_000,
                    by(scheme),
                )
            })
            .collect();
        let took_ns = run_to_outcome(&mut world, &reads);
        assert!(reads.iter().all(|read| read.recv.outcome() == WHOLE));
        if options.max_answers == 16 && link.loss == Loss::None {
            // 16 answers at a time: three rounds.
            assert!(took_ns < 5 * RTT, "{took_ns}");
        }
        end(world, &shelf, reads);
    }
}

#[test]
fn reads_and_messages_of_the_other_direction_do_not_disturb_each_other() {
    let mut world = World::new(1, long_haul(), &options());
    let shelf = expose(&mut world);
    let parcel = world.ship(Order::new(SplitMix::new(1).bytes(1 << 18), tag("sr-nack")));
    let reads = vec![read(&mut world, shelf.exposed, 0, 1 << 18, by("sr-nack"))];
    run_to_outcome(&mut world, &reads);
    world.deliver(std::slice::from_ref(&parcel), SECOND);
    world.check(&parcel);
    world.forget(parcel);
    assert_eq!(reads[0].recv.outcome(), WHOLE);
    end(world, &shelf, reads);
}

#[test]
fn a_read_that_its_user_ends_gives_its_number_up() {
    for lost in [0, 3] {
        let mut world = World::new(1, long_haul(), &options());
        let shelf = expose(&mut world);
        world.traffic.drop_first(lost, is_request);
        let reads = vec![read(&mut world, shelf.exposed, 0, 1 << 18, by("sr-nack"))];
        world.run_for(MS);
        let a = &mut world.a;
        let ended = a.endpoint.complete_recv(&reads[0].recv, Outcome::Failed);
        ended.expect("it is open");
        assert_eq!(reads[0].recv.outcome(), FAILED);
        end(world, &shelf, reads);
    }
}

/// The end of the read arrives before any offer does, so the end that answers offers it no more.
#[test]
fn a_read_that_ends_before_any_offer_falls_silent() {
    let mut world = World::new(1, long_haul(), &options());
    let shelf = expose(&mut world);
    world.traffic.filter(|seen| match seen.way {
        Way::Back => Verdict::Drop,
        Way::Forth => Verdict::Pass,
    });
    let reads = vec![read(&mut world, shelf.exposed, 0, 1 << 16, by("sr-nack"))];
    world.run_for(RTT);
    let a = &mut world.a;
    let ended = a.endpoint.complete_recv(&reads[0].recv, Outcome::Partial);
    ended.expect("it is open");
    world.run_for(RTT);
    world.expect_silence();
    end(world, &shelf, reads);
}

#[test]
fn a_request_names_the_bytes_and_the_time_that_remains() {
    let mut world = World::new(1, long_haul(), &options());
    let shelf = expose(&mut world);
    let first: Rc<Cell<Option<ReadRequest>>> = Rc::default();
    let heard = Rc::clone(&first);
    world.traffic.filter(move |seen| {
        for control in seen.control.iter().flatten() {
            if let Control::Read(request) = control {
                heard.set(heard.get().or(Some(*request)));
            }
        }
        Verdict::Pass
    });
    world.run_for(MS);
    let options = until("best-effort", MS + 10 * RTT);
    let reads = vec![read(&mut world, shelf.exposed, 7, 3000, options)];
    run_to_outcome(&mut world, &reads);
    let request = ReadRequest {
        message: 0,
        region: 0,
        offset: 7,
        length: 3000,
        remaining_ns: 10 * RTT,
        scheme: tag("best-effort"),
    };
    assert_eq!(first.get(), Some(request));
    end(world, &shelf, reads);
}
