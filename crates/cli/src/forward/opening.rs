//! The first bytes of a stream: where it leads, and whether that end was reached (P16.2).

use std::io::{self, ErrorKind, Read};

use farwrite_keys::{HostPort, Text};

use crate::addresses::{MOST_DESTINATION_BYTES, parse_destination};

/// The answer of a far end that is connected. Any other byte, a length and a text say that it is not.
pub(super) const CONNECTED: u8 = 0;
const REFUSED: u8 = 1;

/// The request for a destination.
pub(super) fn request(destination: &HostPort) -> Vec<u8> {
    with_length(&destination.to_string())
}

/// Reads a request.
pub(super) fn read_request(reader: &mut impl Read) -> Result<HostPort, String> {
    let mut length = [0];
    let mut text = [0; MOST_DESTINATION_BYTES];
    let mut read = |out: &mut [u8]| {
        let read = reader.read_exact(out);
        read.map_err(|error| format!("reading the destination: {error}"))
    };
    read(&mut length)?;
    let text = &mut text[..usize::from(length[0])];
    read(text)?;
    let text = str::from_utf8(text).map_err(|_| "the destination is no text".to_owned())?;
    parse_destination(text).map_err(|why| format!("{text:?} is no destination: {why}"))
}

/// The answer that says why the destination was not reached.
pub(super) fn refusal(why: &str) -> Vec<u8> {
    let mut ends = (0..=MOST_DESTINATION_BYTES).rev();
    let end = ends.find(|end| why.is_char_boundary(*end)).unwrap_or(0);
    [vec![REFUSED], with_length(&why[..end])].concat()
}

/// A text of at most 255 bytes behind its length.
fn with_length(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    let text = &text.as_bytes()[..usize::from(length)];
    [&[length], text].concat()
}

/// Reads what comes behind the answer. Fails with [`ErrorKind::ConnectionRefused`] and the reason of the other end
/// if that has not reached the destination.
pub(super) struct Answered<R> {
    reader: R,
    /// What has come of the answer. Nothing belongs to it after [`CONNECTED`].
    answer: Vec<u8>,
}

impl<R> Answered<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            answer: Vec::new(),
        }
    }
}

impl<R: Read> Read for Answered<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.answer != [CONNECTED] {
            let whole = match self.answer[..] {
                [] => 1,
                [_] => 2,
                [_, length, ..] => 2 + usize::from(length),
            };
            let mut rest = [0; 2 + MOST_DESTINATION_BYTES];
            let rest = &mut rest[..whole - self.answer.len()];
            if rest.is_empty() {
                let why = String::from_utf8_lossy(&self.answer[2..]);
                let why = Text::new(why).to_string();
                return Err(io::Error::new(ErrorKind::ConnectionRefused, why));
            }
            match self.reader.read(rest)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.answer.extend_from_slice(&rest[..count]),
            }
        }
        self.reader.read(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let length = out.len().min(1);
            self.0.read(&mut out[..length])
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written_and_nothing_else_is() {
        let destination = parse_destination("[2001:db8::7]:22").expect("valid");
        let written = request(&destination);
        assert_eq!(read_request(&mut Slow(&written)), Ok(destination));
        for wrong in [
            &b""[..],
            b"\0",
            b"\x05ab",
            b"\x01a",
            b"\x03h:0",
            b"\x04\xff\xff:1",
            b"\x05h\n:80",
        ] {
            read_request(&mut &*wrong).expect_err("no request");
        }
    }

    #[test]
    fn an_answer_comes_before_the_bytes() {
        let mut bytes = Vec::new();
        let read = Answered::new(Slow(b"\0hello")).read_to_end(&mut bytes);
        assert_eq!((read.ok(), &bytes[..]), (Some(5), &b"hello"[..]));
        let why = "\u{e9}".repeat(200);
        let mut refused = refusal(&why);
        assert_eq!(refused.len(), 2 + 254);
        refused.push(b'x');
        let error = Answered::new(Slow(&refused))
            .read(&mut [0])
            .expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(error.to_string(), why[..254]);
        for cut in [&b""[..], b"\x01", b"\x01\x05abc"] {
            let error = Answered::new(cut).read(&mut [0]).expect_err("cut");
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }
}
