//! Targets of the probe crate.

use farwrite_keys::decode;
use farwrite_probe::datagram::{Datagram, DatagramKind, KEY_BYTES, retag};
use farwrite_probe::message::{MAX_PACKETS, MAX_TRIALS, ProbeMessage, Trial};
use farwrite_probe::open_trials::{Incoming, OpenTrials};

/// The same in each run.
const KEY: [u8; KEY_BYTES] = [0x5a; KEY_BYTES];
const TRIAL: Trial = Trial {
    id: 7,
    packets: 100,
    flows: 3,
};

/// A datagram with its padding.
pub fn sealed(datagram: &Datagram, bytes: usize) -> Vec<u8> {
    let mut sealed = datagram.seal(&KEY, bytes).to_vec();
    sealed.resize(bytes, 0xee);
    sealed
}

/// A datagram, if its tag is right.
pub fn open(bytes: &[u8]) -> Option<Datagram> {
    Datagram::open(&KEY, bytes)
}

/// Bytes for a responder's socket: first as they are, then with the right tag.
pub fn datagram(data: &[u8]) {
    arrive(data);
    let mut tagged = data.to_vec();
    retag(&KEY, &mut tagged);
    arrive(&tagged);
}

/// A responder answers each question of its trial once, and no others. It can read what it writes.
fn arrive(bytes: &[u8]) {
    let read = Datagram::open(&KEY, bytes);
    if let Some(read) = read {
        assert_eq!(open(&sealed(&read, bytes.len())), Some(read));
    }
    let mut open_trials = OpenTrials::new(KEY);
    open_trials.open(&[TRIAL]).expect("a trial");
    let incoming = Incoming {
        bytes,
        from: ([192, 0, 2, 7], 9).into(),
        at_ns: 1,
        ecn_bits: 2,
    };
    let is_question = read.is_some_and(|read| {
        read.kind == DatagramKind::Question
            && read.trial == TRIAL.id
            && read.sequence < TRIAL.packets
    });
    assert_eq!(open_trials.take(incoming).is_some(), is_question);
    assert_eq!(open_trials.take(incoming), None);
    let counts = open_trials.close(TRIAL.id).expect("open");
    assert!(counts.received <= 1);
}

/// A serialised message of a probe session (P9.1), and the trials in it for a responder.
pub fn messages(bytes: &[u8]) {
    let Ok(message) = decode::<ProbeMessage>(bytes) else {
        return;
    };
    let mut open_trials = OpenTrials::new(KEY);
    match message {
        ProbeMessage::Trials(trials) if open_trials.open(&trials).is_ok() => {
            let packets: u64 = trials.iter().map(|trial| u64::from(trial.packets)).sum();
            assert!(trials.len() <= MAX_TRIALS && packets <= MAX_PACKETS);
        }
        ProbeMessage::Close(ids) => {
            assert!(ids.iter().all(|id| open_trials.close(*id).is_err()));
        }
        _ => {}
    }
}
