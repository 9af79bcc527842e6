//! Preamble and Noise handshake (P7.2, P7.3), from a fresh connection to keys that both ends hold.
//!
//! All lengths are fixed, so there is none to believe a stranger.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use snow::{Builder, StatelessTransportState};

use crate::{Error, Psk};

/// Version of the protocol that this end speaks (P7.2).
pub const VERSION: u16 = 2;

const MAGIC: &[u8; 8] = b"FARWRITE";
const PREAMBLE_BYTES: usize = 10;
/// With psk0 a wrong key shows in the first message already, before any work on it.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Bytes that authenticate a Noise message.
pub(crate) const TAG_BYTES: usize = 16;
/// Both handshake messages: a public key and the tag of an empty payload.
const MESSAGE_BYTES: usize = 32 + TAG_BYTES;
const ACCEPTED: u8 = 0;
const KEYS_DIFFER: u8 = 1;
/// How much, and how long, a refused peer may go on before the connection is closed on it.
const LINGER_BYTES: usize = 4096;
const LINGER: Duration = Duration::from_millis(500);

/// What a handshake leaves: the ciphers, and how many records each way it used.
pub(crate) struct Agreed {
    pub(crate) state: StatelessTransportState,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// The initiator's side.
pub(crate) fn initiate(stream: &TcpStream, psk: &Psk, timeout: Duration) -> Result<Agreed, Error> {
    let mut timed = Timed::new(stream, timeout);
    let ours = preamble();
    let mut noise = noise(psk, &ours)?.build_initiator().map_err(Error::Noise)?;
    let mut first = [0; PREAMBLE_BYTES + MESSAGE_BYTES];
    first[..PREAMBLE_BYTES].copy_from_slice(&ours);
    noise
        .write_message(&[], &mut first[PREAMBLE_BYTES..])
        .map_err(Error::Noise)?;
    timed.write(&first)?;

    check_version(timed.read_preamble()?)?;
    let mut status = [0];
    timed.read(&mut status)?;
    match status[0] {
        ACCEPTED => {}
        KEYS_DIFFER => return Err(Error::KeysDiffer),
        came => return Err(Error::Status { came }),
    }
    let mut second = [0; MESSAGE_BYTES];
    timed.read(&mut second)?;
    noise
        .read_message(&second, &mut [])
        .map_err(|_| Error::KeysDiffer)?;
    let state = noise
        .into_stateless_transport_mode()
        .map_err(Error::Noise)?;

    // The first message can be a replay; this one cannot, and the responder waits for it.
    let mut proof = [0; TAG_BYTES];
    state
        .write_message(0, &[], &mut proof)
        .map_err(Error::Noise)?;
    timed.write(&proof)?;
    Ok(Agreed {
        state,
        sent: 1,
        received: 0,
    })
}

/// The responder's side.
pub(crate) fn respond(stream: &TcpStream, psk: &Psk, timeout: Duration) -> Result<Agreed, Error> {
    let mut timed = Timed::new(stream, timeout);
    let theirs = timed.read_preamble()?;
    let ours = preamble();
    if let Err(error) = check_version(theirs) {
        timed.refuse(&ours);
        return Err(error);
    }
    let mut first = [0; MESSAGE_BYTES];
    timed.read(&mut first)?;
    let mut noise = noise(psk, &theirs)?
        .build_responder()
        .map_err(Error::Noise)?;
    if noise.read_message(&first, &mut []).is_err() {
        let mut refusal = [KEYS_DIFFER; PREAMBLE_BYTES + 1];
        refusal[..PREAMBLE_BYTES].copy_from_slice(&ours);
        timed.refuse(&refusal);
        return Err(Error::KeysDiffer);
    }
    let mut second = [ACCEPTED; PREAMBLE_BYTES + 1 + MESSAGE_BYTES];
    second[..PREAMBLE_BYTES].copy_from_slice(&ours);
    noise
        .write_message(&[], &mut second[PREAMBLE_BYTES + 1..])
        .map_err(Error::Noise)?;
    timed.write(&second)?;
    let state = noise
        .into_stateless_transport_mode()
        .map_err(Error::Noise)?;

    let mut proof = [0; TAG_BYTES];
    timed.read(&mut proof)?;
    state
        .read_message(0, &proof, &mut [])
        .map_err(|_| Error::Forged)?;
    Ok(Agreed {
        state,
        sent: 0,
        received: 1,
    })
}

fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&VERSION.to_be_bytes());
    bytes
}

fn check_version(preamble: [u8; PREAMBLE_BYTES]) -> Result<(), Error> {
    let theirs = u16::from_be_bytes([preamble[8], preamble[9]]);
    if theirs == VERSION {
        return Ok(());
    }
    Err(Error::Version {
        ours: VERSION,
        theirs,
    })
}

/// The preamble goes into the handshake's hash: whoever changes the version on the way breaks it.
fn noise<'a>(psk: &'a Psk, prologue: &'a [u8]) -> Result<Builder<'a>, Error> {
    let params = PATTERN.parse().map_err(Error::Noise)?;
    Builder::new(params)
        .prologue(prologue)
        .and_then(|builder| builder.psk(0, psk.bytes()))
        .map_err(Error::Noise)
}

/// A connection with one deadline for everything: a peer that drips bytes gains no time.
struct Timed<'a> {
    stream: &'a TcpStream,
    timeout: Duration,
    deadline: Instant,
}

impl<'a> Timed<'a> {
    fn new(stream: &'a TcpStream, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            deadline: Instant::now() + timeout,
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let mut filled = 0;
        while filled < bytes.len() {
            filled += self.read_some(&mut bytes[filled..])?;
        }
        Ok(())
    }

    /// Reads a preamble, and gives up at the first byte that is not Farwrite's.
    fn read_preamble(&mut self) -> Result<[u8; PREAMBLE_BYTES], Error> {
        let mut bytes = [0; PREAMBLE_BYTES];
        let mut filled = 0;
        while filled < PREAMBLE_BYTES {
            filled += self.read_some(&mut bytes[filled..])?;
            let magic = filled.min(MAGIC.len());
            if bytes[..magic] != MAGIC[..magic] {
                return Err(Error::NotFarwrite {
                    came: bytes[..filled].escape_ascii().to_string(),
                });
            }
        }
        Ok(bytes)
    }

    fn read_some(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
        loop {
            let left = self.left()?;
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(bytes));
            match read {
                Ok(0) => return Err(Error::HandshakeCut),
                Ok(n) => return Ok(n),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Writes at most a hundred bytes or so; the socket's buffer has room for them.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let left = self.left()?;
        self.stream
            .set_write_timeout(Some(left))
            .and_then(|()| self.stream.write_all(bytes))
            .map_err(|error| self.failed(error))
    }

    /// Sends a refusal and gives the peer time to read it: closing with its bytes unread would reset
    /// the connection and might take the refusal along. What fails here changes nothing.
    fn refuse(&mut self, refusal: &[u8]) {
        let _ = self.write(refusal);
        self.deadline = self.deadline.min(Instant::now() + LINGER);
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut unread = [0; LINGER_BYTES];
        let mut taken = 0;
        while let Ok(n) = self.read_some(&mut unread) {
            taken += n;
            if taken > LINGER_BYTES {
                return;
            }
        }
    }

    fn left(&self) -> Result<Duration, Error> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.failed(ErrorKind::TimedOut.into()));
        }
        Ok(left)
    }

    fn failed(&self, error: std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Error::HandshakeCut,
            _ => Error::io("shaking hands", Some(self.timeout), error),
        }
    }
}
