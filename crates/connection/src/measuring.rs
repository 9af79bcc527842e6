//! What the example `handshakes` measures.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use farwrite::{Endpoint, UdpFabric};

use crate::connect::choose;
use crate::driver::{Reserved, reserve};
use crate::handshake::{Initiator, InitiatorKeys, Limits, Reaction, Responder};
use crate::keys::Keys;
use crate::options::ConnectionOptions;

/// Time between two handshakes, within the budget of a responder.
const PAUSE_NS: u64 = 1_000_000;
/// About the length of an introduction.
const PAYLOAD: [u8; 400] = [7; 400];
const LISTENER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4792);

/// A responder, and the time that it has spent.
pub struct Measured {
    responder: Responder,
    keys: InitiatorKeys,
    /// The time that the responder has spent on each.
    spent: Vec<Duration>,
}

impl Measured {
    /// `keys` are those of the listener, and `of_initiator` those of all its peers, which know it as `peer`.
    #[must_use]
    pub fn new(keys: &Keys, of_initiator: &Keys) -> Self {
        let (of_initiator, _) = choose(of_initiator, "peer").expect("keys");
        Self {
            responder: Responder::new(keys.clone(), [[1; 32], [2; 32]]),
            keys: of_initiator,
            spent: Vec::new(),
        }
    }

    /// Runs one handshake, up to the proof or to the end. Returns whether the responder has accepted it.
    pub fn handshake(&mut self, is_whole: bool) -> bool {
        let number = self.spent.len() as u64 + 1;
        let now_ns = number * PAUSE_NS;
        let [_, .., a, b, c] = number.to_be_bytes();
        let source = SocketAddr::from(([10, a, b, c], 9));
        let keys = self.keys.clone();
        let limits = Limits {
            answer_ns: u64::MAX,
            busy_ns: u64::MAX,
        };
        let mut initiator = Initiator::new(keys, &[LISTENER], number, now_ns, limits);
        let (mut is_accepted, mut spent) = (false, Duration::ZERO);
        while let Some((_, bytes)) = initiator.poll_transmit(now_ns) {
            let start = Instant::now();
            let answer = match self.responder.receive(now_ns, source, &bytes) {
                Reaction::Answered(answer) => Some(answer),
                Reaction::Asked(asked) => {
                    is_accepted = true;
                    let accepted = self.responder.accept(now_ns, asked, &PAYLOAD);
                    accepted.ok().map(|(_, answer)| answer)
                }
                Reaction::Proven { .. } | Reaction::Ignored => None,
            };
            spent += start.elapsed();
            let Some(answer) = answer else {
                break;
            };
            let proven = initiator.receive(now_ns, LISTENER, &answer);
            if proven.is_some() && is_whole {
                initiator.prove(now_ns, &PAYLOAD).expect("a short payload");
            }
        }
        self.spent.push(spent);
        is_accepted
    }

    /// The median of the times that the responder has spent on a handshake: other programs interrupt
    /// some of them.
    #[must_use]
    pub fn median(mut self) -> Duration {
        self.spent.sort();
        let middle = self.spent.get(self.spent.len() / 2);
        middle.copied().unwrap_or_default()
    }
}

/// What open handshakes have taken from an endpoint: session queue pairs and routes.
#[derive(Default)]
pub struct Taken {
    keeper: farwrite::routes::RouteKeeper,
    reserved: Vec<Reserved>,
}

impl Taken {
    /// Takes what one more handshake needs.
    pub fn take(&mut self, endpoint: &mut Endpoint<UdpFabric>) {
        let options = ConnectionOptions::default();
        let stated = ((LISTENER, LISTENER), &options.serves[..]);
        let taken = reserve(
            &mut self.keeper,
            endpoint,
            (options.rate_control, None),
            stated,
        );
        self.reserved.push(taken.expect("room").0);
    }
}
