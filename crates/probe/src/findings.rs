//! What a probe found.

use std::net::SocketAddr;
use std::time::Duration;

use crate::estimate::{Bursts, RoundTrips, Share};
use crate::message::{Counts, HostDrops};

/// What a probe found. What it did not get to is `None`, or missing in a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Where the responder takes datagrams.
    pub peer: Option<SocketAddr>,
    /// Round trips.
    pub round_trip: Option<RoundTrip>,
    /// What each direction does to addresses.
    pub nat: Option<Nat>,
    /// The rate that the path carries.
    pub rate: Option<Rate>,
    /// The largest packet that the path carries.
    pub mtu: Option<Mtu>,
    /// Trials that were counted, in the order in which they were sent.
    pub trials: Vec<Trial>,
    /// Drops in the kernels of the two hosts.
    pub host: Host,
    /// Whether the user ended it early.
    pub interrupted: bool,
}

/// Round trips of small packets on the path at rest.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundTrip {
    /// Questions that were sent.
    pub sent: u32,
    /// The round trips of those that were answered.
    pub times: RoundTrips,
    /// Questions that arrived, by the two ECN bits. They leave as ECT(0).
    pub ecn: [u32; 4],
}

/// What the path does to addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nat {
    /// The address of the first flow.
    pub ours: SocketAddr,
    /// That address, as the peer sees it.
    pub ours_seen: SocketAddr,
    /// The address that the peer bound.
    pub theirs: SocketAddr,
    /// That address, as this end reaches it.
    pub theirs_seen: SocketAddr,
}

impl Nat {
    /// Whether something rewrites this end's address.
    #[must_use]
    pub fn is_ours_changed(&self) -> bool {
        self.ours != self.ours_seen
    }

    /// Whether something rewrites the peer's address.
    #[must_use]
    pub fn is_theirs_changed(&self) -> bool {
        self.theirs != self.theirs_seen
    }
}

/// What limited the rate that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateLimit {
    /// The path: it carries no more.
    Path,
    /// The highest rate that was allowed; the path may carry more.
    Asked,
    /// This machine could not send faster; the path may carry more.
    Sender,
}

/// The rate that the path carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Bits of IP packets a second.
    pub bps: f64,
    /// What limited it.
    pub limit: RateLimit,
    /// Trains that were sent to find it.
    pub trains: u32,
}

/// What limited the MTU that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuLimit {
    /// Larger packets do not arrive.
    Path,
    /// The interface of this machine, or what a router on the way said to it.
    Local,
    /// Nothing larger was tried.
    Tried,
}

/// The largest packet that the path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    /// Bytes of the IP packet.
    pub ip_bytes: u32,
    /// Bytes of its UDP payload.
    pub payload_bytes: u32,
    /// What limited it.
    pub limit: MtuLimit,
}

/// What became of the packets of one trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// UDP payload bytes of a packet.
    pub payload_bytes: u32,
    /// Bits of IP packets a second that were asked for.
    pub rate_bps: u64,
    /// How often this size and rate were sent before.
    pub round: u32,
    /// Packets that were sent.
    pub packets: u32,
    /// Those of them that this end's host did not put on the network.
    pub unsent: u64,
    /// How often this end's socket was full, and the packet waited.
    pub waits: u64,
    /// How long sending took.
    pub elapsed: Duration,
    /// What arrived.
    pub counts: Counts,
}

impl Trial {
    /// Packets that did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        u64::from(self.packets.saturating_sub(self.counts.received))
    }

    /// Those that the hosts at the two ends dropped.
    #[must_use]
    pub fn lost_in_hosts(&self) -> u64 {
        self.lost().min(self.unsent + self.counts.socket_drops)
    }

    /// Those that the path dropped.
    #[must_use]
    pub fn lost_on_path(&self) -> u64 {
        self.lost() - self.lost_in_hosts()
    }

    /// Whether a host dropped packets: the SDR-RDMA paper leaves such trials out of Fig. 2.
    #[must_use]
    pub fn is_of_hosts(&self) -> bool {
        self.lost_in_hosts() > 0
    }
}

/// Drops in the kernels of the two hosts, of all their programs, while the probe ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// This end's.
    pub ours: HostDrops,
    /// The peer's.
    pub theirs: HostDrops,
    /// Receive buffer of the responder's socket.
    pub recv_buffer_bytes: u64,
}

/// All trials together: what one direction of the path does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Direction {
    /// Packets that were sent.
    pub packets: u64,
    /// Those that the path dropped.
    pub lost: u64,
    /// Their share; trials with drops in hosts are left out.
    pub loss: Option<Share>,
    /// Their runs.
    pub bursts: Option<Bursts>,
    /// Packets that arrived behind a later one of their flow.
    pub reordered: u64,
    /// Largest extent of that, in packets.
    pub extent_packets: u32,
    /// Largest extent of that, in time.
    pub extent: Duration,
    /// Packets that arrived twice.
    pub duplicates: u64,
    /// What became of the ECN bits, over these packets and the questions.
    pub ecn: Ecn,
}

/// What the path does to the ECN bits of packets that leave as ECT(0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Nothing is known.
    Unknown,
    /// They arrive as they are.
    Kept,
    /// They arrive as they are, or with a mark of congestion.
    Marked,
    /// They arrive without.
    Bleached,
    /// They arrive changed, and not always alike.
    Changed,
}

impl Ecn {
    /// From arrivals by the two bits.
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
    /// All trials together.
    #[must_use]
    pub fn direction(&self) -> Direction {
        let good = || self.trials.iter().filter(|trial| !trial.is_of_hosts());
        let sum = |of: &dyn Fn(&Trial) -> u64| good().map(of).sum::<u64>();
        let packets = sum(&|trial| trial.packets.into());
        let lost = sum(&Trial::lost_on_path);
        let bursts = sum(&|trial| trial.counts.bursts.into());
        let longest = good().map(|trial| trial.counts.longest_burst).max();
        let all = || self.trials.iter().map(|trial| &trial.counts);
        Direction {
            packets: self
                .trials
                .iter()
                .map(|trial| u64::from(trial.packets))
                .sum(),
            lost: self.trials.iter().map(Trial::lost_on_path).sum(),
            loss: Share::of(lost, packets),
            bursts: Bursts::of(packets, lost, bursts, longest.unwrap_or(0).into()),
            reordered: all().map(|counts| u64::from(counts.reordered)).sum(),
            extent_packets: all().map(|counts| counts.extent_packets).max().unwrap_or(0),
            extent: Duration::from_nanos(all().map(|counts| counts.extent_ns).max().unwrap_or(0)),
            duplicates: all().map(|counts| u64::from(counts.duplicates)).sum(),
            ecn: self.ecn(),
        }
    }

    fn ecn(&self) -> Ecn {
        let asked = self.round_trip.iter().map(|trip| trip.ecn);
        let sent = self.trials.iter().map(|trial| trial.counts.ecn);
        let mut total = [0; 4];
        for counts in asked.chain(sent) {
            for (total, count) in total.iter_mut().zip(counts) {
                *total += u64::from(count);
            }
        }
        Ecn::of(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(packets: u32, received: u32, socket_drops: u64, unsent: u64) -> Trial {
        Trial {
            payload_bytes: 1024,
            rate_bps: 1,
            round: 0,
            packets,
            unsent,
            waits: 0,
            elapsed: Duration::ZERO,
            counts: Counts {
                received,
                socket_drops,
                bursts: u32::from(packets > received),
                longest_burst: packets - received,
                ..Counts::default()
            },
        }
    }

    #[test]
    fn what_hosts_drop_is_not_the_paths_loss() {
        let by_host = trial(100, 90, 6, 1);
        assert_eq!((by_host.lost_in_hosts(), by_host.lost_on_path()), (7, 3));
        // A stranger's datagrams may have been dropped too.
        let flooded = trial(100, 90, 1000, 0);
        assert_eq!((flooded.lost_in_hosts(), flooded.lost_on_path()), (10, 0));
        let findings = Findings {
            trials: vec![by_host, flooded, trial(1000, 995, 0, 0)],
            ..Findings::default()
        };
        let all = findings.direction();
        assert_eq!((all.packets, all.lost), (1200, 8));
        // As the paper does, the share leaves out trials with drops in hosts.
        assert_eq!(all.loss.expect("packets").share, 0.005);
        assert_eq!(all.bursts.expect("losses").mean_packets, 5.0);
    }

    #[test]
    fn arrivals_show_what_happens_to_ecn() {
        for (counts, want) in [
            ([0; 4], Ecn::Unknown),
            ([0, 0, 9, 0], Ecn::Kept),
            ([0, 0, 9, 1], Ecn::Marked),
            ([9, 0, 0, 0], Ecn::Bleached),
            ([1, 0, 9, 0], Ecn::Changed),
            ([0, 9, 0, 0], Ecn::Changed),
        ] {
            assert_eq!(Ecn::of(counts), want, "{counts:?}");
        }
    }
}
