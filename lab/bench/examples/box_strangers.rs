//! Processor time of a box for packets of strangers: for connections that a program invents, and for the
//! check of the ICRC, beside the time for a packet of a connection in use. `lab/results/boxes.md` has the numbers.

#[path = "../../../crates/boxes/tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use common::{IPV4, ack, addresses, frame, offset, packet_of, payload};
use farwrite_boxes::lowar::{Config, Lowar};
use farwrite_boxes::netrt::{self, NetRt};
use farwrite_boxes::{Middlebox, Side};
use farwrite_wire::icrc::{Flow, IdRange, verify};

/// RC RDMA WRITE Middle.
const MIDDLE: u8 = 0x07;
const PAYLOAD_BYTES: u32 = 1024;
/// Places of the table of connections.
const PLACES: u32 = 50_000;
/// More connections than places, and invented for longer than idle ones stay.
const INVENTED: u32 = 61_000;
/// Packets of a measurement.
const PACKETS: u32 = 2_000;
/// Between two packets: 6,000 in a second.
const GAP_NS: u64 = 166_667;

fn main() {
    let lowar = Config {
        max_connections: PLACES as usize,
        ..Config::default()
    };
    let netrt = netrt::Config {
        max_connections: PLACES as usize,
        ..netrt::Config::new(10_000_000_000, 100_000)
    };
    println!("ns a packet of {PAYLOAD_BYTES} bytes, {PLACES} places for connections");
    println!("{:<8}{:<44}{:>10}{:>14}", "", "", "median", "p99");
    measure::<Lowar>("LoWAR", &lowar);
    measure::<NetRt>("NetRT", &netrt);
    for (name, frame) in [("data", packet(1, 0)), ("acknowledgement", ack(IPV4, 1))] {
        let times: Vec<_> = (0..PACKETS).map(|_| check(&frame)).collect();
        show("", &format!("ICRC of a packet: {name}"), &times);
    }
}

/// A packet from a source with this number.
fn packet(qpn: u32, psn: u32) -> Vec<u8> {
    let bytes = payload(MIDDLE, psn, PAYLOAD_BYTES, 0);
    packet_of(66, IpAddr::from([192, 0, 2, 66]), qpn, bytes)
}

fn measure<B: Middlebox>(name: &str, config: &B::Config) {
    let mut inner = B::new(config, 1);
    let mut now_ns = 0;
    let mut give = |frame: Vec<u8>| {
        now_ns += GAP_NS;
        let start = Instant::now();
        inner.handle(now_ns, Side::Near, frame);
        while let Some(sent) = inner.poll() {
            black_box(sent);
        }
        let took = start.elapsed();
        if inner.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            inner.handle_timeout(now_ns);
            while inner.poll().is_some() {}
        }
        took
    };
    let own = |psn| frame(IPV4, 7, payload(MIDDLE, psn, PAYLOAD_BYTES, 0));
    let times: Vec<_> = (0..PACKETS).map(|psn| give(own(psn))).collect();
    show(name, "a connection in use, nothing else", &times);
    let invented: Vec<_> = (0..INVENTED).map(|qpn| give(packet(qpn, 0))).collect();
    show(
        name,
        "invented connections, until the table is full",
        &invented,
    );
    let invented: Vec<_> = (0..PACKETS)
        .map(|qpn| give(packet(2 * INVENTED + qpn, 0)))
        .collect();
    show(name, "invented connections afterwards", &invented);
    let damaged = |qpn| {
        let mut frame = packet(3 * INVENTED + qpn, 0);
        *frame.last_mut().expect("bytes") ^= 1;
        frame
    };
    let times: Vec<_> = (0..PACKETS).map(|qpn| give(damaged(qpn))).collect();
    show(name, "the same with wrong ICRCs", &times);
}

fn check(frame: &[u8]) -> Duration {
    let (src, dst) = addresses(IPV4);
    let flow = Flow::new(src, dst).expect("addresses of one family");
    let start = Instant::now();
    let _ = black_box(verify(
        &flow,
        black_box(&frame[offset(IPV4)..]),
        0,
        IdRange::SOFTWARE,
    ));
    start.elapsed()
}

/// The median, because other programs interrupt some measurements, and the 99th percentile.
fn show(name: &str, what: &str, times: &[Duration]) {
    let mut times = times.to_vec();
    times.sort_unstable();
    let [median, high] = [50, 99].map(|percent| times[times.len() * percent / 100].as_nanos());
    println!("{name:<8}{what:<44}{median:>10}{high:>14}");
}
