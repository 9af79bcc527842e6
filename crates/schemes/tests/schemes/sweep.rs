//! A sweep over loss, stored as a table. The diff of the table shows the effect of a change to a
//! scheme.

use std::fmt::Write;

use farwrite_schemes::registry::SchemeName;

use crate::harness::{Channel, send_one};

const CHUNKS: u32 = 10_000;

/// Returns a table. For each scheme it has the completion time divided by injection of the data
/// plus one round trip; the percentage of retransmitted chunks; and the percentage of unnecessary
/// retransmissions. All values are means over four seeds. 10,000 chunks are four times the capacity
/// of the path.
fn table() -> String {
    let mut table = String::from("loss_chunk burst");
    for name in SchemeName::EXACT {
        write!(table, " | {:19}", name.to_string()).unwrap();
    }
    table.push('\n');
    for (loss_chunk, burst_chunks) in [
        (0.0, 1.0),
        (1e-4, 1.0),
        (1e-3, 1.0),
        (1e-2, 1.0),
        (1e-2, 10.0),
        (0.05, 1.0),
        (0.2, 1.0),
    ] {
        write!(table, "{loss_chunk:10} {burst_chunks:5}").unwrap();
        for name in SchemeName::EXACT {
            let (mut took_ns, mut again, mut repaired) = (0, 0, 0);
            for seed in 1..=4 {
                let channel = Channel {
                    seed,
                    loss_chunk,
                    burst_chunks,
                    ..Channel::default()
                };
                let story = send_one(&*name.scheme(), channel, CHUNKS);
                took_ns += story.outcomes[&0].0;
                again += story.counters.retransmitted_chunks;
                repaired += story.lost_chunks - story.rebuilt_chunks;
            }
            let channel = Channel::default();
            let ideal_ns = u64::from(CHUNKS) * channel.chunk_ns + channel.rtt_ns;
            let ratio = took_ns as f64 / (4 * ideal_ns) as f64;
            let share = again as f64 / f64::from(4 * CHUNKS) * 100.0;
            let waste = (again - repaired) as f64 / f64::from(4 * CHUNKS) * 100.0;
            write!(table, " | {ratio:5.3} {share:6.2} {waste:6.2}").unwrap();
        }
        table.push('\n');
    }
    table
}

#[test]
fn the_sweep_is_as_it_was() {
    let now = table();
    assert!(
        now == include_str!("sweep.txt"),
        "sweep.txt would be:\n{now}"
    );
}
