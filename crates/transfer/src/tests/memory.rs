//! Transfers that share memory.

use super::*;
use crate::MemoryPool;

#[test]
fn a_transfer_that_finds_no_memory_is_busy() {
    let (from, to) = (
        tempfile::tempdir().expect("directory"),
        tempfile::tempdir().expect("directory"),
    );
    let path = from.path().join("file");
    fs::write(&path, pattern(1_000_000)).expect("write");
    let source = Source::scan(&[path], &ScanOptions::default()).expect("a file");
    // The places have nothing for themselves, and another transfer has what is for all.
    let pool = MemoryPool::new(1 << 20, usize::MAX);
    let (mut lists, mut messages) = (pool.join_lists(), pool.join());
    while lists.take(1 << 20) {}
    assert!(messages.take(1 << 20));
    let psk = Psk::generate().expect("key");
    let mut listener = Listener::bind(([127, 0, 0, 1], 0)).expect("loopback");
    let addr = listener.local_addr();
    let limits = receive_settings(None);
    let settings = adaptive_settings();
    let (cancel, observer) = (Cancel::default(), Reports::default());
    let receive_one = |listener: &mut Listener| {
        let hooks = TransferHooks {
            redirect: &crate::unchanged,
            cancel: &cancel,
            observer: &observer,
            port: None,
            device: None,
            memory: Some(&pool),
            max_rate: None,
        };
        let channel = listener.accept(&psk, SETUP, None, |refusal| panic!("{refusal}"));
        let sender = Client::accept(channel.expect("channel"), &cancel).expect("a hello");
        receive(sender, to.path(), &limits, &hooks)
    };
    thread::scope(|scope| {
        let receives = scope.spawn(|| {
            let mut refuses = |why: &str| {
                let refused = receive_one(&mut listener).expect_err("no memory");
                assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
                assert!(refused.to_string().contains(why), "{refused}");
            };
            refuses("lists of other senders");
            drop(lists);
            refuses("--max-senders");
            drop(messages);
            receive_one(&mut listener)
        });
        let channel = Channel::connect(&addr.into(), &psk, SETUP, || false).expect("channel");
        let hooks = TransferHooks {
            redirect: &crate::unchanged,
            cancel: &cancel,
            observer: &observer,
            port: None,
            device: None,
            memory: None,
            max_rate: None,
        };
        let sent = send(channel, &(&psk).into(), source, &settings, &hooks);
        receives.join().expect("no panic").expect("received");
        sent.expect("the sender has tried again");
    });
    assert!(fs::read(to.path().join("file")).is_ok_and(|file| file == pattern(1_000_000)));
}
