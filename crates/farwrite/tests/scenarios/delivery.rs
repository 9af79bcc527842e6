//! Messages arrive whole, whatever the path does.

use farwrite::Outcome;
use farwrite_link::{LinkConfig, Loss};

use crate::world::{SECOND, World, long_haul, options, pattern, tag};

#[test]
fn a_lossless_message_takes_its_injection_and_a_round_trip() {
    for scheme in ["sr-rto", "sr-nack", "gbn"] {
        let mut world = World::new(1, long_haul(), &options());
        let bytes = pattern(1, 8 << 20);
        let transfer = world.transfer(&bytes, tag(scheme), 10 * SECOND);
        assert_eq!(transfer.send.outcome(), Some(Outcome::Whole), "{scheme}");
        assert_eq!(transfer.recv.outcome(), Some(Outcome::Whole), "{scheme}");
        assert_eq!(world.b.endpoint.memory(transfer.target).unwrap(), bytes);
        let stats = world.a.endpoint.qp_stats(world.a.qp).unwrap();
        println!("{scheme}: {} us, {stats:?}", transfer.took_ns / 1000);
        assert_eq!(stats.sender.retransmitted_chunks, 0, "{scheme}");
    }
}

#[test]
fn messages_arrive_whole_under_loss() {
    for scheme in ["sr-rto", "sr-nack", "gbn"] {
        for loss_packet in [0.001, 0.01, 0.05, 0.2] {
            let link = LinkConfig {
                loss: Loss::Iid { loss_packet },
                ..long_haul()
            };
            let mut world = World::new(7, link, &options());
            let bytes = pattern(7, 2 << 20);
            let transfer = world.transfer(&bytes, tag(scheme), 600 * SECOND);
            let stats = world.a.endpoint.qp_stats(world.a.qp).unwrap();
            println!(
                "{scheme} {loss_packet}: {} us, {:?}",
                transfer.took_ns / 1000,
                stats.sender
            );
            assert_eq!(
                transfer.send.outcome(),
                Some(Outcome::Whole),
                "{scheme} {loss_packet}"
            );
            assert_eq!(world.b.endpoint.memory(transfer.target).unwrap(), bytes);
        }
    }
}
