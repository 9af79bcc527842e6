//! A model whose layers are on two ranks: sends to the next rank, and short answers back.

use std::time::Duration;

use farwrite::RateControl;
use farwrite::fabric::sim::{LinkConfig, Loss};
use farwrite_collectives::{Buffers, GroupOptions, Operation, OperationOptions};

use crate::world::{MS, SECOND, World};

/// The bytes of the hidden values of 8 prompts, of one more byte of each, and of the answers.
const PROMPTS: usize = 1 << 20;
const HIDDEN: usize = 4096;
const ANSWERS: usize = 64;
const REQUESTS: usize = 9;

/// Sends bytes between two ranks, and waits until they have arrived.
fn send(world: &mut World, from: usize, to: usize, bytes: usize) {
    let (receive, send) = (
        Operation::Receive { from, tag: 0 },
        Operation::Send { to, tag: 0 },
    );
    let output = Buffers::in_place(vec![0; bytes]);
    world.start(to, &receive, OperationOptions::default(), output);
    let input = Buffers {
        input: Some(vec![7; bytes].into()),
        output: None,
    };
    world.start(from, &send, OperationOptions::default(), input);
    assert!(
        world.run(SECOND, |world| world.finished(to) > 0),
        "it hangs"
    );
    for rank in [from, to] {
        for ended in world.take(rank) {
            ended.expect("it succeeds");
        }
    }
}

/// Returns how long the requests after the first one take, in nanoseconds.
fn duration_ns(scheme: &str, loss_packet: f64) -> u64 {
    let options = GroupOptions {
        scheme: scheme.parse().expect("a scheme"),
        rate_control: RateControl::default(),
        ..GroupOptions::default()
    };
    let link = LinkConfig {
        delay: Duration::from_millis(5),
        rate_bps: Some(1_000_000_000),
        loss: Loss::Iid { loss_packet },
        ..LinkConfig::default()
    };
    let mut world = World::new(1, 2, link, &options);
    let mut start_ns = 0;
    for request in 0..REQUESTS {
        if request == 1 {
            start_ns = world.network.now_ns();
        }
        for bytes in std::iter::once(PROMPTS).chain([HIDDEN; 7]) {
            send(&mut world, 0, 1, bytes);
            send(&mut world, 1, 0, ANSWERS);
        }
    }
    world.network.now_ns() - start_ns
}

/// Most of the parity of a short message arrives when the message is over. If that never left the
/// flight, the next message would wait for a timeout of 100 ms.
#[test]
fn parity_does_not_slow_a_pipeline_down() {
    for loss in [0.0, 0.01] {
        let repeating_ns = duration_ns("sr-nack", loss);
        for scheme in ["ec-mds:32,8", "ec-xor:32,8"] {
            let coded_ns = duration_ns(scheme, loss);
            let [coded, repeating] = [coded_ns / MS, repeating_ns / MS];
            let what = format!("{scheme}, loss {loss}: {coded} ms; sr-nack {repeating} ms");
            println!("{what}");
            assert!(coded_ns < repeating_ns * 13 / 10, "{what}");
        }
    }
}
