//! Targets of the transfer crate.

use farwrite_files::Message;
use farwrite_transfer::{Incoming, framed};

/// What a peer that holds the key sends on the channel of a transfer (P8.1), in pieces whose length is the first
/// byte. How it is cut changes nothing. A message that was read can be sent, and reads the same again.
pub fn channel(data: &[u8]) {
    let Some((&piece_bytes, bytes)) = data.split_first() else {
        return;
    };
    let pieces = read(bytes.chunks(usize::from(piece_bytes).max(1)));
    assert_eq!(pieces, read([bytes].into_iter()));
    pieces.0.iter().for_each(sends_the_same);
}

/// Reads messages up to the first error. Returns them, the error, and whether the next message has begun.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Message>, Option<String>, bool) {
    let (mut incoming, mut messages) = (Incoming::default(), Vec::new());
    for mut piece in pieces {
        loop {
            match incoming.take(&mut piece) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error.to_string()), false),
            }
        }
        assert!(piece.is_empty(), "bytes that are no part of a message");
    }
    (messages, None, !incoming.is_between_messages())
}

/// A message that was read can be sent, and reads the same again. The exception is a long message whose
/// cleaned texts are longer than the limit.
pub(crate) fn sends_the_same(message: &Message) {
    let Ok(bytes) = framed(message) else {
        return;
    };
    let mut incoming = Incoming::default();
    let again = incoming.take(&mut &bytes[..]).expect("own bytes");
    assert_eq!(again.as_ref(), Some(message));
    assert!(incoming.is_between_messages());
}
