//! The findings of a probe as JSON; `docs/json.md` describes it.

use std::path::PathBuf;
use std::time::Duration;

use farwrite_probe::estimate::Bin;
use farwrite_probe::message::HostDrops;
use farwrite_probe::{
    EcnFindings, Findings, MtuLimit, Nat, Rate, RateLimit, RoundTrip, TrialFindings,
};
use farwrite_units::show::real;
use serde::Serialize;

use super::ProbeArgs;

/// The complete result.
#[derive(Debug, Serialize)]
pub(super) struct ProbeReport {
    peer: Option<String>,
    seconds: f64,
    interrupted: bool,
    round_trip: Option<Trips>,
    rate: Option<RateRow>,
    mtu: Option<MtuRow>,
    ecn: &'static str,
    addresses: Option<Addresses>,
    loss: Option<LossRow>,
    trials: Vec<TrialRow>,
    trials_left_out: usize,
    hosts: Hosts,
    saved: Option<PathBuf>,
    picture: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Trips {
    questions: u32,
    answers: usize,
    min_ms: Option<f64>,
    p50_ms: Option<f64>,
    p90_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    above_min: Vec<TripBin>,
}

#[derive(Debug, Serialize)]
struct TripBin {
    from_ms: f64,
    to_ms: f64,
    answers: usize,
}

#[derive(Debug, Serialize)]
struct RateRow {
    bps: f64,
    limit: &'static str,
    trains: u32,
}

#[derive(Debug, Serialize)]
struct MtuRow {
    ip_bytes: u32,
    payload_bytes: u32,
    limit: &'static str,
}

#[derive(Debug, Serialize)]
struct Addresses {
    ours: String,
    ours_seen: String,
    theirs: String,
    theirs_seen: String,
    translated: bool,
}

#[derive(Debug, Serialize)]
struct LossRow {
    packets: u64,
    lost_packets: u64,
    loss_packet: f64,
    loss_low: f64,
    loss_high: f64,
    mean_burst_packets: Option<f64>,
    longest_burst_packets: Option<u64>,
    p_good_to_bad: Option<f64>,
    p_bad_to_good: Option<f64>,
    reordered_packets: u64,
    reordering_packets: u32,
    reordering_ms: f64,
    duplicate_packets: u64,
}

#[derive(Debug, Serialize)]
struct TrialRow {
    payload_bytes: u32,
    rate_bps: u64,
    round: u32,
    seconds: f64,
    packets: u32,
    lost_packets: u64,
    lost_in_hosts: u64,
    loss_packet: f64,
    bursts: u32,
    longest_burst_packets: u32,
    reordered_packets: u32,
    duplicate_packets: u32,
    ce_packets: u32,
    send_waits: u64,
    received_by_flow: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Hosts {
    ours: Drops,
    theirs: Drops,
    recv_buffer_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Drops {
    recv_buffer: Option<u64>,
    send_buffer: Option<u64>,
}

impl ProbeReport {
    pub(super) fn new(args: &ProbeArgs, findings: &Findings, elapsed: Duration) -> Self {
        Self {
            peer: findings.peer.map(|peer| peer.to_string()),
            seconds: elapsed.as_secs_f64(),
            interrupted: findings.interrupted,
            round_trip: findings.round_trip.as_ref().map(trips),
            rate: findings.rate.map(rate),
            mtu: findings.mtu.map(|mtu| MtuRow {
                ip_bytes: mtu.ip_bytes,
                payload_bytes: mtu.payload_bytes,
                limit: match mtu.limit {
                    MtuLimit::Path => "path",
                    MtuLimit::Local => "local",
                    MtuLimit::Tried => "tried",
                },
            }),
            ecn: match findings.direction().ecn {
                EcnFindings::Unknown => "unknown",
                EcnFindings::Kept => "kept",
                EcnFindings::Marked => "marked",
                EcnFindings::Bleached => "bleached",
                EcnFindings::Changed => "changed",
            },
            addresses: findings.nat.map(addresses),
            loss: loss(findings),
            trials: findings.trials.iter().map(trial).collect(),
            trials_left_out: findings.trials_left_out,
            hosts: Hosts {
                ours: drops(findings.host.ours),
                theirs: drops(findings.host.theirs),
                recv_buffer_bytes: findings.host.recv_buffer_bytes,
            },
            saved: args.save.clone(),
            picture: args.plot.clone(),
        }
    }
}

fn trips(trip: &RoundTrip) -> Trips {
    let ms = |hundredths| {
        let time = trip.times.percentile(hundredths);
        time.map(|time| time.as_secs_f64() * 1e3)
    };
    Trips {
        questions: trip.sent,
        answers: trip.times.samples(),
        min_ms: ms(0),
        p50_ms: ms(50),
        p90_ms: ms(90),
        p99_ms: ms(99),
        max_ms: ms(100),
        above_min: trip.times.histogram().into_iter().map(trip_bin).collect(),
    }
}

fn trip_bin(bin: Bin) -> TripBin {
    TripBin {
        from_ms: bin.from.as_secs_f64() * 1e3,
        to_ms: bin.to.as_secs_f64() * 1e3,
        answers: bin.samples,
    }
}

fn rate(rate: Rate) -> RateRow {
    RateRow {
        bps: rate.bps,
        limit: match rate.limit {
            RateLimit::Path => "path",
            RateLimit::Asked => "max_rate",
            RateLimit::Sender => "sender",
        },
        trains: rate.trains,
    }
}

fn addresses(nat: Nat) -> Addresses {
    Addresses {
        ours: nat.ours.to_string(),
        ours_seen: nat.ours_seen.to_string(),
        theirs: nat.theirs.to_string(),
        theirs_seen: nat.theirs_seen.to_string(),
        translated: nat.is_ours_changed() || nat.is_theirs_changed(),
    }
}

fn loss(findings: &Findings) -> Option<LossRow> {
    let all = findings.direction();
    let share = all.loss?;
    Some(LossRow {
        packets: all.packets,
        lost_packets: all.lost,
        loss_packet: share.share,
        loss_low: share.low,
        loss_high: share.high,
        mean_burst_packets: all.bursts.map(|bursts| bursts.mean_packets),
        longest_burst_packets: all.bursts.map(|bursts| bursts.longest_packets),
        p_good_to_bad: all.bursts.map(|bursts| bursts.p_good_to_bad),
        p_bad_to_good: all.bursts.map(|bursts| bursts.p_bad_to_good),
        reordered_packets: all.reordered,
        reordering_packets: all.extent_packets,
        reordering_ms: all.extent.as_secs_f64() * 1e3,
        duplicate_packets: all.duplicates,
    })
}

fn trial(trial: &TrialFindings) -> TrialRow {
    let counts = &trial.counts;
    TrialRow {
        payload_bytes: trial.payload_bytes,
        rate_bps: trial.rate_bps,
        round: trial.round,
        seconds: trial.elapsed.as_secs_f64(),
        packets: trial.packets,
        lost_packets: trial.lost_on_path(),
        lost_in_hosts: trial.lost_in_hosts(),
        loss_packet: real(trial.lost_on_path()) / f64::from(trial.packets.max(1)),
        bursts: counts.bursts,
        longest_burst_packets: counts.longest_burst,
        reordered_packets: counts.reordered,
        duplicate_packets: counts.duplicates,
        ce_packets: counts.ecn[3],
        send_waits: trial.waits,
        received_by_flow: counts.flows.clone(),
    }
}

fn drops(drops: HostDrops) -> Drops {
    Drops {
        recv_buffer: drops.recv_buffer,
        send_buffer: drops.send_buffer,
    }
}
