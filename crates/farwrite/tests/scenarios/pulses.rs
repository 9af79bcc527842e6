//! Short messages that are far apart, such as the notices of a session (P12.6).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use farwrite::fabric::sim::Verdict;
use farwrite::{QpConfig, QpOptions};
use farwrite_link::LinkConfig;
use farwrite_wire::control::Control;

use crate::parcel::{Order, Parcel};
use crate::world::{MS, Way, World, tag};

/// The receives that are posted ahead, as a session has them (P12.5).
const AHEAD: usize = 16;
const MESSAGES: u64 = 20;
const PERIOD: u64 = 450 * MS;

fn name(control: &Control) -> &'static str {
    match control {
        Control::Offer(_) => "offer",
        Control::ClearToSend(cts) if cts.clearances.is_empty() => "answer",
        Control::ClearToSend(_) => "clearance",
        Control::Ack(_) => "ack",
        Control::ReceiveComplete { .. } => "end",
        Control::PeerFeedback(_) => "report",
        _ => "other",
    }
}

/// Returns how many control packets such messages take, by way and content.
fn controls(delay: Duration) -> BTreeMap<String, u64> {
    let options = QpOptions {
        sdr: QpConfig {
            mtu: 1024,
            slots: 32,
            parity: false,
            max_message_bytes: 4096,
            ..QpConfig::default()
        },
        ..QpOptions::default()
    };
    let link = LinkConfig {
        delay,
        ..LinkConfig::default()
    };
    let mut world = World::new(1, link, &options);
    let post = |world: &mut World| world.post_recv(Way::Forth, 100).expect("a free slot");
    let mut inns: VecDeque<_> = (0..AHEAD).map(|_| post(&mut world)).collect();
    let counts: Rc<RefCell<BTreeMap<String, u64>>> = Rc::default();
    for number in 0..=MESSAGES {
        // The first message shows that the sender has the clearances.
        if number == 1 {
            let counts = Rc::clone(&counts);
            world.traffic.filter(move |seen| {
                if let Some(control) = &seen.control {
                    let names: Vec<_> = control.iter().map(name).collect();
                    let name = format!("{:?} {}", seen.way, names.join(" "));
                    *counts.borrow_mut().entry(name).or_default() += 1;
                }
                Verdict::Pass
            });
        }
        let end_ns = world.now_ns() + PERIOD;
        let order = Order::new(vec![7; 40], tag("sr-nack"));
        let out = world.post_send(&order).expect("a free slot");
        let inn = inns.pop_front().expect("one more");
        let came = world.run_until(end_ns, |_| inn.recv.outcome().is_some());
        assert!(came, "message {number} has not arrived");
        inns.push_back(post(&mut world));
        world.run_until(end_ns, |_| false);
        let parcel = Parcel { order, out, inn };
        world.check(&parcel);
        world.forget(parcel);
    }
    world.traffic.pass_all();
    counts.take()
}

#[test]
fn a_clearance_that_is_not_needed_yet_is_repeated_once() {
    for delay_us in [50, 5_000, 50_000] {
        let controls = controls(Duration::from_micros(delay_us));
        let total: u64 = controls.values().sum();
        println!("{delay_us} us, {MESSAGES} messages: {total} control packets, {controls:#?}");
        let has_clearance = controls
            .iter()
            .filter(|(name, _)| name.contains("clearance"));
        let clearances: u64 = has_clearance.map(|(_, count)| count).sum();
        assert_eq!(clearances, 2 * MESSAGES);
    }
}
