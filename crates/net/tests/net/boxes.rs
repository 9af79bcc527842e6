//! Devices in the path.

use crate::common::{cable, frame, got, hosts, network, send};
use farwrite_net::{CableId, Options, Output, Role, Shape};

#[test]
fn a_box_adds_its_cable_and_routes_pass_it_as_if_it_were_not_there() {
    let shape = Shape::Dumbbell {
        left: 1,
        right: 1,
        host_cable: cable(100, 1000),
        middle_cable: cable(100, 1000),
    };
    let mut topology = shape.build().unwrap();
    let ends = hosts(&topology);
    let [left, right] = ["left", "right"].map(|name| topology.find(name).unwrap());
    let middle = topology.cable_between(left, right).unwrap();
    let at = topology.insert_box(middle, right, "box");
    assert_eq!(topology.nodes()[at.0 as usize].role, Role::Box);
    let mut network = network(&topology, &Options::default(), 1);
    send(&mut network, 0, [frame(ends[0], ends[1], 0, 1000)]);
    send(&mut network, 0, [frame(ends[1], ends[0], 0, 1000)]);
    network.run();
    for end in ends {
        // Three cables, and the short one after the box.
        assert_eq!(got(&network, end)[0].0, 3 * 1087 + 87);
    }
    // The box received each frame and sent it again.
    assert_eq!((network.sent(), network.delivered()), (4, 4));
}

#[test]
fn a_box_can_stop_the_hosts_before_it() {
    let mut topology = Shape::PointToPoint {
        cable: cable(100, 1000),
    }
    .build()
    .unwrap();
    let ends = hosts(&topology);
    let at = topology.insert_box(CableId(0), ends[1], "box");
    let mut network = network(&topology, &Options::default(), 1);
    let ask = |stop| Output::Pause {
        port: 0,
        priority: 0,
        stop,
    };
    network.device_mut(at).unwrap().outputs.push_back(ask(true));
    send(&mut network, 10_000, [frame(ends[0], ends[1], 0, 1000)]);
    network.run_until(50_000);
    assert!(got(&network, ends[1]).is_empty());
    assert_eq!(network.totals().stopped_ns, 50_000 - 1007);
    network
        .device_mut(at)
        .unwrap()
        .outputs
        .push_back(ask(false));
    network.run();
    assert_eq!(network.totals().stopped_ns, 50_000);
    // The PFC frame takes its 84 bytes (6.72 ns) and the delay of the cable.
    assert_eq!(got(&network, ends[1])[0].0, 50_000 + 1007 + 1087 + 87);
}
