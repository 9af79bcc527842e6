//! The findings of a probe as JSON; `docs/json.md` describes it.

use std::path::PathBuf;
use std::time::Duration;

use farwrite_probe::estimate::Bin;
use farwrite_probe::{Findings, Nat, RoundTrip, TrialFindings};
use farwrite_units::show::real;
use serde_json::{Value, json};

use super::ProbeArgs;

/// The complete result.
pub(super) fn report(args: &ProbeArgs, findings: &Findings, elapsed: Duration) -> Value {
    let shown = |file: &PathBuf| file.display().to_string();
    json!({
        "peer": findings.peer.map(|peer| peer.to_string()),
        "seconds": elapsed.as_secs_f64(),
        "interrupted": findings.interrupted,
        "round_trip": findings.round_trip.as_ref().map(trips),
        "rate": findings.rate,
        "mtu": findings.mtu,
        "ecn": findings.direction().ecn,
        "addresses": findings.nat.map(addresses),
        "loss": loss(findings),
        "trials": findings.trials.iter().map(trial).collect::<Vec<_>>(),
        "trials_left_out": findings.trials_left_out,
        "hosts": findings.host,
        "saved": args.save.as_ref().map(shown),
        "picture": args.plot.as_ref().map(shown),
    })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn trips(trip: &RoundTrip) -> Value {
    let percentile = |hundredths| trip.times.percentile(hundredths).map(ms);
    let bin =
        |bin: Bin| json!({ "from_ms": ms(bin.from), "to_ms": ms(bin.to), "answers": bin.samples });
    json!({
        "questions": trip.sent,
        "answers": trip.times.samples(),
        "min_ms": percentile(0),
        "p50_ms": percentile(50),
        "p90_ms": percentile(90),
        "p99_ms": percentile(99),
        "max_ms": percentile(100),
        "above_min": trip.times.histogram().into_iter().map(bin).collect::<Vec<_>>(),
    })
}

fn addresses(nat: Nat) -> Value {
    json!({
        "ours": nat.ours.to_string(),
        "ours_seen": nat.ours_seen.to_string(),
        "theirs": nat.theirs.to_string(),
        "theirs_seen": nat.theirs_seen.to_string(),
        "translated": nat.is_ours_changed() || nat.is_theirs_changed(),
    })
}

fn loss(findings: &Findings) -> Option<Value> {
    let all = findings.direction();
    let share = all.loss?;
    Some(json!({
        "packets": all.packets,
        "lost_packets": all.lost,
        "loss_packet": share.share,
        "loss_low": share.low,
        "loss_high": share.high,
        "mean_burst_packets": all.bursts.map(|bursts| bursts.mean_packets),
        "longest_burst_packets": all.bursts.map(|bursts| bursts.longest_packets),
        "p_good_to_bad": all.bursts.map(|bursts| bursts.p_good_to_bad),
        "p_bad_to_good": all.bursts.map(|bursts| bursts.p_bad_to_good),
        "reordered_packets": all.reordered,
        "reordering_packets": all.extent_packets,
        "reordering_ms": ms(all.extent),
        "duplicate_packets": all.duplicates,
    }))
}

fn trial(trial: &TrialFindings) -> Value {
    let counts = &trial.counts;
    json!({
        "payload_bytes": trial.payload_bytes,
        "rate_bps": trial.rate_bps,
        "round": trial.round,
        "seconds": trial.elapsed.as_secs_f64(),
        "packets": trial.packets,
        "lost_packets": trial.lost_on_path(),
        "lost_in_hosts": trial.lost_in_hosts(),
        "loss_packet": real(trial.lost_on_path()) / f64::from(trial.packets.max(1)),
        "bursts": counts.bursts,
        "longest_burst_packets": counts.longest_burst,
        "reordered_packets": counts.reordered,
        "duplicate_packets": counts.duplicates,
        "ce_packets": counts.ecn[3],
        "send_waits": trial.waits,
        "received_by_flow": counts.flows,
    })
}
