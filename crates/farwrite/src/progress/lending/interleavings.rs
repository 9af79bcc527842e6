//! Tries the orders in which threads can hand an endpoint over.

use std::io;
use std::sync::LazyLock;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::*;
use crate::waiters::Waiters;

loom::lazy_static! {
    /// Nanoseconds since the start. Only alarms make time pass.
    static ref CLOCK: AtomicU64 = AtomicU64::new(0);
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(super) fn now() -> Instant {
    // Only an operation that also writes is sure to read the newest value.
    *START + Duration::from_nanos(CLOCK.fetch_add(0, Ordering::AcqRel))
}

/// An alarm whose time passes at any moment after it was set.
pub(super) struct Alarm {
    ends_ns: Mutex<Option<u64>>,
    is_set: Condvar,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            ends_ns: Mutex::new(None),
            is_set: Condvar::new(),
        })
    }

    pub(super) fn set(&self, delay: Duration) {
        let mut ends_ns = self.ends_ns.lock().unwrap();
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap();
        *ends_ns = Some(CLOCK.fetch_add(0, Ordering::AcqRel) + delay_ns);
        self.is_set.notify_one();
    }

    pub(super) fn wait(&self) {
        let mut ends_ns = self.ends_ns.lock().unwrap();
        loop {
            if let Some(ends_ns) = ends_ns.take() {
                CLOCK.fetch_max(ends_ns, Ordering::AcqRel);
                return;
            }
            ends_ns = self.is_set.wait(ends_ns).unwrap();
        }
    }
}

/// Ends the sleep of the thread that polls. If no thread sleeps, the next sleep ends at once.
#[derive(Default)]
struct Event {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn wake(&self) {
        *self.is_set.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn sleep(&self) {
        let mut is_set = self.is_set.lock().unwrap();
        while !*is_set {
            is_set = self.changed.wait(is_set).unwrap();
        }
        *is_set = false;
    }
}

/// What the thread of an endpoint and its users share.
#[derive(Default)]
struct Shared {
    lending: Lending<Served>,
    event: Event,
    waiters: Waiters,
    /// Loom need not know it: two threads that poll also meet elsewhere.
    is_polled: std::sync::atomic::AtomicBool,
    stop: AtomicBool,
    /// What has come: the request of a user, and a packet.
    came: AtomicUsize,
    /// What a poll has found.
    found: AtomicUsize,
}

const REQUEST: usize = 1;
const PACKET: usize = 2;

/// An endpoint that finds what has come.
struct Served {
    shared: Arc<Shared>,
    found: usize,
}

impl Polled for Served {
    fn round(&mut self) -> Result<Option<u64>, Error> {
        let Self { shared, found } = self;
        let is_polled = shared.is_polled.swap(true, Ordering::AcqRel);
        assert!(!is_polled, "two threads poll");
        let came = shared.came.load(Ordering::Acquire);
        if came != *found {
            *found = came;
            shared.found.store(came, Ordering::Release);
            shared.waiters.wake();
        }
        shared.is_polled.store(false, Ordering::Release);
        Ok(None)
    }

    fn sleep(&mut self, _: Option<u64>, _: Duration) -> Result<(), Error> {
        self.shared.event.sleep();
        Ok(())
    }

    fn is_over(&self, _: u64) -> bool {
        false
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }
}

impl Shared {
    /// As `SharedThread::wake`.
    fn wake(&self) {
        self.event.wake();
        self.lending.recall();
    }

    fn is_found(&self, what: usize) -> bool {
        self.found.load(Ordering::Acquire) & what != 0
    }

    /// As `ProgressThread::wait_or_poll`, soon after the last wait.
    fn wait(&self, what: usize) {
        self.lending.enter();
        let wake = || self.event.wake();
        self.lending
            .poll_until(Duration::MAX, wake, &mut || self.is_found(what));
        self.lending.leave();
        let waiting = self.waiters.enter();
        loop {
            let before = waiting.look();
            if self.is_found(what) {
                break;
            }
            waiting.sleep(before, MAX_SLEEP);
        }
    }

    /// A user sends a request and waits for the answer. Then a packet arrives. The system wakes only the thread that
    /// sleeps in a poll.
    fn ask(&self) {
        self.came.fetch_or(REQUEST, Ordering::AcqRel);
        if !self.lending.poll_once() {
            self.wake();
        }
        self.wait(REQUEST);
        self.came.fetch_or(PACKET, Ordering::AcqRel);
        self.event.wake();
    }

    /// As a user that waits for the packet, and is the last one.
    fn receive(&self) {
        self.wait(PACKET);
        self.stop.store(true, Ordering::Release);
        self.wake();
    }
}

/// As the endpoint's thread.
fn serve(shared: &Arc<Shared>) {
    let mut served = Box::new(Served {
        shared: Arc::clone(shared),
        found: 0,
    });
    while !served.is_stopped() {
        served.round().unwrap();
        if shared.lending.is_wanted() {
            let ending;
            (served, ending) = shared.lending.lend(served);
            assert!(ending.is_none());
        } else {
            served.sleep(None, MAX_SLEEP).unwrap();
        }
    }
    shared.lending.close();
}

/// Waits have no time limit here, so a lost wake is a deadlock, which loom reports.
#[test]
fn no_wake_is_lost_and_all_threads_end() {
    let mut model = loom::model::Builder::new();
    // All interleavings would take hours.
    model.preemption_bound = Some(2);
    model.check(|| {
        let shared = Arc::<Shared>::default();
        let users = [Shared::ask, Shared::receive].map(|user: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || user(&shared))
        });
        serve(&shared);
        for user in users {
            user.join().unwrap();
        }
    });
}
