//! Admits senders, as many at a time as there are places.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_files::{Cause, Message};
use farwrite_session::{
    AcceptedKeys, Channel, Error as SessionError, Listener, Proof, Refusal, Text,
};

use crate::client::LAST_MESSAGE;
use crate::error::of_thread;
use crate::hooks::CANCEL_PERIOD;
use crate::setup::SETUP;
use crate::{Cancel, Error, ErrorKind, Event, Observer};

/// How long a sender waits for earlier ones, which may be about to finish, before it is rejected.
const WAIT: Duration = Duration::from_secs(3);
/// The maximum number of waiting senders. Each has proven that it holds the key.
const WAITING: usize = 16;
/// The time between two lines about failed connections.
const QUIET: Duration = Duration::from_secs(1);
const BUSY: &str = "another transfer or probe is under way; try again later";

type Admitted = Result<(Channel, Place), SessionError>;

/// How many senders may have places at once.
pub struct PlaceLimits {
    /// All of them.
    pub all: usize,
    /// Those with one key, with those that wait for a place. Further ones of this key are rejected at once.
    pub of_peer: Box<dyn Fn(Proof) -> usize + Send + Sync>,
}

impl From<usize> for PlaceLimits {
    /// One peer may have all places, and wait for them.
    fn from(all: usize) -> Self {
        Self {
            all,
            of_peer: Box::new(move |_| all.saturating_add(WAITING)),
        }
    }
}

/// Accepts connections in its own thread, which ends with the program.
pub struct Admission {
    senders: Receiver<Admitted>,
    refusals: Arc<Mutex<Refusals>>,
    observer: Arc<dyn Observer>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let line = lock(&self.refusals).rest();
        if let Some(line) = line {
            self.observer.observe(Event::Warning(line));
        }
    }
}

impl Admission {
    /// Starts to admit senders that this end accepts, within `places` at once.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] if no thread can be started.
    pub fn start(
        mut listener: Listener,
        accepted: impl Into<AcceptedKeys>,
        places: &Arc<Places>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Error> {
        let accepted = accepted.into();
        let places = Arc::clone(places);
        let (admitted, senders) = mpsc::channel();
        let admission = Self {
            senders,
            refusals: Arc::default(),
            observer: Arc::clone(&observer),
        };
        let refusals = Arc::clone(&admission.refusals);
        let warnings = (refusals, observer);
        thread::Builder::new()
            .name("admission".into())
            .spawn(move || serve(&mut listener, &accepted, &places, &admitted, &warnings))
            .map_err(|error| of_thread(&error))?;
        Ok(admission)
    }

    /// Waits for a sender. While all places are taken, other senders wait a short time and are then
    /// rejected.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`]; [`ErrorKind::Unreachable`] if the port fails.
    pub fn wait(&self, cancel: &Cancel) -> Result<(Channel, Place), Error> {
        self.wait_while(cancel, || {})
    }

    /// As [`Admission::wait`]. Meanwhile calls `each` about 20 times a second.
    ///
    /// # Errors
    /// As [`Admission::wait`].
    pub fn wait_while(
        &self,
        cancel: &Cancel,
        mut each: impl FnMut(),
    ) -> Result<(Channel, Place), Error> {
        loop {
            cancel.check()?;
            each();
            match self.senders.recv_timeout(CANCEL_PERIOD) {
                Ok(sender) => {
                    return sender.map_err(|error| Error::of_session("listening", &error));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Other, "the listening thread died"));
                }
            }
        }
    }
}

/// The places of senders.
pub struct Places {
    limits: PlaceLimits,
    state: Mutex<PlacesState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PlacesState {
    taken: usize,
    /// The key of each sender that waits for a place.
    waiting: Vec<Proof>,
    /// The key of each sender that has a place.
    peers: Vec<Proof>,
}

impl PlacesState {
    /// How many senders of a peer have a place or wait for one.
    fn of_peer(&self, proof: Proof) -> usize {
        let all = self.peers.iter().chain(&self.waiting);
        all.filter(|peer| **peer == proof).count()
    }

    /// Ends the wait of a sender.
    fn leave(&mut self, proof: Proof) {
        let own = self.waiting.iter().position(|peer| *peer == proof);
        own.map(|own| self.waiting.swap_remove(own));
    }
}

/// The place of a sender, or all places of a probe, free again when this is dropped.
pub struct Place {
    places: Arc<Places>,
    /// The key of a sender.
    proof: Option<Proof>,
    /// How many places this takes.
    takes: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.taken -= self.takes;
        let is_own = |peer: &Proof| Some(*peer) == self.proof;
        let own = state.peers.iter().position(is_own);
        own.map(|own| state.peers.swap_remove(own));
        drop(state);
        self.places.changed.notify_all();
    }
}

impl Places {
    /// Free places, at least one.
    #[must_use]
    pub fn new(limits: impl Into<PlaceLimits>) -> Arc<Self> {
        let limits = limits.into();
        let all = limits.all.max(1);
        Arc::new(Self {
            limits: PlaceLimits { all, ..limits },
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Takes all places for a probe, as soon as nobody has one: what it measures should not be the traffic of
    /// others. Waits a short time, as senders do for a place.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`].
    pub fn take_all(self: &Arc<Self>) -> Result<Place, Error> {
        self.take_all_within(WAIT)
    }

    fn take_all_within(self: &Arc<Self>, patience: Duration) -> Result<Place, Error> {
        let is_used = |state: &mut PlacesState| state.taken > 0;
        let waited = self
            .changed
            .wait_timeout_while(self.state(), patience, is_used);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.taken > 0 {
            return Err(Error::new(ErrorKind::Busy, BUSY));
        }
        state.taken = self.limits.all;
        Ok(Place {
            places: Arc::clone(self),
            proof: None,
            takes: self.limits.all,
        })
    }

    fn state(&self) -> MutexGuard<'_, PlacesState> {
        lock(&self.state)
    }

    /// Takes a place if there is one.
    fn try_take(self: &Arc<Self>, proof: Proof) -> Option<Place> {
        self.take_one(self.state(), proof)
    }

    fn take_one(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, PlacesState>,
        proof: Proof,
    ) -> Option<Place> {
        if state.taken >= self.limits.all || self.is_enough(&state, proof) {
            return None;
        }
        state.taken += 1;
        state.peers.push(proof);
        Some(Place {
            places: Arc::clone(self),
            proof: Some(proof),
            takes: 1,
        })
    }

    /// Whether a peer has, or waits for, as many places as it may have.
    fn is_enough(&self, state: &PlacesState, proof: Proof) -> bool {
        state.of_peer(proof) >= (self.limits.of_peer)(proof).max(1)
    }

    /// Registers one more waiting sender, if there is room for it, and if its peer may have a place.
    fn try_queue(&self, proof: Proof) -> bool {
        let mut state = self.state();
        let has_room = state.waiting.len() < WAITING && !self.is_enough(&state, proof);
        state.waiting.extend(has_room.then_some(proof));
        has_room
    }

    /// Ends what [`Places::try_queue`] began.
    fn leave_queue(&self, proof: Proof) {
        self.state().leave(proof);
    }

    /// After [`Places::try_queue`], takes a place as soon as one is free, within `patience`.
    fn take(self: &Arc<Self>, patience: Duration, proof: Proof) -> Option<Place> {
        let is_full = |state: &mut PlacesState| state.taken >= self.limits.all;
        let waited = self
            .changed
            .wait_timeout_while(self.state(), patience, is_full);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.leave(proof);
        self.take_one(state, proof)
    }

    /// Why there is no place for a peer.
    fn refusal(&self, proof: Proof) -> String {
        let of_peer = (self.limits.of_peer)(proof).max(1);
        if of_peer < self.limits.all && self.state().of_peer(proof) >= of_peer {
            let noun = if of_peer == 1 {
                "transfer"
            } else {
                "transfers"
            };
            return format!(
                "the receiver serves {of_peer} {noun} of one peer at once; try again later"
            );
        }
        match self.limits.all {
            1 => BUSY.into(),
            most => format!(
                "{BUSY}: the receiver serves {most} senders at once (--max-senders), or one probe"
            ),
        }
    }
}

fn serve(
    listener: &mut Listener,
    accepted: &AcceptedKeys,
    places: &Arc<Places>,
    admitted: &Sender<Admitted>,
    (refusals, observer): &(Arc<Mutex<Refusals>>, Arc<dyn Observer>),
) {
    let warn = |line: Option<String>| {
        if let Some(line) = line {
            observer.observe(Event::Warning(line));
        }
    };
    loop {
        let came = listener.accept(accepted, SETUP, Some(QUIET), |refusal| {
            let line = lock(refusals).line(Instant::now(), refusal);
            warn(line);
        });
        match came {
            Ok(channel) => admit(channel, places, admitted),
            Err(SessionError::Timeout { .. }) => {
                let line = lock(refusals).rest_after(Instant::now());
                warn(line);
            }
            Err(error) => {
                let _ = admitted.send(Err(error));
                return;
            }
        }
    }
}

/// Admits a sender, or lets it wait in a separate thread, so that others can connect.
fn admit(channel: Channel, places: &Arc<Places>, admitted: &Sender<Admitted>) {
    let proof = channel.proof();
    if let Some(place) = places.try_take(proof) {
        // If no thread receives this, the program is ending.
        let _ = admitted.send(Ok((channel, place)));
        return;
    }
    if !places.try_queue(proof) {
        refuse_as_busy(channel, &places.refusal(proof));
        return;
    }
    // The sender stays here until the thread has started: without a thread, this one answers.
    let (hand_over, senders) = mpsc::channel();
    let (of_thread_too, admitted) = (Arc::clone(places), admitted.clone());
    let wait = move || {
        let place = of_thread_too.take(WAIT, proof);
        let Ok(channel) = senders.recv() else {
            return;
        };
        match place {
            Some(place) => drop(admitted.send(Ok((channel, place)))),
            None => refuse_as_busy(channel, &of_thread_too.refusal(proof)),
        }
    };
    match thread::Builder::new().name("waiting".into()).spawn(wait) {
        Ok(_) => drop(hand_over.send(channel)),
        Err(error) => {
            places.leave_queue(proof);
            refuse_as_busy(channel, &format!("{BUSY} ({})", of_thread(&error)));
        }
    }
}

/// Asks a sender to try again later.
fn refuse_as_busy(mut channel: Channel, reason: &str) {
    let (_, writer) = channel.halves();
    writer.set_timeout(Some(LAST_MESSAGE));
    // The sender notices the end of the channel in any case.
    let _ = writer.send(&Message::Abort {
        cause: Cause::Busy,
        reason: Text::new(reason),
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Limits the lines about failed connections, so that a person can read them.
#[derive(Debug, Default)]
struct Refusals {
    shown_at: Option<Instant>,
    not_shown: u64,
}

impl Refusals {
    fn line(&mut self, now: Instant, refusal: &Refusal) -> Option<String> {
        if !self.is_time(now) {
            self.not_shown += 1;
            return None;
        }
        self.shown_at = Some(now);
        let more = match std::mem::take(&mut self.not_shown) {
            0 => String::new(),
            more => format!(" (and {more} more before)"),
        };
        Some(format!("{refusal}{more}"))
    }

    fn is_time(&self, now: Instant) -> bool {
        self.shown_at.is_none_or(|at| now - at >= QUIET)
    }

    /// A line about those that were not shown, if the last line is old enough.
    fn rest_after(&mut self, now: Instant) -> Option<String> {
        self.is_time(now).then(|| self.rest()).flatten()
    }

    /// A line about those that were not shown.
    fn rest(&mut self) -> Option<String> {
        let more = std::mem::take(&mut self.not_shown);
        let noun = if more == 1 {
            "connection"
        } else {
            "connections"
        };
        (more > 0).then(|| format!("{more} more {noun} failed"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn a_flood_of_strangers_is_a_line_a_second() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let refusal = Refusal::Peer {
            addr: SocketAddr::from(([192, 0, 2, 1], 5)),
            error: SessionError::KeysDiffer,
        };
        let mut line = |ms| refusals.line(start + Duration::from_millis(ms), &refusal);
        assert!(line(0).expect("the first").contains("192.0.2.1:5"));
        assert!((1..1000).all(|ms| line(ms).is_none()));
        assert!(line(1000).expect("a second later").contains("999 more"));
        assert!(!line(2000).expect("another").contains("more"));
        let now = start + Duration::from_millis(2400);
        assert!(refusals.line(now, &refusal).is_none());
        assert!(
            refusals.rest_after(now).is_none(),
            "it may come with the next"
        );
        let later = start + Duration::from_secs(3);
        let rest = refusals.rest_after(later).expect("one more");
        assert_eq!(rest, "1 more connection failed");
        assert_eq!(refusals.rest(), None);
    }

    #[test]
    fn as_many_senders_as_places_and_the_next_gets_one_in_time() {
        let any = Proof::PreShared;
        let places = Places::new(2);
        let probe = places
            .take_all_within(Duration::ZERO)
            .expect("nobody has one");
        assert!(places.try_take(any).is_none(), "a probe has all");
        drop(probe);
        let _first = places.try_take(any).expect("a place");
        let second = places.try_take(any).expect("a place");
        let shared = places.take_all_within(Duration::ZERO).map(drop);
        assert_eq!(shared.expect_err("shared").kind(), ErrorKind::Busy);
        assert!(places.try_queue(any));
        assert!(places.take(Duration::from_millis(20), any).is_none());
        assert!(places.try_queue(any));
        let leave = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(second);
        });
        let third = places.take(Duration::from_secs(60), any);
        assert!(third.is_some(), "it is free by then");
        assert!(places.try_take(any).is_none());
        leave.join().expect("no panic");
        // They wait for a place, though they may not have one more each.
        let places = Places::new(2);
        assert!((0..WAITING).all(|_| places.try_queue(any)));
        assert!(!places.try_queue(any), "no more than these may wait");
    }

    #[test]
    fn one_peer_leaves_room_to_wait_to_others() {
        let limits = PlaceLimits {
            all: 4,
            of_peer: Box::new(|proof| if proof == Proof::Code { 4 } else { 3 }),
        };
        let places = Places::new(limits);
        let taken = [(); 4].map(|()| places.try_take(Proof::Code).expect("a place"));
        assert!((0..3).all(|_| places.try_queue(Proof::PreShared)));
        assert!(!places.try_queue(Proof::PreShared), "three of it wait");
        let why = places.refusal(Proof::PreShared);
        assert!(why.contains("serves 3 transfers of one peer"), "{why}");
        drop(taken);
        let got = [(); 3].map(|()| places.take(Duration::ZERO, Proof::PreShared));
        assert!(got.iter().all(Option::is_some), "those that waited");
        assert!(
            !places.try_queue(Proof::PreShared),
            "they have three places"
        );
        assert!(places.try_queue(Proof::Code), "nobody else waits any more");
    }

    #[test]
    fn one_peer_leaves_places_to_others() {
        let limits = PlaceLimits {
            all: 3,
            of_peer: Box::new(|proof| if proof == Proof::Code { 1 } else { 2 }),
        };
        let places = Places::new(limits);
        let taken = [(); 2].map(|()| places.try_take(Proof::PreShared).expect("a place"));
        assert!(places.try_take(Proof::PreShared).is_none());
        assert!(!places.try_queue(Proof::PreShared), "it does not wait");
        let why = places.refusal(Proof::PreShared);
        assert!(why.contains("serves 2 transfers of one peer"), "{why}");
        let other = places.try_take(Proof::Code).expect("the last place");
        let why = places.refusal(Proof::Code);
        assert!(why.contains("serves 1 transfer of one peer"), "{why}");
        drop(taken);
        assert!(places.try_take(Proof::Code).is_none());
        drop(other);
        assert!(places.try_take(Proof::Code).is_some());
    }
}
