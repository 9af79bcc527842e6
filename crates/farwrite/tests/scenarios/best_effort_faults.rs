//! Best effort on paths with every fault: each operation ends by its deadline at both ends, and
//! reports exactly what arrived.

use std::time::Duration;

use farwrite::fabric::sim::Verdict;
use farwrite::{
    Error, Outcome, QpConfig, QpOptions, RateControl, RecvHandle, RecvOptions, SendHandle,
};
use farwrite_link::{LinkConfig, Loss, Reorder};
use farwrite_rng::SplitMix;

use crate::best_effort::BOUNDED;
use crate::deadlines::{FAILED, PARTIAL, WHOLE, until};
use crate::parcel::{Order, Outbound, Parcel, UNTOUCHED};
use crate::seeds;
use crate::world::{MS, SECOND, Way, World, long_haul, options, tag};

const MTU: usize = 1000;

/// One end of an operation, with its deadline and its actual end.
struct Side<Handle> {
    handle: Handle,
    deadline_ns: u64,
    ended_ns: Option<u64>,
}

impl<Handle> Side<Handle> {
    /// An operation that is posted after its deadline ends at the next poll. So its deadline counts
    /// as at least `now_ns + 1`.
    fn new(handle: Handle, deadline_ns: u64, now_ns: u64) -> Self {
        Self {
            handle,
            deadline_ns: deadline_ns.max(now_ns + 1),
            ended_ns: None,
        }
    }

    fn look(&mut self, now_ns: u64, outcome: impl Fn(&Handle) -> Option<Outcome>) {
        if outcome(&self.handle).is_some() {
            self.ended_ns.get_or_insert(now_ns);
        }
    }

    fn is_in_time(&self) -> bool {
        self.ended_ns.is_some_and(|at_ns| at_ns <= self.deadline_ns)
    }
}

/// All operations so far.
#[derive(Default)]
struct Ops {
    sends: Vec<Side<SendHandle>>,
    recvs: Vec<Side<RecvHandle>>,
}

impl Ops {
    /// Advances the time, and records when each operation ended.
    fn run(&mut self, world: &mut World, span_ns: u64) {
        let limit_ns = world.now_ns() + span_ns;
        world.run_until(limit_ns, |world| {
            let now_ns = world.now_ns();
            let sends = self.sends.iter_mut();
            sends.for_each(|side| side.look(now_ns, SendHandle::outcome));
            let recvs = self.recvs.iter_mut();
            recvs.for_each(|side| side.look(now_ns, RecvHandle::outcome));
            false
        });
    }
}

/// Checks a message that has ended.
fn check(world: &mut World, parcel: &Parcel) {
    let name = parcel.describe();
    let [sent, received] = parcel.outcomes();
    match received {
        PARTIAL => world.check_part(parcel, MTU),
        WHOLE => {
            let buffer = world.buffer(parcel.order.way, &parcel.inn);
            let (buffer, rest) = buffer.split_at(parcel.order.bytes.len());
            assert!(buffer == parcel.order.bytes, "{name}");
            assert!(rest.iter().all(|&byte| byte == UNTOUCHED), "{name}");
        }
        _ => assert_eq!(sent, FAILED, "{name}"),
    }
    if sent == WHOLE {
        assert_eq!(received, WHOLE, "{name}");
    }
    if sent == PARTIAL {
        assert!(matches!(received, PARTIAL | WHOLE), "{name}");
    }
}

fn faulty_link(rng: &mut SplitMix) -> LinkConfig {
    let loss_packet = rng.pick(&[0.0, 0.001, 0.01, 0.1, 0.3]);
    let bursts = Loss::Markov {
        p_good_to_bad: 0.01,
        p_bad_to_good: 0.1,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    LinkConfig {
        loss: rng.pick(&[Loss::Iid { loss_packet }, bursts]),
        reorder: Reorder {
            probability: rng.pick(&[0.0, 0.0, 0.05]),
            extra_delay: Duration::from_micros(rng.within(1..5_000)),
        },
        duplicate: rng.pick(&[0.0, 0.0, 0.02]),
        ..long_haul()
    }
}

/// Drops some control packets.
fn lose_controls(world: &World, rng: &mut SplitMix) {
    let loss = rng.pick(&[0.0, 0.05, 0.3, 0.8]);
    let mut rng = SplitMix::new(rng.next());
    world.traffic.filter(move |seen| {
        let is_lost = !seen.is_data() && rng.chance(loss);
        if is_lost {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
}

/// Posts a send as soon as a slot is free for it. Its deadline may pass before that.
fn post_send(world: &mut World, order: &Order, ops: &mut Ops) -> Outbound {
    loop {
        match world.post_send(order) {
            Ok(out) => {
                let (handle, now_ns) = (out.send.clone(), world.now_ns());
                let deadline_ns = order.deadline_ns.unwrap_or(u64::MAX);
                ops.sends.push(Side::new(handle, deadline_ns, now_ns));
                return out;
            }
            Err(Error::Retry { .. }) => ops.run(world, MS),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns random shapes and rate controls for a scheme.
fn draw_options(rng: &mut SplitMix, scheme: &str) -> QpOptions {
    let sdr = QpConfig {
        mtu: u32::try_from(MTU).expect("small"),
        slots: rng.pick(&[2, 8, 64]).try_into().expect("small"),
        max_message_bytes: 1 << 20,
        channels: rng.pick(&[1, 3]).try_into().expect("small"),
        generations: 8,
        ..QpConfig::default()
    };
    QpOptions {
        sdr,
        expected_scheme: tag(rng.pick(&[scheme, "best-effort"])),
        rate_control: rng.pick(&[options().rate_control, RateControl::default()]),
        ..options()
    }
}

/// Checks that everything ended in time with the right result. Returns how many receives were
/// whole, partial and failed.
fn check_all(world: &mut World, ops: &Ops, parcels: &[Parcel], name: &str) -> [u32; 3] {
    for side in &ops.sends {
        let message = side.handle.message();
        let times = (side.ended_ns, side.deadline_ns);
        assert!(side.is_in_time(), "{name}: send {message}: {times:?}");
    }
    for side in &ops.recvs {
        let message = side.handle.message();
        let times = (side.ended_ns, side.deadline_ns);
        assert!(side.is_in_time(), "{name}: receive {message}: {times:?}");
    }
    let mut outcomes = [0; 3];
    for parcel in parcels {
        check(world, parcel);
        let known = [WHOLE, PARTIAL, FAILED];
        let index = known.iter().position(|o| *o == parcel.outcomes()[1]);
        outcomes[index.expect("an outcome")] += 1;
    }
    outcomes
}

/// Runs consecutive operations in each direction, like the phases of a collective, over a path with
/// faults that is down for a while.
fn mix(seed: u64) {
    let rng = &mut SplitMix::new(seed);
    let scheme = rng.pick(&BOUNDED);
    let options = draw_options(rng, scheme);
    let link = faulty_link(rng);
    let mut world = World::new(seed, link, &options);
    lose_controls(&world, rng);
    let name = format!("{scheme} over {link:?}");
    let down_at = rng.within(0..40);
    let (mut ops, mut parcels) = (Ops::default(), Vec::new());
    for round in 0..rng.within(1..40) {
        world.set_down(round == down_at);
        let start_ns = world.now_ns();
        let bytes = usize::try_from(rng.within(0..200_000)).expect("small");
        let order = Order {
            way: rng.pick(&[Way::Forth, Way::Back]),
            deadline_ns: Some(start_ns + rng.within(1..80 * MS)),
            spare: rng.pick(&[0, 0, 5000]),
            immediate: rng.pick(&[None, Some(7)]),
            ..Order::new(rng.bytes(bytes), tag(scheme))
        };
        let deadline_ns = start_ns + rng.within(1..80 * MS);
        let terms = RecvOptions {
            scheme: rng.pick(&[None, Some(order.scheme)]),
            exact_length: order.spare == 0 && order.immediate.is_none() && rng.chance(0.5),
            ..until(deadline_ns)
        };
        let Ok(inn) = world.post_recv_with(order.way, bytes + order.spare, terms) else {
            ops.run(&mut world, MS);
            continue;
        };
        let side = Side::new(inn.recv.clone(), deadline_ns, start_ns);
        ops.recvs.push(side);
        ops.run(&mut world, rng.pick(&[0, MS, 30 * MS]));
        // While the path stays down, no slot is free for a long time.
        world.set_down(false);
        let out = post_send(&mut world, &order, &mut ops);
        world.set_down(round == down_at);
        parcels.push(Parcel { order, out, inn });
        ops.run(&mut world, rng.within(0..30 * MS));
    }
    world.set_down(false);
    ops.run(&mut world, 100 * MS);
    world.traffic.pass_all();
    ops.run(&mut world, 10 * SECOND);
    let outcomes = check_all(&mut world, &ops, &parcels, &name);
    println!("{name}: whole, partial, failed: {outcomes:?}");
    let (outs, inns) = parcels
        .into_iter()
        .map(|Parcel { order, out, inn }| ((order.way, out), (order.way, inn)))
        .unzip();
    world.close(outs, inns);
}

#[test]
fn every_operation_ends_by_its_deadline_with_an_exact_mask() {
    seeds::each("best_effort_faults", 150, mix);
}
