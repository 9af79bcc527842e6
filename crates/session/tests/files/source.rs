//! The sender's end: what is not sent, and what changes meanwhile.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use farwrite_session::Message;
use farwrite_session::files::{FileRead, ScanError, Sink, Source, Special};

use crate::place::{Place, scan, tell, transfer};

#[test]
fn what_cannot_be_sent_is_refused_by_name() {
    let from = Place::new();
    from.write("a/same", "1");
    from.write("b/same", "2");
    let twice = [from.path("a/same"), from.path("b/same/../same")];
    let error = Source::scan(&twice[..1], Special::Refuse);
    assert!(error.is_ok());
    let error = Source::scan(&[from.path("a/same"), from.path("b/same")], Special::Refuse);
    let error = error.expect_err("one name for two");
    assert!(matches!(error, ScanError::SameName { .. }), "{error}");
    let error = Source::scan(&[from.path("a/."), from.path("b/.")], Special::Refuse);
    let error = error.expect_err("one name for two");
    assert!(error.to_string().contains("same"), "{error}");
    let error = Source::scan(&[from.path("missing")], Special::Refuse).expect_err("not there");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn links_and_pipes_are_refused_or_left_out() {
    let from = Place::new();
    let outside = Place::new();
    outside.write("secret", "secret");
    from.write("tree/file", "file");
    symlink(outside.path("secret"), from.path("tree/link")).expect("link");
    symlink(outside.0.path(), from.path("tree/linked directory")).expect("link");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        from.path("tree/pipe"),
        rustix::fs::Mode::RUSR,
    )
    .expect("pipe");
    let error = Source::scan(&[from.path("tree")], Special::Refuse).expect_err("a link");
    assert!(
        matches!(
            error,
            ScanError::Special {
                what: "a symbolic link",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("tree/link"), "{error}");

    let source = Source::scan(&[from.path("tree")], Special::Skip).expect("the rest");
    let skipped: Vec<_> = source
        .skipped()
        .iter()
        .map(|path| path.file_name().expect("name"))
        .collect();
    assert_eq!(skipped, ["link", "linked directory", "pipe"]);
    assert_eq!(source.manifest().files(), 1);
}

/// What the source says of one file that is changed after it was listed; two others stay whole.
fn after(change: impl FnOnce(&Place)) -> String {
    let from = Place::new();
    for name in ["a", "b", "c"] {
        from.write(name, name.repeat(1000));
    }
    let to = Place::new();
    let mut source = scan(&["a", "b", "c"].map(|name| from.path(name)));
    let mut sink = Sink::new(to.0.path(), Arc::clone(source.manifest())).expect("sink");
    let mut segment = [0xee; 1500];
    // The first half of b is read already.
    assert_eq!(source.read(&mut segment), 1500);
    sink.write(&segment).expect("write");
    tell(&mut source, &mut sink);
    change(&from);
    transfer(&mut source, &mut sink, 700);
    let verdicts: Vec<_> = std::iter::from_fn(|| sink.poll_verdict()).collect();
    let failed: Vec<_> = verdicts
        .iter()
        .map(|verdict| verdict.failure.is_some())
        .collect();
    assert_eq!(failed, [false, true, false], "{verdicts:?}");
    sink.finish().expect("all told");
    assert_eq!(to.list().keys().collect::<Vec<_>>(), ["a", "c"]);
    let failure = verdicts[1].failure.as_ref().expect("of b");
    failure.to_string()
}

#[test]
fn file_that_changes_while_being_read_is_given_up() {
    let shrunk = after(|from| {
        from.write("b", "b".repeat(600));
    });
    assert!(shrunk.contains("1000 bytes became 600"), "{shrunk}");
    let grown = after(|from| {
        from.write("b", "b".repeat(1001));
    });
    assert!(grown.contains("1000 bytes became 1001"), "{grown}");
    let written = after(|from| {
        from.write("b", "B".repeat(1000));
    });
    assert!(written.contains("written to"), "{written}");
}

#[test]
fn file_that_is_gone_when_its_turn_comes_is_given_up() {
    let outside = Place::new();
    outside.write("secret", "s".repeat(10));
    type Change = Box<dyn Fn(&Path)>;
    let secret = outside.path("secret");
    let changes: [(&str, Change); 3] = [
        (
            "No such file",
            Box::new(|path| fs::remove_file(path).expect("remove")),
        ),
        (
            "symbolic link",
            Box::new(move |path| {
                fs::remove_file(path).expect("remove");
                symlink(&secret, path).expect("link");
            }),
        ),
        (
            "no file any more",
            Box::new(|path| {
                fs::remove_file(path).expect("remove");
                rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR).expect("pipe");
            }),
        ),
    ];
    for (why, change) in changes {
        let from = Place::new();
        from.write("a", "a");
        from.write("b", "b".repeat(10));
        let mut source = scan(&[from.path("a"), from.path("b")]);
        change(&from.path("b"));
        let mut all = [0xee; 20];
        assert_eq!(source.read(&mut all), 11);
        assert_eq!(all[..11], *b"a\0\0\0\0\0\0\0\0\0\0", "zeros, and no secret");
        let reads: Vec<FileRead> = std::iter::from_fn(|| source.poll_file()).collect();
        let [a, b] = &reads[..] else {
            panic!("{reads:?}")
        };
        assert!(a.result.is_ok());
        let error = b.result.as_ref().expect_err("changed").to_string();
        assert!(error.contains(why), "want {why}: {error}");
        assert!(matches!(
            b.message(),
            Message::FileAbandoned { index: 1, .. }
        ));
    }
}
