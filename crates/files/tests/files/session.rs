//! What the two ends of a transfer say (P8.1): a tree is sent over pipes. They replace the channel and the
//! queue pairs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use farwrite_files::{
    CommitGate, Message, MessageError, Policy, ScanOptions, Sink, Source, Summary, TransferPlan,
    manifest_messages, recv_manifest,
};
use farwrite_keys::Text;

const SEGMENT_BYTES: usize = 4096;

/// One end of a channel.
type End = (Sender<Message>, Receiver<Message>);

/// The two ends of a channel.
fn channels() -> (End, End) {
    let ((to_far, from_near), (to_near, from_far)) = (channel(), channel());
    ((to_far, from_far), (to_near, from_near))
}

fn say(to: &Sender<Message>, message: Message) {
    to.send(message).expect("the other end is there");
}

fn hear(from: &Receiver<Message>) -> Message {
    from.recv().expect("the other end is there")
}

/// Returns the number of files that the receiver verified, and the failures.
fn send(
    (writer, reader): End,
    tree: &Path,
    data: SyncSender<Vec<u8>>,
) -> Result<(u32, Vec<String>), MessageError> {
    let mut stream_bytes = 0;
    let mut source =
        Source::scan(&[tree.to_path_buf()], &ScanOptions::default()).expect("plain files");
    let manifest = Arc::clone(source.manifest());
    let plan = TransferPlan {
        scheme: Text::new("sr-nack"),
        segment_bytes: 4096,
        entries: u32::try_from(manifest.entries().len()).expect("few"),
        stream_bytes: manifest.stream_bytes(),
    };
    say(&writer, Message::Plan(plan));
    for message in manifest_messages(&manifest) {
        say(&writer, message);
    }
    let verdicts = thread::spawn(move || {
        let (mut verified, mut failed) = (0, Vec::new());
        loop {
            match hear(&reader) {
                Message::FileVerified { .. } => verified += 1,
                Message::FileFailed { index, reason, .. } => {
                    failed.push(format!("{:?}: {reason}", manifest.path(index)));
                }
                Message::Done => return Ok((verified, failed)),
                other => return Err(other.unexpected("a message about files")),
            }
        }
    });
    loop {
        let mut segment = vec![0; SEGMENT_BYTES];
        let read_bytes = source.read(&mut segment);
        while let Some(read) = source.poll_file() {
            say(&writer, read.message());
        }
        if source.is_over() && read_bytes == 0 {
            break;
        }
        stream_bytes += u64::try_from(read_bytes).expect("few bytes");
        segment.truncate(read_bytes);
        data.send(segment).expect("the receiver is there");
    }
    drop(data);
    say(&writer, Message::StreamEnd { stream_bytes });
    verdicts.join().expect("no panic")
}

fn receive(
    (writer, reader): End,
    to: &Path,
    data: Receiver<Vec<u8>>,
) -> Result<Summary, MessageError> {
    let Message::Plan(plan) = hear(&reader) else {
        panic!("no plan");
    };
    let offer = recv_manifest(&plan, || Ok::<_, MessageError>(hear(&reader)))?;
    // The report on the first file has been read.
    let mut next = Some(offer.next);
    let manifest = Arc::new(offer.manifest);
    let mut sink = Sink::new(to, manifest, CommitGate::default(), Policy::default()).expect("sink");
    for segment in data {
        sink.write(&segment).expect("write");
    }
    loop {
        match next.take().unwrap_or_else(|| hear(&reader)) {
            Message::FileHash { index, hash } => sink.handle_hash(index, hash).expect("in turn"),
            Message::FileAbandoned {
                index,
                sent_bytes,
                reason,
            } => {
                let abandoned = sink.handle_abandoned(index, sent_bytes, reason);
                abandoned.expect("in turn");
            }
            Message::StreamEnd { .. } => break,
            other => return Err(other.unexpected("a message about files")),
        }
    }
    let summary = sink.finish().expect("all told");
    while let Some(verdict) = sink.poll_verdict() {
        say(&writer, verdict.message());
    }
    say(&writer, Message::Done);
    Ok(summary)
}

/// Sends a tree of three files. `damage` changes the bytes between the two ends.
fn session(damage: impl Fn(&mut Vec<u8>) + Send) -> (Vec<String>, Summary, Vec<String>) {
    let from = tempfile::tempdir().expect("directory");
    let to = tempfile::tempdir().expect("directory");
    let tree = from.path().join("tree");
    fs::create_dir(&tree).expect("directory");
    fs::write(tree.join("a"), [b'a'; 10_000]).expect("write");
    fs::write(tree.join("b"), []).expect("write");
    fs::write(tree.join("c"), [b'c'; 5_000]).expect("write");
    let (initiator, responder) = channels();
    let (near, relayed) = sync_channel::<Vec<u8>>(4);
    let (relay, far) = sync_channel(4);
    thread::scope(|scope| {
        scope.spawn(move || {
            for mut segment in relayed {
                damage(&mut segment);
                relay.send(segment).expect("the receiver is there");
            }
        });
        let receives = scope.spawn(|| receive(responder, to.path(), far));
        let (verified, failed) = send(initiator, &tree, near).expect("the sender's end");
        let summary = receives
            .join()
            .expect("no panic")
            .expect("the receiver's end");
        assert_eq!(verified, summary.verified_files);
        let mut names: Vec<_> = fs::read_dir(to.path().join("tree"))
            .expect("list")
            .map(|item| {
                item.expect("item")
                    .file_name()
                    .into_string()
                    .expect("UTF-8")
            })
            .collect();
        names.sort();
        (names, summary, failed)
    })
}

#[test]
fn tree_arrives_and_the_sender_knows() {
    let (names, summary, failed) = session(|_| {});
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(
        summary,
        Summary {
            verified_files: 3,
            verified_bytes: 15_000,
            kept_files: 0,
            deleted_files: 0,
            failed_files: 0
        }
    );
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn damaged_file_is_thrown_away_and_the_sender_knows() {
    let (names, summary, failed) = session(|segment| {
        if let Some(byte) = segment.iter_mut().find(|byte| **byte == b'c') {
            *byte = b'x';
        }
    });
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        summary,
        Summary {
            verified_files: 2,
            verified_bytes: 10_000,
            kept_files: 0,
            deleted_files: 0,
            failed_files: 1
        }
    );
    assert_eq!(failed.len(), 1);
    assert!(
        failed[0].starts_with("\"tree/c\": its hash is"),
        "{failed:?}"
    );
}
