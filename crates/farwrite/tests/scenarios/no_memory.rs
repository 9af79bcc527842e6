//! Coded messages where there is no memory for their parity.

use farwrite::{Outcome, QpOptions, SendOptions};
use farwrite_link::{LinkConfig, Loss};

use crate::parcel::Order;
use crate::seeds::Dice;
use crate::slow_world::SlowWorld;
use crate::world::{SECOND, World, long_haul, options, tag};

const CODED: &str = "ec-mds:32,8";
const BYTES: usize = 1 << 20;

#[test]
fn a_message_goes_without_parity_where_a_fabric_has_no_room_and_others_go_on() {
    for starved in ["sender", "receiver"] {
        let mut world = SlowWorld::new(&[options(), options()]);
        let (a, b) = (&mut world.a, &mut world.b);
        let source = a.endpoint.register(vec![7; BYTES]).expect("room");
        let mut post = |index: usize, scheme: &str| {
            let target = b.endpoint.register(vec![0; BYTES]).expect("room");
            let recv = b.endpoint.post_recv(b.qps[index], target.whole());
            recv.expect("a free slot");
            let send = SendOptions {
                scheme: tag(scheme),
                immediate: None,
            };
            let send = a.endpoint.post_send(a.qps[index], source.whole(), send);
            send.expect("a free slot")
        };
        let sends = [post(0, CODED), post(1, "sr-nack")];
        match starved {
            "sender" => world.a.controls.is_out_of_memory.set(true),
            _ => world.b.controls.is_out_of_memory.set(true),
        }
        let over = |_: &mut SlowWorld| sends.iter().all(|send| send.outcome().is_some());
        assert!(world.run_until(SECOND, over), "{starved}: not over");
        for send in sends {
            assert_eq!(send.outcome(), Some(Outcome::Whole), "{starved}");
        }
    }
}

#[test]
fn a_scheme_with_more_parity_than_was_expected_goes_without_once() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        ..long_haul()
    };
    let expecting = QpOptions {
        expected_scheme: tag("ec-mds:32,1"),
        ..options()
    };
    let mut world = World::with_links(3, lossy, long_haul(), &expecting);
    let mut rebuilt = Vec::new();
    for scheme in [CODED, CODED, "ec-mds:32,4", CODED] {
        let parcel = world.ship(Order::new(Dice::new(1).bytes(BYTES), tag(scheme)));
        world.deliver(std::slice::from_ref(&parcel), SECOND);
        world.check(&parcel);
        world.forget(parcel);
        rebuilt.push(world.b.stats().rebuilt_chunks);
    }
    assert_eq!(rebuilt[0], 0, "there was memory for an eighth of it");
    let grows = rebuilt.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(grows, "{rebuilt:?}");
    world.finish(vec![]);
}
