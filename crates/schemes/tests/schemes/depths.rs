//! The effect of the interleaving depth on bursts, stored as a table. The diff of the table shows
//! the effect of a change.

use std::fmt::Write;

use farwrite_schemes::erasure::ErasureCoding;
use farwrite_schemes::timing::Alpha;

use crate::harness::{Channel, parity_chunks, send_one};

/// 8 MiB in chunks of 4 KiB.
const CHUNKS: u32 = 2_048;
const SEEDS: u32 = 10;

/// Returns a table. For each depth it has the completion time divided by injection of data and
/// parity plus one round trip, as the sixth of ten sorted values; the percentage of retransmitted
/// data chunks; and how many of ten transfers needed repairs.
fn table() -> String {
    let depths = [1, 4, 16, 32, 64];
    let mut table = String::from("code        loss_chunk burst");
    for depth in depths {
        write!(table, " | {depth:15}").unwrap();
    }
    table.push('\n');
    for code in ["ec-mds:32,8", "ec-xor:32,8"] {
        for (loss_chunk, burst_chunks) in [(0.01, 1.0), (0.01, 10.0), (0.01, 100.0), (0.05, 30.0)] {
            write!(table, "{code} {loss_chunk:10} {burst_chunks:5}").unwrap();
            for depth in depths {
                let scheme = ErasureCoding {
                    depth: depth.try_into().unwrap(),
                    ..ErasureCoding::new(code.parse().unwrap(), Alpha::DEFAULT)
                };
                let (mut took_ns, mut again, mut repaired) = (Vec::new(), 0, 0);
                let all = CHUNKS + parity_chunks(&scheme, CHUNKS);
                for seed in 1..=SEEDS {
                    let channel = Channel {
                        seed: seed.into(),
                        loss_chunk,
                        burst_chunks,
                        ..Channel::default()
                    };
                    let story = send_one(&scheme, channel, CHUNKS);
                    took_ns.push(story.ended_ns);
                    again += story.counters.retransmitted_chunks;
                    repaired += u32::from(story.counters.retransmitted_chunks > 0);
                }
                took_ns.sort_unstable();
                let channel = Channel::default();
                let ideal_ns = u64::from(all) * channel.chunk_ns + channel.rtt_ns;
                let ratio = took_ns[took_ns.len() / 2] as f64 / ideal_ns as f64;
                let share = again as f64 / f64::from(SEEDS * CHUNKS) * 100.0;
                write!(table, " | {ratio:5.3} {share:6.2} {repaired:2}").unwrap();
            }
            table.push('\n');
        }
    }
    table
}

#[test]
fn the_table_of_depths_is_as_it_was() {
    let now = table();
    assert!(
        now == include_str!("depths.txt"),
        "depths.txt would be:\n{now}"
    );
}
