//! Writes the findings of a probe as a `link.toml`.

use std::fmt::Write as _;
use std::time::SystemTime;

use farwrite::MAX_MTU;
use farwrite_probe::{Findings, RateLimit, TrialFindings};
use farwrite_transfer::{MIN_TRANSFER_MTU, payload_bytes};
use farwrite_units::show::Moment;

use crate::exit::{Exit, Failure};

/// The text of the file.
///
/// # Errors
/// [`Exit::Interrupted`] if the probe ended before it had measured the required values, [`Exit::Other`]
/// if a host dropped packets in every trial.
pub(crate) fn text(findings: &Findings, now: SystemTime) -> Result<String, Failure> {
    let all = findings.direction();
    let trials = &findings.trials;
    if !trials.is_empty() && trials.iter().all(TrialFindings::is_of_hosts) {
        let what = "a host dropped packets in every trial, so what the path loses is not known: no \
                    description was written; use lower --rates, or raise net.core.rmem_max";
        return Err(Failure::new(Exit::Other, what));
    }
    let rtt = findings.round_trip.as_ref();
    let rtt = rtt.and_then(|trip| trip.times.percentile(50));
    let (Some(rate), Some(rtt), Some(mtu), Some(loss)) =
        (findings.rate, rtt, findings.mtu, all.loss)
    else {
        let what = "the probe ended before it had counted losses: no description was written";
        return Err(Failure::new(Exit::Interrupted, what));
    };
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("strings take all");
    line("# A path, measured. plan, send and demo take this file as --link.".into());
    line(format!("measured = \"{}\"", Moment(now)));
    line(format!(
        "measured_by = \"farwrite {}\"",
        env!("CARGO_PKG_VERSION")
    ));
    if let Some(peer) = findings.peer {
        line(format!("peer = \"{}\"", peer.ip()));
    }
    let remark = match rate.limit {
        RateLimit::Path => "",
        RateLimit::Asked => " # a lower limit: --max-rate bounded the probe",
        RateLimit::Sender => " # a lower limit: this machine could not send faster",
    };
    line(format!("rate = \"{:.0}bit\"{remark}", rate.bps.round()));
    line(format!("rtt = \"{}us\"", rtt.as_micros().max(1)));
    match loss.share {
        0.0 => line(format!(
            "loss_packet = 0 # none of {} packets",
            all.loss_packets
        )),
        share => line(format!("loss_packet = {:e}", share.min(0.99))),
    }
    if let Some(bursts) = all.bursts {
        line(format!(
            "mean_burst_packets = {:.3}",
            bursts.mean_packets.max(1.0)
        ));
    }
    if let Some(time) = all.burst_time {
        // Which of the two a path keeps at other rates is not known.
        line("# If bursts last for a time at any rate, replace the line above by this one:".into());
        let us = time.as_micros().max(1);
        line(format!("# mean_burst_time = \"{us}us\""));
    }
    let payload = payload_bytes(mtu.payload_bytes);
    if payload >= MIN_TRANSFER_MTU {
        line(format!("mtu = {}", payload.min(MAX_MTU)));
    }
    line(format!("reordering_packets = {}", all.extent_packets));
    line(format!(
        "reordering_time = \"{}us\"",
        all.extent.as_micros()
    ));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farwrite_probe::estimate::RoundTrips;
    use farwrite_probe::message::TrialCounts;
    use farwrite_probe::{Mtu, MtuLimit, Rate, RoundTrip};

    use super::super::{Description, Unit, file};
    use super::*;

    fn findings() -> Findings {
        Findings {
            peer: Some(([192, 0, 2, 7], 4792).into()),
            round_trip: Some(RoundTrip {
                sent: 1,
                times: RoundTrips::new(vec![Duration::from_micros(25_300)]),
                ecn: [0; 4],
            }),
            rate: Some(Rate {
                bps: 9.4e9,
                limit: RateLimit::Path,
                trains: 7,
            }),
            mtu: Some(Mtu {
                ip_bytes: 1500,
                payload_bytes: 1472,
                limit: MtuLimit::Path,
            }),
            trials: vec![TrialFindings {
                payload_bytes: 1024,
                rate_bps: 1_000_000,
                round: 0,
                packets: 1000,
                unsent: 0,
                waits: 0,
                elapsed: Duration::from_secs(1),
                counts: TrialCounts {
                    received: 990,
                    bursts: 4,
                    longest_burst: 5,
                    extent_packets: 3,
                    extent_ns: 1_500_000,
                    ..TrialCounts::default()
                },
            }],
            ..Findings::default()
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let text = text(&findings(), SystemTime::UNIX_EPOCH).expect("whole");
        for line in [
            "measured = \"1970-01-01T00:00:00Z\"",
            "peer = \"192.0.2.7\"",
            "reordering_packets = 3",
            "reordering_time = \"1500us\"",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        let want = Description {
            rate_bps: Some(9.4e9),
            rtt_s: Some(0.0253),
            loss: Some((Unit::Packets, 0.01)),
            burst: Some((Unit::Packets, 2.5)),
            burst_time: None,
            chunk_bytes: None,
            mtu: Some(1436),
        };
        assert_eq!(file::parse(&text), Ok(want));
        // 10 of 1000 packets in a second were lost, in 4 bursts.
        let by_time = text
            .replace("mean_burst_packets", "# mean_burst_packets")
            .replace("# mean_burst_time", "mean_burst_time");
        let by_time = file::parse(&by_time).expect("readable");
        assert_eq!(by_time.burst_time, Some(Duration::from_micros(2500)));
    }

    #[test]
    fn drops_of_hosts_are_no_interrupt() {
        let mut busy = findings();
        busy.trials[0].counts.socket_drops = 3;
        let error = text(&busy, SystemTime::now()).expect_err("no losses of the path");
        assert_eq!(error.exit, Exit::Other);
        assert!(error.to_string().contains("host dropped"), "{error}");
    }

    #[test]
    fn half_a_probe_is_no_description() {
        let mut half = findings();
        half.trials.clear();
        let error = text(&half, SystemTime::now()).expect_err("no losses");
        assert_eq!(error.exit, Exit::Interrupted);
    }
}
