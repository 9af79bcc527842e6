//! Words of the program: short messages that none of its queue pairs delays (P12.6).

use super::Session;
use crate::message::Message;

/// Bytes of the longest word ([`Connection::say`](crate::Connection::say)).
pub const MAX_WORD_BYTES: usize = 2048;
/// A word waits while as many messages of the session are under way.
const MOST_UNDER_WAY: usize = 8;

/// The words of both ends.
#[derive(Default)]
pub(super) struct Words {
    /// The last word of this end, until it leaves.
    waiting: Option<Vec<u8>>,
    /// The last word of the peer.
    heard: Vec<u8>,
    /// How many have come.
    count: u64,
}

impl Session {
    /// Says a word, in place of one that has not left.
    pub(crate) fn say(&mut self, word: Vec<u8>) {
        self.words.waiting = Some(word);
        self.send_word();
    }

    /// Sends the word that waits, unless the peer has not taken many messages before it. Returns whether there was one.
    pub(super) fn send_word(&mut self) -> bool {
        let may_leave = self.is_open() && self.queue.unsent() < MOST_UNDER_WAY;
        may_leave && self.send_last_word()
    }

    /// As [`Session::send_word`], whatever the peer has taken. The end of the connection follows.
    pub(super) fn send_last_word(&mut self) -> bool {
        let Some(bytes) = self.words.waiting.take() else {
            return false;
        };
        self.tell(&Message::Word { bytes });
        true
    }

    /// The program need not take words, so a later one replaces an earlier one.
    pub(super) fn hear_word(&mut self, word: Vec<u8>) {
        self.words.heard = word;
        self.words.count += 1;
    }

    /// The last word of the peer, and how many have come, if these are more than `seen`.
    pub(crate) fn word_after(&self, seen: u64) -> Option<(u64, Vec<u8>)> {
        let Words { heard, count, .. } = &self.words;
        (*count > seen).then(|| (*count, heard.clone()))
    }
}
