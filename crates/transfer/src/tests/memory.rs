//! Transfers that share memory.

use super::*;
use crate::MemoryPool;

#[test]
fn a_transfer_that_finds_no_memory_is_busy() {
    let (_from, source) = one_file(&pattern(1_000_000));
    let to = tempfile::tempdir().expect("directory");
    // The places have nothing for themselves, and another transfer has what is for all.
    let pool = MemoryPool::new(1 << 20, usize::MAX);
    let (mut lists, mut messages) = (pool.join_lists(), pool.join());
    while lists.take(1 << 20) {}
    assert!(messages.take(1 << 20));
    let meeting = Meeting::new();
    let limits = receive_settings(None);
    let settings = adaptive_settings();
    let (cancel, observer) = (Cancel::default(), Reports::default());
    let receive_one = || {
        let hooks = TransferHooks {
            memory: Some(&pool),
            ..hooks(Some(&meeting), &cancel, &observer)
        };
        let sender = Client::accept(&meeting.accept(), &cancel).expect("a hello");
        receive(sender, to.path(), &limits, &hooks)
    };
    thread::scope(|scope| {
        let receives = scope.spawn(|| {
            let refuses = |why: &str| {
                let refused = receive_one().expect_err("no memory");
                assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
                assert!(refused.to_string().contains(why), "{refused}");
            };
            refuses("lists of other senders");
            drop(lists);
            refuses("--max-senders");
            drop(messages);
            receive_one()
        });
        let channel = meeting.connect();
        let hooks = hooks(None, &cancel, &observer);
        let sent = send(channel, &meeting.key, source, &settings, &hooks);
        receives.join().expect("no panic").expect("received");
        sent.expect("the sender has tried again");
    });
    assert!(fs::read(to.path().join("file")).is_ok_and(|file| file == pattern(1_000_000)));
}
