//! Messages with parity arrive when threads code, at both ends.

use farwrite::{CodingThreads, Outcome, SchemeName, SendOptions};

use crate::ends::{endpoint, options, payload};

const BYTES: usize = 3_000_001;
const MESSAGES: u8 = 10;

/// Moves messages from one end to another, with these numbers of coding threads at the sender and at the
/// receiver. While one message is coded, memory of another is deregistered.
fn deliver(threads: [u16; 2], scheme: &str) {
    let scheme: SchemeName = scheme.parse().expect("a scheme");
    let (mut a, mut b) = (endpoint(1), endpoint(1));
    let (qa, qb) = (
        a.create_qp(options(1)).expect("good options"),
        b.create_qp(options(1)).expect("good options"),
    );
    let infos = [a.qp_info(qa), b.qp_info(qb)].map(|info| info.expect("its own"));
    a.connect_qp(qa, &infos[1]).expect("equal options");
    b.connect_qp(qb, &infos[0]).expect("equal options");
    a.code_on(CodingThreads::Count(threads[0]))
        .expect("threads");
    b.code_on(CodingThreads::Count(threads[1]))
        .expect("threads");
    let options = SendOptions {
        scheme: scheme.tag(),
        ..SendOptions::default()
    };
    let messages: Vec<_> = (0..MESSAGES)
        .map(|seed| {
            let target = b.register(vec![0; BYTES]).expect("room");
            let recv = b.post_recv(qb, target.whole()).expect("a free slot");
            let source = a.register(payload(seed, BYTES)).expect("room");
            let send = a.post_send(qa, source.whole(), options);
            (send.expect("a free slot"), recv, source, target)
        })
        .collect();
    for (seed, (send, recv, source, target)) in (0..MESSAGES).zip(messages) {
        let done = || send.outcome().is_some() && recv.outcome().is_some();
        std::thread::scope(|scope| {
            scope.spawn(|| b.run_until(|_| done()).expect("sockets"));
            a.run_until(|_| done()).expect("sockets");
        });
        assert_eq!(send.outcome(), Some(Outcome::Whole));
        assert_eq!(recv.outcome(), Some(Outcome::Whole));
        // The next messages are being coded.
        a.deregister(source).expect("nothing uses it");
        let memory = b.deregister(target).expect("nothing uses it");
        assert!(*memory == payload(seed, BYTES), "message {seed}");
    }
    // The loss of packets depends on the sockets, so it may be that nothing was rebuilt.
    let rebuilt = b.qp_stats(qb).expect("it exists").rebuilt_chunks;
    println!("{threads:?} {scheme}: {rebuilt} chunks rebuilt");
    let tasks = std::fs::read_dir("/proc/self/task").expect("on Linux");
    let names = tasks
        .flatten()
        .map(|task| std::fs::read_to_string(task.path().join("comm")));
    let is_coding = |name: &String| name.starts_with("farwrite-code-");
    assert!(
        names.flatten().any(|name| is_coding(&name)),
        "no thread codes"
    );
    a.code_on(CodingThreads::Count(0)).expect("no threads");
}

#[test]
fn threads_at_both_ends_code() {
    deliver([2, 1], "ec-mds:32,8");
}

#[test]
fn a_thread_at_the_sender_codes() {
    deliver([1, 0], "ec-xor:8,2");
}
