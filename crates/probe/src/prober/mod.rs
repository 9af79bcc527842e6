//! The prober: the end that asks.

mod flows;
mod losses;
mod mtu;
mod rate;
mod trips;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use farwrite_keys::Text;

use crate::control::Control;
use crate::datagram::KEY_BYTES;
use crate::message::{HostDrops, ProbeKey, ProbeMessage, Trial, TrialCounts};
use crate::{Error, Findings, Settings, findings};
use flows::Flows;

/// Timeout for each message of the responder.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest number of questions of a probe.
const QUESTIONS: u32 = 1 << 14;
/// Number of trials whose counts are requested with one message.
const COUNTS: usize = 64;
/// Bytes of the IP and UDP headers of a packet.
const OVERHEAD_V4_BYTES: u32 = 20 + 8;
const OVERHEAD_V6_BYTES: u32 = 40 + 8;

/// The functions that a probe needs from its program.
pub struct ProbeHooks<'a> {
    /// Destination of the datagrams of a flow, given the responder's address. Usually this is the
    /// responder's address itself; an emulator may stand between.
    pub redirect: &'a dyn Fn(usize, SocketAddr) -> SocketAddr,
    /// Whether the user wants to end the probe.
    pub cancelled: &'a dyn Fn() -> bool,
    /// Receives the progress of the probe, for people.
    pub observe: &'a dyn Fn(ProbeStage),
}

/// A stage of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStage {
    /// Round trips are measured by questions and answers.
    RoundTrips,
    /// Packet trains measure the rate.
    Rate,
    /// Packets of many sizes measure the MTU.
    Mtu,
    /// Trials measure the loss.
    Losses {
        /// Completed trials.
        done: u64,
        /// All trials.
        all: u64,
    },
}

/// A probe under way.
struct Session<'a> {
    control: &'a Control,
    flows: Flows,
    settings: &'a Settings,
    host: &'a ProbeHooks<'a>,
    started: Instant,
    /// The trial for all questions.
    questions: Trial,
    /// Number of questions sent.
    asked: u32,
    next_trial: u32,
    overhead_bytes: u32,
    /// Drops of this host before the probe.
    drops: HostDrops,
    findings: Findings,
}

/// Measures the path to the responder at the other end of a connection. If the user ends the probe early, the
/// result contains what is known by then.
///
/// # Errors
/// [`Error`]. The peer is informed.
pub fn probe(
    control: Control,
    settings: &Settings,
    host: &ProbeHooks<'_>,
) -> Result<Findings, Error> {
    let result = Session::start(&control, settings, host).and_then(Session::run);
    match &result {
        // The results are here, whatever happens to this message.
        Ok(_) => drop(control.end(&ProbeMessage::Done)),
        Err(error) => control.abort(error.cause(), Text::new(error)),
    }
    result
}

impl<'a> Session<'a> {
    /// Agrees on port and key with the responder (P9.1).
    fn start(
        control: &'a Control,
        settings: &'a Settings,
        host: &'a ProbeHooks<'a>,
    ) -> Result<Self, Error> {
        let started = Instant::now();
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key)?;
        let start = ProbeMessage::Start(ProbeKey(key));
        let want = "readiness";
        let ready = call(control, &start, want)?;
        let ProbeMessage::Ready {
            port,
            ip,
            recv_buffer_bytes,
        } = ready
        else {
            return Err(ready.unexpected(want));
        };
        let (local, mut peer) = (control.local_addr(), control.peer_addr());
        peer.set_port(port);
        let flows = Flows::bind(local, settings.flows, key, |flow| {
            (host.redirect)(flow, peer)
        })?;
        let nat = findings::Nat {
            ours: flows.local_addr(),
            ours_seen: flows.local_addr(),
            theirs: SocketAddr::new(IpAddr::from(Ipv6Addr::from(ip)).to_canonical(), port),
            theirs_seen: peer,
        };
        let questions = Trial {
            id: 0,
            packets: QUESTIONS,
            flows: flows.count(),
        };
        let mut session = Self {
            control,
            flows,
            settings,
            host,
            started,
            questions,
            asked: 0,
            next_trial: 1,
            overhead_bytes: match peer {
                SocketAddr::V4(_) => OVERHEAD_V4_BYTES,
                SocketAddr::V6(_) => OVERHEAD_V6_BYTES,
            },
            drops: HostDrops::in_all(),
            findings: Findings {
                peer: Some(peer),
                nat: Some(nat),
                ..Findings::default()
            },
        };
        session.findings.host.recv_buffer_bytes = recv_buffer_bytes;
        session.open(vec![questions])?;
        Ok(session)
    }

    /// Runs all measurements, one after the other. The counts of the peer's host are the last.
    fn run(mut self) -> Result<Findings, Error> {
        for stage in [
            Self::find_trips,
            Self::find_rate,
            Self::find_mtu,
            Self::count_losses,
        ] {
            if self.is_cancelled() {
                break;
            }
            stage(&mut self)?;
        }
        let ask = ProbeMessage::Host(HostDrops::default());
        let want = "the drops of the host";
        let theirs = match call(self.control, &ask, want)? {
            ProbeMessage::Host(drops) => drops,
            other => return Err(other.unexpected(want)),
        };
        self.findings.host.theirs = theirs;
        self.findings.host.ours = HostDrops::since(self.drops);
        self.findings.interrupted = self.is_cancelled();
        if self.findings.interrupted && self.findings.round_trip.is_none() {
            return Err(Error::Interrupted);
        }
        Ok(self.findings)
    }

    fn is_cancelled(&self) -> bool {
        (self.host.cancelled)()
    }

    /// Makes a trial with the next number.
    fn trial(&mut self, packets: u32, flows: u16) -> Trial {
        let id = self.next_trial;
        self.next_trial += 1;
        Trial { id, packets, flows }
    }

    fn open(&mut self, trials: Vec<Trial>) -> Result<(), Error> {
        let want = "the opening of trials";
        match call(self.control, &ProbeMessage::Trials(trials), want)? {
            ProbeMessage::Open => Ok(()),
            other => Err(other.unexpected(want)),
        }
    }

    /// Closes trials and returns their counts in the same order.
    fn close(&mut self, ids: &[u32]) -> Result<Vec<TrialCounts>, Error> {
        let mut all = Vec::new();
        let want = "the counts of these trials";
        for ids in ids.chunks(COUNTS) {
            match call(self.control, &ProbeMessage::Close(ids.to_vec()), want)? {
                ProbeMessage::Counts(counts)
                    if counts
                        .iter()
                        .map(|counts| counts.id)
                        .eq(ids.iter().copied()) =>
                {
                    all.extend(counts);
                }
                other => return Err(other.unexpected(want)),
            }
        }
        Ok(all)
    }

    fn longest_trip(&self) -> Duration {
        let trips = self.findings.round_trip.as_ref();
        let longest = trips.and_then(|trip| trip.times.percentile(100));
        longest.unwrap_or(Duration::from_millis(100))
    }

    /// Bytes of the IP packet with this payload.
    fn ip_bytes(&self, payload_bytes: u32) -> u32 {
        payload_bytes + self.overhead_bytes
    }
}

/// Sends a message, and waits for the answer.
fn call(
    control: &Control,
    message: &ProbeMessage,
    want: &'static str,
) -> Result<ProbeMessage, Error> {
    control.send(message)?;
    let after = PATIENCE;
    control
        .receive(after)?
        .ok_or(Error::Silence { want, after })
}
