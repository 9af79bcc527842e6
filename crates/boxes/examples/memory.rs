//! Resident memory of boxes by the number of flows, each of which has sent some messages and is idle:
//! of the sending half of one box and the receiving half of the other.

#[path = "../tests/common/mod.rs"]
mod common;

use std::fs::read_to_string;

use common::{IPV4, frame, payload};
use farwrite_boxes::netrt::{self, NetRt};
use farwrite_boxes::{PathBox, Side, lowar};

const MESSAGES: u32 = 4;
/// RC RDMA WRITE Only.
const WRITE: u8 = 0x0A;
/// Between two messages: answers have come, and blocks are closed.
const GAP_NS: u64 = 20_000_000;

fn main() {
    println!(
        "{:<8} {:>8} {:>12} {:>16}",
        "", "flows", "KiB", "bytes a flow"
    );
    for flows in [1_000, 10_000, 50_000] {
        let config = lowar::Config {
            max_connections: flows,
            ..lowar::Config::default()
        };
        print::<lowar::Lowar>("LoWAR", flows, &config);
        let config = netrt::Config {
            max_connections: flows,
            // Copies have room for a few packets: their memory does not depend on flows.
            pool_bytes: 16 << 10,
            ..netrt::Config::new(10_000_000_000, 100_000)
        };
        print::<NetRt>("NetRT", flows, &config);
    }
}

fn print<B: PathBox>(name: &str, flows: usize, config: &B::Config) {
    let before = resident_bytes();
    let mut boxes = [B::new(config, 1), B::new(config, 1)];
    for message in 0..MESSAGES {
        let now_ns = u64::from(message) * GAP_NS;
        for flow in 0..flows {
            send(
                &mut boxes,
                now_ns,
                u32::try_from(flow).expect("few"),
                message,
            );
        }
        for side in &mut boxes {
            while side.next_ns().is_some_and(|at_ns| at_ns <= now_ns + GAP_NS) {
                side.handle_timeout(now_ns + GAP_NS);
                while side.poll().is_some() {}
            }
        }
    }
    let bytes = resident_bytes().saturating_sub(before);
    // What is given back would be used for the next boxes.
    std::mem::forget(boxes);
    println!(
        "{name:<8} {flows:>8} {:>12} {:>16}",
        bytes >> 10,
        bytes / flows
    );
}

/// Sends a packet from the NIC of the first box to that of the second, and answers back.
fn send<B: PathBox>(boxes: &mut [B; 2], now_ns: u64, flow: u32, psn: u32) {
    let mut bytes = payload(WRITE, psn, 1000, 0);
    bytes[5..8].copy_from_slice(&(flow + 2).to_be_bytes()[1..]);
    boxes[0].handle(now_ns, Side::Near, frame(IPV4, 0, bytes));
    for (from, to) in [(0, 1), (1, 0)] {
        while let Some(sent) = boxes[from].poll() {
            if sent.to == Side::Far {
                boxes[to].handle(now_ns, Side::Far, sent.bytes);
            }
        }
    }
}

/// The resident set (proc(5), `statm`) in bytes.
fn resident_bytes() -> usize {
    let statm = read_to_string("/proc/self/statm").expect("proc(5)");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number") * 4096
}
