//! Notices of the program: short messages that none of its queue pairs delays (P12.6).

use super::Session;
use crate::message::{Malformed, Message};

/// Bytes of the longest notice ([`Connection::notify`](crate::Connection::notify)).
pub const MAX_NOTICE_BYTES: usize = 2048;
/// A notice waits while as many messages of the session are under way.
const MOST_UNDER_WAY: usize = 8;

/// The notices of both ends.
#[derive(Default)]
pub(super) struct Notices {
    /// The last notice of this end, until it leaves.
    waiting: Option<Vec<u8>>,
    /// The last notice of the peer.
    heard: Vec<u8>,
    /// How many have come.
    count: u64,
}

impl Session {
    /// Sends a notice, in place of one that has not left.
    pub(crate) fn notify(&mut self, notice: Vec<u8>) {
        self.notices.waiting = Some(notice);
        self.send_notice();
    }

    /// Sends the waiting notice if the session is open and few messages are unsent. Returns whether a notice was sent.
    pub(super) fn send_notice(&mut self) -> bool {
        let may_leave = self.is_open() && self.queue.unsent() < MOST_UNDER_WAY;
        may_leave && self.send_last_notice()
    }

    /// As [`Session::send_notice`], whatever the peer has taken. The end of the connection follows.
    pub(super) fn send_last_notice(&mut self) -> bool {
        let Some(bytes) = self.notices.waiting.take() else {
            return false;
        };
        self.tell(&Message::Notice { bytes });
        true
    }

    /// The program need not take notices, so a later one replaces an earlier one.
    pub(super) fn hear_notice(&mut self, notice: Vec<u8>) -> Result<(), Malformed> {
        if notice.len() > MAX_NOTICE_BYTES {
            let length = notice.len();
            return Err(Malformed::new(format!("a notice of {length} bytes")));
        }
        self.notices.heard = notice;
        self.notices.count += 1;
        Ok(())
    }

    /// How many notices of the peer have come.
    pub(crate) fn notices_heard(&self) -> u64 {
        self.notices.count
    }

    /// The last notice of the peer, and how many have come, if these are more than `seen`.
    pub(crate) fn notice_after(&self, seen: u64) -> Option<(u64, Vec<u8>)> {
        let Notices { heard, count, .. } = &self.notices;
        (*count > seen).then(|| (*count, heard.clone()))
    }
}
