//! What a large list of names must not delay on a slow path that loses packets: signs of life, and why an end gives up.

use std::net::IpAddr;

use super::*;
use crate::Error;
use crate::channel_writer::ChannelWriter;
use crate::progress_counts::OwnCounts;

/// A round trip, with the longest wait in the queue of the path.
const ROUND_TRIP: Duration = Duration::from_millis(300);
/// The time in which the peer must learn that an end gives up, and a second for a busy machine.
const KNOWN: Duration = ROUND_TRIP
    .saturating_mul(2)
    .saturating_add(Duration::from_secs(1 + 1));

/// A path to the port of `meeting`, which also is at the addresses of loopback that end in `hosts`.
fn slow_path(meeting: &Meeting, hosts: &[u8]) -> UdpEmulator {
    let link = LinkConfig {
        delay: Duration::from_millis(50),
        rate_bps: Some(2_000_000),
        queue_time: Some(ROUND_TRIP - Duration::from_millis(100)),
        loss: Loss::Iid { loss_packet: 0.01 },
        ..LinkConfig::default()
    };
    let receiver = meeting.port.local_addr();
    let at = |host: &u8| PortPair {
        // A sender refuses another port.
        a: Side::learning((IpAddr::from([127, 0, 0, *host]), receiver.port()).into()),
        b: Side::facing(receiver),
    };
    let config = UdpEmulatorConfig {
        forward: link,
        backward: link,
        seed: 61,
        channels: hosts.iter().map(at).collect(),
        verbatim: true,
    };
    UdpEmulator::start(&config).expect("a link that can be")
}

/// Paths, which fill a message like names do.
fn names() -> Message {
    Message::Extra(vec![vec![7; 4000]; 16])
}

/// The delay of each sign of life, the time since the one before, when the abort came, and its reason.
fn hear(mut channel: Channel, start: Instant) -> (Vec<[Duration; 2]>, Instant, String) {
    let mut signs = Vec::new();
    let mut last = start;
    loop {
        match channel.recv().expect("the channel works") {
            Message::Progress(progress) => {
                let now = Instant::now();
                let said = start + Duration::from_millis(progress.stream_bytes);
                signs.push([now.saturating_duration_since(said), now - last]);
                last = now;
            }
            Message::Abort { reason, .. } => return (signs, Instant::now(), reason.to_string()),
            _ => {}
        }
    }
}

/// The names on the channel take at least 8 s, and data of another connection take a part of the path.
#[test]
fn names_and_data_delay_neither_signs_of_life_nor_an_abort() {
    let meeting = Meeting::new();
    let path = slow_path(&meeting, &[2, 3]);
    let channels = |place: usize| {
        let at = path.addresses()[place][0];
        meeting.channels(|| meeting.connect_at(at))
    };
    let ([near, far], [mut from, mut to]) = (channels(0), channels(1));
    let stop = from.close_handle();
    thread::scope(|scope| {
        scope.spawn(move || while from.send(&names()).is_ok() {});
        scope.spawn(move || while to.recv().is_ok() {});
        let own = Arc::<OwnCounts>::default();
        let started = ChannelWriter::start(near, &own, TIMEOUT);
        let (channel_writer, _reader, outbox) = started.expect("a thread");
        scope.spawn(move || while outbox.send(names()).is_ok() {});
        let start = Instant::now();
        let hearing = scope.spawn(move || hear(far, start));
        while start.elapsed() < Duration::from_secs(6) {
            let now_ms = u64::try_from(start.elapsed().as_millis()).expect("seconds");
            own.arrived_bytes.raise(now_ms);
            thread::sleep(Duration::from_millis(10));
        }
        let ended = Instant::now();
        let failed: Result<(), _> = Err(Error::new(ErrorKind::Files, "the disk is gone"));
        channel_writer.end(&failed);
        let heard = hearing.join();
        stop.close();
        let (signs, heard, reason) = heard.expect("no panic");
        assert_eq!(reason, "the disk is gone");
        assert!(heard - ended < KNOWN, "{:?}", heard - ended);
        let late = Duration::from_secs(3);
        let is_late = |sign: &[Duration; 2]| sign.iter().any(|time| *time > late);
        assert!(!signs.iter().any(is_late), "{signs:?}");
    });
    assert!(
        path.counters().forward.link.lost > 0,
        "{:?}",
        path.counters()
    );
}

/// Sends empty files whose names take 12 s, and calls `meddle` meanwhile. Returns both results, and when the receiver
/// had its own.
fn send_names(
    limits: &ReceiveSettings,
    cancel: &Cancel,
    meddle: impl FnOnce(&UdpEmulator) + Send,
) -> ([Result<TransferReport, Unfinished>; 2], Instant) {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().expect("directory"));
    for number in 0..12_000 {
        fs::write(from.path().join(format!("{number:0240}")), []).expect("write");
    }
    let tree = [from.path().to_path_buf()];
    let source = Source::scan(&tree, &ScanOptions::default()).expect("files");
    let meeting = Meeting::new();
    let path = slow_path(&meeting, &[2]);
    let observer = Reports::default();
    thread::scope(|scope| {
        let receives = scope.spawn(|| {
            let cancel = Cancel::default();
            let hooks = hooks(Some(&meeting), &cancel, &observer);
            let sender = Client::accept(&meeting.accept(), &cancel).expect("a hello");
            let received = receive(sender, to.path(), limits, &hooks);
            (received, Instant::now())
        });
        let channel = meeting.connect_at(path.addresses()[0][0]);
        scope.spawn(|| meddle(&path));
        // The data do not take the path.
        let redirect = |_| Ok(meeting.port.local_addr());
        let hooks = TransferHooks {
            redirect: &redirect,
            ..hooks(None, cancel, &observer)
        };
        let sent = send(channel, &meeting.key, source, &adaptive_settings(), &hooks);
        let (received, at) = receives.join().expect("no panic");
        ([sent, received], at)
    })
}

#[test]
fn a_receiver_learns_soon_that_a_sender_of_names_is_interrupted() {
    let flag = Arc::<AtomicBool>::default();
    let cancel = Cancel::watching(Arc::clone(&flag));
    let cancelled = OnceLock::new();
    let limits = receive_settings(None);
    let ([sent, received], at) = send_names(&limits, &cancel, |path| {
        until_delivered(path, 300);
        cancelled.set(Instant::now()).expect("once");
        flag.store(true, Ordering::Relaxed);
    });
    let sent = sent.expect_err("interrupted");
    assert_eq!(sent.kind(), ErrorKind::Interrupted, "{sent}");
    let line = received.expect_err("interrupted").to_string();
    assert!(line.contains("says: \"interrupted\""), "{line}");
    let took = at - *cancelled.wait();
    assert!(took < KNOWN, "{took:?}");
}

#[test]
fn a_sender_of_names_learns_soon_why_it_is_refused() {
    let limits = ReceiveSettings {
        max_files: Some(10),
        ..receive_settings(None)
    };
    let start = OnceLock::new();
    let (results, _) = send_names(&limits, &Cancel::default(), |_| {
        start.set(Instant::now()).expect("once");
    });
    let took = start.wait().elapsed();
    for result in results {
        let error = result.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(error.to_string().contains("--max-files"), "{error}");
    }
    assert!(
        took < Duration::from_secs(12),
        "the names were sent: {took:?}"
    );
}
