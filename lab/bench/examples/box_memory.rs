//! Resident memory of boxes by the number of flows: of the sending half of one box and the receiving half
//! of the other. Claim NT2 has the rows of 10,000 flows.
//!
//! Flows are idle after some messages of a packet. Then each sends the beginning of a message, whose second
//! packet is lost, and no request or repair reaches a box: a block is open, packets behind the gap are
//! held, and NetRT has copies of all.

#[path = "../../../crates/boxes/tests/common/mod.rs"]
mod common;
#[path = "common/rows.rs"]
mod rows;

use std::fs::read_to_string;
use std::path::PathBuf;
use std::process::Command;

use clap::Parser;
use common::{IPV4, frame, payload};
use farwrite_boxes::netrt::{self, NetRt};
use farwrite_boxes::{Middlebox, Side, lowar};
use rows::Rows;

/// Messages of a packet, before a flow is idle.
const MESSAGES: u32 = 4;
/// Packets of the message that has begun.
const BEGUN: u32 = 9;
/// RC RDMA WRITE Only, First and Middle.
const ONLY: u8 = 0x0A;
const FIRST: u8 = 0x06;
const MIDDLE: u8 = 0x07;
const PAYLOAD_BYTES: u32 = 1024;
/// More than a frame.
const ROOM_BYTES: usize = 2048;
/// Between two messages: answers have come, and blocks are closed.
const GAP_NS: u64 = 20_000_000;

/// What the path loses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    Packet,
    Answers,
}

#[derive(Parser)]
struct Args {
    /// Prints the memory of one run, which has a process of its own: a box, its flows, and the packets of each that
    /// have begun
    #[arg(long, num_args = 3, value_names = ["BOX", "FLOWS", "BEGUN"], hide = true)]
    run: Option<Vec<String>>,
    /// Write the results as rows
    #[arg(long)]
    csv: Option<PathBuf>,
}

fn main() {
    let args = Args::parse();
    if let Some([name, flows, begun]) = args.run.as_deref() {
        let (flows, begun) = (
            flows.parse().expect("flows"),
            begun.parse().expect("packets"),
        );
        let (bytes, held) = match &**name {
            "LoWAR" => measure::<lowar::Lowar>(flows, &lowar(flows, begun), begun),
            _ => measure::<NetRt>(flows, &netrt(flows, begun), begun),
        };
        println!("{bytes} {held}");
        return;
    }
    let rows = Rows::new();
    let conditions =
        "resident memory of two boxes, without that of copies, after messages of a packet";
    let panel = rows.panel("NT2", "idle flows", conditions);
    println!(
        "{:<8} {:>8} {:>10} {:>12} {:>10} {:>12} {:>12}",
        "", "flows", "idle KiB", "bytes a flow", "busy KiB", "bytes a flow", "held frames"
    );
    for flows in [1_000, 10_000, 50_000] {
        for name in ["LoWAR", "NetRT"] {
            let [[idle, _], [busy, held]] = [0, BEGUN].map(|begun| in_process(name, flows, begun));
            panel.add(name, flows as f64, "bytes", idle as f64 / flows as f64);
            println!(
                "{name:<8} {flows:>8} {:>10} {:>12} {:>10} {:>12} {held:>12}",
                idle >> 10,
                idle / flows,
                busy >> 10,
                busy / flows
            );
        }
    }
    rows.write(args.csv.as_deref());
}

/// What [`measure`] returns in a process of its own, where no memory is left over from other boxes.
fn in_process(name: &str, flows: usize, begun: u32) -> [usize; 2] {
    let own = std::env::current_exe().expect("the path of this program");
    let args = ["--run", name, &flows.to_string(), &begun.to_string()];
    let done = Command::new(own).args(args).output().expect("a process");
    let text = String::from_utf8(done.stdout).expect("numbers");
    let numbers: Vec<usize> = text.split_whitespace().flat_map(str::parse).collect();
    numbers.try_into().expect("two numbers")
}

/// Settings of a box with room for these flows of one host, and for the messages that they have begun.
fn lowar(flows: usize, begun: u32) -> lowar::Config {
    let config = lowar::Config {
        max_connections: 3 * flows,
        ..lowar::Config::default()
    };
    if begun == 0 {
        return config;
    }
    lowar::Config {
        max_units: flows + flows / 4,
        max_held: flows * begun as usize / 4 * 5,
        ..config
    }
}

/// The same for NetRT. While flows are idle, the pool has room for a few packets, so that its memory does
/// not depend on flows.
fn netrt(flows: usize, begun: u32) -> netrt::Config {
    let config = netrt::Config {
        max_connections: 3 * flows,
        pool_bytes: 16 << 10,
        ..netrt::Config::new(10_000_000_000, 100_000)
    };
    if begun == 0 {
        return config;
    }
    netrt::Config {
        pool_bytes: flows * (MESSAGES + begun) as usize * ROOM_BYTES,
        max_held: flows * begun as usize / 4 * 5,
        ..config
    }
}

/// The memory of two boxes whose flows have each begun a message of this number of packets, and the
/// frames held.
fn measure<B: Middlebox>(flows: usize, config: &B::Config, begun: u32) -> (usize, usize) {
    let numbers = 0..u32::try_from(flows).expect("few");
    let before = resident_bytes();
    let mut boxes = [B::new(config, 1), B::new(config, 1)];
    for message in 0..MESSAGES {
        let now_ns = u64::from(message) * GAP_NS;
        for flow in numbers.clone() {
            let packet = packet(ONLY, flow, message);
            send(&mut boxes, now_ns, packet, Lost::Nothing);
        }
        for side in &mut boxes {
            while side.next_ns().is_some_and(|at_ns| at_ns <= now_ns + GAP_NS) {
                side.handle_timeout(now_ns + GAP_NS);
                while side.poll().is_some() {}
            }
        }
    }
    let now_ns = u64::from(MESSAGES) * GAP_NS;
    for flow in numbers {
        for at in 0..begun {
            let opcode = if at == 0 { FIRST } else { MIDDLE };
            let packet = packet(opcode, flow, MESSAGES + at);
            let lost = if at == 1 { Lost::Packet } else { Lost::Answers };
            send(&mut boxes, now_ns, packet, lost);
        }
    }
    let bytes = resident_bytes().saturating_sub(before);
    let held = boxes[1].held();
    (bytes, held)
}

/// A packet of a flow, as its NIC sends it.
fn packet(opcode: u8, flow: u32, psn: u32) -> Vec<u8> {
    let mut bytes = payload(opcode, psn, PAYLOAD_BYTES, 0);
    bytes[5..8].copy_from_slice(&(flow + 2).to_be_bytes()[1..]);
    // A buffer without room to grow, as the programs take frames from the kernel.
    frame(IPV4, 0, bytes)[..].to_vec()
}

/// Sends a packet from the NIC of the first box. The path may lose it, and all that the second box
/// answers.
fn send<B: Middlebox>(boxes: &mut [B; 2], now_ns: u64, packet: Vec<u8>, lost: Lost) {
    boxes[0].handle(now_ns, Side::Near, packet);
    while let Some(sent) = boxes[0].poll() {
        if sent.to == Side::Far && lost != Lost::Packet {
            boxes[1].handle(now_ns, Side::Far, sent.bytes);
        }
    }
    while let Some(sent) = boxes[1].poll() {
        if sent.to == Side::Far && lost == Lost::Nothing {
            boxes[0].handle(now_ns, Side::Far, sent.bytes);
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
