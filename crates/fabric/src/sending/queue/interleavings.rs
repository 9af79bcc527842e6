//! Interleavings of the owner and the thread.

use std::sync::Mutex as Results;
use std::sync::atomic::{AtomicBool, Ordering};

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::contract::{Rkey, Waker, WriteWr};

/// A job with a write.
fn job(qpn: u32) -> Job {
    let write = WriteWr {
        wr_id: 0,
        signaled: true,
        local: &[],
        remote_addr: 0,
        rkey: Rkey(0),
        imm: 0,
    };
    let writes = Writes::copy(&[write], false, |_| unreachable!("it has no bytes"));
    Job {
        qpn: Qpn(qpn),
        work: Work::Writes(writes.unwrap()),
    }
}

fn send(qpn: u32) -> Job {
    Job {
        qpn: Qpn(qpn),
        work: Work::Send(Vec::new()),
    }
}

fn departed(qpn: Qpn) -> Departed {
    Departed {
        qpn,
        context: 0,
        wr_id: 0,
    }
}

/// What a thread does that sends without a carrier. `owner` wakes the owner.
fn send_all(queue: &Queue, owner: &Waker) {
    while let Some(Next::Job(Job { qpn, .. })) = queue.take() {
        if queue.finish(&mut vec![departed(qpn)], None) {
            owner.wake();
        }
    }
}

/// All interleavings with few preemptions; all of them would take hours.
fn check(test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

/// The owner sleeps for departures until it is woken. A lost wake would be a deadlock, which loom
/// reports.
#[test]
fn all_jobs_depart_once_and_the_owner_hears_of_the_last() {
    check(|| {
        let queue = Arc::new(Queue::new(Vec::new()));
        let woken = Arc::new(loom::sync::Notify::new());
        let thread = thread::spawn({
            let (queue, woken) = (Arc::clone(&queue), Arc::clone(&woken));
            move || send_all(&queue, &Waker::new(move || woken.notify()))
        });
        queue.push(job(1));
        queue.push(job(2));
        let mut seen = Vec::new();
        while seen.len() < 2 {
            woken.wait();
            queue.take_departed(&mut seen);
        }
        assert_eq!(seen, [departed(Qpn(1)), departed(Qpn(2))]);
        queue.close();
        thread.join().unwrap();
    });
}

/// After a discard, no job of the queue pair runs, and no departure of it comes.
#[test]
fn discarded_jobs_are_over() {
    check(|| {
        let queue = Arc::new(Queue::new(Vec::new()));
        let running = std::sync::Arc::new(Results::new(0));
        let thread = thread::spawn({
            let (queue, running) = (Arc::clone(&queue), std::sync::Arc::clone(&running));
            move || {
                while let Some(Next::Job(Job { qpn, .. })) = queue.take() {
                    *running.lock().unwrap() = qpn.0;
                    thread::yield_now();
                    *running.lock().unwrap() = 0;
                    queue.finish(&mut vec![departed(qpn)], None);
                }
            }
        });
        queue.push(job(1));
        queue.push(job(2));
        queue.discard(Qpn(1));
        assert_ne!(*running.lock().unwrap(), 1);
        queue.close();
        thread.join().unwrap();
        let mut seen = Vec::new();
        queue.take_departed(&mut seen);
        assert_eq!(seen, [departed(Qpn(2))], "closing sends what waits");
    });
}

/// The thread fails while the owner waits for it.
#[test]
fn a_failure_ends_a_discard() {
    check(|| {
        let queue = Arc::new(Queue::new(Vec::new()));
        let thread = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                let job = queue.take();
                assert!(job.is_some());
                queue.fail(FabricError::UnknownQp(1));
            }
        });
        queue.push(job(1));
        queue.discard(Qpn(1));
        queue.push(job(1));
        thread.join().unwrap();
        assert!(queue.check().is_err());
        assert!(!queue.has_room_for_send());
        assert!(queue.lock().waiting.is_empty(), "it keeps memory");
    });
}

/// The thread cannot send the packets of a queue pair, so the owner destroys it. The job that is
/// discarded was to wake the owner for a departure of another queue pair.
#[test]
fn a_discard_loses_no_wake() {
    check(|| {
        let queue = Arc::new(Queue::new(Vec::new()));
        let woken = Arc::new(loom::sync::Notify::new());
        for qpn in [1, 2, 1] {
            queue.push(job(qpn));
        }
        let thread = thread::spawn({
            let (queue, woken) = (Arc::clone(&queue), Arc::clone(&woken));
            move || {
                while let Some(Next::Job(Job { qpn, .. })) = queue.take() {
                    let error = (qpn == Qpn(1)).then_some(FabricError::NotConnected(1));
                    if queue.finish(&mut vec![departed(qpn)], error) {
                        woken.notify();
                    }
                }
            }
        });
        let mut seen = Vec::new();
        while !seen.contains(&departed(Qpn(2))) {
            woken.wait();
            queue.take_departed(&mut seen);
            if queue.take_broken().is_some() && queue.discard(Qpn(1)) {
                woken.notify();
            }
        }
        queue.close();
        thread.join().unwrap();
    });
}

/// A discard drops writes, and waits until SENDs have left.
#[test]
fn a_discard_keeps_sends() {
    check(|| {
        let queue = Arc::new(Queue::new(Vec::new()));
        let sent = std::sync::Arc::new(Results::new(Vec::new()));
        for job in [job(2), job(1), send(1)] {
            queue.push(job);
        }
        let thread = thread::spawn({
            let (queue, sent) = (Arc::clone(&queue), std::sync::Arc::clone(&sent));
            move || {
                while let Some(Next::Job(Job { qpn, work })) = queue.take() {
                    if matches!(work, Work::Send(_)) {
                        sent.lock().unwrap().push(qpn);
                    }
                    queue.finish(&mut Vec::new(), None);
                }
            }
        });
        queue.discard(Qpn(1));
        assert_eq!(*sent.lock().unwrap(), [Qpn(1)]);
        queue.close();
        thread.join().unwrap();
    });
}

/// The thread applies a change of a queue pair, whether it has a job or not.
#[test]
fn changes_are_applied() {
    check(|| {
        let queue = Arc::new(Queue::new(Vec::new()));
        let is_changed = std::sync::Arc::new(AtomicBool::new(false));
        let applied = Arc::new(loom::sync::Notify::new());
        let thread = thread::spawn({
            let (queue, applied) = (Arc::clone(&queue), Arc::clone(&applied));
            let is_changed = std::sync::Arc::clone(&is_changed);
            move || {
                while let Some(next) = queue.take() {
                    if is_changed.swap(false, Ordering::AcqRel) {
                        applied.notify();
                    }
                    if matches!(next, Next::Job(_)) {
                        queue.finish(&mut Vec::new(), None);
                    }
                }
            }
        });
        queue.push(job(1));
        thread::yield_now();
        is_changed.store(true, Ordering::Release);
        queue.update();
        while is_changed.load(Ordering::Acquire) {
            applied.wait();
        }
        queue.close();
        thread.join().unwrap();
    });
}
