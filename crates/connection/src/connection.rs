//! A connection, and its queue pairs.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farwrite::{Endpoint, PeerStats, ProgressThread, QpOptions, QueuePair, UdpFabric, Waiters};
use farwrite_keys::Text;

use crate::cutover::GoesOn;
use crate::driver::Driver;
use crate::error::{Ended, Error};
use crate::keys::Peer;
use crate::message::ByeCause;
use crate::messages::{MessageOptions, Messages};
use crate::node::Node;
use crate::purpose::Purpose;
use crate::session::{MAX_NOTICE_BYTES, Session, Shared, fit_path};

/// A connection to a peer that has proven who it is. Queue pairs are opened over it by name.
///
/// A clone is the same connection. It ends with its last clone and its last queue pair, or by
/// [`Connection::close`]. It outlives a change of the initiator's address, and silence up to
/// [`ConnectionOptions::silence_limit`](crate::ConnectionOptions::silence_limit).
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    node: Arc<Node>,
    session: usize,
    peer: Peer,
    purpose: Purpose,
    /// Threads that wait for something of the session.
    waiters: Arc<Waiters>,
}

impl Connection {
    pub(crate) fn new(node: Arc<Node>, session: usize, peer: Peer) -> Self {
        let found = |session: &mut Session| (session.purpose, Arc::clone(&session.waiters));
        let found = node.driver().sessions.get_mut(session).map(found);
        let (purpose, waiters) = found.unwrap_or_default();
        Self(Arc::new(Inner {
            node,
            session,
            peer,
            purpose,
            waiters,
        }))
    }

    /// Calls `look` with the session; `None` if it is gone.
    fn look<R>(&self, look: impl FnOnce(Option<&mut Session>) -> R) -> R {
        look(self.0.node.driver().sessions.get_mut(self.0.session))
    }

    /// Waits until `ready` returns something of the session, or of its absence, at most for `at_most`.
    fn wait<R>(
        &self,
        at_most: Duration,
        mut ready: impl FnMut(Option<&mut Session>) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        let ready = || self.look(&mut ready);
        Ok(self.thread().wait_with(&self.0.waiters, at_most, ready)?)
    }

    /// Runs `call` on the session, on the endpoint's thread.
    pub(crate) fn on_session<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Session, &mut Shared<'_>) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let key = self.0.session;
        let on_session =
            move |driver: &mut Driver, endpoint: &mut _| driver.on_session(endpoint, key, call);
        self.0
            .node
            .call(on_session)?
            .ok_or(Error::Over(Ended::Closed))
    }

    /// As [`Connection::on_session`], and waits for nothing, so it may be called on the endpoint's thread.
    fn tell(&self, call: impl FnOnce(&mut Session, &mut Shared<'_>) + Send + 'static) {
        let key = self.0.session;
        self.0.node.tell(move |driver, endpoint| {
            driver.on_session(endpoint, key, call);
        });
    }

    /// The peer, as it has proven itself.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.0.peer
    }

    /// What the initiator wants it for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.0.purpose
    }

    /// The address at which the peer is now; `None` if the connection is over.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.node.driver().address(self.0.session)
    }

    /// The address of this end on the way to the peer, before any translation; `None` if the connection is over.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.node.driver().local_address(self.0.session)
    }

    /// The MTU of data packets that the path carries.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.look(|session| session.map_or(0, |session| session.mtu))
    }

    /// Bytes of the largest message that a queue pair with these options carries on this path. Packets of a
    /// message are numbered, so a path with smaller packets has shorter messages: 1 GiB with packets of 4096
    /// bytes, and 370 MB where the path carries 1500 bytes. Longer messages fail with
    /// [`farwrite::Error::TooLong`].
    #[must_use]
    pub fn largest_message(&self, options: &QpOptions) -> u64 {
        let mut sdr = options.sdr;
        fit_path(&mut sdr, self.mtu());
        sdr.max_message_bytes
    }

    /// Why the connection is over; `None` while it is not.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.look(ended)
    }

    /// Waits until the connection is over, at most for `limit`, and returns why.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the port has failed permanently.
    pub fn wait_ended(&self, limit: Duration) -> Result<Option<Ended>, Error> {
        self.wait(limit, ended)
    }

    /// Ends the connection after this silence of the peer, in place of
    /// [`ConnectionOptions::silence_limit`](crate::ConnectionOptions::silence_limit).
    pub fn set_silence_limit(&self, limit: Duration) {
        // A connection that is over needs no limit.
        let _ = self.on_session(move |session, _| session.silence_limit = limit);
    }

    /// Sends a notice to the program at the other end, which reads it with [`Connection::notice_after`]. No queue pair
    /// of the connection delays a notice. A notice replaces one of this end that has not left. The call does not wait.
    /// The last notice leaves before a later [`Connection::close`] or [`Connection::depart`].
    ///
    /// # Errors
    /// [`Error::Endpoint`] with [`farwrite::Error::TooLong`] for more than [`MAX_NOTICE_BYTES`].
    pub fn notify(&self, notice: Vec<u8>) -> Result<(), Error> {
        let (length, limit) = (notice.len() as u64, MAX_NOTICE_BYTES as u64);
        if length > limit {
            return Err(farwrite::Error::TooLong { length, limit }.into());
        }
        self.tell(move |session, _| session.notify(notice));
        Ok(())
    }

    /// How many notices of the program at the other end have come, and the last one, if these are more than `seen`. The
    /// last notice can also be read when the connection is over.
    #[must_use]
    pub fn notice_after(&self, seen: u64) -> Option<(u64, Vec<u8>)> {
        self.look(|session| session?.notice_after(seen))
    }

    /// How many notices of the program at the other end have come.
    #[must_use]
    pub fn notices_heard(&self) -> u64 {
        self.look(|session| session.map_or(0, |session| session.notices_heard()))
    }

    /// Ends the connection. Messages that are under way are lost: wait for their outcomes before.
    pub fn close(&self) {
        // A thread that has ended has no connections.
        let _ = self.on_session(|session, shared| {
            session.close(shared, ByeCause::Closed, Ended::Closed);
            // Nobody uses the descriptor any more.
            session.ready.end();
        });
    }

    /// Ends the connection because this end has no place for it at the moment. The peer learns `reason`
    /// ([`ByeCause::Busy`]), and may connect again later. Waits for nothing.
    pub fn refuse_as_busy(&self, reason: &str) {
        let why = Text::new(reason);
        self.tell(move |session, shared| {
            session.close_because(shared, (ByeCause::Busy, why), Ended::Closed);
        });
    }

    /// As [`Connection::close`], and waits until the peer knows it, at most for `limit`. A program that ends
    /// at once after `close` leaves the peer waiting for
    /// [`ConnectionOptions::silence_limit`](crate::ConnectionOptions::silence_limit).
    pub fn finish(&self, limit: Duration) {
        self.close();
        self.wait_over(limit);
    }

    /// Waits until nothing is left to do for the connection.
    fn wait_over(&self, limit: Duration) {
        // A thread that has ended has no connections.
        let is_over = |session: &mut Session| session.is_over();
        let _ = self.wait(limit, |session| session.is_none_or(is_over).then_some(()));
    }

    /// As [`Connection::finish`] for an end that needs nothing of its peer any more, and that knows that its peer needs
    /// nothing either. Waits only until the peer was told; if this end had to repeat chunks of queue pairs that are
    /// still open, until the peer knows, which takes a round trip.
    pub fn depart(&self, limit: Duration) {
        // A thread that has ended has no connections.
        let _ = self.on_session(|session, shared| session.depart(shared));
        self.wait_over(limit);
    }

    /// What this end knows of the peer and of the path to it. All queue pairs of the connection share it.
    ///
    /// # Errors
    /// [`Error::Over`], [`Error::Endpoint`].
    pub fn peer_stats(&self) -> Result<PeerStats, Error> {
        let stats = self.on_session(|session, shared| match session.ended() {
            Some(ended) => Err(Error::Over(ended)),
            None => Ok(shared.endpoint.peer_stats(session.qp)?),
        });
        stats?
    }

    /// A descriptor that is readable while [`Connection::accept_queue_pair`] without a name would not wait: the
    /// peer has opened a queue pair, whatever its name, or the connection is over. Wait for it with `poll` or
    /// `epoll`, and do not read it. It stays open as long as the caller holds it.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the process has too many open files; [`Error::Over`].
    pub fn accept_descriptor(&self) -> Result<Arc<OwnedFd>, Error> {
        self.look(|session| session.ok_or(Error::Over(Ended::Closed))?.descriptor())
    }

    /// The thread that polls the endpoint of this connection, to run calls and tasks on it.
    #[must_use]
    pub fn thread(&self) -> &ProgressThread<UdpFabric> {
        &self.0.node.thread
    }

    /// Opens a queue pair that the peer accepts by the same name. Both ends must give the same
    /// [`QpOptions::sdr`] and [`QpOptions::timing`]. The MTU is at most [`Connection::mtu`], the packets
    /// are sealed, and the rate control is that of the connection, whatever the options say. Waits at most
    /// `limit` for the peer: for its program, and for a place if the peer has too many queue pairs
    /// ([`ConnectionOptions::max_queue_pairs`](crate::ConnectionOptions::max_queue_pairs)).
    ///
    /// # Errors
    /// [`Error::Refused`] if the shapes differ, [`Error::Timeout`] if the peer does not accept it,
    /// [`Error::InvalidName`], [`Error::Over`], [`Error::Endpoint`].
    pub fn open_queue_pair(
        &self,
        name: &str,
        options: QpOptions,
        limit: Duration,
    ) -> Result<OpenedQueuePair, Error> {
        let start = Instant::now();
        let left = || limit.saturating_sub(start.elapsed());
        loop {
            if let Some(opened) = self.ask_for_pair(name, &options, left)? {
                return Ok(opened);
            }
            // Otherwise, the path has come to carry only smaller packets.
            if left().is_zero() {
                return Err(Error::Timeout {
                    what: format!("the peer's acceptance of queue pair {name:?}"),
                    within: limit,
                });
            }
        }
    }

    /// Asks the peer once for a queue pair, while time is `left`. Returns `None` if it must be asked for again.
    fn ask_for_pair(
        &self,
        name: &str,
        options: &QpOptions,
        left: impl Fn() -> Duration,
    ) -> Result<Option<OpenedQueuePair>, Error> {
        let largest_message = self.largest_message(options);
        let number = loop {
            let (named, options) = (name.to_owned(), options.clone());
            let begin = move |session: &mut Session, shared: &mut Shared<'_>| match session
                .take_first(&named)
            {
                Some(number) => Ok(Some(number)),
                None => session.begin_open(shared, &named, options),
            };
            if let Some(number) = self.on_session(begin)?? {
                break number;
            }
            let may_open = |session: &mut Session| session.may_open();
            let waited = self.wait(left(), |session| session.is_none_or(may_open).then_some(()))?;
            if waited.is_none() {
                return Ok(None);
            }
        };
        // From here on, dropping this closes the queue pair.
        let mut opened = OpenedQueuePair {
            connection: self.clone(),
            number,
            name: name.to_owned(),
            qp: None,
            largest_message,
        };
        let answer = self.wait(left(), |session| match session {
            Some(session) => session.finish_open(number, name),
            None => Some(Err(Ended::Closed.into())),
        })?;
        opened.qp = answer.transpose()?.flatten();
        Ok(opened.qp.is_some().then_some(opened))
    }

    /// Accepts the next queue pair that the peer opens by `name`, or by any name, if `None`. Waits at most
    /// `limit`, and returns `None` after that.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the shapes of both ends differ, or there is no room for a queue pair; the peer
    /// is told. [`Error::Over`].
    pub fn accept_queue_pair(
        &self,
        name: Option<&str>,
        options: &QpOptions,
        limit: Duration,
    ) -> Result<Option<OpenedQueuePair>, Error> {
        let options = options.clone();
        self.accept_queue_pair_with(name, move |_| options.clone(), limit)
    }

    /// As [`Connection::accept_queue_pair`], with options that depend on [`Connection::mtu`], which may have changed when
    /// the peer opens the queue pair.
    ///
    /// # Errors
    /// Those of [`Connection::accept_queue_pair`].
    pub fn accept_queue_pair_with(
        &self,
        name: Option<&str>,
        options: impl Fn(u32) -> QpOptions + Clone + Send + 'static,
        limit: Duration,
    ) -> Result<Option<OpenedQueuePair>, Error> {
        // `ready` calls the endpoint, so it does not hold the driver meanwhile.
        let accepted = self.thread().wait_with(&self.0.waiters, limit, || {
            let is_asked = |session: &mut Session| session.is_asked(name);
            self.look(|session| session.is_none_or(is_asked)).then(|| {
                let (name, options) = (name.map(str::to_owned), options.clone());
                let accepted = self.on_session(move |session, shared| {
                    let accepted = session.accept_pair(shared, name.as_deref(), options);
                    session.follow_requests();
                    accepted
                });
                accepted.flatten().transpose()
            })?
        })?;
        let accepted = accepted.transpose()?;
        Ok(accepted.map(|(number, name, qp)| OpenedQueuePair {
            connection: self.clone(),
            number,
            name,
            qp: Some(qp),
            largest_message: self.largest_message(&options(self.mtu())),
        }))
    }
}

/// Why a session is over. A session that is gone was closed. `None` while the session is not over.
fn ended(session: Option<&mut Session>) -> Option<Ended> {
    match session {
        Some(session) => session.ended(),
        None => Some(Ended::Closed),
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.0.peer)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let key = self.session;
        self.node
            .tell(move |driver, endpoint| driver.drop_session(endpoint, key));
    }
}

/// A queue pair that both ends have opened. It is closed when dropped. What has been registered for it
/// stays registered.
///
/// If the path comes to carry only smaller packets, [`Messages`] and streams go on. A queue pair that the program uses
/// itself breaks: its calls fail with [`farwrite::Error::BrokenQueuePair`], whose reason is
/// [`RouteError::Shrunk`](farwrite::routes::RouteError::Shrunk) with the new MTU. Drop it, and open another one by the
/// same connection.
#[derive(Debug)]
pub struct OpenedQueuePair {
    connection: Connection,
    number: u32,
    name: String,
    /// `None` until the peer has accepted it.
    qp: Option<QueuePair>,
    largest_message: u64,
}

impl OpenedQueuePair {
    /// The queue pair, for calls on the endpoint.
    ///
    /// # Panics
    /// Never for a value that a call has returned.
    #[must_use]
    pub fn queue_pair(&self) -> QueuePair {
        self.qp.expect("the peer has accepted it")
    }

    /// The name by which it was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the largest message ([`Connection::largest_message`]).
    #[must_use]
    pub fn largest_message(&self) -> u64 {
        // The path may have come to carry only smaller packets.
        let now = self
            .connection
            .look(|session| session?.largest_message(self.number));
        now.unwrap_or(self.largest_message)
    }

    /// Says that everything has been sent and received at both ends, and that the queue pair stays only to
    /// answer late packets until it is dropped. It then takes no place of
    /// [`ConnectionOptions::max_queue_pairs`](crate::ConnectionOptions::max_queue_pairs), unless four times as
    /// many have ended and were not dropped. Does not wait, so a task of the endpoint's thread can call it.
    pub fn retire(&self) {
        self.connection.look(|session| {
            if let Some(session) = session {
                session.retire_pair(self.number);
            }
        });
    }

    /// `user` goes on over another queue pair if the path comes to carry only smaller packets. Without this, the
    /// queue pair is broken in that case, also if that happens between the call that has returned it and this one.
    ///
    /// # Errors
    /// [`Error::Over`], [`Error::Endpoint`].
    pub fn set_user(&self, user: impl GoesOn + 'static) -> Result<(), Error> {
        let number = self.number;
        let user = Box::new(user);
        self.connection
            .on_session(move |session, _| session.set_user(number, user))
    }

    /// Its connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Closes it, although others may still hold it. Its messages that are open fail, so calls that wait for
    /// them return.
    pub fn close(&self) {
        let number = self.number;
        // A connection that is over has no queue pairs.
        let _ = self
            .connection
            .on_session(move |session, shared| session.close_pair(shared, number));
    }

    /// Runs `call` with the endpoint and the queue pair, on the endpoint's thread.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when the thread has ended.
    pub fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Endpoint<UdpFabric>, QueuePair) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let qp = self.queue_pair();
        let thread = self.connection.thread();
        Ok(thread.call(move |endpoint| call(endpoint, qp))?)
    }

    /// Sends and receives whole messages over it.
    ///
    /// # Errors
    /// [`Error::Endpoint`].
    pub fn into_messages(self, options: MessageOptions) -> Result<Messages, Error> {
        Messages::new(self, options)
    }
}

impl Drop for OpenedQueuePair {
    fn drop(&mut self) {
        let number = self.number;
        // This may be the endpoint's thread, as the last task that uses the queue pair ends there.
        self.connection
            .tell(move |session, shared| session.close_pair(shared, number));
    }
}
