//! `farwrite send -` and `farwrite recv -`: the standard input of one program becomes the standard output of
//! the other, or a file of it (P15). The bytes cross the network on a byte stream of a connection.

mod keep;
mod pieces;
mod receive;
mod send;
mod verdict;
mod waiting;

use std::time::Duration;

use farwrite_stream::{SchemeSetting, StreamOptions};
use farwrite_units::show::{ByteRate, Bytes, Rate, Time};
use serde::Serialize;

pub(crate) use keep::{Store, keep};
pub(crate) use pieces::{Cut, decode, encode};
pub(crate) use receive::receive;
pub(crate) use send::send;

/// The name of the stream, with the version of P15. Behind it, and a slash, stands the name of the file in which a
/// receiver of files stores the bytes.
const NAME: &str = "farwrite-pipe-1";
/// The longest name of such a file: the stream has a name of at most 255 bytes.
pub(crate) const MOST_FILE_NAME_BYTES: usize = 255 - NAME.len() - 1;
/// Bytes of the length before each piece of the pipe (P15.2).
const HEAD_BYTES: usize = 4;
/// The longest piece, which is read at a time.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// How often an end that waits looks whether it has to stop, and shows its progress.
const LOOK: Duration = Duration::from_millis(200);
/// How long an end takes to tell the other one how it has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Bytes of a message of the stream, and how many there are in each direction.
const MESSAGE_BYTES: u32 = 256 << 10;
const MESSAGES: u32 = 128;
/// The memory of a stream, in both directions.
const MEMORY_BYTES: u64 = 2 * MESSAGE_BYTES as u64 * MESSAGES as u64;

/// How a stream divides its bytes, which both ends must know.
pub(crate) fn stream_options(scheme: SchemeSetting) -> StreamOptions {
    StreamOptions {
        message_bytes: MESSAGE_BYTES,
        messages: MESSAGES,
        scheme,
    }
}

/// What has passed through a pipe.
#[derive(Debug, Serialize)]
pub(crate) struct Passed {
    peer: String,
    /// The file in which it was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    bytes: u64,
    blake3: String,
    seconds: f64,
    goodput_bps: f64,
}

impl Passed {
    pub(crate) fn new(peer: String, bytes: u64, hash: blake3::Hash, time: Duration) -> Self {
        let goodput_bps = ByteRate::of(bytes, time).0 * 8.0;
        Self {
            peer,
            file: None,
            bytes,
            blake3: hash.to_hex().to_string(),
            seconds: time.as_secs_f64(),
            goodput_bps,
        }
    }

    pub(crate) fn line(&self, verb: &str) -> String {
        let time = Time(Duration::from_secs_f64(self.seconds));
        let (bytes, rate) = (Bytes(self.bytes), Rate(self.goodput_bps));
        format!("{verb} {bytes} in {time}: {rate}")
    }
}
