//! Connections whose path changes: the initiator gets another address, or nothing passes for a time.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farwrite::{Outcome, QpOptions};
use farwrite_connection::{
    Connection, ConnectionOptions, Ended, INITIATOR_GONE_AFTER, Keys, Listener, MessageOptions,
    Messages, RESPONDER_GONE_AFTER, connect,
};
use farwrite_keys::Psk;
use farwrite_rng::SplitMix;

const LONG: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(2);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(STEP)).expect("a timeout");
    socket
}

/// Translates addresses, as a home router does: the listener sees the address of `outside`.
struct Translator {
    at: SocketAddr,
    outside: Arc<Mutex<Arc<UdpSocket>>>,
    /// The longest datagram that passes.
    carries: Arc<AtomicUsize>,
    /// Whether someone on the path changes the last byte of each route packet.
    is_meddling: Arc<AtomicBool>,
    /// How many percent of the packets are lost.
    loss: Arc<AtomicUsize>,
    /// How many of the next packets of the initiator are lost, and the bytes of the shortest of them.
    lost_next: Arc<[AtomicUsize; 2]>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Translator {
    fn start(listener: SocketAddr) -> Self {
        let inside = Arc::new(socket());
        let at = inside.local_addr().expect("bound");
        let outside = Arc::new(Mutex::new(Arc::new(socket())));
        let carries = Arc::new(AtomicUsize::new(usize::MAX));
        let loss = Arc::new(AtomicUsize::new(0));
        let lost_next = Arc::<[AtomicUsize; 2]>::default();
        let [is_meddling, is_over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let initiator = Arc::new(Mutex::new(None));
        let outwards = {
            let (inside, outside, initiator) = (
                Arc::clone(&inside),
                Arc::clone(&outside),
                Arc::clone(&initiator),
            );
            let (carries, is_over) = (Arc::clone(&carries), Arc::clone(&is_over));
            let is_meddling = Arc::clone(&is_meddling);
            let (loss, lost_next) = (Arc::clone(&loss), Arc::clone(&lost_next));
            thread::spawn(move || {
                let mut draws = SplitMix::new(1);
                let mut bytes = vec![0; 1 << 16];
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = inside.recv_from(&mut bytes) {
                        *initiator.lock().expect("no panic") = Some(from);
                        let outside = Arc::clone(&outside.lock().expect("no panic"));
                        meddle(&is_meddling, &mut bytes[..length]);
                        if !is_next(length, &lost_next)
                            && passes(length, &carries, &loss, &mut draws)
                        {
                            let _ = outside.send_to(&bytes[..length], listener);
                        }
                    }
                }
            })
        };
        let meddling = Arc::clone(&is_meddling);
        let loss_inwards = Arc::clone(&loss);
        let inwards = {
            let (outside, carries, is_over) = (
                Arc::clone(&outside),
                Arc::clone(&carries),
                Arc::clone(&is_over),
            );
            thread::spawn(move || {
                let mut draws = SplitMix::new(2);
                let mut bytes = vec![0; 1 << 16];
                while !is_over.load(Ordering::Relaxed) {
                    let outside = Arc::clone(&outside.lock().expect("no panic"));
                    if let Ok((length, _)) = outside.recv_from(&mut bytes)
                        && let Some(to) = *initiator.lock().expect("no panic")
                        && passes(length, &carries, &loss_inwards, &mut draws)
                    {
                        meddle(&meddling, &mut bytes[..length]);
                        let _ = inside.send_to(&bytes[..length], to);
                    }
                }
            })
        };
        Self {
            at,
            outside,
            carries,
            is_meddling,
            loss,
            lost_next,
            is_over,
            threads: vec![outwards, inwards],
        }
    }

    /// Longer datagrams are lost from now on.
    fn carry(&self, longest: usize) {
        self.carries.store(longest, Ordering::Relaxed);
    }

    /// Loses the next `packets` packets of the initiator that have at least `least_bytes` bytes.
    fn lose_next(&self, packets: usize, least_bytes: usize) {
        self.lost_next[1].store(least_bytes, Ordering::Relaxed);
        self.lost_next[0].store(packets, Ordering::Relaxed);
    }

    /// Whether all of them were lost.
    fn has_lost(&self) -> bool {
        self.lost_next[0].load(Ordering::Relaxed) == 0
    }

    /// The listener sees another address from now on, and packets to the old one are lost.
    fn moves(&self) -> SocketAddr {
        let new = socket();
        let addr = new.local_addr().expect("bound");
        *self.outside.lock().expect("no panic") = Arc::new(new);
        addr
    }
}

fn passes(length: usize, carries: &AtomicUsize, loss: &AtomicUsize, draws: &mut SplitMix) -> bool {
    let loss = loss.load(Ordering::Relaxed) as u64;
    length <= carries.load(Ordering::Relaxed) && !draws.percent(loss)
}

/// Whether a packet is one of those that are lost next.
fn is_next(length: usize, [packets, least_bytes]: &[AtomicUsize; 2]) -> bool {
    let is_long = length >= least_bytes.load(Ordering::Relaxed);
    let order = Ordering::Relaxed;
    is_long
        && packets
            .fetch_update(order, order, |left| left.checked_sub(1))
            .is_ok()
}

/// The first byte of a route packet (P6.2).
const ROUTE_PACKET: u8 = 0x1E;

/// Changes a byte that no tag covers.
fn meddle(is_meddling: &AtomicBool, bytes: &mut [u8]) {
    if let [ROUTE_PACKET, .., last] = bytes
        && is_meddling.load(Ordering::Relaxed)
    {
        *last ^= 1;
    }
}

impl Drop for Translator {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic");
        }
    }
}

/// Both ends of a connection through a translator.
fn pair(silence_limit: Duration) -> (Translator, Connection, Connection) {
    pair_beside(silence_limit, false)
}

/// As [`pair`], beside someone on the path.
fn pair_beside(silence_limit: Duration, is_meddling: bool) -> (Translator, Connection, Connection) {
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let options = ConnectionOptions {
        silence_limit,
        ..ConnectionOptions::default()
    };
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(any, &keys, &options).expect("a port");
    let translator = Translator::start(listener.local_addr());
    translator.is_meddling.store(is_meddling, Ordering::Relaxed);
    let near = connect(&translator.at.to_string(), &keys, "", &options).expect("connected");
    let far = listener.accept(LONG).expect("no failure").expect("in time");
    (translator, near, far)
}

fn messages(near: &Connection, far: &Connection) -> (Messages, Messages) {
    thread::scope(|scope| {
        let opened = scope.spawn(|| near.open_queue_pair("x", QpOptions::default(), LONG));
        let accepted = far.accept_queue_pair(None, &QpOptions::default(), LONG);
        let accepted = accepted.expect("no failure").expect("in time");
        let opened = opened.join().expect("no panic").expect("opened");
        let options = MessageOptions::default();
        (
            opened.into_messages(options).expect("buffers"),
            accepted.into_messages(options).expect("buffers"),
        )
    })
}

fn exchange(near: &Messages, far: &Messages, text: &str) {
    near.send(text);
    let came = far.receive(LONG).expect("no failure");
    assert_eq!(came.as_deref(), Some(text.as_bytes()));
    far.send(text);
    let came = near.receive(LONG).expect("no failure");
    assert_eq!(came.as_deref(), Some(text.as_bytes()));
}

#[test]
fn a_connection_follows_the_initiator_to_another_address() {
    let (translator, near, far) = pair(LONG);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    for _ in 0..2 {
        let addr = translator.moves();
        exchange(&of_near, &of_far, "after");
        assert_eq!(far.peer_addr(), Some(addr));
    }
    // Further queue pairs find it too.
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "again");
}

#[test]
fn silence_ends_a_connection_only_after_its_limit() {
    let limit = Duration::from_secs(3);
    let (translator, near, far) = pair(limit);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    // A machine that sleeps.
    translator.carry(0);
    of_near.send("in between");
    thread::sleep(limit / 2);
    translator.carry(usize::MAX);
    let came = of_far.receive(LONG).expect("no failure");
    assert_eq!(came.as_deref(), Some(&b"in between"[..]));
    // Nothing is sent for longer than the limit.
    assert_eq!(of_far.receive(limit + limit / 4).expect("alive"), None);
    assert!(near.ended().is_none() && far.ended().is_none());
    translator.carry(0);
    for end in [near, far] {
        let why = end.wait_ended(LONG).expect("no failure").expect("over");
        assert!(
            matches!(why, Ended::Silence(after) if after == limit),
            "{why}"
        );
    }
    let text = of_near.receive(LONG).expect_err("over").to_string();
    assert_eq!(
        text,
        "the connection is over: nothing was heard of the peer for 3 s"
    );
}

/// The sockets of the translator are those of the two peers: once it is gone, nobody is at their ports.
#[test]
fn a_peer_whose_program_was_killed_is_gone() {
    let (translator, near, far) = pair(4 * LONG);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    drop(translator);
    let killed = Instant::now();
    of_near.send("after");
    of_far.send("after");
    for (end, least) in [(near, RESPONDER_GONE_AFTER), (far, INITIATOR_GONE_AFTER)] {
        let why = end.wait_ended(4 * LONG).expect("no failure").expect("over");
        assert!(matches!(why, Ended::Gone), "{why}");
        assert!(killed.elapsed() >= least, "the peer had time to answer");
    }
}

/// ICMP is about the old address of an initiator that moves while it is idle. It is heard from the new one when it
/// probes.
#[test]
fn an_idle_initiator_that_moves_is_not_gone() {
    let (translator, near, far) = pair(4 * LONG);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    // The last acknowledgements and their repeats end.
    thread::sleep(LONG / 10);
    translator.moves();
    // The translator takes packets to the old address for up to a step.
    thread::sleep(100 * STEP);
    of_far.send("after");
    let came = of_near.receive(LONG).expect("alive");
    assert_eq!(came.as_deref(), Some(&b"after"[..]));
}

/// A path that begins to drop large packets, as when a tunnel comes up, carries those that show that the peer
/// lives.
#[test]
fn a_path_that_carries_less_ends_a_connection_with_the_sizes() {
    let limit = Duration::from_secs(3);
    let (translator, near, far) = pair(limit);
    let (of_near, of_far) = messages(&near, &far);
    exchange(&of_near, &of_far, "before");
    translator.carry(1400);
    // Nothing waits for an acknowledgement, so nothing is stuck.
    assert_eq!(of_far.receive(limit + limit / 2).expect("alive"), None);
    assert!(near.ended().is_none() && far.ended().is_none());
    of_near.send(vec![7; 100_000]);
    let start = Instant::now();
    let why = near.wait_ended(3 * LONG).expect("no failure");
    let why = why.expect("over");
    let Ended::Stuck { shrunk, .. } = &why else {
        panic!("{why}");
    };
    let Some(shrunk) = shrunk else {
        // On a machine that is too busy, probes of all sizes come late.
        assert!(start.elapsed() > LONG, "{why}");
        return;
    };
    assert!((1000..1400).contains(&shrunk.carries), "{why}");
    assert!(shrunk.mtu > 1400, "{why}");
    let theirs = far.wait_ended(LONG).expect("no failure").expect("over");
    assert!(matches!(theirs, Ended::ByPeer { .. }), "{theirs}");
    let text = theirs.to_string();
    assert!(
        text.contains(&format!("but of {}", shrunk.carries)),
        "{text}"
    );
    let text = of_near.receive(LONG).expect_err("over").to_string();
    assert!(text.contains("has acknowledged nothing"), "{text}");
}

/// A connection of small packets opens before its initiator knows what the path carries.
#[test]
fn both_ends_learn_that_a_path_carries_too_little() {
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let options = ConnectionOptions {
        largest_mtu: Some(1024),
        ..ConnectionOptions::default()
    };
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(any, &keys, &options).expect("a port");
    let translator = Translator::start(listener.local_addr());
    translator.carry(900);
    let near = connect(&translator.at.to_string(), &keys, "", &options).expect("connected");
    let far = listener.accept(LONG).expect("no failure").expect("in time");
    let ended = [&near, &far].map(|end| end.wait_ended(LONG).expect("no failure").expect("over"));
    // Either end may notice first. On a busy machine, it may also take the path for one that carries nothing.
    let [ours, theirs] = &ended;
    let is_told = |end: &Ended| matches!(end, Ended::ByPeer { .. });
    assert!(is_told(ours) != is_told(theirs), "{ours}; {theirs}");
}

/// A message for which the peer has no buffer waits, and its connection lives.
#[test]
fn messages_without_a_buffer_are_not_stuck() {
    let limit = Duration::from_secs(3);
    let (_translator, near, far) = pair(limit);
    let (opened, accepted) = thread::scope(|scope| {
        let opened = scope.spawn(|| near.open_queue_pair("x", QpOptions::default(), LONG));
        let accepted = far.accept_queue_pair(None, &QpOptions::default(), LONG);
        (
            opened.join().expect("no panic").expect("opened"),
            accepted.expect("no failure"),
        )
    });
    let waiting = opened
        .into_messages(MessageOptions::default())
        .expect("buffers");
    let sent = waiting.send("nobody has posted a receive");
    assert_eq!(sent.wait(limit * 2).expect("alive"), None);
    assert!(near.ended().is_none() && far.ended().is_none());
    drop(accepted);
}

/// Someone on the path who changes bytes that no tag covers holds up a connection for a moment only, while it is
/// set up, idle or busy.
#[test]
fn changed_bytes_of_route_packets_do_not_end_a_connection() {
    let (translator, near, far) = pair_beside(LONG, true);
    let (of_near, of_far) = messages(&near, &far);
    let meddle = |is_meddling| translator.is_meddling.store(is_meddling, Ordering::Relaxed);
    exchange(&of_near, &of_far, "while it is set up");
    meddle(false);
    exchange(&of_near, &of_far, "afterwards");
    // Probes of both ends are changed, as the initiator moves.
    meddle(true);
    translator.moves();
    exchange(&of_near, &of_far, "while someone meddles");
    let sent: Vec<_> = (0..200).map(|_| of_near.send(vec![7; 100_000])).collect();
    for number in 0..sent.len() {
        if number == 100 {
            meddle(false);
        }
        let came = of_far.receive(LONG).expect("no failure").expect("in time");
        assert_eq!(came.len(), 100_000);
    }
    exchange(&of_near, &of_far, "after all");
    assert!(near.ended().is_none() && far.ended().is_none());
}

/// Calls `leave`, which returns how long an end took to leave, until that was clearly less than the second for which
/// ends wait for each other. A busy machine may need several tries.
fn until_in_time(leave: impl Fn() -> Duration) {
    let took: Vec<_> = (0..30)
        .map(|_| leave())
        .take_while(|took| *took > IN_TIME)
        .collect();
    assert!(took.len() < 30, "no end has left in time: {took:?}");
}

const IN_TIME: Duration = Duration::from_millis(700);

/// An end that has received everything may end the connection, although the path loses some of its
/// acknowledgements.
#[test]
fn messages_that_have_arrived_are_whole_although_the_peer_ends_the_connection() {
    let leave = || {
        let (translator, near, far) = pair(LONG);
        let (of_near, of_far) = messages(&near, &far);
        exchange(&of_near, &of_far, "before");
        translator.loss.store(20, Ordering::Relaxed);
        let sent: Vec<_> = (0..8).map(|_| of_near.send(vec![7; 20_000])).collect();
        for _ in &sent {
            let came = of_far.receive(LONG).expect("no failure").expect("in time");
            assert_eq!(came.len(), 20_000);
        }
        let start = Instant::now();
        far.finish(LONG);
        let took = start.elapsed();
        if took <= IN_TIME {
            for message in sent {
                assert_eq!(message.wait(LONG).expect("it runs"), Some(Outcome::Whole));
            }
            let why = near.wait_ended(LONG).expect("no failure").expect("over");
            assert!(matches!(why, Ended::ByPeer { .. }), "{why}");
        }
        took
    };
    (0..6).for_each(|_| until_in_time(leave));
}

/// An end that has lost packets says that it leaves until its peer knows it.
#[test]
fn a_peer_learns_of_a_departure_although_packets_are_lost() {
    until_in_time(|| {
        let (translator, near, far) = pair(LONG);
        let (of_near, of_far) = messages(&near, &far);
        // Only packets of the message are so long.
        translator.lose_next(2, 1000);
        exchange(&of_near, &of_far, &"before".repeat(5000));
        assert!(translator.has_lost());
        translator.lose_next(4, 0);
        let start = Instant::now();
        near.depart(LONG);
        let took = start.elapsed();
        if took <= IN_TIME {
            assert!(translator.has_lost());
            let why = far.wait_ended(LONG / 4).expect("no failure").expect("over");
            assert!(matches!(why, Ended::ByPeer { .. }), "{why}");
        }
        took
    });
}
