//! A sweep over loss, stored as a table. The diff of the table shows the effect of a change on
//! whole endpoints.

use std::fmt::Write;

use farwrite::{QpOptions, RateControl};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;

use crate::parcel::Order;
use crate::world::{RTT, SCHEMES, SECOND, World, long_haul, options, tag};

const BYTES: usize = 4 << 20;
const RATE_BPS: u64 = 1_000_000_000;
const SEEDS: u64 = 4;
/// Header bytes of a packet of 4096 bytes: IP, UDP, BTH, RETH, immediate, ICRC.
const HEADERS: u64 = 64;

/// The results of a scheme on a path, summed over all seeds.
#[derive(Default)]
struct Row {
    took_ns: u64,
    sent: u64,
    again: u64,
    controls: u64,
}

fn row(scheme: &str, loss: Loss) -> Row {
    let link = LinkConfig {
        loss,
        ..long_haul()
    };
    let options = QpOptions {
        rate_control: RateControl::Fixed { rate_bps: RATE_BPS },
        burst_bytes: 8192,
        expected_scheme: tag(scheme),
        ..options()
    };
    let mut row = Row::default();
    for seed in 1..=SEEDS {
        let mut world = World::new(seed, link, &options);
        let parcel = world.ship(Order::new(SplitMix::new(seed).bytes(BYTES), tag(scheme)));
        row.took_ns += world.deliver(std::slice::from_ref(&parcel), 60 * SECOND);
        let sender = world.a.stats().sender;
        row.sent += sender.sent_chunks;
        row.again += sender.retransmitted_chunks;
        row.controls += world.traffic.tally().controls;
        world.check(&parcel);
    }
    row
}

/// Returns a table. For each scheme it has the completion time divided by the shortest possible
/// one; the percentage of retransmitted chunks; and the number of control packets in both
/// directions. All values are means over four seeds. The path holds three quarters of the message.
/// The receive is posted at the same time as the send.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn table() -> String {
    let packets = (BYTES / 4096) as u64;
    let wire_bits = (BYTES as u64 + packets * HEADERS) * 8;
    // The clear-to-send takes half a round trip. Data and the last ACK take a whole one.
    let shortest_ns = wire_bits * SECOND / RATE_BPS + RTT * 3 / 2;
    let mut table = String::from("loss           ");
    for scheme in SCHEMES {
        write!(table, " | {scheme:<11} again  ctl").expect("a string");
    }
    let burst = |share: f64| Loss::Markov {
        p_good_to_bad: 0.05 * share,
        p_bad_to_good: 0.05 * (1.0 - share),
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    let iid = |loss_packet| Loss::Iid { loss_packet };
    for (name, loss) in [
        ("none", Loss::None),
        ("0.1%", iid(0.001)),
        ("1%", iid(0.01)),
        ("5%", iid(0.05)),
        ("20%", iid(0.2)),
        ("1% in bursts", burst(0.01)),
        ("10% in bursts", burst(0.1)),
    ] {
        write!(table, "\n{name:<15}").expect("a string");
        for scheme in SCHEMES {
            let row = row(scheme, loss);
            let time = row.took_ns as f64 / (SEEDS * shortest_ns) as f64;
            let again = row.again as f64 / row.sent as f64 * 100.0;
            let controls = row.controls / SEEDS;
            write!(table, " | {time:11.3} {again:5.1} {controls:4}").expect("a string");
        }
    }
    table + "\n"
}

#[test]
fn the_sweep_is_as_it_was() {
    let now = table();
    assert!(
        now == include_str!("sweep.txt"),
        "sweep.txt would be:\n{now}"
    );
}
