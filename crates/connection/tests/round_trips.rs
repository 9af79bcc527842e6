//! How many round trips a connection takes, over a relay that delays each datagram.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farwrite::QpOptions;
use farwrite_connection::{ConnectionOptions, Keys, Listener, MessageOptions, connect};
use farwrite_keys::{Code, Psk};

const LONG: Duration = Duration::from_secs(20);
/// Long against what a busy machine needs to answer.
const ROUND_TRIP: Duration = Duration::from_millis(400);
const STEP: Duration = Duration::from_millis(1);

/// Carries datagrams between an initiator and a listener.
struct Relay {
    at: SocketAddr,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    fn start(listener: SocketAddr) -> Self {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            socket.set_read_timeout(Some(STEP)).expect("a timeout");
            Arc::new(socket)
        };
        let [inside, outside] = [socket(), socket()];
        let at = inside.local_addr().expect("bound");
        let is_over = Arc::new(AtomicBool::new(false));
        let initiator = Arc::new(Mutex::new(None));
        let ways = [
            (Arc::clone(&inside), Arc::clone(&outside), true),
            (outside, inside, false),
        ];
        let threads = ways.map(|(from, to, is_outwards)| {
            let (is_over, initiator) = (Arc::clone(&is_over), Arc::clone(&initiator));
            thread::spawn(move || {
                let (mut bytes, mut held) = (vec![0; 1 << 16], VecDeque::new());
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok((length, source)) = from.recv_from(&mut bytes) {
                        if is_outwards {
                            *initiator.lock().expect("no panic") = Some(source);
                        }
                        let due = Instant::now() + ROUND_TRIP / 2;
                        held.push_back((due, bytes[..length].to_vec()));
                    }
                    let target = match is_outwards {
                        true => Some(listener),
                        false => *initiator.lock().expect("no panic"),
                    };
                    while let Some((due, _)) = held.front()
                        && *due <= Instant::now()
                        && let Some((_, bytes)) = held.pop_front()
                    {
                        // An end that is gone is none of this test.
                        let _ = to.send_to(&bytes, target.expect("it was heard"));
                    }
                }
            })
        });
        Self {
            at,
            is_over,
            threads: threads.into(),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic");
        }
    }
}

/// Half round trips since a time.
fn halves(since: Instant) -> u128 {
    2 * since.elapsed().as_nanos() / ROUND_TRIP.as_nanos()
}

/// Connects, opens a queue pair, and sends a message each way. Returns after how many half round trips the initiator is
/// connected, has the queue pair, has the answer, and has left.
fn count(keys: &Keys, of_initiator: &Keys, options: &ConnectionOptions) -> [u128; 4] {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let listener = Listener::bind(any, keys, options).expect("a port");
    let relay = Relay::start(listener.local_addr());
    let to = relay.at.to_string();
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let accepted = listener.accept(LONG).expect("no failure").expect("in time");
            let pair = accepted.accept_queue_pair(None, &queue_pair(), LONG);
            let pair = pair.expect("no failure").expect("in time");
            let messages = pair.into_messages(MessageOptions::default());
            let messages = messages.expect("buffers");
            let came = messages.receive(LONG).expect("no failure");
            messages.send(came.expect("in time"));
            // The initiator leaves when it has the answer.
            accepted
                .wait_ended(LONG)
                .expect("no failure")
                .expect("over");
        });
        let start = Instant::now();
        let connection = connect(&to, of_initiator, "", options).expect("connected");
        let connected = halves(start);
        let pair = connection.open_queue_pair("x", queue_pair(), LONG);
        let opened = halves(start);
        let messages = pair.expect("accepted");
        let messages = messages.into_messages(MessageOptions::default());
        let messages = messages.expect("buffers");
        messages.send("hello");
        let came = messages.receive(LONG).expect("no failure");
        let answered = halves(start);
        assert_eq!(came.as_deref(), Some(&b"hello"[..]));
        connection.depart(LONG);
        let left = halves(start);
        answering.join().expect("no panic");
        [connected, opened, answered, left]
    })
}

fn queue_pair() -> QpOptions {
    let mut options = QpOptions::default();
    options.sdr.mtu = 1024;
    options
}

/// The cookie and the answer of the handshake take a round trip each. The proof carries the first queue pair, and the
/// third round trip opens it. A code takes one more, and leaving takes none. The first clearances may come before the other
/// end has connected its queue pair: then they are lost, and are repeated after a 32nd of a round trip (P3.8).
#[test]
fn a_message_and_its_answer_take_four_round_trips() {
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let plain = ConnectionOptions::default();
    check([6, 8, 10, 10], || count(&keys, &keys, &plain));
    let early = ConnectionOptions {
        largest_mtu: Some(1024),
        first: Some(("x".to_owned(), queue_pair())),
        ..ConnectionOptions::default()
    };
    check([6, 6, 8, 8], || count(&keys, &keys, &early));
    check([8, 8, 10, 10], || {
        let code = Code::generate().expect("randomness");
        let [ours, theirs] = [(); 2].map(|()| Keys::of_code(code.clone()));
        count(&ours, &theirs, &early)
    });
}

/// Counts until the result is as expected, at most three times: a busy machine adds time.
fn check(expected: [u128; 4], count: impl Fn() -> [u128; 4]) {
    let is_within = |counted: &[u128; 4]| {
        let mut both = counted.iter().zip(expected);
        both.all(|(counted, expected)| (expected..=expected + 1).contains(counted))
    };
    let mut runs = Vec::new();
    while runs.len() < 3 && !runs.last().is_some_and(is_within) {
        runs.push(count());
    }
    assert!(
        runs.last().is_some_and(is_within),
        "{runs:?} instead of {expected:?}"
    );
}
