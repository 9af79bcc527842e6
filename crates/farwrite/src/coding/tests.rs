//! Threads give the results of the owner, in any order, and end with it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use farwrite_codes::Present;
use farwrite_fabric::contract::{Fabric, Lkey, Region};
use farwrite_fabric::sim::{SimFabric, SimNetwork};
use farwrite_rng::SplitMix;

use super::*;

const CHUNK_BYTES: usize = 3_000;
const GROUPS: u32 = 12;
const PAIR: QueuePair = QueuePair {
    index: 3,
    serial: 4,
};
const OTHER_PAIR: QueuePair = QueuePair {
    index: 9,
    serial: 1,
};

/// A message of twelve groups, the last one short, and its parity.
struct Memory {
    fabric: SimFabric,
    layout: Layout,
    data: Lkey,
    parity: Lkey,
}

impl Memory {
    fn new() -> Self {
        let network = SimNetwork::new(1);
        let addr = (Ipv4Addr::LOCALHOST, 4791).into();
        let mut fabric = network.endpoint(addr, 1).expect("a free address");
        let bytes = 8 * CHUNK_BYTES * GROUPS as usize - 4_000;
        let code = "ec-mds:8,3".parse().expect("a code");
        let layout = Layout::new(code, bytes, CHUNK_BYTES).expect("a layout");
        let mut register = |bytes| fabric.register(Region::owned(bytes)).expect("room");
        let data = register(SplitMix::new(7).bytes(bytes));
        let parity = register(vec![0; layout.parity_bytes()]);
        Self {
            fabric,
            layout,
            data,
            parity,
        }
    }

    fn source(&self, lkey: Lkey, offset: usize) -> Source {
        Source {
            region: self.fabric.reader(lkey).expect("registered"),
            offset: offset as u64,
        }
    }

    /// The task of a group: to encode it, or to rebuild its first two chunks.
    fn task(&self, group: u32, work: Work) -> Task {
        self.task_of(PAIR, group, work)
    }

    fn task_of(&self, pair: QueuePair, group: u32, work: Work) -> Task {
        let layout = self.layout;
        let bytes = layout.group(group as usize).expect("a group");
        let rebuild = (work == Work::Rebuild).then(|| {
            let mut present = Present::all(layout.code(), bytes.data_chunks);
            present.data.remove(0);
            present.data.remove(1);
            (self.source(self.parity, bytes.parity.start), present)
        });
        Task {
            data: self.source(self.data, bytes.data.start),
            rebuild,
            about: TaskInfo {
                pair,
                job: Job {
                    message: 5,
                    group,
                    work,
                },
                layout,
                group: bytes,
            },
        }
    }

    /// Codes all groups, and returns the results by group.
    fn code(&self, coding: &mut Coding, work: Work) -> Vec<(Vec<usize>, Vec<u8>)> {
        let mut results = vec![None; GROUPS as usize];
        let mut note = |coded: Coded| {
            assert_eq!((coded.about.pair, coded.about.job.work), (PAIR, work));
            let result = (coded.rebuilt, coded.output.clone());
            let place = &mut results[coded.about.job.group as usize];
            assert!(place.replace(result).is_none(), "a group came twice");
            coded.output
        };
        let end = Instant::now() + Duration::from_secs(60);
        let mut groups = 0..GROUPS;
        let (mut missing, mut out) = (GROUPS, Vec::new());
        while missing > 0 {
            while !groups.is_empty() && coding.has_room(9) {
                let group = groups.next().expect("not empty");
                out.extend(coding.code(0, self.task(group, work)));
            }
            coding.take(0, &mut out).expect("threads");
            coding.grant().for_each(drop);
            for coded in out.drain(..) {
                coding.recycle(note(coded));
                missing -= 1;
            }
            assert!(Instant::now() < end, "{missing} groups are missing");
            std::thread::yield_now();
        }
        results
            .into_iter()
            .map(|r| r.expect("each group"))
            .collect()
    }
}

#[test]
fn threads_give_the_results_of_the_owner() {
    let mut memory = Memory::new();
    let wakes = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&wakes);
    let owner = Waker::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let mut here = Coding::default();
    let mut threads = Coding::default();
    threads.start_threads(2, &owner).expect("threads");
    let parity = memory.code(&mut here, Work::Encode);
    assert_eq!(wakes.load(Ordering::Relaxed), 0);
    assert!(memory.code(&mut threads, Work::Encode) == parity);
    assert!(wakes.load(Ordering::Relaxed) > 0);
    let all: Vec<u8> = parity.into_iter().flat_map(|(_, bytes)| bytes).collect();
    memory.fabric.copy_in(memory.parity, 0, &all).expect("room");
    let rebuilt = memory.code(&mut here, Work::Rebuild);
    let data = memory.fabric.memory(memory.data).expect("registered");
    for (group, (chunks, bytes)) in rebuilt.iter().enumerate() {
        assert_eq!(*chunks, [0, 1]);
        let start = group * 8 * CHUNK_BYTES;
        assert!(*bytes == data[start..][..2 * CHUNK_BYTES], "group {group}");
    }
    assert!(memory.code(&mut threads, Work::Rebuild) == rebuilt);
    // Back to the owner.
    threads.start_threads(0, &owner).expect("no threads");
    assert!(threads.is_here());
    assert!(memory.code(&mut threads, Work::Rebuild) == rebuilt);
}

#[test]
fn settled_tasks_leave_memory_free_and_results_in_place() {
    let mut memory = Memory::new();
    let mut coding = Coding::default();
    let owner = Waker::new(|| {});
    coding.start_threads(1, &owner).expect("a thread");
    for group in 0..4 {
        assert!(coding.code(0, memory.task(group, Work::Encode)).is_none());
    }
    assert!(!coding.has_room(1));
    coding.settle().expect("the thread");
    memory
        .fabric
        .deregister(memory.data)
        .expect("no task reads it");
    let mut out = Vec::new();
    coding.take(0, &mut out).expect("the thread");
    assert_eq!(out.len(), 4);
    assert!(coding.has_grants());
    assert_eq!(coding.grant().collect::<Vec<_>>(), [1]);
    assert!(coding.has_room(1));
}

#[test]
fn a_queue_pair_that_ends_waits_for_its_own_tasks_only() {
    let mut memory = Memory::new();
    let mut coding = Coding::default();
    // The thread stops after its first task, until the test goes on or has failed.
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let owner = Waker::new(move || {
        let _ = wait.lock().expect("one thread").recv();
    });
    coding.start_threads(1, &owner).expect("a thread");
    for pair in [PAIR, PAIR, OTHER_PAIR, PAIR] {
        let task = memory.task_of(pair, 0, Work::Encode);
        assert!(coding.code(0, task).is_none());
    }
    // The thread cannot have begun the third task.
    coding.forget(OTHER_PAIR).expect("a thread");
    assert_eq!(coding.at_threads, [PAIR; 3]);
    assert_eq!(coding.tasks, 3);
    drop(go_on);
    coding.forget(PAIR).expect("a thread");
    assert!(coding.at_threads.is_empty());
    memory
        .fabric
        .deregister(memory.data)
        .expect("no task reads it");
    let mut out = Vec::new();
    coding.take(0, &mut out).expect("the thread");
    assert!(out.iter().all(|coded| coded.about.pair == PAIR));
    assert_eq!((coding.tasks, coding.bytes), (0, 0));
}

#[test]
fn queue_pairs_get_room_in_the_order_in_which_they_asked() {
    let memory = Memory::new();
    let mut coding = Coding::default();
    coding.delay(5).expect("no threads");
    for group in 0..4 {
        assert!(coding.has_room(1));
        assert!(coding.code(0, memory.task(group, Work::Encode)).is_none());
    }
    for pair in [2, 1, 3] {
        assert!(!coding.has_room(pair));
    }
    assert!(!coding.has_grants());
    let mut out = Vec::new();
    coding.take(5, &mut out).expect("no threads");
    assert_eq!(coding.grant().collect::<Vec<_>>(), [1, 2, 3]);
    // Queue pair 4 has no grant, so it waits. Queue pair 3 uses its grant, and then waits too.
    assert!(!coding.has_room(4));
    assert!(coding.has_room(3));
    let task = memory.task(0, Work::Encode);
    assert_eq!(task.about.pair.index, 3);
    assert!(coding.code(5, task).is_none());
    assert!(!coding.has_room(3));
    assert!(coding.has_grants());
    assert_eq!(coding.grant().collect::<Vec<_>>(), [3, 4]);
    // Those that have no task do not come back.
    assert!(coding.has_room(3) && coding.has_room(4) && !coding.has_grants());
}

#[test]
fn threads_end_with_tasks_that_nobody_waits_for() {
    let memory = Memory::new();
    let mut coding = Coding::default();
    let owner = Waker::new(|| {});
    coding.start_threads(2, &owner).expect("threads");
    for group in 0..8 {
        let _ = coding.code(0, memory.task(group, Work::Encode));
    }
    drop(coding);
    let Memory {
        mut fabric, data, ..
    } = memory;
    fabric.deregister(data).expect("no thread reads it");
}

#[test]
fn a_thread_that_panics_is_an_error_and_no_endless_wait() {
    let memory = Memory::new();
    let mut coding = Coding::default();
    let owner = Waker::new(|| {});
    coding.start_threads(1, &owner).expect("a thread");
    let mut task = memory.task(0, Work::Encode);
    task.data.offset = u64::MAX / 2;
    let _ = coding.code(0, task);
    let error = coding.settle().expect_err("a wrong task");
    assert!(error.to_string().contains("computing parity"), "{error}");
    // From here on, the owner codes.
    assert!(coding.code(0, memory.task(0, Work::Encode)).is_some());
}
