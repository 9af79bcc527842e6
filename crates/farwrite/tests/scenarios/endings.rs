//! Messages that end without complete delivery.

use farwrite::schemes::registry::SchemeName;
use farwrite::schemes::scheme::{Receiver, Scheme, Sender};
use farwrite::{Error, Outcome, SchemeTag};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;

use crate::parcel::{Order, Parcel};
use crate::world::{MS, RTT, SCHEMES, SECOND, Way, World, long_haul, options, tag};

fn order(bytes: usize, scheme: &str) -> Order {
    Order::new(SplitMix::new(1).bytes(bytes), tag(scheme))
}

fn over(parcel: &Parcel) -> [Option<Outcome>; 2] {
    [parcel.out.send.outcome(), parcel.inn.recv.outcome()]
}

/// Runs until both ends know the outcome of a message, sends another one, and closes the world.
fn end(mut world: World, parcel: Parcel, expected: Outcome) {
    let limit_ns = world.now_ns() + 10 * SECOND;
    world.run_until(limit_ns, |_| over(&parcel).iter().all(Option::is_some));
    assert_eq!(over(&parcel), [Some(expected); 2]);
    let next = world.ship(order(10_000, "sr-nack"));
    world.deliver(std::slice::from_ref(&next), 10 * SECOND);
    world.check(&next);
    let parcels = [parcel, next];
    let (outs, inns) = parcels
        .into_iter()
        .map(|Parcel { out, inn, .. }| ((Way::Forth, out), (Way::Forth, inn)))
        .unzip();
    world.close(outs, inns);
}

#[test]
fn a_receive_completed_early_ends_the_send() {
    let link = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.2 },
        ..long_haul()
    };
    for scheme in SCHEMES {
        for outcome in [Outcome::Partial, Outcome::Failed] {
            let mut world = World::new(1, link, &options());
            let parcel = world.ship(order(4 << 20, scheme));
            // A part of the message has arrived at this time.
            world.run_for(27 * MS);
            let recv = &parcel.inn.recv;
            world.b.endpoint.complete_recv(recv, outcome).expect("open");
            let again = world.b.endpoint.complete_recv(recv, outcome);
            assert!(matches!(again, Err(Error::NoSuchMessage(0))), "{again:?}");
            let count = recv.bitmap().count();
            assert!((1..1024).contains(&count), "{count} chunks");
            let memory = world.buffer(Way::Forth, &parcel.inn);
            for (chunk, bytes) in parcel.order.bytes.chunks(4096).enumerate() {
                let range = chunk * 4096..(chunk + 1) * 4096;
                if recv.bitmap().get(u32::try_from(chunk).expect("small")) {
                    assert_eq!(memory[range], *bytes, "chunk {chunk} is said to be there");
                } else {
                    assert!(memory[range].iter().all(|&byte| byte == 0xee));
                }
            }
            world.run_for(SECOND);
            assert!(
                world.buffer(Way::Forth, &parcel.inn) == memory,
                "{scheme}: written late"
            );
            assert!(world.b.stats().late_packets > 0, "{scheme}");
            end(world, parcel, outcome);
        }
    }
}

#[test]
fn a_receive_completed_before_its_message_ends_the_send() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        let parcel = world.ship(order(100_000, scheme));
        let recv = &parcel.inn.recv;
        world
            .b
            .endpoint
            .complete_recv(recv, Outcome::Partial)
            .expect("open");
        end(world, parcel, Outcome::Partial);
    }
}

#[test]
fn a_cancelled_send_ends_the_receive() {
    for scheme in SCHEMES {
        // The times are before the clear-to-send, at the first chunks, and in the middle of the
        // message.
        for at_ns in [MS, RTT / 2, 15 * MS] {
            let mut world = World::new(1, long_haul(), &options());
            let parcel = world.ship(order(4 << 20, scheme));
            world.run_for(at_ns);
            world
                .a
                .endpoint
                .cancel_send(&parcel.out.send)
                .expect("its queue pair");
            assert_eq!(parcel.out.send.outcome(), Some(Outcome::Failed));
            end(world, parcel, Outcome::Failed);
        }
    }
}

#[test]
fn a_buffer_that_is_too_short_fails_both_sides() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        let order = order(100_000, scheme);
        let inn = world.post_recv(Way::Forth, 99_999).expect("a free slot");
        let out = world.post_send(&order).expect("a free slot");
        end(world, Parcel { order, out, inn }, Outcome::Failed);
    }
}

#[test]
fn a_receiver_that_posts_late_gets_its_message_soon() {
    for scheme in SCHEMES {
        for late_ns in [5 * MS, 300 * MS, 5 * SECOND] {
            let mut world = World::new(1, long_haul(), &options());
            let order = order(100_000, scheme);
            let out = world.post_send(&order).expect("a free slot");
            world.run_for(late_ns);
            let before = world.traffic.tally();
            let inn = world.post_recv(Way::Forth, 100_000).expect("a free slot");
            let parcel = Parcel { order, out, inn };
            let took_ns = world.deliver(std::slice::from_ref(&parcel), 10 * SECOND);
            println!(
                "{scheme}, {} ms late: {} us, {before:?} before",
                late_ns / MS,
                took_ns / 1000
            );
            // The clear-to-send takes half a round trip, and data and answer take one.
            assert!(took_ns <= RTT * 3 / 2 + MS, "{took_ns}");
            assert!(before.controls <= 10 + late_ns / (5 * MS), "{before:?}");
            world.finish(vec![parcel]);
        }
    }
}

/// A scheme that only one end knows: selective repeat under a private number.
struct Private;

impl Scheme for Private {
    fn tag(&self) -> SchemeTag {
        SchemeTag {
            id: 200,
            params: [0; 6],
        }
    }
    fn sender(&self) -> Box<dyn Sender + Send> {
        SchemeName::SrNack.scheme().sender()
    }
    fn receiver(&self) -> Box<dyn Receiver + Send> {
        SchemeName::SrNack.scheme().receiver()
    }
}

#[test]
fn a_scheme_that_the_receiver_does_not_know_fails_both_sides() {
    let mut world = World::new(1, long_haul(), &options());
    let order = Order::new(vec![1; 1000], Private.tag());
    let unknown = world.post_send(&order).err();
    assert!(
        matches!(unknown, Some(Error::UnknownScheme(200))),
        "{unknown:?}"
    );
    let resolver = |tag| (tag == Private.tag()).then(|| Box::new(Private) as Box<dyn Scheme>);
    world.a.endpoint.add_scheme(resolver);
    let parcel = world.ship(order);
    end(world, parcel, Outcome::Failed);
}

#[test]
fn memory_of_an_open_message_is_not_given_back() {
    let mut world = World::new(1, long_haul(), &options());
    let source = world.a.endpoint.register(vec![7; 10_000]).expect("room");
    let options = farwrite::SendOptions {
        scheme: tag("sr-nack"),
        ..farwrite::SendOptions::default()
    };
    let qp = world.a.qp;
    let send = world
        .a
        .endpoint
        .post_send(qp, source.whole(), options)
        .expect("a slot");
    assert!(world.a.endpoint.deregister(source).is_err());
    let inn = world.post_recv(Way::Forth, 10_000).expect("a free slot");
    world.run_until(SECOND, |_| send.outcome().is_some());
    assert!(world.a.endpoint.deregister(source).is_ok());
    world.close(vec![], vec![(Way::Forth, inn)]);
}

#[test]
fn a_queue_pair_that_ends_fails_its_messages() {
    let mut world = World::new(1, long_haul(), &options());
    let parcel = world.ship(order(100_000, "sr-nack"));
    world.run_for(13 * MS);
    for end in [&mut world.a, &mut world.b] {
        end.endpoint.destroy_qp(end.qp).expect("it is there");
    }
    assert_eq!(over(&parcel), [Some(Outcome::Failed); 2]);
    world.traffic.pass_all();
    world.run_for(SECOND);
    world.buffer(Way::Forth, &parcel.inn);
}
