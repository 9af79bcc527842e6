//! Manifests (P8.3): which claims of a peer are accepted, and which are refused.

use std::net::SocketAddr;

use farwrite_files::{
    Cause, Cutover, CutoverAccepted, Entry, EntryError, FileCause, Hello, Kind, MAX_DEPTH,
    MAX_ENTRIES, Manifest, ManifestBuilder, ManifestError, Message, MessageError, Offer,
    OfferedSockets, Progress, QpBlob, RouteKey, Time, TransferPlan, manifest_messages,
    recv_manifest,
};
use farwrite_keys::{ChannelMessage, Error, Text, decode};
use proptest::prelude::*;

fn entry(parent: Option<u32>, name: impl AsRef<[u8]>, kind: Kind) -> Entry {
    Entry {
        parent,
        name: name.as_ref().to_vec(),
        kind,
        mode: 0o644,
        modified: Time::default(),
    }
}

fn file(parent: Option<u32>, name: impl AsRef<[u8]>) -> Entry {
    entry(parent, name, dense(1))
}

fn dense(bytes: u64) -> Kind {
    Kind::File {
        bytes,
        sparse: false,
    }
}

fn directory(parent: Option<u32>, name: impl AsRef<[u8]>) -> Entry {
    entry(parent, name, Kind::Directory)
}

fn build(entries: Vec<Entry>) -> Result<Manifest, ManifestError> {
    let mut builder = ManifestBuilder::default();
    for entry in entries {
        builder.push(&entry)?;
    }
    builder.build()
}

fn why(entries: Vec<Entry>) -> EntryError {
    match build(entries).expect_err("it breaks a rule") {
        ManifestError::Entry { why, .. } => why,
        error => panic!("{error}"),
    }
}

fn plan(manifest: &Manifest) -> TransferPlan {
    TransferPlan {
        scheme: Text::new("sr-nack"),
        segment_bytes: 1,
        entries: u32::try_from(manifest.entries().len()).expect("few"),
        stream_bytes: manifest.stream_bytes(),
    }
}

#[test]
fn paths_and_sums() {
    let manifest = build(vec![
        directory(None, "a"),
        file(Some(0), "b"),
        directory(Some(0), "c"),
        entry(Some(2), "d", dense(41)),
    ])
    .expect("kept all rules");
    assert_eq!(manifest.files(), 2);
    assert_eq!(manifest.stream_bytes(), 42);
    let paths: Vec<_> = (0..5).map(|index| manifest.path(index)).collect();
    let shown: Vec<_> = paths
        .iter()
        .map(|path| path.to_str().expect("UTF-8"))
        .collect();
    assert_eq!(shown, ["a", "a/b", "a/c", "a/c/d", ""]);
}

#[test]
fn entries_come_back_as_they_were_added() {
    let sparse = Kind::File {
        bytes: 7,
        sparse: true,
    };
    let mut entries = vec![
        directory(None, "tree"),
        file(Some(0), "\u{e9}"),
        entry(Some(0), [b'x'; 255], sparse),
        file(None, [0xff]),
    ];
    entries[1].mode = 0o777;
    entries[2].modified = Time {
        seconds: i64::MIN,
        nanos: 999_999_999,
    };
    let manifest = build(entries.clone()).expect("kept all rules");
    let views = manifest.entries();
    assert_eq!(views.len(), 4);
    let copies: Vec<_> = views.map(|view| view.to_entry()).collect();
    assert_eq!(copies, entries);
    for (index, entry) in (0..).zip(&entries) {
        let view = manifest.entry(index).expect("there");
        assert_eq!(&view.to_entry(), entry);
    }
    assert!(manifest.entry(4).is_none());
    assert!(manifest.entry(u32::MAX).is_none());
}

#[test]
fn receiving_a_manifest_ends_with_the_error_of_its_messages() {
    #[derive(Debug)]
    enum Stop {
        Interrupted,
        Message(MessageError),
    }
    impl From<MessageError> for Stop {
        fn from(error: MessageError) -> Self {
            Self::Message(error)
        }
    }
    let entries = vec![file(None, "a"), file(None, "b")];
    let plan = plan(&build(entries.clone()).expect("kept all rules"));
    let mut messages = vec![Message::Entries(entries[..1].to_vec())].into_iter();
    let stop = recv_manifest(&plan, || messages.next().ok_or(Stop::Interrupted));
    assert!(matches!(stop, Err(Stop::Interrupted)), "{stop:?}");
    let stop = recv_manifest(&plan, || Ok::<_, Stop>(Message::Done));
    assert!(
        matches!(stop, Err(Stop::Message(MessageError::Unexpected { .. }))),
        "{stop:?}"
    );
}

#[test]
fn parents_are_earlier_directories() {
    for parent in [0, 1, 2, u32::MAX] {
        let error = why(vec![file(None, "f"), file(Some(parent), "x")]);
        assert_eq!(error, EntryError::Parent(parent));
    }
}

#[test]
fn same_path_twice_is_refused() {
    for entries in [
        vec![file(None, "a"), file(None, "b"), file(None, "a")],
        vec![directory(None, "a"), file(None, "b"), directory(None, "a")],
        vec![directory(None, "a"), file(None, "b"), file(None, "a")],
    ] {
        let error = build(entries).expect_err("twice");
        assert!(
            matches!(
                error,
                ManifestError::Twice {
                    first: 0,
                    second: 2,
                    ..
                }
            ),
            "{error}"
        );
    }
    let apart = vec![directory(None, "a"), file(Some(0), "a"), file(None, "b")];
    assert!(build(apart).is_ok(), "one in the other");
}

#[test]
fn bounds_are_kept() {
    let mut deep = vec![directory(None, "d")];
    deep.extend((1..u32::from(MAX_DEPTH)).map(|index| directory(Some(index - 1), "d")));
    assert!(build(deep.clone()).is_ok());
    deep.push(file(Some(u32::from(MAX_DEPTH) - 1), "f"));
    assert_eq!(why(deep), EntryError::Deep);

    let long = |count: u32, last: usize| {
        let mut long = vec![directory(None, [b'x'; 255])];
        long.extend((1..count).map(|index| directory(Some(index - 1), [b'x'; 255])));
        long.push(file(Some(count - 1), vec![b'y'; last]));
        long
    };
    // 15 names and the separators after them take 3840 bytes.
    assert!(build(long(15, 255)).is_ok());
    assert_eq!(why(long(16, 1)), EntryError::Long(4097));

    let mut wide = file(None, "w");
    wide.mode = 0o1000;
    assert_eq!(why(vec![wide.clone()]), EntryError::Mode(0o1000));
    wide.mode = 0o777;
    wide.modified.nanos = 1_000_000_000;
    assert_eq!(why(vec![wide]), EntryError::Nanos(1_000_000_000));

    let half = dense(1 << 62);
    let huge = vec![entry(None, "a", half.clone()), entry(None, "b", half)];
    assert_eq!(why(huge), EntryError::Bytes(1 << 62));
    let most = dense(u64::MAX);
    assert_eq!(
        why(vec![file(None, "a"), entry(None, "b", most)]),
        EntryError::Bytes(u64::MAX)
    );
}

#[test]
fn too_many_names_are_refused() {
    let mut builder = ManifestBuilder::default();
    let error = (0..MAX_ENTRIES)
        .find_map(|index| builder.push(&file(None, format!("{index:0255}"))).err())
        .expect("more names than fit");
    assert!(matches!(error, ManifestError::NamesTooLong), "{error}");
}

#[test]
fn errors_show_no_control_characters() {
    let error = build(vec![file(None, "\x1b[2J/..")])
        .expect_err("a path")
        .to_string();
    assert!(!error.contains('\x1b'), "{error:?}");
}

/// Receives a manifest in the form in which it travels.
fn received(plan: &TransferPlan, messages: &[Message]) -> Result<Offer, MessageError> {
    let mut sent = messages.iter().map(|message| {
        let bytes = postcard::to_stdvec(message).expect("serialised");
        assert!(bytes.len() <= Message::MAX_BYTES, "{}", bytes.len());
        decode(&bytes).expect("a message")
    });
    recv_manifest(plan, || Ok(sent.next().expect("one more message")))
}

#[test]
fn manifest_arrives_as_it_was_sent() {
    let mut entries = vec![directory(None, "tree")];
    entries.extend((0..10_000).map(|index| file(Some(0), format!("file number {index}"))));
    let manifest = build(entries).expect("kept all rules");
    let mut messages: Vec<_> = manifest_messages(&manifest).collect();
    assert!(messages.len() > 1);
    messages.push(Message::Done);
    let came = received(&plan(&manifest), &messages).expect("receive");
    assert_eq!(came.manifest, manifest);
    assert_eq!(came.next, Message::Done);
}

#[test]
fn empty_manifest_needs_no_message() {
    let manifest = build(vec![]).expect("nothing to refuse");
    assert_eq!(manifest_messages(&manifest).count(), 0);
    let came = received(&plan(&manifest), &[Message::Done]).expect("nothing");
    assert_eq!(came.manifest, manifest);
    assert_eq!(came.next, Message::Done);
}

/// Returns the receiver's error for the entries that a peer sends for a plan.
fn verdict(plan: &TransferPlan, messages: &[Message]) -> MessageError {
    let messages = [messages, &[Message::Done]].concat();
    received(plan, &messages).expect_err("refused")
}

#[test]
fn manifest_other_than_planned_is_refused() {
    let entries = vec![file(None, "a"), file(None, "b")];
    let right = plan(&build(entries.clone()).expect("kept all rules"));
    let sent = [Message::Entries(entries)];
    for (what, plan) in [
        (
            "entries",
            TransferPlan {
                entries: 1,
                ..right.clone()
            },
        ),
        (
            "bytes",
            TransferPlan {
                stream_bytes: 3,
                ..right.clone()
            },
        ),
    ] {
        let error = verdict(&plan, &sent);
        assert!(error.to_string().contains(what), "{error}");
        assert!(
            matches!(
                error,
                MessageError::Manifest(ManifestError::NotAsPlanned { .. })
            ),
            "{error}"
        );
    }
    let absurd = TransferPlan {
        entries: u32::MAX,
        ..right.clone()
    };
    let error = verdict(&absurd, &[]);
    assert!(
        matches!(error, MessageError::Manifest(ManifestError::TooMany)),
        "{error}"
    );
    let error = verdict(&right, &[Message::Entries(vec![])]);
    assert!(matches!(error, MessageError::Unexpected { .. }), "{error}");
    let reason = Text::new("disk on fire");
    let cause = Cause::Files;
    let error = verdict(&right, &[Message::Abort { cause, reason }]);
    assert_eq!(
        error.to_string(),
        "the peer gave up and says: \"disk on fire\""
    );
    let error = verdict(&right, &[Message::Done]);
    assert!(error.to_string().contains("manifest entries"), "{error}");
}

#[test]
fn names_that_lead_elsewhere_are_refused_from_a_peer() {
    for name in [
        "..",
        ".",
        "",
        "/etc/passwd",
        "../../etc/passwd",
        "a/../../b",
        "a/b",
        "/",
        "a\0",
    ] {
        let entries = vec![file(None, name)];
        let plan = TransferPlan {
            entries: 1,
            stream_bytes: 1,
            ..plan(&Manifest::default())
        };
        let error = verdict(&plan, &[Message::Entries(entries)]);
        let refused = matches!(
            error,
            MessageError::Manifest(ManifestError::Entry {
                why: EntryError::Name(_),
                ..
            })
        );
        assert!(refused, "{name:?}: {error}");
    }
}

/// Reads a message from the bytes of the wire.
fn read(body: &[u8]) -> Result<Message, Error> {
    decode(body)
}

/// The wire format, byte by byte, with the numbers of docs/protocol.md P8.12.
#[test]
fn messages_on_the_wire() {
    let reason = Text::new("r");
    let hash = [0xab; 32];
    let hello = Hello {
        software: Text::new("f"),
        capabilities: 128,
    };
    let plan = TransferPlan {
        scheme: Text::new("gbn"),
        segment_bytes: 2,
        entries: 3,
        stream_bytes: 4,
    };
    let holes = Kind::File {
        bytes: 5,
        sparse: true,
    };
    let mut dressed = entry(Some(300), "n", holes);
    dressed.modified = Time {
        seconds: -1,
        nanos: 9,
    };
    let abandoned = Message::FileAbandoned {
        index: 1,
        sent_bytes: 300,
        reason: reason.clone(),
    };
    let failed = Message::FileFailed {
        index: 1,
        cause: FileCause::Unwritable,
        reason: reason.clone(),
    };
    let progress = Message::Progress(Progress {
        stream_bytes: 130,
        moved: 3,
        disk_ms: 2,
    });
    let end = Message::StreamEnd { stream_bytes: 9 };
    let cause = Cause::Network;
    let directory_bytes = [0, 1, b'd', 0, 0xa4, 3, 0, 0];
    let file_bytes = [1, 0xac, 2, 1, b'n', 1, 5, 1, 0xa4, 3, 1, 9];
    let cases: [(Message, &[&[u8]]); 12] = [
        (Message::Hello(hello), &[&[0, 1, b'f', 0x80, 1]]),
        (Message::Plan(plan), &[&[1, 3], b"gbn", &[2, 3, 4]]),
        (Message::QpInfo(QpBlob(vec![7, 8])), &[&[2, 2, 7, 8]]),
        (
            Message::Entries(vec![directory(None, "d"), dressed]),
            &[&[3, 2], &directory_bytes, &file_bytes],
        ),
        (Message::FileHash { index: 1, hash }, &[&[4, 1], &hash]),
        (abandoned, &[&[5, 1, 172, 2, 1, b'r']]),
        (Message::FileVerified { index: 200 }, &[&[6, 200, 1]]),
        (failed, &[&[7, 1, 2, 1, b'r']]),
        (progress, &[&[8, 130, 1, 3, 2]]),
        (Message::Abort { cause, reason }, &[&[9, 4, 1, b'r']]),
        (end, &[&[10, 9]]),
        (Message::Done, &[&[11]]),
    ];
    for (message, pieces) in cases {
        let body = pieces.concat();
        assert_eq!(read(&body).expect("a message"), message);
        let cut = read(&body[..body.len() - 1]).expect_err("a byte is missing");
        assert!(matches!(cut, Error::Malformed { .. }), "{cut}");
    }
    let secret = Message::QpInfo(QpBlob(vec![7, 8]));
    assert_eq!(format!("{secret:?}"), "QpInfo(QpBlob(2 bytes))");
    let unknown = read(&[15]).expect_err("no such message");
    assert!(matches!(unknown, Error::Malformed { .. }), "{unknown}");
}

#[test]
fn changes_to_another_queue_pair_on_the_wire() {
    let info = || QpBlob(vec![7, 8]);
    let cutover = Message::Cutover(Cutover {
        first_segment: 300,
        info: info(),
    });
    let accepted = Message::CutoverAccepted(CutoverAccepted {
        finished: vec![300, 302],
        info: info(),
    });
    let none = Message::CutoverAccepted(CutoverAccepted {
        finished: Vec::new(),
        info: info(),
    });
    let cases: [(Message, &[u8]); 3] = [
        (cutover, &[13, 172, 2, 2, 7, 8]),
        (accepted, &[14, 2, 172, 2, 174, 2, 2, 7, 8]),
        (none, &[14, 0, 2, 7, 8]),
    ];
    for (message, body) in cases {
        assert_eq!(read(body).expect("a message"), message);
        let cut = read(&body[..body.len() - 1]).expect_err("a byte is missing");
        assert!(matches!(cut, Error::Malformed { .. }), "{cut}");
    }
    // A large count of segments without the segments must not cause an allocation.
    let most = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    let body = [&[14][..], &most, &[1, 2, 3]].concat();
    read(&body).expect_err("most segments are missing");
}

#[test]
fn route_offers_on_the_wire() {
    let key = RouteKey([7; 32]);
    assert_eq!(format!("{key:?}"), "RouteKey(..)");
    let address = SocketAddr::from(([192, 0, 2, 1], 4096));
    let software = OfferedSockets {
        key: Some(key),
        addresses: vec![address.into()],
    };
    let nic = OfferedSockets {
        key: None,
        addresses: Vec::new(),
    };
    let mapped = [255, 255, 192, 0, 2, 1];
    let body = [
        &[12, 1][..],
        &[7; 32],
        &[1],
        &[0; 10],
        &mapped,
        &[0x80, 0x20],
    ]
    .concat();
    assert_eq!(read(&body).expect("a message"), Message::Route(software));
    assert_eq!(read(&[12, 0, 0]).expect("a message"), Message::Route(nic));
    let cut = read(&body[..body.len() - 1]).expect_err("a byte is missing");
    assert!(matches!(cut, Error::Malformed { .. }), "{cut}");
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        Just(Kind::Directory),
        (any::<u64>(), any::<bool>()).prop_map(|(bytes, sparse)| Kind::File {
            bytes: bytes >> 2,
            sparse
        }),
        prop::collection::vec(any::<u8>(), 0..5).prop_map(|target| Kind::Symlink { target }),
        (0u32..12).prop_map(|first| Kind::HardLink { first }),
    ];
    let name = prop_oneof![
        prop::collection::vec(prop::sample::select(&b"ab./\0"[..]), 0..4),
        prop::collection::vec(any::<u8>(), 0..300),
    ];
    (
        prop::option::of(0u32..6),
        name,
        kind,
        0u16..0o2000,
        any::<i64>(),
        0u32..2_000_000_000,
    )
        .prop_map(|(parent, name, kind, mode, seconds, nanos)| Entry {
            parent,
            name,
            kind,
            mode,
            modified: Time { seconds, nanos },
        })
}

proptest! {
    /// Every accepted manifest keeps all rules, so the sink does not need to check it again.
    #[test]
    fn accepted_manifests_keep_the_rules(entries in prop::collection::vec(any_entry(), 0..12)) {
        let mut builder = ManifestBuilder::default();
        for entry in entries {
            let before = builder.entries();
            let pushed = builder.push(&entry).is_ok();
            prop_assert_eq!(builder.entries(), before + u32::from(pushed));
        }
        let Ok(manifest) = builder.build() else { return Ok(()) };
        let mut paths = std::collections::HashSet::new();
        let mut sum = 0u64;
        for (index, entry) in (0u32..).zip(manifest.entries()) {
            let path = manifest.path(index);
            let all_normal = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            prop_assert!(all_normal && path.is_relative());
            prop_assert!(path.as_os_str().len() <= 4095);
            if let Some(parent) = entry.parent {
                prop_assert!(parent < index);
                prop_assert_eq!(path.parent(), Some(&*manifest.path(parent)));
                let parent = manifest.entry(parent);
                prop_assert_eq!(parent.map(|parent| parent.kind), Some(Kind::Directory));
            }
            if let Kind::HardLink { first } = entry.kind {
                let file = manifest.entry(first).expect("an entry");
                let is_file = matches!(file.kind, Kind::File { .. });
                prop_assert!(first < index && is_file);
            }
            if let Kind::Symlink { target } = entry.kind {
                prop_assert!(!target.is_empty() && !target.contains(&0));
            }
            if let Kind::File { bytes, .. } = entry.kind {
                sum += bytes;
            }
            prop_assert!(paths.insert(path), "twice");
        }
        prop_assert_eq!(sum, manifest.stream_bytes());
    }
}
