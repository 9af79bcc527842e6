//! An attacker who sees every packet, can drop, delay, repeat, redirect and reflect it, and can
//! send from any address.

use std::collections::HashMap;
use std::net::SocketAddr;

use proptest::prelude::*;

use crate::world::{DELAY, Datagram, MS, Traffic, World, addr, public_responder};

/// IP and UDP headers.
const HEADERS: usize = 48;

fn victim() -> SocketAddr {
    addr("203.0.113.9:53")
}

/// What the attacker does with a packet.
#[derive(Clone, Copy, Debug)]
enum Act {
    Deliver,
    Drop,
    /// Deliver it after later packets.
    Delay(u8),
    Twice,
    /// Deliver it with the victim's source address.
    Spoof,
    SpoofAndDeliver,
    /// Send it back to its sender.
    Reflect,
    Damage(u8),
    /// Deliver an old packet again, with the victim's source address.
    Replay(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => Just(Act::Deliver),
        1 => Just(Act::Drop),
        1 => any::<u8>().prop_map(Act::Delay),
        1 => Just(Act::Twice),
        1 => Just(Act::Spoof),
        1 => Just(Act::SpoofAndDeliver),
        1 => Just(Act::Reflect),
        1 => any::<u8>().prop_map(Act::Damage),
        1 => any::<u8>().prop_map(Act::Replay),
    ]
}

/// Bytes on the wire from and to addresses that belong to neither end.
#[derive(Default)]
struct Ledger {
    from: HashMap<SocketAddr, usize>,
    to: HashMap<SocketAddr, usize>,
}

struct Attacker {
    seen: Vec<Datagram>,
    delayed: Vec<Datagram>,
    ledger: Ledger,
}

impl Attacker {
    fn pose_as_victim(&mut self, world: &mut World, mut datagram: Datagram) {
        datagram.src = victim();
        *self.ledger.from.entry(victim()).or_default() += datagram.bytes.len() + HEADERS;
        world.deliver(&datagram);
    }

    fn act(&mut self, world: &mut World, act: Act, datagram: Datagram) {
        self.seen.push(datagram.clone());
        match act {
            Act::Deliver => world.deliver(&datagram),
            Act::Drop => {}
            Act::Delay(by) => {
                let at = world.now + u64::from(by) * 4 * MS;
                self.delayed.push(Datagram { at, ..datagram });
            }
            Act::Twice => {
                world.deliver(&datagram);
                world.deliver(&datagram);
            }
            Act::Spoof => self.pose_as_victim(world, datagram),
            Act::SpoofAndDeliver => {
                self.pose_as_victim(world, datagram.clone());
                world.deliver(&datagram);
            }
            Act::Reflect => {
                let (src, dst) = (datagram.dst, datagram.src);
                world.deliver(&Datagram {
                    src,
                    dst,
                    ..datagram
                });
            }
            Act::Damage(at) => {
                let mut datagram = datagram;
                // Flip a bit that the tag covers.
                datagram.bytes[usize::from(at) % 76] ^= 1 << (at % 8);
                world.deliver(&datagram);
            }
            Act::Replay(back) => {
                world.deliver(&datagram);
                let at = self.seen.len() - 1 - usize::from(back) % self.seen.len();
                let old = self.seen[at].clone();
                self.pose_as_victim(world, old);
            }
        }
        let now = world.now;
        let late: Vec<_> = self.delayed.extract_if(.., |d| d.at <= now).collect();
        late.iter().for_each(|datagram| world.deliver(datagram));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The route always leads to the initiator, and no other address gets more bytes than were sent
    /// with it as source.
    #[test]
    fn nobody_moves_the_route_or_uses_it_against_others(
        acts in proptest::collection::vec(act(), 1..400),
        rebinds in proptest::bool::ANY,
    ) {
        let mut world = World::new();
        let mut attacker = Attacker {
            seen: Vec::new(),
            delayed: Vec::new(),
            ledger: Ledger::default(),
        };
        let mut mappings = vec![world.mapped];
        let mut acts = acts.into_iter();
        let mut steps = 0;
        while acts.len() > 0 && steps < 20_000 {
            steps += 1;
            for datagram in world.poll() {
                if datagram.dst == victim() {
                    *attacker.ledger.to.entry(victim()).or_default() += datagram.bytes.len() + HEADERS;
                    continue;
                }
                let act = acts.next().unwrap_or(Act::Deliver);
                attacker.act(&mut world, act, datagram);
            }
            world.now += 5 * MS;
            world.send_data();
            if rebinds && steps == 400 {
                world.mapped = addr("192.0.2.1:40777");
                mappings.push(world.mapped);
            }
            let [near, far] = world.routes();
            if let Some(far) = far {
                prop_assert!(mappings.contains(&far.peer), "{far:?}");
                let seen = far.sealed_as.map(|(src, _)| src);
                prop_assert_eq!(seen, Some(public_responder()));
            }
            if let Some(near) = near {
                prop_assert_eq!(near.peer, public_responder());
                // An end that is not heard tries its own addresses, too.
                let seen = near.sealed_as.map(|(src, _)| src);
                prop_assert!(seen.is_none_or(|src| mappings.contains(&src)), "{near:?}");
            }
            let sent = attacker.ledger.to.get(&victim()).copied().unwrap_or(0);
            let came = attacker.ledger.from.get(&victim()).copied().unwrap_or(0);
            prop_assert!(sent <= came, "{sent} bytes to the victim, {came} in its name");
        }
    }

    /// An attacker who forwards packets both ways can make its own address answer. The route does
    /// not move there while the initiator's own address answers too.
    #[test]
    fn a_relay_does_not_take_over_a_route_that_is_alive(
        redirected in proptest::collection::vec(proptest::bool::ANY, 64),
    ) {
        let mut world = World::new();
        world.run(1000 * MS, |_| true);
        let relay = addr("203.0.113.9:4000");
        let mut number = 0;
        for _ in 0..2000 {
            for mut datagram in world.poll() {
                if datagram.dst == relay {
                    datagram.dst = world.mapped;
                } else if datagram.dst == public_responder() {
                    number += 1;
                    if number % 4 > 0 && redirected[number % redirected.len()] {
                        // The copy overtakes the original, which arrives too.
                        let first = Datagram { src: relay, ..datagram.clone() };
                        world.deliver(&first);
                    }
                }
                world.deliver(&datagram);
            }
            world.now += 5 * MS;
            world.send_data();
            let [near, far] = world.right_routes();
            prop_assert_eq!(world.responder.addresses(), far);
            prop_assert_eq!(world.initiator.addresses(), near);
        }
    }
}

/// What an attacker changes for a second while the ends send packets of queue pairs as `sends` says: the bytes that
/// no tag covers, as a relay would that puts ICRCs right, or at random. Returns how long the route needed after that.
fn recovery(seed: u64, explains: bool, sends: impl Fn(u64) -> [bool; 2], begins: u64) -> u64 {
    let mut rng = farwrite_rng::SplitMix::new(seed);
    let mut world = World::new();
    let mut traffic = Traffic::default();
    let ends = begins + 1000 * MS;
    while world.now < ends {
        let is_active = (begins..ends).contains(&world.now);
        let sending = match world.now < 200 * MS {
            true => [false; 2],
            false => sends(world.now),
        };
        traffic.step(&mut world, sending, |world, datagram| {
            let end = datagram.bytes.len();
            match (is_active, explains) {
                (true, true) => world.reseal(datagram),
                (true, false) => datagram.bytes[end - 4..].copy_from_slice(&rng.bytes(4)),
                (false, _) => {}
            }
        });
    }
    let (left, mut before) = (world.now, traffic.verified);
    // Everything moves again when all packets of two seconds are verified.
    let mut last_lost = left;
    while world.now < last_lost + 2000 * MS {
        assert!(
            world.now < left + 20_000 * MS,
            "{:?} {explains} {begins}",
            world.routes()
        );
        let sending = sends(world.now);
        traffic.step(&mut world, sending, |_, _| {});
        let sent = sends(world.now - DELAY);
        if (0..2).any(|to| sent[1 - to] && traffic.verified[to] == before[to]) {
            last_lost = world.now;
        }
        before = traffic.verified;
    }
    last_lost - left
}

/// An attacker who knows all bytes without a tag, changes them for a second and leaves, holds up nothing for long.
#[test]
fn changed_trailers_hold_up_packets_of_queue_pairs_for_seconds_at_most() {
    // Both ends send, one of them, or each seldom, as after long silence.
    let both = |_: u64| [true; 2];
    let forth = |_: u64| [true, false];
    let back = |_: u64| [false, true];
    let seldom = |now: u64| [0, 500 * MS].map(|phase| now % (1000 * MS) == phase);
    for begins in [0, 2000 * MS, 14_500 * MS] {
        for explains in [false, true] {
            for seed in 0..2 {
                for took in [
                    recovery(seed, explains, both, begins),
                    recovery(seed, explains, forth, begins),
                    recovery(seed, explains, back, begins),
                ] {
                    assert!(took <= 5400 * MS, "{took} {begins} {explains}");
                }
                let took = recovery(seed, explains, seldom, begins);
                assert!(took <= 7000 * MS, "seldom: {took} {begins} {explains}");
            }
        }
    }
}
