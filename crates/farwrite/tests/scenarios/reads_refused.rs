//! Reads that are refused, and what a peer cannot read.

use farwrite::fabric::sim::Verdict;
use farwrite::schemes::scheme::{Receiver, Scheme, Sender};
use farwrite::{
    Error, ExposedRegion, QpOptions, ReadOptions, ReadRefusal, ReadRefused, Refusal, SchemeName,
    SchemeTag, SendOptions,
};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;
use farwrite_wire::control::Control;

use crate::deadlines::{FAILED, WHOLE};
use crate::parcel::UNTOUCHED;
use crate::reading::{
    ALL, EXPOSED, SECRET, by, end, expose, read, run_to_outcome, slice_of, until,
};
use crate::seeds;
use crate::turncoat::turn;
use crate::world::{MS, RTT, SECOND, World, long_haul, options, tag};

const UNCODED: [&str; 4] = ["sr-nack", "gbn", "best-effort", "best-effort+sr"];

/// A scheme that only the reader knows.
struct Foreign;

const FOREIGN: SchemeTag = SchemeTag {
    id: 200,
    params: [0; 6],
};

impl Scheme for Foreign {
    fn tag(&self) -> SchemeTag {
        FOREIGN
    }

    fn sender(&self) -> Box<dyn Sender + Send> {
        SchemeName::SrNack.scheme().sender()
    }

    fn receiver(&self) -> Box<dyn Receiver + Send> {
        SchemeName::SrNack.scheme().receiver()
    }
}

/// Runs one read that is refused, over a path that loses most control packets.
fn expect_refusal(region: u64, offset: u64, how: ReadOptions, reason: ReadRefusal) {
    for loss_packet in [0.0, 0.6] {
        let link = LinkConfig {
            loss: Loss::Iid { loss_packet },
            ..long_haul()
        };
        let mut world = World::new(1, link, &options());
        let shelf = expose(&mut world);
        let resolver = |tag| (tag == FOREIGN).then(|| Box::new(Foreign) as Box<dyn Scheme>);
        world.a.endpoint.add_scheme(resolver);
        let reads = vec![
            read(&mut world, shelf.exposed, 0, 1000, by("sr-nack")),
            read(&mut world, ExposedRegion(region), offset, 4096, how),
            read(&mut world, shelf.exposed, 0, 1000, by("sr-nack")),
        ];
        run_to_outcome(&mut world, &reads);
        let outcomes = reads.iter().map(|read| read.recv.outcome());
        assert_eq!(outcomes.collect::<Vec<_>>(), [WHOLE, FAILED, WHOLE]);
        let refused = ReadRefused {
            region: ExposedRegion(region),
            offset,
            length: 4096,
            reason,
        };
        assert_eq!(reads[1].recv.read_refusal(), Some(refused));
        assert_eq!(reads[0].recv.read_refusal(), None);
        end(world, &shelf, reads);
    }
}

#[test]
fn a_read_of_a_region_that_is_not_exposed_is_refused() {
    expect_refusal(1, 0, by("sr-nack"), ReadRefusal::UnknownRegion);
    expect_refusal(
        u64::MAX,
        0,
        until("best-effort", 50 * SECOND),
        ReadRefusal::UnknownRegion,
    );
}

#[test]
fn a_read_outside_of_the_exposed_range_is_refused() {
    let last = (EXPOSED - 4096) as u64;
    for offset in [last + 1, EXPOSED as u64, u64::MAX - 4095, u64::MAX] {
        expect_refusal(0, offset, by("best-effort"), ReadRefusal::OutOfRange);
    }
}

#[test]
fn a_read_with_a_scheme_that_the_peer_does_not_know_is_refused() {
    let options = ReadOptions {
        scheme: FOREIGN,
        deadline_ns: None,
    };
    expect_refusal(0, 0, options, ReadRefusal::Scheme);
}

/// The schemes of answers take memory at the end that answers.
#[test]
fn a_peer_may_ask_for_a_bounded_number_of_schemes() {
    let mut world = World::new(1, long_haul(), &options());
    let shelf = expose(&mut world);
    let schemes: Vec<String> = (1..=17).map(|m| format!("ec-mds:32,{m}")).collect();
    let mut reads = Vec::new();
    for scheme in &schemes {
        reads.push(read(&mut world, shelf.exposed, 0, 1000, by(scheme)));
        run_to_outcome(&mut world, &reads);
    }
    let (last, others) = reads.split_last().expect("17 reads");
    assert!(others.iter().all(|read| read.recv.outcome() == WHOLE));
    let refused = last.recv.read_refusal().expect("one too many");
    assert_eq!(refused.reason, ReadRefusal::Scheme);
    // After a pause, the end that answers has forgotten the schemes.
    world.run_for(5 * SECOND);
    end(world, &shelf, reads);
}

/// A packet of a newer read of the same bounded scheme arrives before the refusal does.
#[test]
fn a_refused_read_fails_also_where_its_refusal_is_late() {
    for scheme in ["best-effort", "best-effort+sr"] {
        let mut world = World::new(1, long_haul(), &options());
        let shelf = expose(&mut world);
        world.run_for(2 * RTT);
        let is_refusal = |control: &Control| matches!(control, Control::Offer(o) if o.message == 0);
        world
            .traffic
            .drop_first(1, move |seen| seen.says(is_refusal));
        let reads = vec![
            read(&mut world, ExposedRegion(9), 0, 4096, by(scheme)),
            read(&mut world, shelf.exposed, 0, 4096, by(scheme)),
        ];
        run_to_outcome(&mut world, &reads);
        assert_eq!(reads[0].recv.outcome(), FAILED, "{scheme}");
        assert!(reads[0].recv.read_refusal().is_some(), "{scheme}");
        assert_eq!(reads[1].recv.outcome(), WHOLE, "{scheme}");
        end(world, &shelf, reads);
    }
}

/// A reader asks for lost bytes again after the memory was concealed and written.
#[test]
fn bytes_written_after_the_end_of_the_exposure_are_not_sent() {
    let mut world = World::new(1, long_haul(), &options());
    let shelf = expose(&mut world);
    let until_ns = 20 * RTT;
    world
        .traffic
        .filter(move |seen| match seen.is_data() && seen.now_ns < until_ns {
            true => Verdict::Drop,
            false => Verdict::Pass,
        });
    let reads = [read(&mut world, shelf.exposed, 0, 4096, by("sr-nack"))];
    world.run_for(3 * RTT);
    let b = &mut world.b;
    b.endpoint
        .conceal(b.qp, shelf.exposed)
        .expect("it is exposed");
    let secret = [SECRET; 1 << 14];
    b.endpoint
        .write_memory(shelf.region, 5000, &secret)
        .expect("in bounds");
    run_to_outcome(&mut world, &reads);
    let memory = world
        .a
        .endpoint
        .memory(reads[0].target)
        .expect("it has ended");
    assert!(
        memory.iter().all(|&byte| byte != SECRET),
        "concealed bytes were sent"
    );
}

#[test]
fn what_is_concealed_cannot_be_read() {
    let mut world = World::new(1, long_haul(), &options());
    let shelf = expose(&mut world);
    let b = &mut world.b;
    let other = b
        .endpoint
        .expose(b.qp, slice_of(shelf.region))
        .expect("again");
    assert_eq!((shelf.exposed, other), (ExposedRegion(0), ExposedRegion(1)));
    b.endpoint.conceal(b.qp, other).expect("it is exposed");
    let again = b.endpoint.conceal(b.qp, other).unwrap_err();
    assert!(
        matches!(again, Error::NotExposed(region) if region == other),
        "{again}"
    );
    let reads = vec![read(&mut world, other, 0, 1000, by("sr-nack"))];
    run_to_outcome(&mut world, &reads);
    let refused = reads[0].recv.read_refusal().expect("it is concealed");
    assert_eq!(refused.reason, ReadRefusal::UnknownRegion);
    end(world, &shelf, reads);
}

/// The direction of a queue pair carries messages or answers, whichever came first.
#[test]
fn messages_and_answers_do_not_share_a_direction() {
    let mut world = World::new(1, long_haul(), &options());
    let shelf = expose(&mut world);
    let reads = vec![read(&mut world, shelf.exposed, 0, 1000, by("sr-nack"))];
    let is_direction = |error: &Error| matches!(error, Error::Direction { .. });
    let mut refused = Vec::new();
    let (a, b) = (&mut world.a, &mut world.b);
    let spare = a.endpoint.register(vec![0; 100]).expect("room");
    refused.extend(a.endpoint.post_recv(a.qp, spare.whole()).err());
    refused.extend(
        b.endpoint
            .post_send(b.qp, shelf.region.whole(), SendOptions::default())
            .err(),
    );
    refused.extend(b.endpoint.start_stream(b.qp, None).err());
    assert!(
        refused.len() == 3 && refused.iter().all(is_direction),
        "{refused:?}"
    );
    let text = refused[0].to_string();
    assert!(
        text.contains("carries answers to reads") && text.contains("carry messages"),
        "{text}"
    );
    // In the other direction, both ends use messages first.
    a.endpoint
        .post_send(a.qp, spare.whole(), SendOptions::default())
        .expect("free");
    b.endpoint
        .post_recv(b.qp, slice_of(shelf.region))
        .expect("free");
    let exposed = a.endpoint.expose(a.qp, spare.whole()).unwrap_err();
    let posted = b
        .endpoint
        .post_read(b.qp, slice_of(shelf.region), ExposedRegion(0), 0, by("gbn"));
    assert!(is_direction(&exposed) && posted.is_err_and(|error| is_direction(&error)));
    run_to_outcome(&mut world, &reads);
    assert_eq!(reads[0].recv.outcome(), WHOLE);
}

#[test]
fn calls_that_cannot_work_are_refused_at_once() {
    let mut world = World::new(1, long_haul(), &options());
    let a = &mut world.a;
    let region = a.endpoint.register(vec![0; 100]).expect("room");
    let beyond = region.slice(50..101);
    let out = a.endpoint.expose(a.qp, beyond).unwrap_err();
    assert!(matches!(out, Error::OutOfBounds { .. }), "{out}");
    let none = ReadOptions {
        scheme: SchemeTag::NONE,
        deadline_ns: None,
    };
    let mut post = |options, target| {
        a.endpoint
            .post_read(a.qp, target, ExposedRegion(0), 0, options)
    };
    let raw = post(none, region.whole()).unwrap_err();
    assert!(matches!(raw, Error::UnknownScheme(0)), "{raw}");
    let out = post(by("gbn"), beyond).unwrap_err();
    assert!(matches!(out, Error::OutOfBounds { .. }), "{out}");
    // None of these calls has decided what the queue pair carries.
    a.endpoint.post_recv(a.qp, region.whole()).expect("free");
}

/// The peer sends a message where a read was posted.
#[test]
fn a_message_does_not_pass_for_an_answer() {
    for first in [true, false] {
        let mut world = World::new(1, long_haul(), &options());
        let b = &mut world.b;
        let source = b.endpoint.register(vec![SECRET; 4096]).expect("room");
        let mut send = None;
        if first {
            let options = SendOptions::default();
            send = b.endpoint.post_send(b.qp, source.whole(), options).ok();
        }
        let reads = [read(&mut world, ExposedRegion(0), 0, 4096, by("sr-nack"))];
        if !first {
            // The request has not arrived yet.
            world.run_for(MS);
            let b = &mut world.b;
            let options = SendOptions::default();
            send = b.endpoint.post_send(b.qp, source.whole(), options).ok();
        }
        run_to_outcome(&mut world, &reads);
        assert_eq!(reads[0].recv.outcome(), FAILED);
        assert_eq!(
            reads[0].recv.refusal(),
            Some(Refusal::Read { offered: false })
        );
        let memory = world
            .a
            .endpoint
            .memory(reads[0].target)
            .expect("it has ended");
        assert!(memory.iter().all(|&byte| byte == UNTOUCHED));
        world.run_for(SECOND);
        assert_eq!(send.and_then(|send| send.outcome()), FAILED);
        assert!(
            world.b.stats().refused_controls > 0,
            "requests that nothing answers"
        );
    }
}

/// A peer that asks for anything, with the right keys. It gets no byte beside the exposed ones.
#[test]
fn a_peer_that_asks_for_anything_gets_exposed_bytes_only() {
    seeds::each("asks_for_anything", 20, |seed| {
        let mut world = World::new(seed, long_haul(), &options());
        let shelf = expose(&mut world);
        let mut rng = SplitMix::new(seed);
        let mut reads = Vec::new();
        for _ in 0..60 {
            let near = EXPOSED as u64 - 2 * rng.within(0..3000);
            let far = rng.next() >> rng.within(0..64);
            let offset = rng.pick(&[0, near, far, u64::MAX - far]);
            let region = ExposedRegion(rng.pick(&[0, 0, 0, 1, far]));
            let length = usize::try_from(rng.pick(&[0, 1, 3000, 20_000])).expect("small");
            let limit_ns = world.now_ns() + rng.within(0..3 * RTT);
            let deadline_ns = rng.pick(&[None, Some(limit_ns)]);
            let options = ReadOptions {
                scheme: tag(rng.pick(&ALL)),
                deadline_ns,
            };
            reads.push(read(&mut world, region, offset, length, options));
            world.run_for(rng.pick(&[0, MS, RTT]));
        }
        run_to_outcome(&mut world, &reads);
        for read in &reads {
            let memory = world.a.endpoint.memory(read.target).expect("it has ended");
            assert!(memory.iter().all(|&byte| byte != SECRET));
            let end = u128::from(read.offset) + memory.len() as u128;
            let is_within = end <= EXPOSED as u128;
            let is_out = read.recv.read_refusal().is_some_and(|refused| {
                refused.reason == ReadRefusal::OutOfRange || refused.region != shelf.exposed
            });
            assert!(is_within || is_out || read.recv.outcome() != WHOLE);
        }
        world.run_for(SECOND);
        end(world, &shelf, reads);
    });
}

/// Both ends lie about reads, offers and everything else. No byte beside the exposed ones leaves.
/// (Schemes with parity are left out: lies about packets make them compute any bytes.)
#[test]
fn lies_about_reads_bring_no_other_bytes() {
    seeds::each("lies_about_reads", 20, |seed| {
        let rng = &mut SplitMix::new(seed);
        let mut world = World::new(seed, long_haul(), &options());
        let shelf = expose(&mut world);
        let forged = turn(&world, rng.pick(&[0.02, 0.2, 0.5]), rng.next());
        let mut reads = Vec::new();
        for _ in 0..rng.within(1..20) {
            let offset = rng.pick(&[0, 5000, EXPOSED as u64 - 20_000]);
            let limit_ns = world.now_ns() + rng.within(0..5 * RTT);
            let options = ReadOptions {
                scheme: tag(rng.pick(&UNCODED)),
                deadline_ns: rng.pick(&[None, Some(limit_ns)]),
            };
            reads.push(read(&mut world, shelf.exposed, offset, 20_000, options));
        }
        for _ in 0..20 * RTT / MS {
            world.run_for(MS);
            let due = std::mem::take(&mut *forged.borrow_mut());
            due.into_iter()
                .for_each(|datagram| world.network.inject(datagram));
        }
        for read in &reads {
            let mut memory = vec![0; 20_000];
            let found = world.a.endpoint.read_memory(read.target, 0, &mut memory);
            found.expect("it is registered");
            assert!(memory.iter().all(|&byte| byte != SECRET));
        }
        for end in [&mut world.a, &mut world.b] {
            end.endpoint.destroy_qp(end.qp).expect("it is there");
        }
        assert!(reads.iter().all(|read| read.recv.outcome().is_some()));
    });
}

/// A peer of a version that passes requests over is known from its information.
#[test]
fn a_peer_that_does_not_answer_reads_is_known_before_a_read() {
    let mut world = World::new(1, long_haul(), &options());
    let (a, b) = (&mut world.a.endpoint, &mut world.b.endpoint);
    let qp = a.create_qp(options()).expect("room");
    let peer = b.create_qp(options()).expect("room");
    let region = a.register(vec![0; 100]).expect("room");
    let how = ReadOptions::default();
    let early = a.post_read(qp, region.whole(), ExposedRegion(0), 0, how);
    assert!(matches!(early, Err(Error::NotConnected(_))), "{early:?}");
    let mut info = b.qp_info(peer).expect("it is new");
    info.answers_reads = false;
    a.connect_qp(qp, &info).expect("the same options");
    let posted = a.post_read(qp, region.whole(), ExposedRegion(0), 0, how);
    assert!(matches!(posted, Err(Error::NoReads(_))), "{posted:?}");
    // It carries messages.
    a.post_recv(qp, region.whole()).expect("a free slot");
}

#[test]
fn a_read_with_parity_needs_a_queue_pair_with_parity() {
    let mut without = options();
    without.sdr.parity = false;
    let mut world = World::new(1, long_haul(), &without);
    let a = &mut world.a;
    let region = a.endpoint.register(vec![0; 100]).expect("room");
    let how = by("ec-mds:32,8");
    let posted = a
        .endpoint
        .post_read(a.qp, region.whole(), ExposedRegion(0), 0, how);
    assert!(matches!(posted, Err(Error::Sdr(_))), "{posted:?}");
}

/// The reader chooses the code, and the other end computes the parity.
#[test]
fn a_read_with_more_parity_than_the_peer_allows_is_refused() {
    for (scheme, percent, is_allowed) in [
        ("ec-mds:4,4", 100, true),
        ("ec-mds:4,5", 100, false),
        ("best-effort+ec-mds:4,5", 100, false),
        ("ec-mds:4,5", 125, true),
        ("ec-xor:5,2", 40, true),
        ("ec-xor:5,2", 39, false),
        ("sr-nack", 0, true),
    ] {
        let limited = QpOptions {
            max_answer_parity_percent: percent,
            ..options()
        };
        let mut world = World::new(1, long_haul(), &limited);
        let shelf = expose(&mut world);
        let reads = vec![read(&mut world, shelf.exposed, 0, 1 << 16, by(scheme))];
        run_to_outcome(&mut world, &reads);
        let refusal = reads[0].recv.read_refusal().map(|refused| refused.reason);
        let expected = (!is_allowed).then_some(ReadRefusal::Scheme);
        assert_eq!(refusal, expected, "{scheme}, {percent}");
        assert_eq!(reads[0].recv.outcome() == WHOLE, is_allowed);
        end(world, &shelf, reads);
    }
}
