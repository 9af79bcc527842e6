//! Files whose length is known when their last byte has come.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use farwrite_files::{CommitGate, Policy, SinkError, StoredStream};

use crate::place::Place;

fn names(place: &Place) -> Vec<String> {
    let items = fs::read_dir(place.path("")).expect("a directory");
    let name = |item: fs::DirEntry| item.file_name().to_string_lossy().into_owned();
    let mut names: Vec<_> = items.map(|item| name(item.expect("an item"))).collect();
    names.sort();
    names
}

fn create(place: &Place, name: &str, policy: Policy) -> Result<StoredStream, SinkError> {
    StoredStream::create(
        &place.path(""),
        name.as_bytes(),
        policy,
        CommitGate::default(),
    )
}

#[test]
fn a_file_has_its_name_when_all_bytes_have_come() {
    let to = Place::new();
    to.write("outside", "outside");
    symlink("outside", to.path("backup")).expect("a link");
    let policy = Policy {
        umask: 0o027,
        ..Policy::default()
    };
    let mut file = create(&to, "backup", policy).expect("made");
    file.write(b"one ").expect("written");
    assert_eq!(names(&to).len(), 3, "under a temporary name");
    assert_eq!(
        fs::read_to_string(to.path("backup")).expect("read"),
        "outside"
    );
    file.write(b"two").expect("written");
    file.commit().expect("named");
    assert_eq!(names(&to), ["backup", "outside"]);
    let status = fs::symlink_metadata(to.path("backup")).expect("there");
    assert!(status.is_file(), "a link is replaced, not followed");
    assert_eq!(status.permissions().mode() & 0o777, 0o640);
    assert_eq!(
        fs::read_to_string(to.path("backup")).expect("read"),
        "one two"
    );
    assert_eq!(
        fs::read_to_string(to.path("outside")).expect("read"),
        "outside"
    );
}

#[test]
fn a_file_that_is_given_up_leaves_nothing() {
    let to = Place::new();
    let mut file = create(&to, "a", Policy::default()).expect("made");
    file.write(b"bytes").expect("written");
    drop(file);
    let gate = CommitGate::default();
    let file = StoredStream::create(&to.path(""), b"a", Policy::default(), gate.clone());
    assert!(gate.close(Duration::ZERO));
    let stopped = file.expect("made").commit();
    assert!(matches!(stopped, Err(SinkError::Stopped)), "{stopped:?}");
    assert!(names(&to).is_empty(), "{:?}", names(&to));
}

#[test]
fn names_that_lead_elsewhere_and_directories_are_refused() {
    let to = Place::new();
    fs::create_dir(to.path("directory")).expect("a directory");
    for name in ["", ".", "..", "a/b", "/etc/x", "../a"] {
        let refused = create(&to, name, Policy::default()).expect_err(name);
        assert!(matches!(refused, SinkError::Name(_)), "{refused}");
    }
    let refused = create(&to, "directory", Policy::default()).expect_err("it stays");
    assert!(refused.to_string().contains("directory"), "{refused}");
    assert_eq!(names(&to), ["directory"]);
}

#[test]
fn quotas_and_the_reserve_hold() {
    let to = Place::new();
    to.write("there", "x");
    let quota = Policy {
        quota_bytes: Some(100_000),
        ..Policy::default()
    };
    let mut file = create(&to, "a", quota).expect("made");
    file.write(&[1; 50_000]).expect("there is room");
    let refused = file.write(&[1; 50_000]).expect_err("no room");
    assert!(matches!(refused, SinkError::Quota { .. }), "{refused}");
    drop(file);
    let entries = Policy {
        quota_entries: Some(1),
        ..Policy::default()
    };
    let refused = create(&to, "a", entries).expect_err("a second name");
    assert!(
        matches!(refused, SinkError::QuotaEntries { .. }),
        "{refused}"
    );
    create(&to, "there", entries).expect("it replaces the first");
    let reserve = Policy {
        reserve_bytes: Some(u64::MAX),
        ..Policy::default()
    };
    let refused = create(&to, "a", reserve).expect_err("nothing is free");
    assert!(matches!(refused, SinkError::Reserve { .. }), "{refused}");
    assert_eq!(names(&to), ["there"]);
}
