//! Many NICs behind top-of-rack switches with NetRT boxes: incast, spraying, faults in mid-flow.

use crate::racks;
use farwrite_boxes::netrt::Config;
use farwrite_net::Policy;
use racks::{Outcome, Racks, Repair, Scene};

const DRILL: Policy = Policy::Drill { d: 2, m: 1 };

fn run(scene: &Scene, repair: &Repair) -> Outcome {
    Racks::new(scene, repair, None, 1).run(scene, |_, _| {})
}

/// A part of claim N9. The example `netrt` of crate `bench` has more paths and seeds.
#[test]
fn sprayed_packets_are_not_repeated_by_nics() {
    for spines in [2, 8] {
        let scene = Scene::spines(spines, DRILL);
        let plain = run(&scene, &Repair::Gbn);
        assert!(plain.repeated > 500, "{plain:?}");
        for delay_ns in [0, 5_000] {
            let config = Config {
                request_delay_ns: delay_ns,
                ..scene.netrt(1)
            };
            let boxes = run(&scene, &Repair::NetRt(config));
            assert_eq!((boxes.repeated, boxes.out_of_order), (0, 0), "{boxes:?}");
            assert!(boxes.mean_us() < plain.mean_us());
            // No packet is lost, so with the delay almost none is requested.
            let wanted = if delay_ns == 0 { 1..1000 } else { 0..20 };
            assert!(wanted.contains(&boxes.boxes.requests_sent), "{boxes:?}");
        }
    }
}

/// A part of claim N8, with one seed.
#[test]
fn incast_completes_sooner_than_with_go_back_n_alone() {
    let scene = Scene::incast(15);
    let plain = run(&scene, &Repair::Gbn);
    let boxes = run(&scene, &Repair::NetRt(scene.netrt(32)));
    assert!(plain.repeated > 0 && boxes.repeated == 0, "{boxes:?}");
    assert!(boxes.mean_us() < 0.66 * plain.mean_us());
    // Bursts of losses pause their senders.
    assert!(boxes.boxes.pauses > 0, "{boxes:?}");
    let [pfc, irn] = [Repair::GbnPfc, Repair::Irn].map(|repair| run(&scene, &repair));
    assert_eq!((pfc.repeated, pfc.dropped), (0, 0));
    assert!(pfc.mean_us() < plain.mean_us() && irn.mean_us() < plain.mean_us());
}

/// Without a window, NICs repeat more than they send: the example `netrt` of crate `bench`, part `window`.
#[test]
fn a_pool_of_one_bdp_is_enough_for_senders_with_this_window() {
    let scene = Scene {
        buffer_bytes: 512 << 10,
        window_packets: Some(Scene::incast(15).path().round_trip_packets()),
        ..Scene::incast(15)
    };
    let plain = run(&scene, &Repair::Gbn);
    let boxes = run(&scene, &Repair::NetRt(scene.netrt(1)));
    assert!(plain.repeated > 500, "{plain:?}");
    assert_eq!((boxes.repeated, boxes.timeouts), (0, 0), "{boxes:?}");
    assert!(boxes.boxes.recovered > 100, "{boxes:?}");
    assert!(
        boxes.mean_us() < 0.66 * plain.mean_us(),
        "{boxes:?} {plain:?}"
    );
}

/// A part of claim N6.
#[test]
fn losses_hardly_change_the_completion_time() {
    let time = |loss| {
        let scene = Scene::chain(100_000, loss, 50);
        let boxes = run(&scene, &Repair::NetRt(scene.netrt(1)));
        assert_eq!((boxes.repeated, boxes.timeouts), (0, 0), "{boxes:?}");
        (boxes.mean_us(), run(&scene, &Repair::Gbn).mean_us())
    };
    let ((few, _), (many, plain)) = (time(0.001), time(0.05));
    assert!(
        many < 2.0 * few && many < 0.5 * plain,
        "{few} {many} {plain}"
    );
}

#[test]
fn nothing_is_held_after_an_incast() {
    let scene = Scene::incast(30);
    let mut racks = Racks::new(&scene, &Repair::NetRt(scene.netrt(4)), None, 1);
    racks.run(&scene, |_, _| {});
    let now_ns = racks.network.now_ns();
    racks.network.run_until(now_ns + 10_000_000);
    for at in 0..=scene.senders {
        let inner = racks.path_box(at).unwrap().inner();
        assert_eq!(inner.held_bytes(), 0);
    }
}

#[test]
fn an_incast_completes_without_a_box_and_when_boxes_restart() {
    let scene = Scene {
        buffer_bytes: 2 << 20,
        ..Scene::incast(15)
    };
    let repair = Repair::NetRt(scene.netrt(4));
    for missing in [0, scene.senders] {
        Racks::new(&scene, &repair, Some(missing), 2).run(&scene, |_, _| {});
    }
    let outcome = Racks::new(&scene, &repair, None, 2).run(&scene, |racks, step| {
        let at = usize::try_from(step).unwrap() % (scene.senders + 1);
        if let Some(device) = racks.path_box(at).filter(|_| step % 3 == 0) {
            device.restart();
        }
    });
    assert_eq!(outcome.fct_ns.len(), scene.senders);
}
