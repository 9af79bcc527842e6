//! The result of the demo: a table for people, JSON for scripts.

use std::path::Path;
use std::time::Duration;

use farwrite::fabric::udp::SocketConfig;
use serde::Serialize;
use serde_json::{Value, json};

use super::scenario::{Scenario, loopback};
use super::transfer::Run;
use crate::table;
use farwrite_transfer::PathLoss;
use farwrite_units::Burst;
use farwrite_units::show::{Bytes, Percent, Rate, Time, real};

pub(crate) fn json(scenario: &Scenario, runs: &[Run], strain: &Overload, picture: &Path) -> Value {
    let (burst_packets, burst_s) = match scenario.link.burst {
        None => (None, None),
        Some(Burst::Losses(packets)) => (Some(packets), None),
        Some(Burst::Time(time)) => (None, Some(time.as_secs_f64())),
    };
    let runs: Vec<_> = runs.iter().map(|run| of_run(scenario, run)).collect();
    json!({
        "size_bytes": scenario.size_bytes,
        "wire_bytes": scenario.wire_bytes(),
        "mtu_bytes": scenario.sdr.mtu,
        "packets_per_chunk": scenario.sdr.packets_per_chunk,
        "rtt_s": scenario.link.rtt.as_secs_f64(),
        "loss_packet": scenario.link.loss_packet,
        "burst_packets": burst_packets,
        "burst_s": burst_s,
        "rate_bps": scenario.link.rate_bps,
        "link_bps": scenario.link_bps(),
        "seed": scenario.seed,
        "ideal_s": scenario.ideal().as_secs_f64(),
        "runs": runs,
        "strain": strain,
        "picture": picture.display().to_string(),
    })
}

/// The figures of a run in the table, the picture and the progress.
pub(crate) struct Row {
    /// The completion time divided by the ideal time.
    pub(crate) ratio: f64,
    /// The share of sent chunks that had been sent before.
    pub(crate) retransmitted_share: f64,
    parity_chunks: u64,
    /// The parity over the data.
    pub(crate) parity_overhead: f64,
    /// Bits of the message per second of the completion time.
    pub(crate) goodput_bps: f64,
}

impl Row {
    pub(crate) fn new(scenario: &Scenario, run: &Run) -> Self {
        let completion_s = run.times.completion.as_secs_f64();
        let sender = run.sender.sender;
        // A chunk that is sent for the first time is data or parity.
        let fresh_chunks = sender.sent_chunks - sender.retransmitted_chunks;
        let parity_chunks = fresh_chunks.saturating_sub(scenario.chunks());
        Self {
            ratio: completion_s / scenario.ideal().as_secs_f64(),
            retransmitted_share: real(sender.retransmitted_chunks)
                / real(sender.sent_chunks.max(1)),
            parity_chunks,
            parity_overhead: real(parity_chunks) / real(scenario.chunks().max(1)),
            goodput_bps: real(scenario.size_bytes) * 8.0 / completion_s,
        }
    }
}

/// The result of one scheme; `docs/json.md` describes it.
fn of_run(scenario: &Scenario, run: &Run) -> Value {
    let row = Row::new(scenario, run);
    let sender = run.sender.sender;
    json!({
        "scheme": run.scheme.to_string(),
        // A run that fails this check is not a result.
        "verified": true,
        "completion_s": run.times.completion.as_secs_f64(),
        "ratio": row.ratio,
        "retransmitted_share": row.retransmitted_share,
        "parity_share": real(row.parity_chunks) / real(sender.sent_chunks.max(1)),
        "parity_overhead": row.parity_overhead,
        "goodput_bps": row.goodput_bps,
        "sent_chunks": sender.sent_chunks,
        "retransmitted_chunks": sender.retransmitted_chunks,
        "parity_chunks": row.parity_chunks,
        "rebuilt_chunks": run.receiver.rebuilt_chunks,
        "timeouts": sender.timeouts,
        "lost_packets": run.emulator.forward.link.lost,
        "duplicate_packets": run.receiver.duplicate_packets,
        "send_loss": PathLoss::of(&run.sender.send_loss),
        "receive_loss": PathLoss::of(&run.receiver.receive_loss),
        "pace_share": scenario.pace_share(run.times.first_pass_chunks, run.times.first_pass),
        "measured_rtt_s": Duration::from_nanos(run.sender.rtt_ns).as_secs_f64(),
    })
}

/// Whether this machine kept up with the emulated link, for all runs together.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Overload {
    /// Whether all values below are good enough not to have changed the result.
    held: bool,
    /// The smallest share of its pace that a sender reached.
    pace_share: f64,
    packets: u64,
    /// The number of packets that were delivered more than 1 ms late.
    late_packets: u64,
    worst_lateness_s: f64,
    /// The number of packets that were lost in a full socket buffer, at either end or at the
    /// emulator.
    socket_drops: u64,
    /// The smallest receive buffer that the system granted to an end, in bytes.
    recv_buffer_bytes: usize,
    /// The number of packets that were lost in the full queue of the link.
    queue_drops: u64,
}

impl Overload {
    /// The limits for shares, beyond which the machine affects the result.
    const MOST_LATE: f64 = 0.05;
    const LEAST_PACE: f64 = 0.9;

    pub(crate) fn of(scenario: &Scenario, runs: &[Run]) -> Self {
        let mut sum = Self {
            pace_share: 1.0,
            recv_buffer_bytes: usize::MAX,
            ..Self::default()
        };
        for run in runs {
            let (chunks, took) = (run.times.first_pass_chunks, run.times.first_pass);
            sum.pace_share = sum.pace_share.min(scenario.pace_share(chunks, took));
            for direction in [&run.emulator.forward, &run.emulator.backward] {
                sum.packets += direction.link.offered;
                sum.late_packets += direction.late;
                let worst = Duration::from_nanos(direction.worst_lateness_ns).as_secs_f64();
                sum.worst_lateness_s = sum.worst_lateness_s.max(worst);
                sum.socket_drops += direction.socket_drops + direction.unsent;
                sum.queue_drops += direction.link.queue_dropped;
            }
            sum.recv_buffer_bytes = sum.recv_buffer_bytes.min(run.recv_buffer_bytes);
            sum.socket_drops += run.sockets.iter().map(|c| c.socket_drops).sum::<u64>();
        }
        sum.held = sum.socket_drops + sum.queue_drops == 0
            && sum.late_share() <= Self::MOST_LATE
            && sum.pace_share >= Self::LEAST_PACE;
        sum
    }

    fn late_share(&self) -> f64 {
        real(self.late_packets) / real(self.packets.max(1))
    }

    /// A warning if the machine affects the result.
    pub(crate) fn warning(&self, scenario: &Scenario) -> Option<String> {
        if self.held {
            return None;
        }
        let half = Rate(real((scenario.link.rate_bps / 2).max(1_000_000))).to_string();
        let half = half.replace(' ', "").replace("/s", "");
        let mut text = format!(
            "this machine did not hold {}, so the times are not the link's alone: try --rate {half}",
            Rate(real(scenario.link.rate_bps))
        );
        let wanted = SocketConfig::new(loopback()).recv_buffer_bytes;
        if self.socket_drops > 0 && self.recv_buffer_bytes < wanted {
            let more = format!(", or larger socket buffers: sysctl -w net.core.rmem_max={wanted}");
            text.push_str(&more);
        }
        Some(text)
    }
}

pub(crate) fn introduction(scenario: &Scenario) -> String {
    let burst = match scenario.link.burst {
        Some(Burst::Losses(packets)) => format!(" in bursts of {packets} packets"),
        Some(Burst::Time(time)) => format!(" in bursts of {}", Time(time)),
        None => String::new(),
    };
    let messages = match scenario.messages().len() {
        1 => "one message".to_owned(),
        n => format!("{n} messages"),
    };
    let (size, seed) = (Bytes(scenario.size_bytes), scenario.seed);
    let (rtt, link) = (Time(scenario.link.rtt), Rate(real(scenario.link_bps())));
    let (loss, pace) = (
        Percent(scenario.link.loss_packet),
        Rate(real(scenario.link.rate_bps)),
    );
    let (mtu, chunk) = (scenario.sdr.mtu, scenario.chunk_name());
    let (ideal, on_wire) = (Time(scenario.ideal()), Bytes(scenario.wire_bytes()));
    format!(
        "  message   {size} in {messages}, random bytes of seed {seed}\n  \
           link      round trip {rtt}, {link}, loss {loss} each way{burst}\n  \
           sender    paced at {pace}, MTU {mtu} bytes, a chunk is {chunk}\n  \
           ideal     {ideal}: {on_wire} on the wire at {pace}, and one round trip; no parity\n"
    )
}

/// In place of a loss that no chunk was judged for.
const UNKNOWN: &str = "not measured";

pub(crate) fn results(scenario: &Scenario, runs: &[Run], strain: &Overload) -> String {
    let mut text = format!(
        "\n  machine   the sender kept {} of its pace; full sockets dropped {} packets, the link's queue {}\n\
         \x20           {} of {} packets left the link over 1 ms late, {} at worst\n\n",
        Percent(strain.pace_share),
        strain.socket_drops,
        strain.queue_drops,
        strain.late_packets,
        strain.packets,
        Time(Duration::from_secs_f64(strain.worst_lateness_s))
    );
    let head = [
        "scheme",
        "time",
        "x ideal",
        "path lost",
        "retransmitted",
        "parity",
        "goodput",
        "MTU",
    ];
    let mut cells = vec![head.map(str::to_owned)];
    for run in runs {
        let row = Row::new(scenario, run);
        let loss = PathLoss::of(&run.receiver.receive_loss);
        let loss = loss.map(|loss| loss.share().to_string());
        cells.push([
            run.scheme.to_string(),
            Time(run.times.completion).to_string(),
            format!("{:.2}", row.ratio),
            loss.unwrap_or_else(|| UNKNOWN.to_owned()),
            Percent(row.retransmitted_share).to_string(),
            Percent(row.parity_overhead).to_string(),
            Rate(row.goodput_bps).to_string(),
            scenario.sdr.mtu.to_string(),
        ]);
    }
    text.push_str(&table::lay_out(&cells, 1));
    if cells.iter().flatten().any(|cell| cell == UNKNOWN) {
        text += "\n  (not measured: the receiver judges a chunk when a later one arrives, and none came)";
    }
    text
}
