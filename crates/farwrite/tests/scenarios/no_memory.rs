//! Coded messages where there is no memory for their parity.

use farwrite::{Outcome, SendOptions};

use crate::slow_world::SlowWorld;
use crate::world::{SECOND, options, tag};

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
