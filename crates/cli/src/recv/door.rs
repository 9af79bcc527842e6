//! Letting senders in, one at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_session::{Cause, Channel, Error, Listener, Message, Psk, Text};

use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::transfer::{self, SETUP};

/// Between two looks at whether the user wants to end.
const GLANCE: Duration = Duration::from_millis(100);
/// Between two lines about strangers.
const QUIET: Duration = Duration::from_secs(1);

/// Takes connections in a thread of its own, which ends with the program.
pub(super) struct Door {
    senders: Receiver<Result<Channel, Error>>,
    busy: Arc<AtomicBool>,
}

impl Door {
    /// Starts to let in whoever holds the key.
    pub(super) fn open(listener: Listener, psk: Psk, console: Console) -> Self {
        let busy = Arc::new(AtomicBool::new(false));
        let (tell, senders) = channel();
        let is_busy = Arc::clone(&busy);
        thread::spawn(move || serve(&listener, &psk, &is_busy, &tell, console));
        Self { senders, busy }
    }

    /// Waits for a sender. Others are turned away from then on, until [`Door::ready`].
    pub(super) fn wait(&self, interrupt: &Interrupt) -> Result<Channel, Failure> {
        loop {
            interrupt.check()?;
            match self.senders.recv_timeout(GLANCE) {
                Ok(sender) => return sender.map_err(|error| transfer::sort("listening", &error)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(Exit::Other, "the listening thread died"));
                }
            }
        }
    }

    /// The next sender may come.
    pub(super) fn ready(&self) {
        self.busy.store(false, Ordering::Release);
    }
}

fn serve(
    listener: &Listener,
    psk: &Psk,
    busy: &AtomicBool,
    tell: &Sender<Result<Channel, Error>>,
    console: Console,
) {
    let mut refusals = Refusals::default();
    loop {
        let accepted = listener.accept(psk, SETUP, None, |peer, error| {
            if let Some(line) = refusals.line(Instant::now(), peer, error) {
                console.warn(line);
            }
        });
        let told = match accepted {
            Ok(channel) if busy.swap(true, Ordering::AcqRel) => {
                turn_away(channel);
                continue;
            }
            accepted => {
                let is_over = accepted.is_err();
                tell.send(accepted).is_err() || is_over
            }
        };
        if told {
            return;
        }
    }
}

/// Tells a sender to come again.
fn turn_away(mut channel: Channel) {
    let reason = Text::new("another transfer is under way; try again later");
    // It notices anyway that the channel ends.
    let _ = channel.send(&Message::Abort {
        cause: Cause::Other,
        reason,
    });
}

/// Lines about connections that came to nothing, few enough to read.
#[derive(Debug, Default)]
struct Refusals {
    told: Option<Instant>,
    untold: u64,
}

impl Refusals {
    fn line(&mut self, now: Instant, peer: SocketAddr, error: &Error) -> Option<String> {
        if self.told.is_some_and(|told| now - told < QUIET) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        let more = match std::mem::take(&mut self.untold) {
            0 => String::new(),
            more => format!(" (and {more} more before)"),
        };
        Some(format!("refused {peer}: {error}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_strangers_is_a_line_a_second() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let peer = SocketAddr::from(([192, 0, 2, 1], 5));
        let mut line =
            |ms| refusals.line(start + Duration::from_millis(ms), peer, &Error::KeysDiffer);
        assert!(line(0).expect("the first").contains("192.0.2.1:5"));
        assert!((1..1000).all(|ms| line(ms).is_none()));
        assert!(line(1000).expect("a second later").contains("999 more"));
        assert!(!line(2000).expect("another").contains("more"));
    }
}
