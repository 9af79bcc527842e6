//! An endpoint on a thread of its own, used from several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread::scope;
use std::time::{Duration, Instant};

use farwrite::{
    Endpoint, Error, Outcome, ProgressThread, QueuePair, RealTime, SendOptions, TaskState,
    UdpFabric, Waiters,
};

use crate::ends::{endpoint, options, payload};

const BYTES: usize = 200_000;
const LONG: Duration = Duration::from_secs(60);

type Progress = ProgressThread<UdpFabric>;

/// Runs a call that must succeed.
fn call<R: Send + 'static>(
    progress: &Progress,
    call: impl FnOnce(&mut Endpoint<UdpFabric>) -> Result<R, Error> + Send + 'static,
) -> R {
    let answer = progress.call(call).expect("the thread runs");
    answer.expect("a call that succeeds")
}

/// Two endpoints on threads, and a queue pair that joins them.
struct Joined {
    a: Progress,
    b: Progress,
    qa: QueuePair,
    qb: QueuePair,
}

fn joined(workers: bool) -> Joined {
    let (a, mut b) = (endpoint(1), endpoint(1));
    if workers {
        b.start_workers().expect("threads");
    }
    let [a, b] = [a, b].map(|end| end.start_thread().expect("threads"));
    let [(qa, info_a), (qb, info_b)] = [&a, &b].map(|end| {
        let qp = call(end, |end| end.create_qp(options(1)));
        (qp, call(end, move |end| end.qp_info(qp)))
    });
    call(&a, move |a| a.connect_qp(qa, &info_b));
    call(&b, move |b| b.connect_qp(qb, &info_a));
    Joined { a, b, qa, qb }
}

/// Sends and receives a message, with one thread for each end. Returns the two outcomes.
fn exchange(joined: &Joined, seed: u8) -> [Outcome; 2] {
    let Joined { a, b, qa, qb } = joined;
    let (qa, qb) = (*qa, *qb);
    let target = call(b, |b| b.register(vec![0; BYTES]));
    let recv = call(b, move |b| b.post_recv(qb, target.whole()));
    let source = call(a, move |a| a.register(payload(seed, BYTES)));
    let send = call(a, move |a| {
        a.post_send(qa, source.whole(), SendOptions::default())
    });
    let outcomes = scope(|threads| {
        let sender = threads.spawn(|| a.wait(LONG, || send.outcome()));
        let receiver = threads.spawn(|| b.wait(LONG, || recv.outcome()));
        [sender, receiver].map(|thread| thread.join().expect("no panic"))
    });
    let memory = call(b, move |b| b.deregister(target));
    assert!(*memory == payload(seed, BYTES), "message {seed}");
    outcomes.map(|outcome| outcome.expect("the thread runs").expect("in time"))
}

#[test]
fn any_thread_can_use_the_endpoint() {
    for workers in [false, true] {
        let joined = joined(workers);
        for seed in 0..10 {
            assert_eq!(exchange(&joined, seed), [Outcome::Whole; 2]);
        }
    }
}

#[test]
fn many_threads_can_use_the_endpoint_at_once() {
    let progress = endpoint(1).start_thread().expect("a thread");
    let registered: Vec<_> = scope(|threads| {
        let register = |seed: u8| {
            let progress = &progress;
            move || {
                let regions = (0..50).map(|_| call(progress, move |e| e.register(vec![seed; 64])));
                regions.collect::<Vec<_>>()
            }
        };
        let running: Vec<_> = (0..4).map(|seed| threads.spawn(register(seed))).collect();
        let done = running.into_iter().map(|thread| thread.join());
        done.map(|regions| regions.expect("no panic")).collect()
    });
    let endpoint = progress.stop();
    for (seed, regions) in (0..).zip(registered) {
        for region in regions {
            assert_eq!(*endpoint.memory(region).expect("its own"), [seed; 64]);
        }
    }
}

#[test]
fn a_call_ends_the_sleep_of_the_thread() {
    let progress = endpoint(1).start_thread().expect("a thread");
    // The thread has nothing to do, and sleeps for a second at a time.
    let start = Instant::now();
    for _ in 0..200 {
        std::thread::sleep(Duration::from_micros(100));
        call(&progress, |endpoint| Ok(endpoint.counters()));
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(20), "200 calls took {took:?}");
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    let progress = endpoint(1).start_thread().expect("a thread");
    let nothing: Option<()> = progress
        .wait(Duration::from_millis(20), || None)
        .expect("the thread runs");
    assert_eq!(nothing, None);
}

#[test]
fn a_waiting_thread_can_call_the_endpoint() {
    let progress = endpoint(1).start_thread().expect("a thread");
    scope(|threads| {
        // Polling continues during the call.
        let caller = threads.spawn(|| {
            for _ in 0..100 {
                call(&progress, |endpoint| Ok(endpoint.counters()));
            }
        });
        let mut looks = 0;
        let look = || {
            call(&progress, |endpoint| Ok(endpoint.counters()));
            looks += 1;
            (looks == 20).then_some(())
        };
        assert_eq!(
            progress.wait(Duration::MAX, look).expect("it runs"),
            Some(())
        );
        caller.join().expect("no panic");
    });
}

#[test]
fn a_panic_in_a_call_ends_the_calls_and_waits_of_others() {
    let progress = endpoint(1).start_thread().expect("a thread");
    scope(|threads| {
        let waiting = threads.spawn(|| progress.wait(LONG, || None::<()>));
        std::thread::sleep(Duration::from_millis(20));
        let panicked = progress.call(|_| panic!("on purpose"));
        assert!(matches!(panicked, Err(Error::Stopped(None))));
        let waited = waiting.join().expect("no panic");
        assert!(matches!(waited, Err(Error::Stopped(None))), "{waited:?}");
    });
    let call = progress.call(|endpoint| endpoint.counters());
    assert_eq!(
        call.expect_err("no thread").to_string(),
        "the endpoint's thread has ended"
    );
}

/// A task runs after each poll until it is done, and is dropped with the thread.
#[test]
fn tasks_run_after_polls() {
    let progress = endpoint(1).start_thread().expect("a thread");
    let (ran, runs) = channel();
    let mut left = 3;
    progress
        .add_task(move |_| {
            left -= 1;
            ran.send(left).expect("the test listens");
            if left == 0 {
                TaskState::Done
            } else {
                TaskState::Worked
            }
        })
        .expect("it runs");
    // `Worked` makes the thread poll again, and `Done` drops the task with its end of the channel.
    assert_eq!(runs.iter().collect::<Vec<_>>(), [2, 1, 0]);

    // A task runs at its time, and after a wake.
    let (ran, runs) = channel();
    let mut times = 0;
    let timed = move |endpoint: &mut Endpoint<UdpFabric>| {
        times += 1;
        ran.send(()).expect("the test listens");
        match times {
            1..20 => TaskState::Until(endpoint.fabric().now_ns() + 1_000_000),
            _ => TaskState::Idle,
        }
    };
    let start = Instant::now();
    let task = progress.add_task(timed).expect("it runs");
    for _ in 0..20 {
        runs.recv_timeout(LONG).expect("a run at its time");
    }
    for _ in 0..20 {
        progress.waker().wake();
        runs.recv_timeout(LONG).expect("a run after the wake");
    }
    // The longest sleep is a second.
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "the sleeps end early"
    );
    progress.remove_task(task).expect("the thread runs");
    assert!(runs.iter().count() < 100, "it has ended");

    // A task that fails ends the thread.
    progress
        .add_task(|_| TaskState::from(Err(Error::NoCredit)))
        .expect("the thread runs");
    let ended = progress
        .wait(LONG, || None::<()>)
        .expect_err("it has ended");
    assert!(matches!(ended, Error::Stopped(Some(_))), "{ended}");
}

/// What waits for one thing, and the task of an idle queue pair, cost nothing while messages cross.
#[test]
fn who_waits_for_other_things_is_left_alone() {
    let joined = joined(false);
    let Joined { a, qa, .. } = &joined;
    let idle = call(a, |a| a.create_qp(options(1)));
    let [idle_runs, busy_runs, looks] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let count = |runs: &Arc<AtomicUsize>| {
        let runs = Arc::clone(runs);
        move |_: &mut Endpoint<UdpFabric>| {
            runs.fetch_add(1, Ordering::Relaxed);
            TaskState::Idle
        }
    };
    a.add_task_of(idle, count(&idle_runs)).expect("it runs");
    a.add_task_of(*qa, count(&busy_runs)).expect("it runs");
    let waiters = Waiters::default();
    let is_woken = AtomicUsize::new(0);
    scope(|threads| {
        let (is_woken, looks, waiters) = (&is_woken, &looks, &waiters);
        let waiting = threads.spawn(move || {
            a.wait_with(waiters, LONG, || {
                looks.fetch_add(1, Ordering::Relaxed);
                (is_woken.load(Ordering::Relaxed) > 0).then_some(())
            })
        });
        for seed in 0..20 {
            exchange(&joined, seed);
        }
        is_woken.store(1, Ordering::Relaxed);
        waiters.wake();
        let woken = waiting.join().expect("no panic").expect("the thread runs");
        assert_eq!(woken, Some(()));
    });
    let [idle_runs, busy_runs, looks] =
        [&idle_runs, &busy_runs, &looks].map(|count| count.load(Ordering::Relaxed));
    assert!(busy_runs > 20, "{busy_runs} runs");
    assert!(looks < 10, "{looks} looks");
    assert!(idle_runs < 5, "{idle_runs} runs");
}

/// A user of a queue pair makes its tasks run.
#[test]
fn a_wake_runs_the_tasks_of_its_queue_pair() {
    let progress = endpoint(1).start_thread().expect("a thread");
    let qp = call(&progress, |end| end.create_qp(options(1)));
    let (ran, runs) = channel();
    let task = move |_: &mut Endpoint<UdpFabric>| {
        ran.send(()).expect("the test listens");
        TaskState::Idle
    };
    progress.add_task_of(qp, task).expect("it runs");
    let run = || runs.recv_timeout(LONG);
    run().expect("at first");
    let waker = progress.waker_of(qp);
    for _ in 0..100 {
        waker.wake();
        run().expect("after each wake");
    }
}

/// Waits again and again. Each wait ends with the next run of a task of the endpoint.
fn wait_in_turn(progress: &Progress, qp: QueuePair, waits: usize) -> Result<(), Error> {
    let (waiters, runs) = (Arc::<Waiters>::default(), Arc::<AtomicUsize>::default());
    let (to_wake, ran) = (Arc::clone(&waiters), Arc::clone(&runs));
    let task = move |_: &mut Endpoint<UdpFabric>| {
        ran.fetch_add(1, Ordering::Relaxed);
        to_wake.wake();
        TaskState::Idle
    };
    let task = progress.add_task_of(qp, task)?;
    let waker = progress.waker_of(qp);
    for _ in 0..waits {
        let before = runs.load(Ordering::Relaxed);
        waker.wake_or_poll();
        let has_run = || (runs.load(Ordering::Relaxed) > before).then_some(());
        let waited = progress.wait_or_poll(&waiters, LONG, has_run)?;
        assert_eq!(waited, Some(()), "a wait that nothing has ended");
    }
    progress.remove_task(task)
}

#[test]
fn a_panic_on_a_thread_that_polls_ends_the_calls_and_waits_of_others() {
    let progress = endpoint(1).start_thread().expect("a thread");
    let qp = call(&progress, |end| end.create_qp(options(1)));
    scope(|threads| {
        let polling = threads.spawn(|| wait_in_turn(&progress, qp, usize::MAX));
        let waiting = threads.spawn(|| progress.wait(LONG, || None::<()>));
        std::thread::sleep(Duration::from_millis(20));
        let panicked = progress.call(|_| panic!("on purpose"));
        assert!(matches!(panicked, Err(Error::Stopped(None))));
        let polled = polling.join().expect("the panic is not its own");
        assert!(matches!(polled, Err(Error::Stopped(None))), "{polled:?}");
        let waited = waiting.join().expect("no panic");
        assert!(matches!(waited, Err(Error::Stopped(None))), "{waited:?}");
    });
}

/// The owner gets the endpoint back from a thread that polls, and from one that has just stopped polling.
#[test]
fn an_endpoint_that_others_poll_can_be_stopped() {
    for round in 0..50_u32 {
        let progress = Arc::new(endpoint(1).start_thread().expect("a thread"));
        let qp = call(&progress, |end| end.create_qp(options(1)));
        let borrower = Arc::clone(&progress);
        let polling = std::thread::spawn(move || wait_in_turn(&borrower, qp, 100));
        if round % 2 == 0 {
            polling.join().expect("no panic").expect("it runs");
        } else {
            drop(polling);
            std::thread::sleep(Duration::from_micros(u64::from(round) * 40));
        }
        if let Some(progress) = Arc::into_inner(progress) {
            let mut endpoint = progress.stop();
            endpoint.destroy_qp(qp).expect("its own");
        }
    }
}

/// A task that fails on a thread that has borrowed the endpoint ends it, although that thread goes on at once.
#[test]
fn a_panic_of_a_task_on_a_thread_that_polls_ends_the_endpoint() {
    let progress = endpoint(1).start_thread().expect("a thread");
    let qp = call(&progress, |end| end.create_qp(options(1)));
    let borrowed = |_: &mut Endpoint<UdpFabric>| {
        if std::thread::current().name() != Some("farwrite") {
            // This prints no message. Printing takes longer than the 0.2 ms for which the endpoint stays left.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        TaskState::Idle
    };
    progress.add_task(borrowed).expect("it runs");
    let ended = wait_in_turn(&progress, qp, usize::MAX);
    assert!(matches!(ended, Err(Error::Stopped(None))), "{ended:?}");
}

/// Waits that end at once take the endpoint from nobody, also on the endpoint's own thread.
#[test]
fn waits_without_time_leave_the_endpoint_alone() {
    let progress = Arc::new(endpoint(1).start_thread().expect("a thread"));
    let qp = call(&progress, |end| end.create_qp(options(1)));
    let (waiters, on_thread) = (Arc::<Waiters>::default(), Arc::clone(&progress));
    let polls = Arc::<AtomicUsize>::default();
    let (to_wait, counted) = (Arc::clone(&waiters), Arc::clone(&polls));
    let look =
        move |thread: &Progress| thread.wait_or_poll(&to_wait, Duration::ZERO, || None::<()>);
    let own = look.clone();
    let task = move |endpoint: &mut Endpoint<UdpFabric>| {
        own(&on_thread).expect("it runs");
        counted.fetch_add(1, Ordering::Relaxed);
        TaskState::Until(endpoint.fabric().now_ns() + 100_000)
    };
    let task = progress.add_task(task).expect("it runs");
    wait_in_turn(&progress, qp, 100).expect("it runs");
    let (start, before) = (Instant::now(), polls.load(Ordering::Relaxed));
    while polls.load(Ordering::Relaxed) < before + 100 {
        assert!(start.elapsed() < LONG, "the endpoint is not polled");
        look(&progress).expect("it runs");
    }
    progress.remove_task(task).expect("it runs");
    // The task holds the thread.
    call(&progress, |end| Ok(end.counters()));
}
