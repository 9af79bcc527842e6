//! Shows the findings of a probe as text.

use std::collections::BTreeMap;

use farwrite_probe::estimate::Share;
use farwrite_probe::{
    DirectionFindings, EcnFindings, Findings, MtuLimit, RateLimit, TrialFindings,
};
use farwrite_units::show::{Bytes, Count, Percent, Rate, Time, real};

use crate::table::lay_out;

pub(super) fn text(findings: &Findings) -> String {
    let lines = summary(findings).map(|(name, what)| [name.to_owned(), what]);
    let mut text = lay_out(&lines, 2);
    if !findings.trials.is_empty() {
        text = format!("{text}\n\n{}", table(&findings.trials));
    }
    if findings.trials_left_out > 0 {
        text += &format!(
            "\n  ({} left out: at their rates, all trials would take more than twice --time)",
            Count(findings.trials_left_out as u64, "trial")
        );
    }
    text
}

fn summary(findings: &Findings) -> [(&'static str, String); 8] {
    let all = findings.direction();
    let shown = |what: Option<String>| what.unwrap_or_else(|| UNKNOWN.to_owned());
    [
        ("round trip", shown(round_trip(findings))),
        ("rate", shown(rate(findings))),
        ("IP MTU", shown(mtu(findings))),
        ("loss", shown(loss(&all))),
        ("reordering", reordering(&all)),
        ("ECN", ecn(all.ecn).to_owned()),
        ("addresses", shown(addresses(findings))),
        ("hosts", hosts(findings)),
    ]
}

const UNKNOWN: &str = "not measured";

fn round_trip(findings: &Findings) -> Option<String> {
    let trip = findings.round_trip.as_ref()?;
    let time = |hundredths| match trip.times.percentile(hundredths) {
        Some(time) => Time(time).to_string(),
        None => "-".to_owned(),
    };
    Some(format!(
        "{} at least, {} p50, {} p99; {} of {} questions were not answered",
        time(0),
        time(50),
        time(99),
        trip.lost(),
        trip.sent
    ))
}

fn rate(findings: &Findings) -> Option<String> {
    let rate = findings.rate?;
    let shown = Rate(rate.bps);
    Some(match rate.limit {
        RateLimit::Path => format!("{shown} by one flow"),
        RateLimit::Asked => format!("at least {shown} by one flow, which is --max-rate"),
        RateLimit::Sender => format!("at least {shown} by one flow: this machine sends no faster"),
    })
}

fn mtu(findings: &Findings) -> Option<String> {
    let mtu = findings.mtu?;
    let (ip, payload) = (mtu.ip_bytes, mtu.payload_bytes);
    Some(match mtu.limit {
        MtuLimit::Path => format!("{ip} bytes, UDP payload {payload}"),
        MtuLimit::Local => {
            format!("{ip} bytes, UDP payload {payload}: that of this machine's interface")
        }
        MtuLimit::Tried => {
            format!("at least {ip} bytes, UDP payload {payload}; larger was not tried")
        }
    })
}

fn loss(all: &DirectionFindings) -> Option<String> {
    let loss = all.loss?;
    let mut text = format!("{} of {} packets", chance(&loss), all.loss_packets);
    if let Some(bursts) = all.bursts {
        text += &format!(
            "; in runs of {:.2} packets, the longest of {}",
            bursts.mean_packets, bursts.longest_packets
        );
    }
    Some(text)
}

/// Shows a share with its interval.
fn chance(loss: &Share) -> String {
    if loss.share == 0.0 {
        return format!("none, below {}", small(loss.high));
    }
    let (low, high) = (small(loss.low), small(loss.high));
    format!("{}, {low} to {high} at 95 %,", small(loss.share))
}

/// Shows a share, which may be very small.
fn small(share: f64) -> String {
    match share {
        0.0 => "0".to_owned(),
        share if share < 1e-4 => format!("{share:.1e}"),
        share => Percent(share).to_string(),
    }
}

fn reordering(all: &DirectionFindings) -> String {
    match (all.packets, all.reordered) {
        (0, _) => UNKNOWN.to_owned(),
        (_, 0) => "none".to_owned(),
        (_, reordered) => format!(
            "{reordered} packets came behind later ones, by {} packets or {} at most",
            all.extent_packets,
            Time(all.extent)
        ),
    }
}

fn ecn(ecn: EcnFindings) -> &'static str {
    match ecn {
        EcnFindings::Unknown => UNKNOWN,
        EcnFindings::Kept => "ECT(0) arrives unchanged",
        EcnFindings::Marked => "ECT(0) arrives unchanged, or marked with congestion",
        EcnFindings::Bleached => "bleached: ECT(0) arrives as not ECT",
        EcnFindings::Changed => "changed in different ways",
    }
}

fn addresses(findings: &Findings) -> Option<String> {
    let nat = findings.nat.filter(|_| findings.round_trip.is_some())?;
    let mut parts = Vec::new();
    if nat.is_ours_changed() {
        parts.push(format!("{} here is {} there", nat.ours, nat.ours_seen));
    }
    if nat.is_theirs_changed() {
        parts.push(format!("{} there is {} here", nat.theirs, nat.theirs_seen));
    }
    Some(match parts.is_empty() {
        true => "no translation".to_owned(),
        false => format!("translated: {}", parts.join("; ")),
    })
}

fn hosts(findings: &Findings) -> String {
    let trials = findings.trials.iter();
    let lost: u64 = trials.clone().map(TrialFindings::lost_in_hosts).sum();
    let waits: u64 = trials.map(|trial| trial.waits).sum();
    if lost + waits == 0 {
        return "dropped nothing of this probe".to_owned();
    }
    format!(
        "dropped {lost} packets, counted separately; this one's socket was full {waits} times (receive \
         buffer there: {})",
        Bytes(findings.host.recv_buffer_bytes)
    )
}

/// One line for each size and rate.
fn table(trials: &[TrialFindings]) -> String {
    let head = [
        "payload", "rate", "trials", "packets", "lost", "loss", "least", "most", "in hosts",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let mut cells: BTreeMap<(u32, u64), Vec<&TrialFindings>> = BTreeMap::new();
    for trial in trials {
        let cell = cells.entry((trial.payload_bytes, trial.rate_bps));
        cell.or_default().push(trial);
    }
    for ((payload_bytes, rate_bps), trials) in cells {
        let good = || trials.iter().filter(|trial| !trial.is_of_hosts());
        let packets: u64 = good().map(|trial| u64::from(trial.packets)).sum();
        let lost: u64 = good().map(|trial| trial.lost()).sum();
        let share = |trial: &TrialFindings| real(trial.lost()) / f64::from(trial.packets.max(1));
        let shares = || good().map(|trial| share(trial));
        let shown = |share: Option<f64>| share.map_or("-".to_owned(), small);
        rows.push([
            Bytes(payload_bytes.into()).to_string(),
            Rate(real(rate_bps)).to_string(),
            trials.len().to_string(),
            packets.to_string(),
            lost.to_string(),
            shown(Share::of(lost, packets).map(|loss| loss.share)),
            shown(shares().reduce(f64::min)),
            shown(shares().reduce(f64::max)),
            trials
                .iter()
                .filter(|trial| trial.is_of_hosts())
                .count()
                .to_string(),
        ]);
    }
    let mut text = lay_out(&rows, 0);
    if trials.iter().any(TrialFindings::is_of_hosts) {
        text += "\n  (packets, lost and loss leave out the trials in which a host dropped packets)";
    }
    text
}
