//! The contract suite over loopback sockets.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, RealTime};
use farwrite_fabric::udp::{SocketConfig, UdpConfig, UdpFabric};
use rustix::net::sockopt;

use crate::software::SoftwareWorld;
use crate::suite::World;

/// Fabrics bound to free ports of one address.
struct UdpWorld {
    socket: SocketConfig,
    stranger: UdpSocket,
    /// Whether threads send.
    has_threads: bool,
}

impl UdpWorld {
    fn new(bind: &str, offload: bool) -> Self {
        let socket = SocketConfig {
            offload,
            ..SocketConfig::new(bind.parse().unwrap())
        };
        let ports = 1;
        let any = UdpFabric::bind(&UdpConfig { socket, ports }).unwrap();
        let stranger = UdpSocket::bind((any.local_addr(0).ip(), 0)).unwrap();
        Self {
            socket,
            stranger,
            has_threads: false,
        }
    }

    /// A world whose fabrics send on threads.
    fn with_threads(bind: &str, offload: bool) -> Self {
        Self {
            has_threads: true,
            ..Self::new(bind, offload)
        }
    }
}

impl World for UdpWorld {
    type Fabric = UdpFabric;

    fn end(&mut self, ports: u16) -> Adapter<UdpFabric> {
        let socket = self.socket;
        let fabric = UdpFabric::bind(&UdpConfig { socket, ports }).unwrap();
        let mut end = Adapter::new(fabric).unwrap();
        if self.has_threads {
            let owner = end.waker();
            end.start_send_threads(&owner).unwrap();
            end.start_send_threads(&owner).expect("they run already");
        }
        end
    }

    fn step(&mut self) {
        std::thread::sleep(Duration::from_micros(50));
    }

    fn stranger(&self) -> SocketAddr {
        self.stranger.local_addr().unwrap()
    }
}

impl SoftwareWorld for UdpWorld {
    fn forge(&mut self, to: SocketAddr, payload: &[u8], tos: u8) {
        match to {
            SocketAddr::V4(_) => sockopt::set_ip_tos(&self.stranger, tos),
            SocketAddr::V6(_) => sockopt::set_ipv6_tclass(&self.stranger, tos.into()),
        }
        .unwrap();
        let sent = self.stranger.send_to(payload, to).unwrap();
        assert_eq!(sent, payload.len());
    }
}

mod v4 {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("127.0.0.1:0", true));
    crate::software::software_tests!(crate::udp::UdpWorld::new("127.0.0.1:0", true));
}

mod v6 {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("[::1]:0", true));
    crate::software::software_tests!(crate::udp::UdpWorld::new("[::1]:0", true));
}

mod wildcard {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("0.0.0.0:0", true));
    crate::software::software_tests!(crate::udp::UdpWorld::new("0.0.0.0:0", true));
}

mod dual_stack_wildcard {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("[::]:0", true));
    crate::software::software_tests!(crate::udp::UdpWorld::new("[::]:0", true));
}

mod without_offloads {
    crate::suite::contract_tests!(crate::udp::UdpWorld::new("127.0.0.1:0", false));
    crate::software::software_tests!(crate::udp::UdpWorld::new("127.0.0.1:0", false));
}

/// All tests but those of errors that a post returns: with threads, they come later.
mod send_threads {
    use farwrite_fabric::Adapter;
    use farwrite_fabric::contract::{RealTime, RemotePlace, Rkey, WriteWr};
    use farwrite_fabric::udp::{UdpConfig, UdpFabric};

    use super::UdpWorld;
    use crate::suite::{Pair, departures, joined, post, write};

    /// Writes that were posted before the threads started depart all the same.
    #[test]
    fn earlier_departures() {
        let mut world = UdpWorld::new("127.0.0.1:0", true);
        let (socket, ports) = (world.socket, 1);
        let ends = [(); 2].map(|()| UdpFabric::bind(&UdpConfig { socket, ports }).unwrap());
        let [mut a, mut b] = ends.map(|fabric| Adapter::new(fabric).unwrap());
        let (qa, _) = joined(&mut a, &mut b, 0);
        let place = RemotePlace {
            addr: 0,
            rkey: Rkey(1),
        };
        let posted = WriteWr {
            wr_id: 7,
            signaled: true,
            ..write(&[], place, 0)
        };
        post(&mut a, qa, &posted);
        let owner = a.waker();
        a.start_send_threads(&owner).unwrap();
        assert_eq!(departures(&mut world, &mut a, 1)[0].wr_id, 7);
    }

    /// SENDs that were accepted leave, although their queue pair is destroyed at once.
    #[test]
    fn last_sends() {
        let mut world = UdpWorld::with_threads("127.0.0.1:0", true);
        let mut pair = Pair::new(&mut world);
        for _ in 0..60 {
            assert!(pair.a.post_send(pair.qa, &[1]).unwrap());
        }
        pair.a.destroy_qp(pair.qa).unwrap();
        pair.arrivals(60);
    }

    crate::suite::contract_tests! {
        @each suite, crate::udp::UdpWorld::with_threads("127.0.0.1:0", true),
        memory: [
            comes_and_goes, copies_stay_in_bounds, in_use_while_a_window_is_open,
            a_callers_memory, read_only, comes_back_after_departure, sent_while_a_peer_may_write, ghosts,
        ],
        queue_pairs: [
            attributes, halves_are_handed_out_once, connecting, destroying,
            completions_wait, contexts, several_ports, both_directions,
            only_control_takes_sends, a_new_route,
        ],
        sends: [every_length],
        windows: [
            bounds, bounds_of_opening, several_onto_one_region, slots_are_apart, straddling,
            late_packets_write_nothing, closed_after_the_batch, a_slot_is_free_at_once,
            closing_twice, destroying_a_set,
            guessed_keys, keys_of_other_queue_pairs, attributes,
        ],
        writes: [
            land_where_sent, every_length, zero_length, in_bulk, departures,
            departures_of_many_queue_pairs,
        ],
    }
}
