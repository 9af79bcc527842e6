//! Random mixes: one seed draws a queue pair, two paths and a course of events.

use std::time::Duration;

use farwrite::{Error, Outcome, QpConfig, QpOptions, RateControl, Timing};
use farwrite_link::{LinkConfig, Loss, Reorder};
use farwrite_rng::SplitMix;

use crate::parcel::{Inbound, Order, Outbound};
use crate::seeds;
use crate::world::{MS, SECOND, Way, World, tag};

/// Codes of all shapes, and schemes without a code.
const MIXED: [&str; 10] = [
    "sr-rto",
    "sr-nack",
    "gbn",
    "ec-xor:32,8",
    "ec-mds:32,8",
    "ec-xor:3,3",
    "ec-xor:5,2",
    "ec-mds:3,2",
    "ec-mds:1,3",
    "ec-mds:200,55",
];

/// A message that is posted at one end or at both.
struct Errand {
    order: Order,
    out: Option<Outbound>,
    inn: Option<Inbound>,
    cancelled: bool,
    completed: Option<Outcome>,
}

fn micros(rng: &mut SplitMix, choices: &[u64]) -> Duration {
    Duration::from_micros(rng.pick(choices))
}

fn random_loss(rng: &mut SplitMix) -> Loss {
    match rng.within(0..4) {
        0 => Loss::None,
        1 => Loss::Iid {
            loss_packet: 0.02 * rng.unit(),
        },
        2 => Loss::Iid {
            loss_packet: 0.2 * rng.unit(),
        },
        _ => Loss::Markov {
            p_good_to_bad: 0.01 * rng.unit(),
            p_bad_to_good: 0.02 + 0.2 * rng.unit(),
            loss_good: 0.01 * rng.unit(),
            loss_bad: 0.3 + 0.7 * rng.unit(),
        },
    }
}

/// Draws one direction of a path: `plain` with additional faults.
fn random_link(rng: &mut SplitMix, plain: LinkConfig) -> LinkConfig {
    let delay = plain.delay;
    LinkConfig {
        loss: random_loss(rng),
        reorder: Reorder {
            probability: rng.pick(&[0.0, 0.01, 0.3]) * rng.unit(),
            extra_delay: delay.mul_f64(rng.unit()) * rng.pick(&[1, 2]),
        },
        duplicate: rng.pick(&[0.0, 0.02, 0.5]) * rng.unit(),
        corrupt: rng.pick(&[0.0, 0.02]) * rng.unit(),
        ..plain
    }
}

fn random_world(seed: u64, rng: &mut SplitMix) -> World {
    let delay = micros(rng, &[20, 500, 12_500, 100_000]);
    let rate_bps = rng.pick(&[None, Some(100_000_000), Some(1_000_000_000)]);
    // If a burst did not fit into its queue, the queue would drop the same packets every time.
    let (queue_bytes, burst_bytes) = rng.pick(&[
        (None, 256 * 1024),
        (Some(1_000_000), 256 * 1024),
        (Some(60_000), 50_000),
        (Some(60_000), 1),
    ]);
    let sdr = QpConfig {
        mtu: rng.pick(&[64, 256, 1024, 4096]),
        packets_per_chunk: rng.pick(&[1, 4, 16, 64]),
        slots: rng.pick(&[2, 8, 64]),
        max_message_bytes: 1 << 20,
        // Each use of a slot takes at least one round trip, and packets can be late by up to two.
        // With four generations, none is used again before such packets have arrived.
        generations: rng.pick(&[4, 4, 8]),
        channels: rng.pick(&[1, 1, 2, 5]),
        ..QpConfig::default()
    };
    let within_rate = rate_bps.map_or(2_000_000_000, |bps| bps / 10 * 9);
    // Some senders are too fast for the path. This is not combined with long chunks: a queue that
    // is always full may drop packets of the same chunk every time.
    let too_fast = sdr.packets_per_chunk <= 4 && rng.chance(0.25);
    let pace_bps = within_rate * if too_fast { 3 } else { 2 } / 2;
    let options = QpOptions {
        sdr,
        rate_control: RateControl::Fixed { rate_bps: pace_bps },
        burst_bytes,
        initial_rtt: micros(rng, &[100, 25_000, 1_000_000]),
        reordering_window: rng.pick(&[None, Some(delay / 2)]),
        expected_scheme: tag(rng.pick(&MIXED)),
        max_parity_bytes: rng.pick(&[0, 20_000, 300_000, 1 << 30, 1 << 30]),
        // The timing may also be one that does not fit the path.
        timing: rng.pick(&[Timing::wide_area(), Timing::datacenter()]),
        ..QpOptions::default()
    };
    let plain = LinkConfig {
        delay,
        rate_bps,
        queue_bytes,
        ..LinkConfig::default()
    };
    let (forth, back) = (random_link(rng, plain), random_link(rng, plain));
    println!("{options:?}\nforth {forth:?}\nback {back:?}");
    World::with_links(seed, forth, back, &options)
}

fn random_order(rng: &mut SplitMix, way: Way) -> Order {
    let most = rng.pick(&[1, 100, 5_000, 60_000, 300_000]);
    let bytes = usize::try_from(rng.within(0..most)).expect("small");
    Order {
        way,
        immediate: rng.pick(&[None, None, Some(0), Some(0x8765_4321)]),
        spare: rng.pick(&[0, 0, 1, 10_000]),
        ..Order::new(rng.bytes(bytes), tag(rng.pick(&MIXED)))
    }
}

/// The state of the messages of one direction. Sends and receives are posted in the same order, but
/// either can be ahead of the other.
struct Course {
    way: Way,
    errands: Vec<Errand>,
    sends: usize,
    recvs: usize,
}

impl Course {
    fn new(way: Way) -> Self {
        Self {
            way,
            errands: Vec::new(),
            sends: 0,
            recvs: 0,
        }
    }

    /// Returns the message with this number. Draws it if it is new.
    fn errand(&mut self, rng: &mut SplitMix, number: usize) -> &mut Errand {
        if number == self.errands.len() {
            self.errands.push(Errand {
                order: random_order(rng, self.way),
                out: None,
                inn: None,
                cancelled: false,
                completed: None,
            });
        }
        &mut self.errands[number]
    }

    fn post_send(&mut self, world: &mut World, rng: &mut SplitMix) {
        let number = self.sends;
        let errand = self.errand(rng, number);
        match world.post_send(&errand.order) {
            Ok(out) => {
                errand.out = Some(out);
                self.sends += 1;
            }
            // The parity would exceed the maximum length of a message.
            Err(Error::TooLong { .. }) => errand.order.scheme = tag("sr-nack"),
            Err(error) => assert!(matches!(error, Error::Retry { .. }), "{error}"),
        }
    }

    fn post_recv(&mut self, world: &mut World, rng: &mut SplitMix) {
        let (number, way) = (self.recvs, self.way);
        let errand = self.errand(rng, number);
        match world.post_recv(way, errand.order.bytes.len() + errand.order.spare) {
            Ok(inn) => {
                errand.inn = Some(inn);
                self.recvs += 1;
            }
            Err(error) => assert!(matches!(error, Error::Retry { .. }), "{error}"),
        }
    }

    /// Cancels an open message or completes it early, if there is one.
    fn interfere(&mut self, world: &mut World, rng: &mut SplitMix) {
        let open = |e: &&mut Errand| !e.is_over() && !e.cancelled && e.completed.is_none();
        let Some(errand) = self.errands.iter_mut().find(open) else {
            return;
        };
        if let (Some(out), true) = (&errand.out, rng.chance(0.5)) {
            let endpoint = &mut world.sender(self.way).endpoint;
            endpoint.cancel_send(&out.send).expect("its queue pair");
            errand.cancelled = true;
        } else if let Some(inn) = errand.inn.as_ref().filter(|i| i.recv.outcome().is_none()) {
            let outcome = rng.pick(&[Outcome::Partial, Outcome::Failed]);
            let endpoint = &mut world.receiver(self.way).endpoint;
            endpoint.complete_recv(&inn.recv, outcome).expect("open");
            errand.completed = Some(outcome);
        }
    }

    fn describe(&self) -> String {
        let open = self
            .errands
            .iter()
            .enumerate()
            .filter(|(_, e)| !e.is_over());
        let lines = open.map(|(number, errand)| {
            let (scheme, bytes) = (errand.order.scheme.id, errand.order.bytes.len());
            let outcomes = errand.outcomes();
            format!(
                "\n{:?} {number}: scheme {scheme}, {bytes} bytes, {outcomes:?}",
                self.way
            )
        });
        lines.collect()
    }

    fn is_over(&self) -> bool {
        self.sends == self.recvs && self.errands.iter().all(Errand::is_over)
    }
}

impl Errand {
    fn outcomes(&self) -> [Option<Outcome>; 2] {
        [
            self.out.as_ref().and_then(|out| out.send.outcome()),
            self.inn.as_ref().and_then(|inn| inn.recv.outcome()),
        ]
    }

    fn is_over(&self) -> bool {
        self.outcomes().iter().all(Option::is_some)
    }

    fn check(&self, world: &mut World) {
        let [sent, received] = self.outcomes();
        let expected = match (self.cancelled, self.completed) {
            (true, _) => [Some(Outcome::Failed), received],
            (false, Some(outcome)) => [Some(outcome); 2],
            (false, None) => [Some(Outcome::Whole); 2],
        };
        assert_eq!([sent, received], expected);
        let inn = self.inn.as_ref().expect("posted");
        let buffer = world.buffer(self.order.way, inn);
        let (written, rest) = buffer.split_at(self.order.bytes.len());
        assert!(
            rest.iter().all(|&byte| byte == 0xee),
            "bytes behind the message"
        );
        if received == Some(Outcome::Whole) {
            assert!(written == self.order.bytes, "wrong bytes");
            assert_eq!(inn.recv.immediate(), self.order.immediate);
        }
    }
}

/// Runs a mix to its end.
fn run(seed: u64) {
    let rng = &mut SplitMix::new(seed);
    let mut world = random_world(seed, rng);
    let mut courses = [Course::new(Way::Forth), Course::new(Way::Back)];
    let interferes = rng.chance(0.5);
    for _ in 0..rng.within(10..150) {
        let course = &mut courses[usize::from(rng.chance(0.3))];
        match rng.within(0..20) {
            0..8 => course.post_send(&mut world, rng),
            8..16 => course.post_recv(&mut world, rng),
            16 if interferes => course.interfere(&mut world, rng),
            17 if rng.chance(0.2) => {
                world.set_down(true);
                world.run_for(rng.within(1..2_000) * MS);
                world.set_down(false);
            }
            _ => world.run_for(rng.within(0..50) * MS),
        }
    }
    let limit_ns = world.now_ns() + 600 * SECOND;
    while !courses.iter().all(Course::is_over) {
        if world.now_ns() >= limit_ns {
            let open = courses.iter().map(Course::describe).collect::<String>();
            panic!(
                "not over in time:{open}
a {:?}
b {:?}",
                world.a.stats(),
                world.b.stats()
            );
        }
        for course in &mut courses {
            while course.sends < course.errands.len() {
                let before = course.sends;
                course.post_send(&mut world, rng);
                if course.sends == before {
                    break;
                }
            }
            while course.recvs < course.errands.len() {
                let before = course.recvs;
                course.post_recv(&mut world, rng);
                if course.recvs == before {
                    break;
                }
            }
        }
        world.run_for(10 * MS);
    }
    let (mut outs, mut inns) = (Vec::new(), Vec::new());
    for errand in courses.into_iter().flat_map(|course| course.errands) {
        errand.check(&mut world);
        outs.extend(errand.out.map(|out| (errand.order.way, out)));
        inns.extend(errand.inn.map(|inn| (errand.order.way, inn)));
    }
    println!("{} messages in {} ms", outs.len(), world.now_ns() / MS);
    world.close(outs, inns);
}

#[test]
fn random_mixes_of_everything() {
    seeds::each("random_mixes", 40, run);
}
