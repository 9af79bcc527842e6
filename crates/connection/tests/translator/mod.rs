//! A translator of addresses between the two ends of a connection, which can change what passes.
#![allow(
    dead_code,
    reason = "each test program that includes this file uses a part of it"
)]

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farwrite::QpOptions;
use farwrite_connection::{
    Connection, ConnectionOptions, Keys, Listener, MessageOptions, Messages, OpenedQueuePair,
    connect,
};
use farwrite_keys::Psk;
use farwrite_rng::SplitMix;

pub(crate) const LONG: Duration = Duration::from_secs(20);
pub(crate) const STEP: Duration = Duration::from_millis(2);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(STEP)).expect("a timeout");
    socket
}

/// Translates addresses, as a home router does: the listener sees the address of `outside`.
pub(crate) struct Translator {
    pub(crate) at: SocketAddr,
    outside: Arc<Mutex<Arc<UdpSocket>>>,
    /// The longest datagram that passes.
    carries: Arc<AtomicUsize>,
    /// Whether someone on the path changes the last byte of each route packet.
    pub(crate) is_meddling: Arc<AtomicBool>,
    /// How many percent of the packets are lost.
    pub(crate) loss: Arc<AtomicUsize>,
    /// How many of the next packets of the initiator are lost, and the bytes of the shortest of them.
    lost_next: Arc<[AtomicUsize; 2]>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Translator {
    pub(crate) fn start(listener: SocketAddr) -> Self {
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
    pub(crate) fn carry(&self, longest: usize) {
        self.carries.store(longest, Ordering::Relaxed);
    }

    /// Loses the next `packets` packets of the initiator that have at least `least_bytes` bytes.
    pub(crate) fn lose_next(&self, packets: usize, least_bytes: usize) {
        self.lost_next[1].store(least_bytes, Ordering::Relaxed);
        self.lost_next[0].store(packets, Ordering::Relaxed);
    }

    /// Whether all of them were lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost_next[0].load(Ordering::Relaxed) == 0
    }

    /// The listener sees another address from now on, and packets to the old one are lost.
    pub(crate) fn moves(&self) -> SocketAddr {
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
pub(crate) fn pair(silence_limit: Duration) -> (Translator, Connection, Connection) {
    pair_beside(silence_limit, false)
}

/// As [`pair`], beside someone on the path.
pub(crate) fn pair_beside(
    silence_limit: Duration,
    is_meddling: bool,
) -> (Translator, Connection, Connection) {
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

/// Opens a queue pair at one end, and accepts it at the other.
pub(crate) fn opened(near: &Connection, far: &Connection) -> [OpenedQueuePair; 2] {
    thread::scope(|scope| {
        let opened = scope.spawn(|| near.open_queue_pair("x", QpOptions::default(), LONG));
        let accepted = far.accept_queue_pair(None, &QpOptions::default(), LONG);
        let accepted = accepted.expect("no failure").expect("in time");
        [opened.join().expect("no panic").expect("opened"), accepted]
    })
}

pub(crate) fn messages(near: &Connection, far: &Connection) -> (Messages, Messages) {
    let [near, far] = opened(near, far).map(|pair| {
        let options = MessageOptions::default();
        pair.into_messages(options).expect("buffers")
    });
    (near, far)
}

pub(crate) fn exchange(near: &Messages, far: &Messages, text: &str) {
    near.send(text);
    let came = far.receive(LONG).expect("no failure");
    assert_eq!(came.as_deref(), Some(text.as_bytes()));
    far.send(text);
    let came = near.receive(LONG).expect("no failure");
    assert_eq!(came.as_deref(), Some(text.as_bytes()));
}
