//! Connections over a long path, and what they achieve.

use std::collections::BTreeSet;
use std::time::Duration;

use farwrite_boxes::lowar::{Coding, Config, Lowar};
use farwrite_boxes::{Backpressure, ReceiveTimes};
use farwrite_experiment::parallel_map;
use farwrite_net::{Loss, Payload};
use farwrite_rc::{QpConfig, Remote, Request};
use farwrite_units::stats::{mean, standard_error};

use crate::network::{self, Setting};
use crate::rows::Panel;

pub(crate) const MB: u32 = 1_000_000;
const RKEY: u32 = 1;
const MTU_BYTES: u32 = 1024;
/// Of the first run.
pub(crate) const SEED: u64 = 9;
/// Far above the time for which a box holds packets.
const MIN_ACK_TIMEOUT_NS: u64 = 20_000_000;

/// Where the boxes are.
#[derive(Clone, Copy)]
pub(crate) enum BoxPlace {
    /// Behind the NICs, on cables that are this number of times as fast as the path.
    Cable(u64),
    /// Inside the NICs, whose receive paths take these times.
    Nic(ReceiveTimes),
}

/// What NICs do about losses.
#[derive(Clone, Copy, Default)]
pub(crate) struct Restart {
    /// `None`: four round trips.
    pub(crate) ack_timeout: Option<Duration>,
    pub(crate) first_timeout: Option<Duration>,
    pub(crate) slow_restart_packets: Option<u32>,
}

/// Connections that always have messages to send.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) rate_bps: u64,
    pub(crate) place: BoxPlace,
    /// Whether boxes protect connections from the first packet on.
    pub(crate) peer_known: bool,
    pub(crate) restart: Restart,
    pub(crate) rtt: Duration,
    pub(crate) loss: Loss,
    pub(crate) coding: Option<Coding>,
    pub(crate) message_bytes: u32,
    pub(crate) connections: u32,
    /// Messages that are posted and not done, of all connections.
    pub(crate) queue: u64,
    pub(crate) seconds: f64,
    /// Of the first run.
    pub(crate) seed: u64,
    /// Runs whose mean a goodput is, with one seed after the other.
    pub(crate) runs: u64,
}

/// The mean of some runs, and its standard error.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    /// 0 for one run, which does not show the spread.
    pub(crate) error: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        Self {
            mean: mean(values),
            error: standard_error(values),
        }
    }

    /// Adds this goodput to a panel, with its standard error if there are several runs.
    pub(crate) fn add_to(self, panel: &Panel<'_>, series: &str, x: f64, runs: u64) -> Self {
        panel.add(series, x, "goodput_gbps", self.mean);
        if runs > 1 {
            panel.add(series, x, "error_gbps", self.error);
        }
        self
    }
}

impl Case {
    /// What the path is like, for a person.
    pub(crate) fn conditions(&self) -> String {
        format!(
            "{} Gbit/s, round trip of {}, MTU of {MTU_BYTES} bytes, {}",
            self.rate_bps as f64 / 1e9,
            spaced(self.rtt),
            self.runs(),
        )
    }

    /// The runs that make up a number, for a person.
    pub(crate) fn runs(&self) -> String {
        match self.runs {
            1 => format!("seed {}", self.seed),
            runs => format!("means of {runs} runs from seed {} on", self.seed),
        }
    }

    /// The same, and how goodput of these `messages` is measured.
    pub(crate) fn goodput_conditions(&self, messages: &str) -> String {
        let length = match self.runs {
            1 => format!("a run of {} s for each number", self.seconds),
            _ => format!("runs of {} s", self.seconds),
        };
        let conditions = self.conditions();
        format!(
            "{conditions}, {} {messages} under way, {length}",
            self.queue
        )
    }

    /// The path, and its queue pairs. It loses packets with the numbers in `lost` too.
    fn path(&self, lost: Option<BTreeSet<u64>>) -> (network::Path<Lowar>, Vec<u32>) {
        let config = self.coding.map(|coding| Config {
            coding,
            peer_known: self.peer_known,
            ..Config::default()
        });
        let near_factor = match self.place {
            BoxPlace::Cable(factor) => factor,
            BoxPlace::Nic(_) => 1,
        };
        let setting = Setting {
            rate_bps: self.rate_bps,
            near_factor,
            delay: self.rtt / 2,
            loss: self.loss,
            seed: self.seed,
            boxes: [config.clone(), config],
            backpressure: Backpressure::default(),
            buffer: None,
        };
        let mut path = match (self.place, lost) {
            (BoxPlace::Nic(times), lost) => {
                network::Path::<Lowar>::with_shims(&setting, times, lost)
            }
            (BoxPlace::Cable(_), Some(lost)) => network::Path::<Lowar>::with_lost(&setting, lost),
            (BoxPlace::Cable(_), None) => network::Path::<Lowar>::new(&setting),
        };
        let nanos = |time: Duration| time.as_nanos() as u64;
        let Restart {
            ack_timeout,
            first_timeout,
            slow_restart_packets,
        } = self.restart;
        let far_above_ns = (4 * nanos(self.rtt)).max(MIN_ACK_TIMEOUT_NS);
        let config = QpConfig {
            mtu_bytes: MTU_BYTES,
            window_packets: 200_000,
            ack_timeout_ns: ack_timeout.map_or(far_above_ns, nanos),
            first_timeout_ns: first_timeout.map(nanos),
            slow_restart_packets,
            retry_limit: Some(255),
            ..QpConfig::new(2)
        };
        let qpns = (0..self.connections).map(|number| path.connect(number, config));
        let qpns = qpns.collect();
        let memory = &mut path.nic(1).memory;
        let registered = memory.register_ghost(RKEY, 0, u64::from(MB));
        registered.expect("a free key");
        (path, qpns)
    }

    /// The goodput in Gbit/s, over all runs, on all cores. The path of a run loses packets with the
    /// numbers in `lost` too.
    pub(crate) fn goodput(&self, lost: &(dyn Fn(&Self) -> Option<BTreeSet<u64>> + Sync)) -> Spread {
        let seeds: Vec<u64> = (self.seed..self.seed + self.runs).collect();
        let goodputs = parallel_map(&seeds, |&seed| {
            let case = Self { seed, ..*self };
            case.goodput_gbps(lost(&case))
        });
        Spread::of(&goodputs)
    }

    /// More packets than a run can send.
    pub(crate) fn most_packets(&self) -> u64 {
        (self.seconds * self.rate_bps as f64 / 8.0) as u64 / u64::from(MTU_BYTES)
    }

    /// The goodput between the start and the end of a run, in Gbit/s.
    fn goodput_gbps(&self, lost: Option<BTreeSet<u64>>) -> f64 {
        let (mut path, qpns) = self.path(lost);
        let queue = self.queue / u64::from(self.connections);
        let mut done = vec![0; qpns.len()];
        let (mut posted, mut now_ns) = (vec![0; qpns.len()], 0);
        let end_ns = (self.seconds * 1e9) as u64;
        while now_ns < end_ns {
            for (at, qpn) in qpns.iter().enumerate() {
                while posted[at] < done[at] + queue {
                    post(&mut path, *qpn, posted[at], self.message_bytes);
                    posted[at] += 1;
                }
            }
            now_ns += 100_000;
            path.network.run_until(now_ns);
            for (at, qpn) in qpns.iter().enumerate() {
                done[at] += path.completions(0, *qpn).len() as u64;
            }
        }
        // The first round trip brings nothing.
        let useful_s = self.seconds - self.rtt.as_secs_f64();
        let messages: u64 = done.iter().sum();
        messages as f64 * f64::from(self.message_bytes) * 8e-9 / useful_s
    }

    /// From the post of a message until its acknowledgement, for messages one after the other, in us.
    pub(crate) fn times_us(&self, count: u64, lost: Option<BTreeSet<u64>>) -> Vec<f64> {
        let (mut path, qpns) = self.path(lost);
        let qpn = qpns[0];
        let step_ns = (self.rtt.as_nanos() as u64 / 10_000).clamp(100, 5_000);
        let mut time_us = |number| {
            let began_ns = path.network.now_ns();
            post(&mut path, qpn, number, self.message_bytes);
            while path.completions(0, qpn).is_empty() {
                let now_ns = path.network.now_ns();
                path.network.run_until(now_ns + step_ns);
            }
            (path.network.now_ns() - began_ns) as f64 / 1000.0
        };
        (0..count).map(&mut time_us).collect()
    }
}

/// As in "40 ms".
pub(crate) fn spaced(time: Duration) -> String {
    let text = format!("{time:?}");
    let unit = text.find(char::is_alphabetic).expect("a unit");
    let (number, unit) = text.split_at(unit);
    // ASCII, as in the documents.
    format!("{number} {}", unit.replace('µ', "u"))
}

fn post(path: &mut network::Path<Lowar>, qpn: u32, number: u64, bytes: u32) {
    let request = Request::Write {
        data: Payload::Ghost(bytes),
        to: Remote {
            rkey: RKEY,
            addr: 0,
        },
        imm: None,
    };
    let posted = path.nic(0).post(qpn, number, request);
    posted.expect("a queue pair");
}
