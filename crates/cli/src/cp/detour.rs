//! Turns a transfer to ssh when its packets no longer pass, although they did (P14.2).

use std::cell::{LazyCell, OnceCell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use farwrite_connection::{ConnectionOptions, Connector, Error as ConnectionError, Keys, Purpose};
use farwrite_keys::Psk;
use farwrite_transfer::{Error, ErrorKind, RECEIVER, connection_options};

/// The time without packets after which the other end is asked through ssh.
const BLOCKED: Duration = Duration::from_secs(10);
/// The time for packets to pass again after the other end has answered: where all of the network was away, ssh can be
/// back before them.
const GRACE: Duration = Duration::from_secs(2);
/// The time between a question that has failed and the next one.
const PAUSE: Duration = Duration::from_secs(1);
/// The time for the answer to one question.
const ANSWER: Duration = Duration::from_secs(10);

/// The way through ssh, for one transfer.
pub(super) struct Detour<R> {
    /// The address of this machine from which ssh carries datagrams to the other end. The first use prepares ssh.
    entrance: LazyCell<io::Result<SocketAddr>, R>,
    /// One socket for all questions: each socket takes a flow of the relay.
    connector: OnceCell<Arc<Connector>>,
    keys: Keys,
    /// [`BLOCKED`], or half of a shorter limit of the transfer.
    patience: Duration,
    /// [`GRACE`], or an eighth of a shorter limit of the transfer.
    grace: Duration,
    /// [`ANSWER`].
    answer_limit: Duration,
    stage: RefCell<Stage>,
}

enum Stage {
    /// Packets pass, or the other end is asked after this time without them.
    Direct(Duration),
    /// The other end was asked. The answer is whether it has answered.
    Asked(Receiver<bool>),
    /// It answered after this time without packets.
    Answered(Duration),
    /// The transfer ends, and the next one goes through ssh.
    Taken,
}

impl<R: FnOnce() -> io::Result<SocketAddr>> Detour<R> {
    /// `relay` prepares ssh. `timeout` is the silence that ends the transfer.
    pub(super) fn new(relay: R, psk: &Psk, timeout: Duration) -> Self {
        let patience = BLOCKED.min(timeout / 2);
        Self {
            entrance: LazyCell::new(relay),
            connector: OnceCell::new(),
            keys: Keys::of_psk(psk),
            patience,
            grace: GRACE.min(timeout / 8),
            answer_limit: ANSWER,
            stage: RefCell::new(Stage::Direct(patience)),
        }
    }

    /// The address of this machine from which ssh carries datagrams to the other end.
    pub(super) fn entrance(&self) -> io::Result<SocketAddr> {
        let entrance = LazyCell::force(&self.entrance).as_ref();
        entrance
            .copied()
            .map_err(|error| io::Error::new(error.kind(), error.to_string()))
    }

    /// Whether the transfer has ended for this.
    pub(super) fn is_taken(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Taken)
    }

    /// The transfer calls this with the time for which packets have not passed.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] if that is long, and the other end answers through ssh: the transfer must end.
    pub(super) fn look(&self, blocked: Duration) -> Result<(), Error> {
        let mut stage = self.stage.borrow_mut();
        if blocked < self.patience {
            *stage = Stage::Direct(self.patience);
            return Ok(());
        }
        let later = Stage::Direct(blocked + PAUSE);
        match &*stage {
            Stage::Direct(after) if blocked >= *after => {
                *stage = self.ask().map_or(later, Stage::Asked);
            }
            Stage::Asked(answer) => match answer.try_recv() {
                Ok(true) => *stage = Stage::Answered(blocked),
                Ok(false) | Err(TryRecvError::Disconnected) => *stage = later,
                Err(TryRecvError::Empty) => {}
            },
            Stage::Answered(after) if blocked >= *after + self.grace => {
                *stage = Stage::Taken;
                let what = format!(
                    "UDP packets have not passed for {} s, and the other end answers through ssh",
                    blocked.as_secs()
                );
                return Err(Error::new(ErrorKind::Unreachable, what));
            }
            Stage::Direct(_) | Stage::Answered(_) | Stage::Taken => {}
        }
        Ok(())
    }

    /// Asks the other end through ssh, in a thread. What fails now may succeed later.
    fn ask(&self) -> Option<Receiver<bool>> {
        let at = self.entrance().ok()?;
        if self.connector.get().is_none() {
            // No end of a copy serves this purpose. The other end answers that it does not, which shows that it runs.
            // The connection takes no place there.
            let options = ConnectionOptions {
                purpose: Purpose::PROGRAM,
                ..connection_options(self.answer_limit)
            };
            let connector = Connector::bind(&options).ok()?;
            let _ = self.connector.set(Arc::new(connector));
        }
        let connector = Arc::clone(self.connector.get()?);
        let keys = self.keys.clone();
        let (tell, answer) = channel();
        let ask = move || {
            let asked = connector.connect_any(&[at], &keys, RECEIVER);
            let answers = matches!(asked, Ok(_) | Err(ConnectionError::NotServed { .. }));
            let _ = tell.send(answers);
        };
        thread::Builder::new().spawn(ask).ok()?;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Instant;

    use farwrite::ReservedPort;
    use farwrite_connection::Listener;

    use super::*;
    use crate::recv;

    const SECOND: Duration = Duration::from_secs(1);
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Looks until the other end has answered, or was asked in vain.
    fn until_answered<R: FnOnce() -> io::Result<SocketAddr>>(
        detour: &Detour<R>,
        blocked: Duration,
    ) {
        let start = Instant::now();
        while !matches!(*detour.stage.borrow(), Stage::Answered(_)) {
            detour.look(blocked).expect("it does not end yet");
            assert!(start.elapsed() < TIMEOUT, "no answer");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn receiver(psk: &Psk) -> (ReservedPort, Arc<Listener>) {
        let port = ReservedPort::bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let listener = recv::listen(&port, &Keys::of_psk(psk), []).expect("it listens");
        (port, listener)
    }

    #[test]
    fn a_transfer_turns_to_ssh_when_its_end_answers_there_and_packets_stay_away() {
        let psk = Psk::generate().expect("a key");
        let (port, listener) = receiver(&psk);
        let is_prepared = Cell::new(false);
        let relay = || {
            is_prepared.set(true);
            Ok(port.local_addr())
        };
        let detour = Detour::new(relay, &psk, TIMEOUT);
        detour.look(9 * SECOND).expect("too early");
        assert!(!is_prepared.get(), "it was not asked");
        until_answered(&detour, 10 * SECOND);
        detour.look(11 * SECOND).expect("packets may come back");
        // They do.
        detour.look(Duration::ZERO).expect("packets pass");
        until_answered(&detour, 30 * SECOND);
        assert!(!detour.is_taken());
        let ended = detour.look(32 * SECOND).expect_err("it must end");
        assert_eq!(ended.kind(), ErrorKind::Unreachable);
        assert!(detour.is_taken());
        let come = listener.accept(Duration::from_millis(100));
        assert!(come.expect("it listens").is_none(), "no place is taken");
    }

    #[test]
    fn a_transfer_waits_while_ssh_is_silent_too() {
        let psk = Psk::generate().expect("a key");
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let at = silent.local_addr().expect("bound");
        let mut detour = Detour::new(|| Ok(at), &psk, TIMEOUT);
        detour.answer_limit = Duration::from_millis(100);
        for blocked in [10 * SECOND, 20 * SECOND] {
            detour.look(blocked).expect("it waits");
            while matches!(*detour.stage.borrow(), Stage::Asked(_)) {
                detour.look(blocked).expect("it waits");
                thread::sleep(Duration::from_millis(5));
            }
            let asks_later =
                matches!(*detour.stage.borrow(), Stage::Direct(after) if after > blocked);
            assert!(asks_later, "a question without an answer");
        }
        assert!(!detour.is_taken());
    }

    #[test]
    fn a_user_who_gives_up_early_does_so_after_the_detour() {
        let psk = Psk::generate().expect("a key");
        let (port, _listener) = receiver(&psk);
        for timeout in [SECOND, 8 * SECOND] {
            let detour = Detour::new(|| Ok(port.local_addr()), &psk, timeout);
            until_answered(&detour, timeout / 2);
            detour.look(timeout * 3 / 4).expect_err("it must end");
            assert!(detour.is_taken());
        }
    }
}
