//! A peer that breaks the protocol of streams.

use farwrite::fabric::sim::SimFabric;
use farwrite::{Endpoint, MemoryRegion, Outcome, QueuePair, RecvHandle, SendHandle, SendOptions};
use farwrite_stream::{Error, StreamOptions};

use crate::world::{SECOND, World, path, small};

const DATA: u8 = 0;
const LAST: u8 = 1;
const RESET: u8 = 2;
const STOP: u8 = 3;

/// The end `a` as a program that sends what it likes.
struct Liar {
    sends: Vec<SendHandle>,
    receives: Vec<(RecvHandle, MemoryRegion)>,
}

impl Liar {
    fn new(a: &mut Endpoint<SimFabric>, qa: QueuePair) -> Self {
        let receives = (0..4).map(|_| {
            let region = a.register(vec![0; 16 * 1024]).expect("memory");
            (a.post_recv(qa, region.whole()).expect("a slot"), region)
        });
        Self {
            receives: receives.collect(),
            sends: Vec::new(),
        }
    }

    fn send(&mut self, a: &mut Endpoint<SimFabric>, qa: QueuePair, message: &[u8]) {
        let region = a.register(message.to_vec()).expect("memory");
        let send = a.post_send(qa, region.whole(), SendOptions::default());
        self.sends.push(send.expect("a slot"));
    }

    /// The messages that came back, in order.
    fn heard(&self, a: &Endpoint<SimFabric>) -> Vec<Vec<u8>> {
        let whole = self
            .receives
            .iter()
            .filter(|(recv, _)| recv.outcome() == Some(Outcome::Whole));
        let bytes = whole.map(|(recv, region)| {
            let length = usize::try_from(recv.length().expect("whole")).expect("short");
            let mut message = vec![0; length];
            a.read_memory(*region, 0, &mut message)
                .expect("its own region");
            message
        });
        bytes.collect()
    }
}

/// Sends `messages` from a liar at `a`. Returns what `b` reads in the end, and what the liar hears.
fn lie(messages: &[&[u8]], reads: bool) -> (Vec<u8>, Error, Vec<Vec<u8>>) {
    // The buffers of b are smaller than the queue pair allows.
    let less = StreamOptions {
        message_bytes: 8 * 1024,
        ..small()
    };
    let mut world = World::with_ends(1, path(), [&small(), &less], 1);
    let qa = world.streams[0].qa;
    let mut stream = world.streams.remove(0).b;
    let mut liar = Liar::new(&mut world.a, qa);
    for message in messages {
        liar.send(&mut world.a, qa, message);
    }
    let mut heard = Vec::new();
    let mut error = None;
    world.run(SECOND, |world| {
        let mut piece = [0; 100];
        while reads && error.is_none() {
            match stream.receiver.read(&mut piece) {
                Ok(None | Some(0)) => break,
                Ok(Some(length)) => heard.extend_from_slice(&piece[..length]),
                Err(failed) => error = Some(failed),
            }
        }
        stream.progress(&mut world.b);
        false
    });
    let error = error.or_else(|| stream.sender.error().cloned());
    (
        heard,
        error.expect("the lie is noticed"),
        liar.heard(&world.a),
    )
}

#[test]
fn each_lie_is_a_violation_and_the_peer_learns_of_it() {
    let long = vec![0; 9 * 1024];
    let lies: [(&str, &[&[u8]]); 8] = [
        ("a message longer than its buffer", &[&long]),
        ("a message after the end", &[&[LAST], &[DATA, 1]]),
        ("a message after the end", &[&[LAST], &[RESET, 0, 0, 0, 1]]),
        ("a data message without data", &[&[DATA]]),
        ("a message without bytes", &[&[]]),
        ("a message of an unknown type", &[&[9, 1, 2]]),
        ("a signal of another length than 5 bytes", &[&[STOP, 0]]),
        (
            "a second signal to stop",
            &[&[STOP, 0, 0, 0, 1], &[STOP, 0, 0, 0, 1]],
        ),
    ];
    for (what, messages) in lies {
        let (heard, error, answers) = lie(messages, false);
        assert!(heard.is_empty());
        let is_stopped = matches!(error, Error::Stopped(1));
        assert!(
            is_stopped || error.to_string().ends_with(what),
            "{what}: {error}"
        );
        // Asked to stop, the end answers with a reset. A violation ends both directions.
        let code = [255; 4];
        let told = answers.iter().filter(|answer| answer[1..] == code).count();
        assert_eq!(told, if is_stopped { 1 } else { 2 }, "{what}: {answers:?}");
    }
}

/// Bytes before a lie were right, and are read.
#[test]
fn bytes_before_a_lie_are_read() {
    let messages: [&[u8]; 2] = [b"\0right", &[77]];
    let (heard, error, _) = lie(&messages, true);
    assert_eq!(heard, b"right");
    assert!(matches!(error, Error::Violation(_)), "{error}");
}

/// A message that its sender gives up leaves a hole.
#[test]
fn a_message_that_is_not_whole_ends_the_stream() {
    let mut world = World::new(1, path(), &small(), 1);
    let qa = world.streams[0].qa;
    let mut stream = world.streams.remove(0).b;
    let mut liar = Liar::new(&mut world.a, qa);
    liar.send(&mut world.a, qa, b"\0here");
    liar.send(&mut world.a, qa, b"\0lost");
    liar.send(&mut world.a, qa, b"\0late");
    world.a.cancel_send(&liar.sends[1]).expect("it is open");
    world.run(SECOND, |world| {
        stream.progress(&mut world.b);
        false
    });
    let mut piece = [0; 100];
    assert_eq!(
        stream.receiver.read(&mut piece).expect("right bytes"),
        Some(4)
    );
    let error = stream.receiver.read(&mut piece).expect_err("a hole");
    assert!(matches!(error, Error::MessageFailed(1)), "{error}");
    assert_eq!(liar.heard(&world.a).len(), 2, "a reset and a stop");
}
