//! Both ends of a connection on loopback, and a peer that implements P7 by hand, so that it can
//! break every rule of P7.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use farwrite_session::{Channel, ChannelMessage, Error, Psk};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState, StatelessTransportState};

/// A timeout that never ends in a test.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);
pub(crate) const PREAMBLE: [u8; 10] = *b"FARWRITE\x00\x03";

/// Returns a pair of connected sockets: the connecting one, then the accepting one.
pub(crate) fn sockets(bind: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(bind).expect("loopback");
    let dialled = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    (dialled, listener.accept().expect("accept").0)
}

/// Connects from a source address of this machine. All of 127.0.0.0/8 belong to it.
pub(crate) fn connect_from(source: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddr::from((source, 0)))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

/// Runs both handshakes on loopback.
pub(crate) fn shake(
    initiator: &Psk,
    responder: &Psk,
    timeout: Duration,
) -> (Result<Channel, Error>, Result<Channel, Error>) {
    let (dialled, accepted) = sockets("127.0.0.1:0");
    thread::scope(|scope| {
        let responds = scope.spawn(|| Channel::accept(accepted, responder, timeout));
        let initiates = Channel::initiate(dialled, initiator, timeout);
        (initiates, responds.join().expect("no panic"))
    })
}

/// Returns two ends of a channel: initiator, responder.
pub(crate) fn channels() -> (Channel, Channel) {
    let psk = Psk::generate().expect("key");
    let (initiator, responder) = shake(&psk, &psk, PATIENT);
    let mut ends = [initiator, responder].map(|end| end.expect("handshake"));
    for end in &mut ends {
        end.set_read_timeout(Some(PATIENT));
    }
    ends.into()
}

/// A message that consists of these bytes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl ChannelMessage for Bytes {
    const NAME: &'static str = "test message";
    const MAX_BYTES: usize = 4 << 20;
}

/// Returns the bytes of a key, parsed from its text form.
pub(crate) fn key_bytes(psk: &Psk) -> [u8; 32] {
    let text = psk.to_text().to_uppercase();
    let digits = text.rsplit(':').next().expect("digits");
    let bytes = data_encoding::BASE32_NOPAD.decode(digits.as_bytes());
    bytes.expect("base 32")[..32].try_into().expect("32 bytes")
}

/// Returns a Noise handshake that does not use the code of farwrite-session.
pub(crate) fn noise(psk: &Psk, prologue: &[u8], initiator: bool) -> HandshakeState {
    let key = key_bytes(psk);
    let pattern = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
    let builder = Builder::new(pattern.parse().expect("pattern"))
        .prologue(prologue)
        .and_then(|builder| builder.psk(0, &key))
        .expect("parameters");
    if initiator {
        builder.build_initiator().expect("initiator")
    } else {
        builder.build_responder().expect("responder")
    }
}

/// Returns the first message of an initiator.
pub(crate) fn first_message(noise: &mut HandshakeState) -> Vec<u8> {
    let mut first = [0; 100];
    let length = noise.write_message(&[], &mut first).expect("first message");
    assert_eq!(length, 48);
    first[..length].to_vec()
}

/// An initiator that implements P7 by hand.
pub(crate) struct HandMade {
    pub(crate) stream: TcpStream,
    pub(crate) state: StatelessTransportState,
    pub(crate) next: u64,
}

impl HandMade {
    /// Runs the handshake with the responder at the other end of the stream, up to the responder's
    /// proof.
    pub(crate) fn initiate(mut stream: TcpStream, psk: &Psk) -> Self {
        let mut noise = noise(psk, &PREAMBLE, true);
        stream.write_all(&PREAMBLE).expect("write");
        stream.write_all(&first_message(&mut noise)).expect("write");
        let mut answer = [0; 10 + 1 + 48];
        stream.read_exact(&mut answer).expect("answer");
        assert_eq!(answer[..10], PREAMBLE);
        assert_eq!(answer[10], 0);
        noise
            .read_message(&answer[11..], &mut [])
            .expect("second message");
        let state = noise.into_stateless_transport_mode().expect("finished");
        Self {
            stream,
            state,
            next: 0,
        }
    }

    /// Encrypts.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut sealed = vec![0; plain.len() + 16];
        self.state
            .write_message(self.next, plain, &mut sealed)
            .expect("seal");
        self.next += 1;
        sealed
    }

    /// Returns a record: its length, then the encrypted bytes.
    pub(crate) fn record(&mut self, plain: &[u8]) -> Vec<u8> {
        let sealed = self.seal(plain);
        let length = u16::try_from(sealed.len()).expect("short enough");
        [&length.to_be_bytes()[..], &sealed].concat()
    }

    pub(crate) fn prove(&mut self) {
        let proof = self.seal(&[]);
        self.write(&proof);
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("write");
    }
}

/// Returns a hand-made initiator after its handshake, and the channel at the other end.
pub(crate) fn hand_made() -> (HandMade, Channel) {
    let psk = Psk::generate().expect("key");
    let (dialled, accepted) = sockets("127.0.0.1:0");
    thread::scope(|scope| {
        let responds = scope.spawn(|| Channel::accept(accepted, &psk, PATIENT));
        let mut peer = HandMade::initiate(dialled, &psk);
        peer.prove();
        (peer, responds.join().expect("no panic").expect("channel"))
    })
}
