//! What the end that receives says when it ends (P15.3), and the code of the end that sends if its input ends
//! early (P15.2).

use std::io::{self, ErrorKind, Read};

use farwrite_keys::Text;
use farwrite_stream::ReadHalf;

use super::LOOK;
use crate::exit::{Exit, Failure};

/// The longest verdict.
const MAX_BYTES: usize = 512;

/// How the end that receives has ended. As bytes: the kind, and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) kind: Kind,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// All bytes were written, and their hash agrees.
    Whole = 0,
    /// The hash differs.
    Corrupt = 1,
    /// The program that reads has closed the pipe.
    Closed = 2,
    /// The output could not be written.
    Unwritten = 3,
    /// The disk is full.
    Full = 4,
    /// The user has ended the receiver.
    Interrupted = 5,
    /// The receiver does not take it: there are too many bytes, or no name for a file.
    Refused = 6,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Whole,
        Self::Corrupt,
        Self::Closed,
        Self::Unwritten,
        Self::Full,
        Self::Interrupted,
        Self::Refused,
    ];
}

impl Verdict {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind as u8];
        bytes.extend_from_slice(Text::new(&self.text).as_str().as_bytes());
        bytes.truncate(MAX_BYTES);
        bytes
    }

    /// Reads what the other end has sent.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        let (kind, text) = bytes.split_first().ok_or_else(|| {
            let what = "the receiver has ended without saying that it has all bytes";
            Failure::new(Exit::Unreachable, what)
        })?;
        let kind = Kind::ALL.into_iter().find(|it| *it as u8 == *kind);
        let kind = kind.ok_or_else(|| {
            let what = "the receiver says something that this version does not know: install the same \
                        release at both ends";
            Failure::new(Exit::Mismatch, what)
        })?;
        let text = String::from_utf8_lossy(text);
        let text = Text::new(text).as_str().to_owned();
        Ok(Self { kind, text })
    }

    /// What the end that sends ends with.
    pub(super) fn of_sender(&self) -> Result<(), Failure> {
        let exit = match self.kind {
            Kind::Whole => return Ok(()),
            Kind::Corrupt => Exit::Corrupt,
            Kind::Closed | Kind::Unwritten => Exit::PeerFiles,
            Kind::Full => Exit::Full,
            Kind::Interrupted => Exit::Unreachable,
            Kind::Refused => Exit::Mismatch,
        };
        let what = format!("at the receiver: {}", self.text);
        Err(Failure::new(exit, what))
    }
}

/// Why the end that sends has given the stream up: the code of its reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum GivenUp {
    Unreadable = 1,
    Interrupted = 2,
}

impl GivenUp {
    /// What the end that receives ends with.
    pub(super) fn of_receiver(code: u32) -> Failure {
        match code {
            code if code == Self::Unreadable as u32 => Failure::new(
                Exit::PeerFiles,
                "the sender could not read its standard input to the end",
            ),
            code if code == Self::Interrupted as u32 => {
                Failure::new(Exit::Unreachable, "the sender was interrupted")
            }
            code => {
                let what = format!("the sender has given up, with code {code}");
                Failure::new(Exit::Unreachable, what)
            }
        }
    }
}

/// Reads a verdict to the end of the stream. Calls `goes_on` several times a second, and fails when it returns
/// false.
pub(super) fn read(
    reader: &mut ReadHalf,
    mut goes_on: impl FnMut() -> bool,
) -> io::Result<Vec<u8>> {
    reader.set_timeout(Some(LOOK));
    let mut told = Vec::new();
    let mut piece = [0; MAX_BYTES];
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(told),
            Ok(length) if told.len() + length <= MAX_BYTES => {
                told.extend_from_slice(&piece[..length]);
            }
            Ok(_) => return Err(ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) => return Err(error),
        }
        if !goes_on() {
            return Err(ErrorKind::Interrupted.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_read_as_it_is_written() {
        for kind in Kind::ALL {
            let verdict = Verdict {
                kind,
                text: "why".into(),
            };
            assert_eq!(
                Verdict::decode(&verdict.encode()).expect("a verdict"),
                verdict
            );
            assert_eq!(verdict.of_sender().is_ok(), kind == Kind::Whole);
        }
        for wrong in [&[][..], &[7], &[255, b'x']] {
            Verdict::decode(wrong).expect_err("no verdict");
        }
    }
}
