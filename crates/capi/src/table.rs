//! The handles that C programs hold: numbers, not addresses.
//!
//! A handle is the index of a place in a table, and the generation of that place. The table is never
//! freed. So a handle of something that was destroyed is found to be wrong, whatever has taken its
//! place, and no call can reach freed memory through it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::failure::Failure;
use crate::fork;

/// Places of the first segment. Each segment has twice as many as the one before.
const FIRST: u32 = 64;
const SEGMENTS: usize = 22;
/// Places that are free at least, so that one is not taken again at once.
const RESTING: usize = 1024;

const GENERATION_BITS: u32 = 30;
const INDEX_BITS: u32 = 30;

/// What a handle names.
pub(crate) trait Named: Sized + Send + Sync + 'static {
    /// Differs between the kinds, from 1 to 15. Bits 60 to 63 of a handle are the kind, so no handle is
    /// an address that a program can read.
    const KIND: u64;
    /// For people.
    const WHAT: &'static str;
    fn slot(of: &Entry) -> Option<&Arc<Self>>;
    fn into_entry(of: Arc<Self>) -> Entry;
}

/// What a place holds.
pub(crate) enum Entry {
    Context(Arc<crate::context::Context>),
    QueuePair(Arc<crate::queue_pair::Pair>),
    Region(Arc<crate::memory::Registration>),
    Send(Arc<crate::messages::Send>),
    Receive(Arc<crate::messages::Receive>),
    Listener(Arc<crate::connections::Listening>),
    Connection(Arc<crate::connections::Connected>),
    Opened(Arc<crate::connections::Opened>),
    Message(Arc<crate::reliable::Message>),
    Stream(Arc<crate::streams::Streaming>),
}

macro_rules! named {
    ($($type:ty: $variant:ident, $kind:literal, $what:literal;)*) => {
        $(impl Named for $type {
            const KIND: u64 = $kind;
            const WHAT: &'static str = $what;
            fn slot(of: &Entry) -> Option<&Arc<Self>> {
                match of {
                    Entry::$variant(value) => Some(value),
                    _ => None,
                }
            }
            fn into_entry(of: Arc<Self>) -> Entry {
                Entry::$variant(of)
            }
        })*
    };
}

named! {
    crate::context::Context: Context, 1, "context";
    crate::queue_pair::Pair: QueuePair, 2, "queue pair";
    crate::memory::Registration: Region, 3, "memory region";
    crate::messages::Send: Send, 4, "send handle";
    crate::messages::Receive: Receive, 5, "receive handle";
    crate::connections::Listening: Listener, 6, "listener";
    crate::connections::Connected: Connection, 7, "connection";
    crate::connections::Opened: Opened, 8, "queue pair of a connection";
    crate::reliable::Message: Message, 9, "message";
    crate::streams::Streaming: Stream, 10, "stream";
}

#[derive(Default)]
struct TableEntry {
    generation: u32,
    entry: Option<Entry>,
}

static TABLE: [OnceLock<Box<[Mutex<TableEntry>]>>; SEGMENTS] =
    [const { OnceLock::new() }; SEGMENTS];
static PLACES: Mutex<Places> = Mutex::new(Places {
    used: 0,
    free: VecDeque::new(),
});
/// Places below this one have things of a parent process.
static ABANDONED: AtomicU32 = AtomicU32::new(0);

/// Which places can be taken.
struct Places {
    /// Places that have been taken at least once.
    used: u32,
    free: VecDeque<u32>,
}

thread_local! {
    /// Held by the thread that forks, so that the child finds the lock as the parent left it.
    static HELD: RefCell<Option<MutexGuard<'static, Places>>> = const { RefCell::new(None) };
}

/// No other thread takes a place from here on, until [`after_fork`].
pub(crate) fn before_fork() {
    // A thread that ends has no such variable any more, and forks without this.
    let _ = HELD.try_with(|held| *held.borrow_mut() = Some(lock(&PLACES)));
}

/// In the parent and in the child.
pub(crate) fn after_fork() {
    let _ = HELD.try_with(|held| drop(held.borrow_mut().take()));
}

/// In a child: what exists belongs to the parent. Its memory is left alone, as other threads of the parent may
/// have been using it. Between [`before_fork`] and [`after_fork`].
pub(crate) fn abandon() {
    let _ = HELD.try_with(|held| {
        if let Some(places) = held.borrow_mut().as_mut() {
            ABANDONED.store(places.used, Ordering::Relaxed);
            places.free.clear();
        }
    });
}

impl Places {
    /// A place for something new.
    fn take(&mut self) -> Option<u32> {
        if self.free.len() > RESTING {
            return self.free.pop_front();
        }
        let index = self.used;
        let (segment, _) = place(index)?;
        let segment_places = FIRST << segment.min(SEGMENTS - 1);
        let places = TABLE.get(segment)?;
        places.get_or_init(|| (0..segment_places).map(|_| Mutex::default()).collect());
        self.used += 1;
        Some(index)
    }
}

const _: () = assert!(size_of::<usize>() == 8, "handles have 64 bits");

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Segment and position of a place.
fn place(index: u32) -> Option<(usize, usize)> {
    let from_first = index.checked_add(FIRST)?;
    let segment = from_first.ilog2() - FIRST.ilog2();
    let first = FIRST << segment;
    Some((segment as usize, (from_first - first) as usize))
}

fn get(index: u32) -> Option<&'static Mutex<TableEntry>> {
    if index < ABANDONED.load(Ordering::Relaxed) {
        return None;
    }
    let (segment, at) = place(index)?;
    TABLE.get(segment)?.get()?.get(at)
}

/// Puts something into the table, and returns its handle, which is never 0.
pub(crate) fn insert<T: Named>(value: Arc<T>) -> Result<u64, Failure> {
    let full = || Failure::new("too many handles exist: destroy some");
    fork::watch();
    let index = lock(&PLACES).take().ok_or_else(full)?;
    let mut place = lock(get(index).ok_or_else(full)?);
    place.entry = Some(T::into_entry(value));
    let generation = u64::from(place.generation);
    Ok(T::KIND << (GENERATION_BITS + INDEX_BITS) | generation << INDEX_BITS | u64::from(index))
}

/// The number behind a handle.
pub(crate) fn number<T>(handle: *mut T) -> u64 {
    handle.addr() as u64
}

/// The handle with a number. It is not an address.
pub(crate) fn named<T>(number: u64) -> *mut T {
    // Handles need 64 bits, which this file checks.
    #[allow(clippy::cast_possible_truncation)]
    ptr::without_provenance_mut(number as usize)
}

/// Puts something into the table, and returns its handle for C.
pub(crate) fn publish<T: Named, H>(value: T) -> Result<*mut H, Failure> {
    Ok(named(insert(Arc::new(value))?))
}

/// Index and generation, if the number can be a handle of this kind.
fn parts<T: Named>(handle: u64) -> Result<(u32, u32), Failure> {
    let what = T::WHAT;
    if handle == 0 {
        return Err(Failure::new(format!("the {what} is NULL")));
    }
    if handle >> (GENERATION_BITS + INDEX_BITS) != T::KIND {
        return Err(Failure::new(format!("{handle:#x} is no {what}")));
    }
    let part = |bits: u64, count: u32| u32::try_from(bits & ((1 << count) - 1)).unwrap_or(0);
    Ok((
        part(handle, INDEX_BITS),
        part(handle >> INDEX_BITS, GENERATION_BITS),
    ))
}

fn gone<T: Named>(handle: u64) -> Failure {
    let what = T::WHAT;
    Failure::new(format!(
        "{what} {handle:#x} does not exist: it was destroyed or completed, or belongs to the process that has \
         forked this one"
    ))
}

/// Looks a handle up.
pub(crate) fn find<T: Named>(handle: u64) -> Result<Arc<T>, Failure> {
    let (index, generation) = parts::<T>(handle)?;
    let place = lock(get(index).ok_or_else(|| gone::<T>(handle))?);
    let entry = place
        .entry
        .as_ref()
        .filter(|_| place.generation == generation);
    let found = entry.and_then(T::slot).cloned();
    found.ok_or_else(|| gone::<T>(handle))
}

/// Removes what a handle names. The handle is wrong from now on.
pub(crate) fn remove<T: Named>(handle: u64) -> Result<Arc<T>, Failure> {
    let (index, generation) = parts::<T>(handle)?;
    let mut place = lock(get(index).ok_or_else(|| gone::<T>(handle))?);
    if place.generation != generation || place.entry.as_ref().and_then(T::slot).is_none() {
        return Err(gone::<T>(handle));
    }
    place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
    let entry = place.entry.take();
    drop(place);
    lock(&PLACES).free.push_back(index);
    let removed = entry.as_ref().and_then(T::slot).cloned();
    removed.ok_or_else(|| gone::<T>(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_one_another() {
        let mut expected = (0..SEGMENTS)
            .flat_map(|segment| (0..(FIRST as usize) << segment).map(move |at| (segment, at)));
        for index in 0..100_000 {
            assert_eq!(place(index), expected.next());
        }
        assert!(place(u32::MAX).is_none_or(|(segment, _)| segment >= SEGMENTS));
    }
}
