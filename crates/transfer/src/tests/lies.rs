//! A peer that holds the key and says what is not due. Its transfer ends with one line, and others go on.

use std::mem::discriminant;

use farwrite_files::{
    Cause, Compare, CutoverAccepted, Delete, FileCause, Hello, Missing, OfferedSockets, Partial,
    Present, QpBlob, TransferPlan,
};

use super::*;

/// The line with which a liar's transfer ended, and whether the liar was told it.
struct Heard {
    line: String,
    told: Option<String>,
}

/// One message of each kind, except signs of life, which are due at any time.
fn each_kind() -> Vec<Message> {
    let (index, hash, reason) = (u32::MAX, [7; 32], Text::new("first\nsecond"));
    let info = QpBlob(vec![7; 200]);
    vec![
        Message::Hello(hello()),
        Message::Plan(plan()),
        Message::QpInfo(info.clone()),
        Message::Entries(Vec::new()),
        Message::FileHash { index, hash },
        Message::FileAbandoned {
            index,
            sent_bytes: u64::MAX,
            reason: reason.clone(),
        },
        Message::FileVerified { index },
        Message::FileFailed {
            index,
            cause: FileCause::Corrupt,
            reason: reason.clone(),
        },
        Message::Abort {
            cause: Cause::Other,
            reason: reason.clone(),
        },
        Message::StreamEnd {
            stream_bytes: u64::MAX,
        },
        Message::Done,
        Message::Route(sockets()),
        Message::Cutover(farwrite_files::Cutover {
            first_segment: u64::MAX,
            info: info.clone(),
        }),
        Message::CutoverAccepted(CutoverAccepted {
            finished: vec![u64::MAX],
            info,
        }),
        Message::Details(Vec::new()),
        Message::Compare(Compare::Hash),
        Message::Present(vec![Present {
            entry: index,
            hash: Some(hash),
        }]),
        Message::FileSame { index },
        Message::FileKept { index },
        Message::Delete(Delete {
            max: None,
            top: true,
        }),
        Message::Deleted { files: index },
        Message::Partial(vec![Partial {
            entry: index,
            bytes: u64::MAX,
        }]),
        Message::BlockHashes {
            index,
            first: u32::MAX,
            hashes: vec![hash],
        },
        Message::BlocksCompared {
            index,
            runs: Vec::new(),
        },
        Message::Extra(vec![b"../x".to_vec()]),
        Message::Warnings(vec![reason.clone()]),
        Message::Missing(vec![Missing {
            path: reason.clone(),
            reason,
        }]),
    ]
}

fn hello() -> Hello {
    Hello {
        software: Text::new("liar"),
        capabilities: 0,
    }
}

/// An RDMA NIC, which answers no route packets.
fn sockets() -> OfferedSockets {
    OfferedSockets {
        key: None,
        addresses: vec![SocketAddr::from(([127, 0, 0, 1], 9)).into()],
    }
}

fn plan() -> TransferPlan {
    TransferPlan {
        scheme: Text::new("sr-nack"),
        segment_bytes: 1 << 20,
        entries: 1,
        stream_bytes: u64::MAX,
    }
}

/// What to say after `right`, which is due, for each number of messages of it.
fn lies(right: &[Message]) -> impl Iterator<Item = (&[Message], Message)> {
    (0..=right.len()).flat_map(move |told| {
        let due = right.get(told).map(discriminant);
        let lies = each_kind().into_iter();
        // The first of the files follows the last.
        let lies = lies.filter(move |lie| due.is_none_or(|due| due != discriminant(lie)));
        lies.map(move |lie| (&right[..told], lie))
    })
}

/// Says messages, and returns the reason that the peer gives up, if it gives one.
fn say(channel: &mut Channel, right: &[Message], lie: &Message) -> Option<String> {
    channel.set_read_timeout(Some(TIMEOUT));
    for message in right.iter().chain([lie]) {
        channel.send(message).ok()?;
    }
    loop {
        if let Message::Abort { reason, .. } = channel.recv().ok()? {
            return Some(reason.to_string());
        }
    }
}

impl Heard {
    fn check(&self, lie: &Message) {
        let Self { line, told } = self;
        assert!(!line.contains('\n'), "{lie:?}: {line}");
        match (lie, told) {
            // Who gives up is told nothing.
            (Message::Abort { .. }, _) => assert!(line.contains("gave up"), "{line}"),
            (_, Some(told)) => assert!(line.contains(told.as_str()), "{lie:?}: {line}; {told}"),
            (_, None) => panic!("{lie:?}: {line}, and the liar is not told"),
        }
    }
}

#[test]
fn a_receiver_takes_only_what_is_due() {
    let to = tempfile::tempdir().expect("directory");
    let meeting = Meeting::new();
    let (cancel, observer) = (Cancel::default(), Reports::default());
    let limits = receive_settings(None);
    let receive_one = || -> Result<(), String> {
        let sender =
            Client::accept(&meeting.accept(), &cancel).map_err(|error| error.to_string())?;
        let hooks = hooks(Some(&meeting), &cancel, &observer);
        let received = receive(sender, to.path(), &limits, &hooks);
        received.map(drop).map_err(|failure| failure.to_string())
    };
    let right = [Message::Hello(hello()), Message::Route(sockets())];
    for (right, lie) in lies(&right) {
        if matches!(lie, Message::Plan(_)) && right.len() == 2 {
            continue;
        }
        let heard = thread::scope(|scope| {
            let receives = scope.spawn(receive_one);
            let told = say(&mut meeting.connect(), right, &lie);
            let line = receives.join().expect("no panic").expect_err("a lie");
            Heard { line, told }
        });
        heard.check(&lie);
    }
    assert_eq!(fs::read_dir(to.path()).expect("readable").count(), 0);
    let (_from, source) = one_file(&pattern(1000));
    thread::scope(|scope| {
        let receives = scope.spawn(receive_one);
        let hooks = hooks(None, &cancel, &observer);
        let settings = adaptive_settings();
        let sent = send(meeting.connect(), &meeting.key, source, &settings, &hooks);
        sent.expect("an honest sender");
        receives.join().expect("no panic").expect("received");
    });
}

/// Sends a file to a liar, and returns how that ended.
fn send_to(liar: impl FnOnce(&mut Channel) -> Option<String> + Send) -> Heard {
    let meeting = Meeting::new();
    let (cancel, observer) = (Cancel::default(), Reports::default());
    let (_from, source) = one_file(&pattern(1_000_000));
    let settings = SendSettings {
        mtu: Some(1024),
        ..adaptive_settings()
    };
    thread::scope(|scope| {
        let lying = scope.spawn(|| {
            let connection = meeting.accept();
            let channel = Channel::accept(&connection, TIMEOUT).expect("no error");
            liar(&mut channel.expect("a channel"))
        });
        let hooks = hooks(None, &cancel, &observer);
        let channel = meeting.connect();
        let refused = send(channel, &meeting.key, source, &settings, &hooks);
        let line = refused.map(drop).expect_err("a lie").to_string();
        let told = lying.join().expect("no panic");
        Heard { line, told }
    })
}

#[test]
fn a_sender_takes_only_what_is_due() {
    let right = [Message::Hello(hello())];
    for (right, lie) in lies(&right) {
        if matches!(lie, Message::Route(_)) && right.len() == 1 {
            continue;
        }
        send_to(|channel| say(channel, right, &lie)).check(&lie);
    }
}

/// A receiver that claims to be an RDMA NIC, agrees to the transfer, and then says what is not due.
fn agree_and_say(channel: &mut Channel, lie: impl FnOnce(QpBlob) -> Message) -> Option<String> {
    channel.set_read_timeout(Some(TIMEOUT));
    channel.send(&Message::Hello(hello())).expect("sent");
    let bind = SocketAddr::new(channel.local_addr().ip(), 0);
    let mut endpoint = Endpoint::over_udp(&UdpConfig::new(bind)).expect("socket");
    let offer = OfferedSockets {
        key: None,
        addresses: vec![endpoint.fabric().local_addr(0).into()],
    };
    channel.send(&Message::Route(offer)).expect("sent");
    let theirs = loop {
        if let Message::QpInfo(blob) = channel.recv().expect("the set-up") {
            break QpInfo::decode(&blob.0).expect("decoded");
        }
    };
    let options = QpOptions {
        sdr: theirs.config,
        ..QpOptions::default()
    };
    let qp = endpoint.create_qp(options).expect("queue pair");
    let info = endpoint.qp_info(qp).expect("own").encode();
    let info = QpBlob(info.expect("encoded"));
    say(channel, &[Message::QpInfo(info.clone())], &lie(info))
}

#[test]
fn a_sender_takes_only_what_is_due_after_the_set_up() {
    for kind in 0..each_kind().len() {
        let lie = each_kind().swap_remove(kind);
        // A receiver may say these at any time.
        if matches!(
            lie,
            Message::Deleted { .. } | Message::Warnings(_) | Message::Missing(_)
        ) {
            continue;
        }
        let said = lie.clone();
        send_to(|channel| agree_and_say(channel, |_| said)).check(&lie);
    }
    // The information is that of a queue pair.
    let accepted = |info| {
        let finished = vec![0];
        Message::CutoverAccepted(CutoverAccepted { finished, info })
    };
    let heard = send_to(|channel| agree_and_say(channel, accepted));
    assert!(heard.line.contains("was not asked to"), "{}", heard.line);
}
