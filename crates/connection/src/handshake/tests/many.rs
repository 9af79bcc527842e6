//! Many initiators at once.

use super::*;

const MANY: usize = 1000;
const DELAY: u64 = 5 * MS;
const PLACE: &str = "198.51.100.2:4792";

enum Event {
    /// An initiator has something to send, or gives up.
    Due,
    ToResponder(Vec<u8>),
    ToInitiator(Vec<u8>),
}

/// A host with many initiators that begin at the same time, and what is to happen to which of them when.
struct Host {
    initiators: Vec<Initiator>,
    /// When each of them is due.
    due_ns: Vec<u64>,
    responder: Responder,
    events: BTreeMap<(u64, usize), (usize, Event)>,
    scheduled: usize,
    proven: Vec<u64>,
}

impl Host {
    fn schedule(&mut self, at_ns: u64, initiator: usize, event: Event) {
        self.scheduled += 1;
        self.events
            .insert((at_ns, self.scheduled), (initiator, event));
    }

    /// The port of each initiator is its number.
    fn source(initiator: usize) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], initiator as u16))
    }

    fn at_responder(&mut self, now_ns: u64, of: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let source = Self::source(of);
        match self.responder.receive(now_ns, source, bytes) {
            Reaction::Answered(answer) => Some(answer),
            Reaction::Asked(asked) => {
                let accepted = self.responder.accept(now_ns, asked, FROM_RESPONDER);
                Some(accepted.expect("a short payload").1)
            }
            Reaction::Proven { .. } => {
                self.proven.push(now_ns);
                self.initiators[of].confirm();
                None
            }
            Reaction::Ignored => None,
        }
    }

    fn happen(&mut self, now_ns: u64, of: usize, event: Event) {
        match event {
            Event::Due if self.due_ns[of] != now_ns => return,
            Event::Due => {}
            Event::ToResponder(bytes) => {
                if let Some(answer) = self.at_responder(now_ns, of, &bytes) {
                    self.schedule(now_ns + DELAY, of, Event::ToInitiator(answer));
                }
                return;
            }
            Event::ToInitiator(bytes) => {
                let initiator = &mut self.initiators[of];
                if initiator.receive(now_ns, at(PLACE), &bytes).is_some() {
                    let proven = initiator.prove(now_ns, FROM_INITIATOR);
                    proven.expect("a short payload");
                }
            }
        }
        let initiator = &mut self.initiators[of];
        let sent: Vec<_> = std::iter::from_fn(|| initiator.poll_transmit(now_ns)).collect();
        let (failed, next_ns) = (initiator.failure(now_ns), initiator.next_ns());
        assert_eq!(failed, None, "initiator {of} after {} s", now_ns / S);
        for (_, bytes) in sent {
            self.schedule(now_ns + DELAY, of, Event::ToResponder(bytes));
        }
        if next_ns != std::mem::replace(&mut self.due_ns[of], next_ns) && next_ns < u64::MAX {
            self.schedule(next_ns, of, Event::Due);
        }
    }
}

/// The responder verifies 20 openings of one host in a second. All others ask again for as long as they may wait for
/// room, although each of them gives up a silent peer after 10 s.
#[test]
fn a_thousand_connections_of_one_host_wait_for_their_turn() {
    let limits = Limits {
        answer_ns: 10 * S,
        busy_ns: 120 * S,
    };
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let begin = |n: usize| {
        let keys = InitiatorKeys::PreShared(keys.psk.clone().expect("a key"));
        Initiator::new(keys, &[at(PLACE)], n as u64, 0, limits)
    };
    let mut host = Host {
        initiators: (0..MANY).map(begin).collect(),
        due_ns: vec![0; MANY],
        responder: responder(keys.clone()),
        events: BTreeMap::new(),
        scheduled: 0,
        proven: Vec::new(),
    };
    (0..MANY).for_each(|of| host.schedule(0, of, Event::Due));
    while let Some(((now_ns, _), (of, event))) = host.events.pop_first() {
        host.happen(now_ns, of, event);
    }
    assert_eq!(host.proven.len(), MANY);
    let (first_ns, last_ns) = (host.proven[0], host.proven[MANY - 1]);
    assert!(first_ns < S && last_ns < 120 * S, "{first_ns}, {last_ns}");
    assert!(host.responder.counts.over_budget > 0);
    for (before, at_ns) in host.proven.iter().enumerate() {
        assert!(before as u64 <= 40 + 20 * at_ns / S, "the limit for a host");
    }
}
