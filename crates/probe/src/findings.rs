//! The results of a probe.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::estimate::{Bursts, RoundTrips, Share};
use crate::message::{HostDrops, TrialCounts};

/// The results of a probe. Measurements that were not reached are `None`, or missing in a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Address at which the responder receives datagrams.
    pub peer: Option<SocketAddr>,
    /// Round-trip times.
    pub round_trip: Option<RoundTrip>,
    /// Address translation in each direction.
    pub nat: Option<Nat>,
    /// The rate that the path carries.
    pub rate: Option<Rate>,
    /// The largest packet that the path carries.
    pub mtu: Option<Mtu>,
    /// Completed trials, in the order of sending.
    pub trials: Vec<TrialFindings>,
    /// Trials that were not sent: at their rates, all trials would have taken too long.
    pub trials_left_out: usize,
    /// Drops in the kernels of the two hosts.
    pub host: HostFindings,
    /// Whether the user ended the probe early.
    pub interrupted: bool,
}

/// Round-trip times of small packets on the idle path.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundTrip {
    /// Questions sent.
    pub sent: u32,
    /// Round-trip times of the answered questions.
    pub times: RoundTrips,
    /// Questions that arrived, by their two ECN bits. The prober sends them as ECT(0).
    pub ecn: [u32; 4],
}

/// Address translation on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nat {
    /// Local address of the first flow.
    pub ours: SocketAddr,
    /// The same address as the peer sees it.
    pub ours_seen: SocketAddr,
    /// The address that the peer bound.
    pub theirs: SocketAddr,
    /// The same address as this end reaches it.
    pub theirs_seen: SocketAddr,
}

impl Nat {
    /// Whether the path rewrites this end's address.
    #[must_use]
    pub fn is_ours_changed(&self) -> bool {
        self.ours != self.ours_seen
    }

    /// Whether the path rewrites the peer's address.
    #[must_use]
    pub fn is_theirs_changed(&self) -> bool {
        self.theirs != self.theirs_seen
    }
}

/// The limit of the measured rate. The names in JSON are those of `docs/json.md`, as for all types of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateLimit {
    /// The path: it carries no more.
    Path,
    /// The highest allowed rate. The path may carry more.
    #[serde(rename = "max_rate")]
    Asked,
    /// The speed of this machine. The path may carry more.
    Sender,
}

/// The rate that the path carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Bits of IP packets per second.
    pub bps: f64,
    /// The limit of the rate.
    pub limit: RateLimit,
    /// Number of trains that were sent to find it.
    pub trains: u32,
}

/// The limit of the measured MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MtuLimit {
    /// Larger packets do not arrive.
    Path,
    /// The interface of this machine, which refuses to send larger packets.
    Local,
    /// The largest size that was tried.
    Tried,
}

/// The largest packet that the path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mtu {
    /// Bytes of the IP packet.
    pub ip_bytes: u32,
    /// Bytes of its UDP payload.
    pub payload_bytes: u32,
    /// The limit of the MTU.
    pub limit: MtuLimit,
}

/// The results of one trial.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialFindings {
    /// UDP payload of each packet in bytes.
    pub payload_bytes: u32,
    /// Requested rate, in bits of IP packets per second.
    pub rate_bps: u64,
    /// Number of earlier trials with this size and rate.
    pub round: u32,
    /// Packets sent.
    pub packets: u32,
    /// Packets that this end's host did not put on the network.
    pub unsent: u64,
    /// Number of times that this end's socket was full and a packet had to wait.
    pub waits: u64,
    /// Duration of sending.
    pub elapsed: Duration,
    /// Counts of the responder.
    pub counts: TrialCounts,
}

impl TrialFindings {
    /// Packets that did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        u64::from(self.packets.saturating_sub(self.counts.received))
    }

    /// Packets that the hosts at the two ends dropped.
    #[must_use]
    pub fn lost_in_hosts(&self) -> u64 {
        self.lost().min(self.unsent + self.counts.socket_drops)
    }

    /// Packets that the path dropped.
    #[must_use]
    pub fn lost_on_path(&self) -> u64 {
        self.lost() - self.lost_in_hosts()
    }

    /// Whether a host dropped packets. The SDR-RDMA paper leaves such trials out of Fig. 2.
    #[must_use]
    pub fn is_of_hosts(&self) -> bool {
        self.lost_in_hosts() > 0
    }
}

/// Datagrams that the kernels of the two hosts dropped during the probe, over all programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostFindings {
    /// Drops at this end.
    pub ours: HostDrops,
    /// Drops at the peer.
    pub theirs: HostDrops,
    /// Receive buffer of the responder's socket in bytes.
    pub recv_buffer_bytes: u64,
}

/// Results of all trials together: one direction of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectionFindings {
    /// Packets sent.
    pub packets: u64,
    /// Packets that the path dropped.
    pub lost: u64,
    /// Loss rate, without trials in which hosts dropped packets.
    pub loss: Option<Share>,
    /// Packets sent in the trials that the loss rate counts.
    pub loss_packets: u64,
    /// Bursts of losses.
    pub bursts: Option<Bursts>,
    /// Mean time of a burst: for each loss, the interval of the packets of its trial.
    pub burst_time: Option<Duration>,
    /// Packets that arrived after a later packet of their flow.
    pub reordered: u64,
    /// Largest reordering extent, in packets.
    pub extent_packets: u32,
    /// Largest reordering extent, in time.
    pub extent: Duration,
    /// Packets that arrived twice.
    pub duplicates: u64,
    /// Treatment of the ECN bits, over these packets and the questions.
    pub ecn: EcnFindings,
}

/// How the path treats the ECN bits of packets sent as ECT(0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EcnFindings {
    /// Nothing is known.
    Unknown,
    /// The bits arrive unchanged.
    Kept,
    /// The bits arrive unchanged or with a congestion mark.
    Marked,
    /// The bits arrive cleared.
    Bleached,
    /// The bits arrive changed, and not always in the same way.
    Changed,
}

impl EcnFindings {
    /// From the numbers of arrivals by the two bits.
    #[must_use]
    pub fn of([not_ect, ect1, ect0, ce]: [u64; 4]) -> Self {
        match (not_ect, ect1, ect0, ce) {
            (0, 0, 0, 0) => Self::Unknown,
            (0, 0, _, 0) => Self::Kept,
            (0, 0, _, _) => Self::Marked,
            (_, 0, 0, 0) => Self::Bleached,
            _ => Self::Changed,
        }
    }
}

impl Findings {
    /// Sums up all trials.
    #[must_use]
    pub fn direction(&self) -> DirectionFindings {
        let good = || self.trials.iter().filter(|trial| !trial.is_of_hosts());
        let sum = |of: &dyn Fn(&TrialFindings) -> u64| good().map(of).sum::<u64>();
        let packets = sum(&|trial| trial.packets.into());
        let lost = sum(&TrialFindings::lost_on_path);
        let bursts = sum(&|trial| trial.counts.bursts.into());
        let longest = good().map(|trial| trial.counts.longest_burst).max();
        let all = || self.trials.iter().map(|trial| &trial.counts);
        let total = |of: &dyn Fn(&TrialFindings) -> u64| self.trials.iter().map(of).sum::<u64>();
        let in_bursts = Bursts::of(packets, lost, bursts, longest.unwrap_or(0).into());
        let mean_burst = in_bursts.map_or(1.0, |bursts| bursts.mean_packets);
        DirectionFindings {
            packets: total(&|trial| trial.packets.into()),
            lost: total(&TrialFindings::lost_on_path),
            loss: Share::in_bursts(lost, packets, mean_burst),
            loss_packets: packets,
            bursts: in_bursts,
            burst_time: (bursts > 0).then(|| {
                let lost_time = |trial: &TrialFindings| {
                    let sent = f64::from(trial.packets.max(1));
                    let lost = f64::from(u32::try_from(trial.lost_on_path()).unwrap_or(u32::MAX));
                    trial.elapsed.mul_f64(lost / sent)
                };
                let lost_time: Duration = good().map(lost_time).sum();
                lost_time / u32::try_from(bursts).unwrap_or(u32::MAX)
            }),
            reordered: total(&|trial| trial.counts.reordered.into()),
            extent_packets: all().map(|counts| counts.extent_packets).max().unwrap_or(0),
            extent: Duration::from_nanos(all().map(|counts| counts.extent_ns).max().unwrap_or(0)),
            duplicates: total(&|trial| trial.counts.duplicates.into()),
            ecn: self.ecn(),
        }
    }

    fn ecn(&self) -> EcnFindings {
        let asked = self.round_trip.iter().map(|trip| trip.ecn);
        let sent = self.trials.iter().map(|trial| trial.counts.ecn);
        let mut total = [0; 4];
        for counts in asked.chain(sent) {
            for (total, count) in total.iter_mut().zip(counts) {
                *total += u64::from(count);
            }
        }
        EcnFindings::of(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(packets: u32, received: u32, socket_drops: u64, unsent: u64) -> TrialFindings {
        TrialFindings {
            payload_bytes: 1024,
            rate_bps: 1,
            round: 0,
            packets,
            unsent,
            waits: 0,
            elapsed: Duration::ZERO,
            counts: TrialCounts {
                received,
                socket_drops,
                bursts: u32::from(packets > received),
                longest_burst: packets - received,
                ..TrialCounts::default()
            },
        }
    }

    #[test]
    fn what_hosts_drop_is_not_the_paths_loss() {
        let by_host = trial(100, 90, 6, 1);
        assert_eq!((by_host.lost_in_hosts(), by_host.lost_on_path()), (7, 3));
        // Datagrams of a stranger may have been dropped too.
        let flooded = trial(100, 90, 1000, 0);
        assert_eq!((flooded.lost_in_hosts(), flooded.lost_on_path()), (10, 0));
        let findings = Findings {
            trials: vec![by_host, flooded, trial(1000, 995, 0, 0)],
            ..Findings::default()
        };
        let all = findings.direction();
        assert_eq!((all.packets, all.lost), (1200, 8));
        // The share leaves out trials with drops in hosts, as in the paper.
        assert_eq!(all.loss.expect("packets").share, 0.005);
        assert_eq!(all.bursts.expect("losses").mean_packets, 5.0);
    }

    #[test]
    fn arrivals_show_what_happens_to_ecn() {
        for (counts, want) in [
            ([0; 4], EcnFindings::Unknown),
            ([0, 0, 9, 0], EcnFindings::Kept),
            ([0, 0, 9, 1], EcnFindings::Marked),
            ([9, 0, 0, 0], EcnFindings::Bleached),
            ([1, 0, 9, 0], EcnFindings::Changed),
            ([0, 9, 0, 0], EcnFindings::Changed),
        ] {
            assert_eq!(EcnFindings::of(counts), want, "{counts:?}");
        }
    }
}
