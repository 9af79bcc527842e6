//! Extended attributes, owners, and holes that are not sent.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::sync::Arc;

use farwrite_files::{
    Attribute, CommitGate, Detail, Entry, Extent, Kind, ManifestBuilder, Owner, Policy,
    ScanOptions, Sink, Source, Time, Xattr,
};
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::place::{AT_ONCE, Place, hash, new_sink, scan, transfer, verdicts};

/// Version 2, then the entries of owner, one user, group, mask and others, each with its permissions and its
/// number.
fn list(user_permissions: u16) -> Vec<u8> {
    let none = u32::MAX;
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, number) in [
        (0x01_u16, 6_u16, none),
        (0x02, user_permissions, 1),
        (0x04, 4, none),
        (0x10, 6, none),
        (0x20, 0, none),
    ] {
        list.extend([tag, permissions].map(u16::to_le_bytes).concat());
        list.extend(number.to_le_bytes());
    }
    list
}

fn xattr(place: &Place, path: &str, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1000];
    let length = getxattr(place.path(path), name, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

#[test]
fn extended_attributes_and_lists_arrive_if_they_are_asked_for() {
    let from = Place::new();
    for name in ["t/a", "t/sub/b"] {
        from.write(name, name);
    }
    let with = |path: &str, name: &str, value: &[u8]| {
        setxattr(from.path(path), name, value, XattrFlags::empty()).is_ok()
    };
    if !with("t/a", "user.empty", b"") || !with("t/sub", "user.\u{e9}", b"\0\xff") {
        eprintln!("skipped: this file system has no extended attributes");
        return;
    }
    let has_lists = with("t/a", "system.posix_acl_access", &list(6))
        && with("t/sub", "system.posix_acl_default", &list(4));
    for (asked, umask) in [(true, 0), (true, 0o077), (false, 0)] {
        let options = ScanOptions {
            xattrs: asked,
            ..ScanOptions::default()
        };
        let mut source = Source::scan(&[from.path("t")], &options).expect("listed");
        let to = Place::new();
        let policy = Policy {
            umask,
            owners: umask == 0,
            ..AT_ONCE
        };
        let gate = CommitGate::default();
        let sink = Sink::new(to.0.path(), Arc::clone(source.manifest()), gate, policy);
        let mut sink = sink.expect("sink");
        transfer(&mut source, &mut sink, 100);
        sink.finish().expect("whole");
        assert_eq!(xattr(&to, "t/a", "user.empty").is_some(), asked);
        let odd = xattr(&to, "t/sub", "user.\u{e9}");
        assert_eq!(odd, asked.then(|| b"\0\xff".to_vec()));
        let is_told = source
            .warnings()
            .concat()
            .contains("extended attributes of 2");
        assert_eq!(is_told, !asked, "{:?}", source.warnings());
        if has_lists && asked {
            let mode = fs::metadata(to.path("t/a")).expect("metadata").mode() & 0o777;
            assert_eq!(
                mode,
                0o660 & !u32::from(umask),
                "the mask is what the umask leaves"
            );
            let lists_of = |name| xattr(&to, "t/sub", name);
            let wanted = (umask == 0).then(|| list(4));
            assert_eq!(lists_of("system.posix_acl_default"), wanted);
            if umask == 0 {
                assert_eq!(xattr(&to, "t/a", "system.posix_acl_access"), Some(list(6)));
            }
        }
    }
}

/// The bits of the group are the mask of a list, and not what the group of the file gets.
#[test]
fn a_mode_gives_nothing_that_its_list_does_not() {
    let from = Place::new();
    from.write("t/a", "a");
    fs::create_dir(from.path("t/sub")).expect("directory");
    let mut list = list(4);
    // The group of the file gets nothing.
    list[4 + 2 * 8 + 2] = 0;
    for (path, mode) in [("t/a", 0o600), ("t/sub", 0o700)] {
        // The owner gets what the mode says.
        list[4 + 2] = u8::try_from(mode >> 6).expect("three bits");
        let path = from.path(path);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        let name = "system.posix_acl_access";
        if setxattr(&path, name, &list, XattrFlags::empty()).is_err() {
            eprintln!("skipped: this file system has no access control lists");
            return;
        }
    }
    let mode = |place: &Place, path: &str| {
        let metadata = fs::metadata(place.path(path)).expect("metadata");
        metadata.mode() & 0o777
    };
    assert_eq!(mode(&from, "t/a"), 0o660, "the mask");
    // Not sent, sent and not set, sent and set.
    for (xattrs, owners) in [(false, true), (true, false), (true, true)] {
        let options = ScanOptions {
            xattrs,
            ..ScanOptions::default()
        };
        for top in ["t", "t/a"] {
            let mut source = Source::scan(&[from.path(top)], &options).expect("listed");
            let to = Place::new();
            let policy = Policy { owners, ..AT_ONCE };
            let gate = CommitGate::default();
            let sink = Sink::new(to.0.path(), Arc::clone(source.manifest()), gate, policy);
            let mut sink = sink.expect("sink");
            transfer(&mut source, &mut sink, 100);
            sink.finish().expect("whole");
            let warning = sink.poll_warning().map(|it| it.to_string());
            assert_eq!(warning.is_some(), xattrs && !owners, "{warning:?}");
            let bits = if xattrs && owners { 0o660 } else { 0o600 };
            let file = if top == "t" { "t/a" } else { "a" };
            assert_eq!(mode(&to, file), bits, "{xattrs} {owners}");
            if top == "t" {
                let bits = if xattrs && owners { 0o760 } else { 0o700 };
                assert_eq!(mode(&to, "t/sub"), bits, "{xattrs} {owners}");
            }
        }
    }
}

#[test]
fn owners_arrive_where_the_receiver_sets_them() {
    let from = Place::new();
    from.write("t/a", "a");
    if chown(from.path("t/a"), Some(12_345), Some(54_321)).is_err() {
        eprintln!("skipped: this needs root");
        return;
    }
    std::os::unix::fs::symlink("a", from.path("t/link")).expect("link");
    std::os::unix::fs::lchown(from.path("t/link"), Some(7), Some(8)).expect("root");
    let options = ScanOptions {
        owners: true,
        ..ScanOptions::default()
    };
    for owners in [false, true] {
        let mut source = Source::scan(&[from.path("t")], &options).expect("listed");
        let to = Place::new();
        let policy = Policy { owners, ..AT_ONCE };
        let gate = CommitGate::default();
        let sink = Sink::new(to.0.path(), Arc::clone(source.manifest()), gate, policy);
        let mut sink = sink.expect("sink");
        transfer(&mut source, &mut sink, 100);
        sink.finish().expect("whole");
        assert!(sink.poll_warning().is_none());
        let owner = |name| {
            let it = fs::symlink_metadata(to.path(name)).expect("metadata");
            (it.uid(), it.gid())
        };
        let want = |given| if owners { given } else { (0, 0) };
        assert_eq!(owner("t/a"), want((12_345, 54_321)));
        assert_eq!(owner("t/link"), want((7, 8)));
    }
}

/// One warning counts what cannot be set.
#[test]
fn owners_that_cannot_be_set_are_counted() {
    let mut builder = ManifestBuilder::default();
    for name in ["a", "b"] {
        let entry = push(&mut builder, name, dense(0));
        let owner = Owner {
            user: u32::MAX,
            group: 0,
        };
        let detail = Detail {
            entry,
            owner: Some(owner),
            ..Detail::default()
        };
        builder.push_detail(detail).expect("kept all rules");
    }
    let to = Place::new();
    let policy = Policy {
        owners: true,
        ..AT_ONCE
    };
    let manifest = Arc::new(builder.build().expect("two names"));
    let sink = Sink::new(to.0.path(), manifest, CommitGate::default(), policy);
    let mut sink = sink.expect("sink");
    for index in 0..2 {
        sink.handle_hash(index, hash(b"")).expect("in turn");
    }
    sink.finish().expect("whole");
    let warning = sink.poll_warning().expect("one");
    assert_eq!((warning.attribute, warning.count), (Attribute::Owner, 2));
    let text = warning.to_string();
    assert!(
        text.contains("the owner of 2 files, the first is"),
        "{text}"
    );
    assert!(sink.poll_warning().is_none());
}

fn push(builder: &mut ManifestBuilder, name: &str, kind: Kind) -> u32 {
    let entry = Entry {
        parent: None,
        name: name.into(),
        kind,
        mode: 0o644,
        modified: Time::default(),
    };
    builder.push(&entry).expect("kept all rules")
}

fn dense(bytes: u64) -> Kind {
    Kind::File {
        bytes,
        sparse: false,
    }
}

fn named(name: impl AsRef<[u8]>, bytes: usize) -> Xattr {
    Xattr {
        name: name.as_ref().to_vec(),
        value: vec![1; bytes],
    }
}

fn extent(hole_bytes: u64, data_bytes: u64) -> Extent {
    Extent {
        hole_bytes,
        data_bytes,
    }
}

fn with(entry: u32, xattrs: Vec<Xattr>) -> Detail {
    Detail {
        entry,
        xattrs,
        ..Detail::default()
    }
}

fn data(entry: u32, data: &[Extent]) -> Detail {
    Detail {
        entry,
        data: Some(data.to_vec()),
        ..Detail::default()
    }
}

/// Why a detail is refused in a manifest with two files, a link and another name of the first file.
fn refused(detail: Detail) -> Option<String> {
    let mut builder = ManifestBuilder::default();
    push(&mut builder, "dense", dense(100));
    let sparse = Kind::File {
        bytes: 100,
        sparse: true,
    };
    push(&mut builder, "sparse", sparse);
    push(
        &mut builder,
        "link",
        Kind::Symlink {
            target: b"x".into(),
        },
    );
    push(&mut builder, "again", Kind::HardLink { first: 0 });
    builder
        .push_detail(detail)
        .err()
        .map(|error| error.to_string())
}

#[test]
fn details_that_break_a_rule_are_refused() {
    assert_eq!(
        refused(with(0, vec![named("user.a", 1), named("user.b", 65_536)])),
        None
    );
    assert_eq!(refused(data(1, &[extent(0, 10), extent(80, 10)])), None);
    assert_eq!(refused(data(1, &[])), None, "one hole");
    for (detail, why) in [
        (with(0, vec![]), "empty"),
        (with(9, vec![named("user.a", 1)]), "no file"),
        (with(2, vec![named("user.a", 1)]), "no file"),
        (with(3, vec![named("user.a", 1)]), "no file"),
        (with(0, vec![named("user.", 1)]), "not allowed"),
        (with(0, vec![named("trusted.a", 1)]), "not allowed"),
        (
            with(0, vec![named("security.capability", 1)]),
            "not allowed",
        ),
        (with(0, vec![named("user.a\0b", 1)]), "not allowed"),
        (
            with(
                0,
                vec![named([b"user.".to_vec(), vec![b'a'; 251]].concat(), 1)],
            ),
            "not allowed",
        ),
        (
            with(0, vec![named("user.b", 1), named("user.a", 1)]),
            "not in order",
        ),
        (
            with(0, vec![named("user.a", 1), named("user.a", 1)]),
            "not in order",
        ),
        (with(0, vec![named("user.a", 65_537)]), "too long"),
        (
            with(0, vec![named("user.a", 65_536), named("user.b", 65_536)]),
            "too long",
        ),
        (data(0, &[extent(0, 10)]), "do not lie"),
        (data(1, &[extent(0, 101)]), "do not lie"),
        (data(1, &[extent(u64::MAX, 2)]), "do not lie"),
        (data(1, &[extent(0, 0)]), "do not lie"),
        (data(1, &[extent(0, 10), extent(0, 10)]), "do not lie"),
        (data(1, &vec![extent(1, 1); 8193]), "do not lie"),
    ] {
        let refused = refused(detail).expect(why);
        assert!(refused.contains(why), "{refused}, want {why}");
    }
}

#[test]
fn details_of_an_entry_come_once_and_have_a_limit() {
    let mut builder = ManifestBuilder::default();
    let entry = push(&mut builder, "a", dense(1));
    let once = with(entry, vec![named("user.a", 1)]);
    builder.push_detail(once.clone()).expect("the first");
    assert!(builder.push_detail(once).is_err());
    // All lists together have a limit.
    let full = (0..600).find(|at| {
        let entry = push(&mut builder, &format!("f{at}"), dense(1));
        builder
            .push_detail(with(
                entry,
                vec![named("user.a", 65_536), named("user.b", 60_000)],
            ))
            .is_err()
    });
    assert_eq!(full, Some(533), "64 MiB, with 128 bytes for each attribute");
}

#[test]
fn holes_are_not_sent() {
    const BYTES: u64 = 16 << 20;
    let from = Place::in_memory();
    let file = fs::File::create(from.path("sparse")).expect("create");
    file.set_len(BYTES).expect("set length");
    file.write_all_at(&[7; 5000], 5 << 20).expect("write");
    file.write_all_at(&[8; 1], BYTES - 1).expect("write");
    fs::File::create(from.path("hole"))
        .and_then(|file| file.set_len(12_345))
        .expect("create");
    from.write("dense", [9; 100]);
    fs::set_permissions(from.path("hole"), fs::Permissions::from_mode(0o600)).expect("chmod");
    let paths = ["sparse", "hole", "dense"].map(|name| from.path(name));
    let mut source = scan(&paths);
    if source.manifest().stream_bytes() > 1 << 20 {
        eprintln!("skipped: this file system does not tell where holes are");
        return;
    }
    for segment_bytes in [1 << 20, 997] {
        let to = Place::in_memory();
        let mut sink = new_sink(&to, source.manifest());
        transfer(&mut source, &mut sink, segment_bytes);
        assert_eq!(verdicts(&mut sink), [(0, true), (1, true), (2, true)]);
        let summary = sink.finish().expect("whole");
        assert_eq!(summary.verified_bytes, source.manifest().stream_bytes());
        assert!(to.list() == from.list());
        let blocks = |name| fs::metadata(to.path(name)).expect("metadata").blocks();
        assert!(blocks("sparse") * 512 < 64 << 10);
        assert_eq!(blocks("hole"), 0);
        source = scan(&paths);
    }
}

/// A peer can announce a hole of any length. The work on it ends with the transfer.
#[test]
fn endless_hole_ends_with_the_transfer() {
    let mut builder = ManifestBuilder::default();
    let sparse = Kind::File {
        bytes: 1 << 42,
        sparse: true,
    };
    let entry = push(&mut builder, "hole", sparse);
    let detail = Detail {
        entry,
        data: Some(vec![]),
        ..Detail::default()
    };
    builder.push_detail(detail).expect("kept all rules");
    let to = Place::in_memory();
    let gate = CommitGate::default();
    let manifest = Arc::new(builder.build().expect("one name"));
    let mut sink = Sink::new(to.0.path(), manifest, gate.clone(), AT_ONCE).expect("sink");
    let closer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        gate.close(std::time::Duration::from_secs(9))
    });
    let _ = sink.handle_hash(entry, hash(b""));
    assert!(closer.join().expect("no panic"));
    drop(sink);
    assert!(to.list().is_empty());
}
