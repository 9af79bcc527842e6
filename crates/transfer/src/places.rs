//! Limits how many senders a receiver serves at the same time: in all, and for each peer.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farwrite::fabric::threads::lock;
use farwrite_keys::Proof;
use farwrite_units::show::Count;

use crate::{Error, ErrorKind};

/// How long a sender waits for earlier ones, which may be about to finish, before it is rejected.
pub(crate) const WAIT: Duration = Duration::from_secs(3);
/// The maximum number of waiting senders. Each has proven that it holds the key.
const WAITING: usize = 16;
pub(crate) const BUSY: &str = "another transfer or probe is under way; try again later";

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
        let mut state = lock(&self.places.state);
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
            .wait_timeout_while(lock(&self.state), patience, is_used);
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

    pub(crate) fn try_take(self: &Arc<Self>, proof: Proof) -> Option<Place> {
        self.take_one(lock(&self.state), proof)
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
    pub(crate) fn try_queue(&self, proof: Proof) -> bool {
        let mut state = lock(&self.state);
        let has_room = state.waiting.len() < WAITING && !self.is_enough(&state, proof);
        state.waiting.extend(has_room.then_some(proof));
        has_room
    }

    /// Whether a sender waits for a place.
    #[must_use]
    pub fn are_awaited(&self) -> bool {
        !lock(&self.state).waiting.is_empty()
    }

    /// Ends what [`Places::try_queue`] began.
    pub(crate) fn leave_queue(&self, proof: Proof) {
        lock(&self.state).leave(proof);
    }

    /// After [`Places::try_queue`], takes a place as soon as one is free, within `patience`.
    pub(crate) fn take(self: &Arc<Self>, patience: Duration, proof: Proof) -> Option<Place> {
        let is_full = |state: &mut PlacesState| state.taken >= self.limits.all;
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.state), patience, is_full);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.leave(proof);
        self.take_one(state, proof)
    }

    /// Why there is no place for a peer.
    pub(crate) fn refusal(&self, proof: Proof) -> String {
        let of_peer = (self.limits.of_peer)(proof).max(1);
        if of_peer < self.limits.all && lock(&self.state).of_peer(proof) >= of_peer {
            let transfers = Count(of_peer as u64, "transfer");
            return format!("the receiver serves {transfers} of one peer at once; try again later");
        }
        match self.limits.all {
            1 => BUSY.into(),
            most => format!(
                "{BUSY}: the receiver serves {most} senders at once (--max-senders), or one probe"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

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
