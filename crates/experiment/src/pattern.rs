//! Workload patterns, by name and parameters.

mod collective;
mod random;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::sizes::Sizes;
use crate::units::nanoseconds;
use crate::{Flow, Workload};

/// Largest number of flows of a workload.
const MAX_FLOWS: usize = 1 << 24;

/// A workload pattern: a name and parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pattern {
    /// Each of the first `senders` hosts, without the receiver, sends one message to the receiver.
    Incast {
        /// Number of senders.
        senders: usize,
        /// The receiver; `None`: the last host.
        receiver: Option<usize>,
        /// Bytes of each message.
        #[serde(deserialize_with = "crate::units::size")]
        size: u64,
        /// Time from one start to the next.
        #[serde(default, deserialize_with = "crate::units::time")]
        spacing: Duration,
    },
    /// Each host sends one message to another host, and receives one. The pairs are drawn from the
    /// seed.
    Permutation {
        /// Bytes of each message.
        #[serde(deserialize_with = "crate::units::size")]
        size: u64,
    },
    /// Each host sends a message to each other host. With `parallel`, a host has at most this
    /// number of messages in progress, and each completed one starts the next.
    AllToAll {
        /// Bytes of each message.
        #[serde(deserialize_with = "crate::units::size")]
        size: u64,
        /// Messages that a host has in progress at a time; `None`: all.
        parallel: Option<usize>,
    },
    /// Messages between random hosts at random times (a Poisson process).
    Poisson {
        /// Mean share of the rate of the hosts' cables that the messages use, headers excluded;
        /// above 0.
        load: f64,
        /// `"websearch"`, `"hadoop"`, a size such as `"64kB"`, or the name of a file with points of
        /// a distribution.
        sizes: String,
        /// Number of messages.
        flows: usize,
    },
    /// Incasts at random times (a Poisson process), each from random hosts to a random other one.
    PoissonIncast {
        /// As in `Poisson`.
        load: f64,
        /// Senders of each incast.
        senders: usize,
        /// Bytes of each message.
        #[serde(deserialize_with = "crate::units::size")]
        size: u64,
        /// Number of incasts.
        incasts: usize,
    },
    /// On-off sources: hosts that alternate between silence and a burst to a random other host.
    OnOff {
        /// Number of sending hosts: the last ones of the topology.
        senders: usize,
        /// Mean bytes of a burst (exponential).
        #[serde(deserialize_with = "crate::units::size")]
        burst: u64,
        /// Mean silence (exponential). It begins when the burst would be over at the rate of the
        /// cable.
        #[serde(deserialize_with = "crate::units::time")]
        silence: Duration,
        /// Time after which no burst begins.
        #[serde(deserialize_with = "crate::units::time")]
        until: Duration,
    },
    /// All-reduce on a ring of n hosts: `2 (n - 1)` steps. In each step, each host sends one `n`-th
    /// of the data to the next host, once it has received the part of the previous step.
    RingAllReduce {
        /// Number of hosts: the first ones; `None`: all.
        hosts: Option<usize>,
        /// Bytes that each host has.
        #[serde(deserialize_with = "crate::units::size")]
        size: u64,
    },
    /// All-reduce on a binary tree: sums go up to host 0, then the result goes down.
    TreeAllReduce {
        /// Number of hosts: the first ones; `None`: all.
        hosts: Option<usize>,
        /// Bytes that each host has.
        #[serde(deserialize_with = "crate::units::size")]
        size: u64,
    },
    /// An explicit list of flows.
    Flows {
        /// The flows.
        flows: Vec<ListedFlow>,
    },
    /// Several patterns at the same time.
    Mix {
        /// The patterns.
        parts: Vec<Pattern>,
    },
}

/// A flow in the list of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedFlow {
    src: usize,
    dst: usize,
    #[serde(deserialize_with = "crate::units::size")]
    size: u64,
    #[serde(default, deserialize_with = "crate::units::time")]
    start: Duration,
    priority: Option<u8>,
}

/// The network for which a pattern makes a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternNetwork {
    /// Rate of each host's cable in bits per second.
    pub rates_bps: Vec<u64>,
}

impl PatternNetwork {
    /// A network with the same rate at all hosts, in bits per second.
    #[must_use]
    pub fn uniform(hosts: usize, rate_bps: u64) -> Self {
        Self {
            rates_bps: vec![rate_bps; hosts],
        }
    }

    /// Number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.rates_bps.len()
    }
}

/// Why a pattern cannot make a workload.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// A parameter is out of range.
    #[error("{key} = {value}: {want}")]
    Range {
        /// The name of the parameter.
        key: &'static str,
        /// The value given.
        value: String,
        /// The accepted range.
        want: String,
    },
    /// The topology has too few hosts for any workload.
    #[error("hosts = {hosts}: a workload needs at least 2 hosts")]
    FewHosts {
        /// Number of hosts of the topology.
        hosts: usize,
    },
    /// A distribution of sizes is unknown.
    #[error(
        "sizes = {0:?}: websearch, hadoop, a size such as 64kB, or the name of a file of points"
    )]
    Sizes(String),
}

impl Pattern {
    /// The files of size distributions that the pattern names.
    #[must_use]
    pub fn size_files(&self) -> Vec<String> {
        match self {
            Self::Poisson { sizes, .. } => {
                let is_known = ["websearch", "hadoop"].contains(&sizes.as_str());
                let is_size = farwrite_units::parse::parse_count(sizes).is_ok();
                if is_known || is_size {
                    return Vec::new();
                }
                vec![sizes.clone()]
            }
            Self::Mix { parts } => parts.iter().flat_map(Self::size_files).collect(),
            _ => Vec::new(),
        }
    }

    /// Makes the workload. The same network and seed give the same workload. `files` has the size
    /// distributions of the named files.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn build(
        &self,
        network: &PatternNetwork,
        seed: u64,
        files: &BTreeMap<String, Sizes>,
    ) -> Result<Workload, PatternError> {
        let hosts = network.hosts();
        if hosts < 2 {
            return Err(PatternError::FewHosts { hosts });
        }
        match *self {
            Self::Incast {
                senders,
                receiver,
                size,
                spacing,
            } => incast(hosts, senders, receiver, size, nanoseconds(spacing)),
            Self::Permutation { size } => Ok(random::permutation(hosts, size, seed)),
            Self::AllToAll { size, parallel } => collective::all_to_all(hosts, size, parallel),
            Self::Poisson {
                load,
                ref sizes,
                flows,
            } => {
                check("flows", flows, 1, MAX_FLOWS)?;
                check_load(load)?;
                let sizes = sizes_of(sizes, files)?;
                Ok(random::poisson(network, load, &sizes, flows, seed))
            }
            Self::PoissonIncast {
                load,
                senders,
                size,
                incasts,
            } => {
                check("senders", senders, 1, hosts - 1)?;
                check("incasts", incasts, 1, MAX_FLOWS / senders)?;
                check_load(load)?;
                let of_one = (senders, size);
                Ok(random::poisson_incast(network, load, of_one, incasts, seed))
            }
            Self::OnOff {
                senders,
                burst,
                silence,
                until,
            } => {
                check("senders", senders, 1, hosts)?;
                random::on_off(network, senders, burst, [silence, until], seed)
            }
            Self::RingAllReduce { hosts: some, size } => {
                let some = some.unwrap_or(hosts);
                check("hosts", some, 2, hosts)?;
                check("hosts", some, 2, 2896)?;
                Ok(collective::ring(some, size))
            }
            Self::TreeAllReduce { hosts: some, size } => {
                let some = some.unwrap_or(hosts);
                check("hosts", some, 2, hosts)?;
                Ok(collective::tree(some, size))
            }
            Self::Flows { ref flows } => Ok(listed(flows)),
            Self::Mix { ref parts } => {
                let mut all = Workload::default();
                for (part, number) in parts.iter().zip(0..) {
                    let seed = seed.wrapping_add(number << 32);
                    all.append(part.build(network, seed, files)?);
                    check("parts", all.flows.len(), 0, MAX_FLOWS)?;
                }
                Ok(all)
            }
        }
    }
}

fn incast(
    hosts: usize,
    senders: usize,
    receiver: Option<usize>,
    size: u64,
    spacing_ns: u64,
) -> Result<Workload, PatternError> {
    let receiver = receiver.unwrap_or(hosts - 1);
    check("receiver", receiver, 0, hosts - 1)?;
    check("senders", senders, 1, hosts - 1)?;
    let others = (0..hosts).filter(|host| *host != receiver);
    let starts = (0_u64..).map(|number| number.saturating_mul(spacing_ns));
    let flows = others
        .zip(starts)
        .map(|(host, start_ns)| Flow::new(host, receiver, size, start_ns));
    Ok(Workload::of(flows.take(senders).collect()))
}

fn listed(flows: &[ListedFlow]) -> Workload {
    let flows = flows.iter().map(|flow| Flow {
        priority: flow.priority,
        ..Flow::new(flow.src, flow.dst, flow.size, nanoseconds(flow.start))
    });
    Workload::of(flows.collect())
}

fn sizes_of(name: &str, files: &BTreeMap<String, Sizes>) -> Result<Sizes, PatternError> {
    match name {
        "websearch" => Ok(Sizes::web_search()),
        "hadoop" => Ok(Sizes::hadoop()),
        _ => match farwrite_units::parse::parse_count(name) {
            Ok(bytes) if bytes > 0 => Ok(Sizes::fixed(bytes)),
            Ok(_) => Err(range("sizes", name, "a message has at least 1 byte")),
            Err(_) => {
                let sizes = files.get(name).cloned();
                sizes.ok_or_else(|| PatternError::Sizes(name.to_owned()))
            }
        },
    }
}

fn check_load(load: f64) -> Result<(), PatternError> {
    if load > 0.0 && load <= 10.0 {
        return Ok(());
    }
    Err(range("load", load, "above 0, at most 10; 0.5 is half"))
}

fn check(key: &'static str, value: usize, least: usize, most: usize) -> Result<(), PatternError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let want = match most >= least {
        true => format!("{least} to {most} on this topology"),
        false => format!("at least {least}; the topology has too few hosts"),
    };
    Err(range(key, value, want))
}

fn range(key: &'static str, value: impl ToString, want: impl Into<String>) -> PatternError {
    PatternError::Range {
        key,
        value: value.to_string(),
        want: want.into(),
    }
}

#[cfg(test)]
mod tests {
    use farwrite_units::show::real;

    use super::*;
    use crate::Start;

    fn network() -> PatternNetwork {
        PatternNetwork::uniform(8, 100_000_000_000)
    }

    fn build(text: &str) -> Result<Workload, String> {
        build_on(&network(), text)
    }

    fn build_on(network: &PatternNetwork, text: &str) -> Result<Workload, String> {
        let pattern: Pattern = toml::from_str(text).map_err(|error| error.to_string())?;
        let workload = pattern.build(network, 1, &BTreeMap::new());
        let workload = workload.map_err(|error| error.to_string())?;
        workload
            .validate(network.hosts())
            .map_err(|error| error.to_string())?;
        Ok(workload)
    }

    #[test]
    fn an_incast_goes_around_its_receiver() {
        let text =
            "pattern = \"incast\"\nsenders = 3\nreceiver = 1\nsize = \"1kB\"\nspacing = \"2us\"";
        let flows = build(text).unwrap().flows;
        let want = [(0, 0), (2, 2000), (3, 4000)].map(|(src, at)| Flow::new(src, 1, 1000, at));
        assert_eq!(flows, want);
    }

    #[test]
    fn a_permutation_has_each_host_once_at_each_end_and_none_for_itself() {
        for seed in 0..50 {
            let pattern = Pattern::Permutation { size: 1 };
            let flows = pattern
                .build(&network(), seed, &BTreeMap::new())
                .unwrap()
                .flows;
            let mut ends: Vec<_> = flows.iter().map(|flow| flow.dst).collect();
            assert!(flows.iter().all(|flow| flow.src != flow.dst));
            ends.sort_unstable();
            assert_eq!(ends, (0..8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn poisson_arrivals_make_the_load() {
        let text = "pattern = \"poisson\"\nload = 0.5\nsizes = \"10kB\"\nflows = 20000";
        // 8 hosts of 100 Gbit/s: 100 bytes per nanosecond. In the second network, half of the hosts
        // have a tenth of this rate: 55 bytes per nanosecond.
        let mut mixed = network();
        mixed.rates_bps[..4].fill(10_000_000_000);
        for (network, bytes_per_ns) in [(network(), 100.0), (mixed, 55.0)] {
            let flows = build_on(&network, text).unwrap().flows;
            let Start::At(end_ns) = flows.last().unwrap().start else {
                panic!("flows start by time");
            };
            let bytes: u64 = flows.iter().map(|flow| flow.bytes).sum();
            let load = real(bytes) / real(end_ns) / bytes_per_ns;
            assert!((load - 0.5).abs() < 0.02, "{load}");
        }
    }

    #[test]
    fn poisson_incasts_make_the_load_of_different_senders() {
        let text = "pattern = \"poisson-incast\"\nload = 0.1\nsenders = 5\nsize = \"10kB\"\nincasts = 4000";
        let flows = build(text).unwrap().flows;
        assert_eq!(flows.len(), 20_000);
        let mut received = [0; 8];
        let mut sent = [0; 8];
        for incast in flows.chunks(5) {
            let mut senders: Vec<_> = incast.iter().map(|flow| flow.src).collect();
            senders.sort_unstable();
            senders.dedup();
            assert_eq!(senders.len(), 5);
            let one = incast[0];
            assert!(senders.iter().all(|host| *host != one.dst));
            assert!(
                incast
                    .iter()
                    .all(|flow| (flow.dst, flow.start) == (one.dst, one.start))
            );
            received[one.dst] += 1;
            senders.into_iter().for_each(|host| sent[host] += 1);
        }
        // 500 each, with a standard deviation of 21, and 2500 with one of 31.
        assert!(
            received.iter().all(|n| (400..600).contains(n)),
            "{received:?}"
        );
        assert!(sent.iter().all(|n| (2350..2650).contains(n)), "{sent:?}");
        let Start::At(end_ns) = flows[19_999].start else {
            panic!("flows start by time");
        };
        let load = 20_000.0 * 10_000.0 / real(end_ns) / 100.0;
        assert!((load - 0.1).abs() < 0.01, "{load}");
        let error = |text: String| build(&text).unwrap_err();
        let many = error(text.replace("senders = 5", "senders = 8"));
        assert_eq!(many, "senders = 8: 1 to 7 on this topology");
        let many = error(text.replace("4000", "4000000"));
        assert!(
            many.starts_with("incasts = 4000000: 1 to 3355443"),
            "{many}"
        );
    }

    #[test]
    fn bursts_leave_silences() {
        let text = "pattern = \"on-off\"\nsenders = 2\nburst = \"100kB\"\nsilence = \"24us\"\nuntil = \"20ms\"";
        let flows = build(text).unwrap().flows;
        assert!(flows.iter().all(|flow| flow.src >= 6));
        // 100 kB take 8 us, so a host has a burst every 32 us.
        assert!((1000..1500).contains(&flows.len()), "{}", flows.len());
        // 80 us at a tenth of the rate: a burst every 104 us.
        let mut mixed = network();
        mixed.rates_bps[6] = 10_000_000_000;
        let flows = build_on(&mixed, text).unwrap().flows;
        let of_host = |host| flows.iter().filter(|flow| flow.src == host).count();
        let (slow, fast) = (of_host(6), of_host(7));
        assert!((150..240).contains(&slow), "{slow}");
        assert!((500..750).contains(&fast), "{fast}");
    }

    #[test]
    fn a_mix_keeps_triggers_apart() {
        let text = "pattern = \"mix\"\nparts = [{ pattern = \"ring-all-reduce\", hosts = 3, size = \"3kB\" }, \
                    { pattern = \"ring-all-reduce\", hosts = 3, size = \"3kB\" }]";
        let both = build(text).unwrap();
        let half = both.triggers.len() / 2;
        let waits = |flow: &Flow| match flow.start {
            Start::On(trigger) => Some(trigger),
            Start::At(_) => None,
        };
        let (first, second) = both.flows.split_at(both.flows.len() / 2);
        assert!(first.iter().filter_map(waits).all(|at| at < half));
        assert!(second.iter().filter_map(waits).all(|at| at >= half));
    }

    #[test]
    fn parameters_out_of_range_are_named() {
        let error = |text| build(text).unwrap_err();
        let many = error("pattern = \"incast\"\nsenders = 8\nsize = \"1kB\"");
        assert_eq!(many, "senders = 8: 1 to 7 on this topology");
        let load = error("pattern = \"poisson\"\nload = 0\nsizes = \"hadoop\"\nflows = 1");
        assert!(load.starts_with("load = 0: above 0"), "{load}");
        let sizes = error("pattern = \"poisson\"\nload = 1\nsizes = \"x.txt\"\nflows = 1");
        assert!(sizes.starts_with("sizes = \"x.txt\": websearch"), "{sizes}");
        let unknown = error("pattern = \"incast\"\nsender = 8\nsize = \"1kB\"");
        assert!(unknown.contains("unknown field `sender`"), "{unknown}");
        let zero = error("pattern = \"permutation\"\nsize = \"0\"");
        assert!(
            zero.contains("\"0\": a message has at least 1 byte"),
            "{zero}"
        );
    }
}
