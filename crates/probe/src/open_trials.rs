//! The responder's open trials, without a socket or a clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::datagram::{Answer, Datagram, DatagramKind, KEY_BYTES};
use crate::message::{
    MAX_FLOWS, MAX_PACKETS, MAX_TRIAL_FLOWS, MAX_TRIALS, ProbeKey, Trial, TrialCounts,
};
use crate::trial_arrivals::{Arrival, TrialArrivals};

/// The trials that are open at a responder.
#[derive(Debug)]
pub struct OpenTrials {
    key: ProbeKey,
    arrivals: BTreeMap<u32, TrialArrivals>,
    /// Datagrams without a valid tag, or without an open trial.
    pub(crate) strangers: u64,
    /// All other datagrams.
    pub(crate) accepted: u64,
    /// Trial of the latest packet that was not a question.
    latest: Option<u32>,
    /// The same at the time of the last call of [`OpenTrials::note_drops`].
    noted: Option<u32>,
}

/// A datagram received by a socket.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Its UDP payload.
    pub bytes: &'a [u8],
    /// Its source address.
    pub from: SocketAddr,
    /// Arrival time, in nanoseconds of the responder's clock.
    pub at_ns: u64,
    /// Its two ECN bits.
    pub ecn_bits: u8,
}

/// Why trials were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// The number of flows is not within 1 to [`MAX_FLOWS`].
    #[error("trial {id} has {flows} flows; expected 1 to {MAX_FLOWS}")]
    Flows {
        /// Number of the trial.
        id: u32,
        /// Number of flows.
        flows: u16,
    },
    /// The number of the trial is in use.
    #[error("trial {0} is open already")]
    Twice(u32),
    /// The trial is not open.
    #[error("trial {0} is not open")]
    Unknown(u32),
    /// The session would have more open trials than it may have.
    #[error(
        "{trials} trials with {packets} packets and {flows} flows would be open, at most \
         {MAX_TRIALS}, {MAX_PACKETS} and {MAX_TRIAL_FLOWS} may be"
    )]
    TooMuch {
        /// Number of trials.
        trials: usize,
        /// Their packets.
        packets: u64,
        /// Their flows.
        flows: usize,
    },
}

impl OpenTrials {
    /// The trials of a session with this key; none are open.
    #[must_use]
    pub fn new(key: [u8; KEY_BYTES]) -> Self {
        Self {
            key: ProbeKey(key),
            arrivals: BTreeMap::new(),
            strangers: 0,
            accepted: 0,
            latest: None,
            noted: None,
        }
    }

    /// Opens trials.
    ///
    /// # Errors
    /// [`TrialError`]; in that case, none of the trials is opened.
    pub fn open(&mut self, trials: &[Trial]) -> Result<(), TrialError> {
        let open = self.arrivals.values().map(|arrivals| arrivals.trial);
        let all = || open.clone().chain(trials.iter().copied());
        let packets = all().map(|trial| u64::from(trial.packets)).sum();
        let flows = all().map(|trial| usize::from(trial.flows)).sum();
        let count = self.arrivals.len() + trials.len();
        if count > MAX_TRIALS || packets > MAX_PACKETS || flows > MAX_TRIAL_FLOWS {
            return Err(TrialError::TooMuch {
                trials: count,
                packets,
                flows,
            });
        }
        let mut opened = BTreeMap::new();
        for &trial in trials {
            let Trial { id, flows, .. } = trial;
            if !(1..=MAX_FLOWS).contains(&flows) {
                return Err(TrialError::Flows { id, flows });
            }
            let is_known = self.arrivals.contains_key(&id);
            if is_known || opened.insert(id, TrialArrivals::new(trial)).is_some() {
                return Err(TrialError::Twice(id));
            }
        }
        self.arrivals.append(&mut opened);
        Ok(())
    }

    /// Closes a trial and returns its counts.
    ///
    /// # Errors
    /// [`TrialError::Unknown`].
    pub fn close(&mut self, id: u32) -> Result<TrialCounts, TrialError> {
        let arrivals = self.arrivals.remove(&id);
        Ok(arrivals.ok_or(TrialError::Unknown(id))?.counts())
    }

    /// Processes a datagram. Returns the answer to a question that did not arrive before. A
    /// repeated question gets no answer, so that a recorded one cannot make this end send.
    pub fn take(&mut self, incoming: Incoming<'_>) -> Option<Datagram> {
        let Some(datagram) = Datagram::open(&self.key.0, incoming.bytes) else {
            self.strangers += 1;
            return None;
        };
        let Some(arrivals) = self.arrivals.get_mut(&datagram.trial) else {
            self.strangers += 1;
            return None;
        };
        self.accepted += 1;
        let is_new = arrivals.note(Arrival {
            sequence: datagram.sequence,
            at_ns: incoming.at_ns,
            ecn_bits: incoming.ecn_bits,
        });
        if datagram.kind == DatagramKind::Data {
            self.latest = Some(datagram.trial);
        }
        if !is_new || datagram.kind != DatagramKind::Question {
            return None;
        }
        Some(Datagram {
            kind: DatagramKind::Answer(Answer {
                question_bytes: u32::try_from(incoming.bytes.len()).unwrap_or(u32::MAX),
                ecn_bits: incoming.ecn_bits,
                hold_ns: 0,
                seen: incoming.from,
            }),
            ..datagram
        })
    }

    /// Records datagrams that the system dropped because the socket buffer was full, since the last
    /// call. They count for the trial in progress. If other trials were in progress since the last
    /// call, they count for each of these trials, because it is not known whose packets they were.
    /// The prober counts no more of them than the trial lost.
    pub fn note_drops(&mut self, drops: u64) {
        let Some(latest) = self.latest else {
            return;
        };
        let noted = self.noted.replace(latest).unwrap_or(latest);
        if drops == 0 {
            return;
        }
        let trials = noted.min(latest)..=noted.max(latest);
        for (_, arrivals) in self.arrivals.range_mut(trials) {
            arrivals.note_drops(drops);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::MIN_BYTES;

    const KEY: [u8; KEY_BYTES] = [1; KEY_BYTES];

    fn trial(id: u32, packets: u32, flows: u16) -> Trial {
        Trial { id, packets, flows }
    }

    fn arrive(
        open_trials: &mut OpenTrials,
        kind: DatagramKind,
        trial: u32,
        sequence: u32,
    ) -> Option<Datagram> {
        let datagram = Datagram {
            kind,
            flow: 0,
            trial,
            sequence,
            timestamp_ns: 77,
        };
        open_trials.take(Incoming {
            bytes: &datagram.seal(&KEY, MIN_BYTES),
            from: ([192, 0, 2, 7], 9).into(),
            at_ns: 5,
            ecn_bits: 2,
        })
    }

    #[test]
    fn a_question_is_answered_once() {
        let mut open_trials = OpenTrials::new(KEY);
        open_trials.open(&[trial(3, 10, 1)]).expect("room");
        let answer = arrive(&mut open_trials, DatagramKind::Question, 3, 4).expect("an answer");
        assert_eq!(
            (answer.trial, answer.sequence, answer.timestamp_ns),
            (3, 4, 77)
        );
        assert_eq!(arrive(&mut open_trials, DatagramKind::Question, 3, 4), None);
        assert_eq!(arrive(&mut open_trials, DatagramKind::Data, 3, 5), None);
        // A packet index that the trial does not have, and a trial that does not exist.
        assert_eq!(
            arrive(&mut open_trials, DatagramKind::Question, 3, 10),
            None
        );
        assert_eq!(arrive(&mut open_trials, DatagramKind::Question, 4, 0), None);
        assert_eq!(open_trials.close(3).map(|counts| counts.received), Ok(2));
        assert_eq!(open_trials.close(3), Err(TrialError::Unknown(3)));
    }

    #[test]
    fn drops_count_with_the_trial_under_way() {
        let mut open_trials = OpenTrials::new(KEY);
        open_trials
            .open(&[trial(1, 10, 1), trial(2, 10, 1)])
            .expect("room");
        open_trials.note_drops(9);
        arrive(&mut open_trials, DatagramKind::Data, 2, 0);
        arrive(&mut open_trials, DatagramKind::Question, 1, 0);
        open_trials.note_drops(4);
        let drops = [1, 2].map(|id| open_trials.close(id).expect("open").socket_drops);
        assert_eq!(drops, [0, 4]);
    }

    /// The responder stops while a trial ends, another passes, and a third begins.
    #[test]
    fn drops_during_several_trials_count_with_each_of_them() {
        let mut open_trials = OpenTrials::new(KEY);
        let trials: Vec<_> = (1..=4).map(|id| trial(id, 10, 1)).collect();
        open_trials.open(&trials).expect("room");
        arrive(&mut open_trials, DatagramKind::Data, 1, 0);
        open_trials.note_drops(0);
        arrive(&mut open_trials, DatagramKind::Data, 3, 9);
        open_trials.note_drops(18);
        arrive(&mut open_trials, DatagramKind::Data, 4, 0);
        open_trials.note_drops(0);
        let drops = [1, 2, 3, 4].map(|id| open_trials.close(id).expect("open").socket_drops);
        assert_eq!(drops, [18, 18, 18, 0]);
    }

    #[test]
    fn no_more_is_open_than_may_be() {
        let mut open_trials = OpenTrials::new(KEY);
        let most = u32::try_from(MAX_PACKETS).expect("fits");
        open_trials.open(&[trial(0, most - 10, 1)]).expect("room");
        let over = open_trials.open(&[trial(1, 11, 1)]);
        assert!(matches!(over, Err(TrialError::TooMuch { .. })), "{over:?}");
        let many: Vec<_> = (1..=300).map(|id| trial(id, 0, 64)).collect();
        let over = open_trials.open(&many);
        assert!(matches!(over, Err(TrialError::TooMuch { .. })), "{over:?}");
        assert_eq!(
            open_trials.open(&[trial(1, 1, 0)]),
            Err(TrialError::Flows { id: 1, flows: 0 })
        );
        for twice in [
            [trial(5, 1, 1), trial(5, 1, 1)],
            [trial(5, 1, 1), trial(0, 1, 1)],
        ] {
            let opened = open_trials.open(&twice);
            assert!(matches!(opened, Err(TrialError::Twice(_))), "{opened:?}");
        }
        // None of the refused trials is open, and closing trials makes room.
        open_trials.open(&[trial(5, 10, 1)]).expect("room");
        open_trials.close(0).expect("open");
        open_trials.open(&[trial(1, most - 10, 1)]).expect("room");
    }
}
