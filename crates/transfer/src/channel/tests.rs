//! The channel between two ends, and with a peer that holds the key and writes what it wants.

use std::thread;

use farwrite_files::{Cause, QpBlob};
use farwrite_keys::Text;

use super::*;
use crate::tests::Meeting;

const LONG: Duration = Duration::from_secs(60);

/// A message that holds these bytes.
fn bytes(bytes: &[u8]) -> Message {
    Message::QpInfo(QpBlob(bytes.to_vec()))
}

/// The longest bytes that a message can hold: the rest is its kind and their length.
const LONGEST: usize = Message::MAX_BYTES - 4;

/// Both ends of a channel.
fn channels(meeting: &Meeting) -> [Channel; 2] {
    let mut ends = meeting.channels(|| meeting.connect());
    for end in &mut ends {
        end.set_read_timeout(Some(LONG));
    }
    ends
}

/// Waits until a notice has come.
fn wait_for_notice(heard: &Notices) {
    let start = Instant::now();
    while heard.count() == 0 {
        assert!(start.elapsed() < LONG, "no notice comes");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes after a length, as a message begins.
fn prefixed(length: u32, body: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes()[..], body].concat()
}

#[test]
fn messages_of_all_lengths_cross_in_both_directions_at_once() {
    // Around the messages of the stream, and around what a reader reads at a time.
    let lengths = [0, 1, 32_761, 32_762, 32_763, 65_529, 65_530, LONGEST];
    // More than the stream holds.
    let lengths = &lengths.repeat(10);
    let ends = channels(&Meeting::new()).map(Channel::split);
    thread::scope(|scope| {
        let crossing = ends.map(|(mut reader, mut writer)| {
            let writing = scope.spawn(move || {
                for length in lengths {
                    let fill = u8::try_from(length % 251).expect("a byte");
                    let message = bytes(&vec![fill; *length]);
                    writer.send(&message, || {}).expect("sent");
                }
                writer
            });
            let reading = scope.spawn(move || {
                for length in lengths {
                    let fill = u8::try_from(length % 251).expect("a byte");
                    let came = reader.recv().expect("a message");
                    assert!(came == bytes(&vec![fill; *length]), "{length}");
                }
                reader
            });
            (reading, writing)
        });
        let [near, far] = crossing.map(|(reading, writing)| {
            let reader = reading.join().expect("no panic");
            (reader, writing.join().expect("no panic"))
        });
        drop(near);
        let (mut reader, _writer) = far;
        assert!(matches!(reader.recv(), Err(ChannelError::Closed)));
    });
}

#[test]
fn too_long_a_message_is_refused_before_sending() {
    let [mut near, mut far] = channels(&Meeting::new());
    let longer = bytes(&[0; LONGEST + 1]);
    let error = near.send(&longer).expect_err("a byte more");
    let is_cause = matches!(
        error,
        ChannelError::Message(SessionError::TooLong { came, max, .. }) if came == max + 1
    );
    assert!(is_cause, "{error}");
    near.send(&bytes(&[7; LONGEST])).expect("not too long");
    assert!(far.recv().expect("a message") == bytes(&[7; LONGEST]));
}

/// Sends an abort as a notice.
fn abort(near: &Channel) {
    let abort = Message::Abort {
        cause: Cause::Other,
        reason: Text::new("the disk is gone"),
    };
    let notices = near.close_handle().notices();
    notices.notify(&abort).expect("it is short");
}

/// The reader looks for notices while messages wait that came before an abort.
#[test]
fn an_abort_comes_after_what_was_said_before_it() {
    // More than is read at a time.
    const MESSAGES: u32 = 20_000;
    let [mut near, mut far] = channels(&Meeting::new());
    for index in 0..MESSAGES {
        near.send(&Message::FileVerified { index }).expect("sent");
    }
    near.writer.wait_delivered(|| {}).expect("delivered");
    abort(&near);
    wait_for_notice(&far.reader.notices);
    for want in 0..MESSAGES {
        if want % (MESSAGES / 2) == 0 {
            thread::sleep(LOOK_WHEN_BUSY + LOOK);
        }
        match far.recv().expect("a message") {
            Message::FileVerified { index } => assert_eq!(index, want),
            other => panic!("{other:?} before message {want}"),
        }
    }
    let last = far.recv().expect("the abort");
    assert!(matches!(last, Message::Abort { .. }), "{last:?}");
}

/// The last message and an abort can both come when a read has found nothing, before the reader looks for notices.
#[test]
fn an_abort_that_came_after_the_last_read_waits_for_another_one() {
    let [mut near, mut far] = channels(&Meeting::new());
    let heard = far.close_handle().notices();
    let (_, before) = far.reader.read_with(LONG, |_, _| {
        near.send(&Message::Done).expect("sent");
        near.writer.wait_delivered(|| {}).expect("delivered");
        abort(&near);
        wait_for_notice(&heard);
        Err(ErrorKind::TimedOut.into())
    });
    let taken = far.reader.next_notice(before);
    assert!(matches!(taken, Ok(None)), "{taken:?}");
    let first = far.recv().expect("the message");
    assert!(matches!(first, Message::Done), "{first:?}");
    let last = far.recv().expect("the abort");
    assert!(matches!(last, Message::Abort { .. }), "{last:?}");
}

#[test]
fn a_notice_that_must_be_on_the_channel_is_refused() {
    let [liar, mut honest] = channels(&Meeting::new());
    let notices = liar.close_handle().notices();
    notices.notify(&Message::Done).expect("it is short");
    wait_for_notice(&honest.reader.notices);
    let error = honest.recv().expect_err("no such notice");
    let is_cause = matches!(
        error,
        ChannelError::Message(SessionError::Malformed { name: "notice", .. })
    );
    assert!(is_cause, "{error}");
}

/// The length is refused before the bytes come, and nothing follows a message that is none.
#[test]
fn what_is_no_message_ends_the_channel() {
    let meeting = Meeting::new();
    let too_long = [(256 << 10) + 1, 1 << 20, u32::MAX];
    let too_long = too_long.map(|length| (prefixed(length, b"only this"), true));
    let malformed = [
        prefixed(0, &[]),
        // A count beyond the end, a byte left over, and a number that does not end.
        prefixed(3, &[2, 9, 8]),
        prefixed(4, &[2, 1, 8, 8]),
        prefixed(11, &[0xff; 11]),
    ];
    let lies = too_long
        .into_iter()
        .chain(malformed.map(|lie| (lie, false)));
    for (lie, is_too_long) in lies {
        let [mut liar, mut honest] = channels(&meeting);
        let right = framed(&bytes(&[1, 2])).expect("short");
        let said = [&lie[..], &right].concat();
        liar.writer.stream.write_all(&said).expect("written");
        let error = honest.recv().expect_err("no message");
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        match error {
            ChannelError::Message(SessionError::TooLong { .. }) => assert!(is_too_long, "{text}"),
            ChannelError::Message(SessionError::Malformed { .. }) => assert!(!is_too_long),
            _ => panic!("{text}"),
        }
        assert!(matches!(honest.recv(), Err(ChannelError::Over)));
        // The other direction goes on, so that this end can say why.
        honest.send(&bytes(&[5])).expect("sent");
        assert_eq!(liar.recv().expect("a message"), bytes(&[5]));
    }
}

#[test]
fn a_stream_that_ends_within_a_message_is_told() {
    let meeting = Meeting::new();
    let whole = framed(&bytes(&[3; 20])).expect("short");
    for cut in [0, 1, 4, 5, whole.len() - 1, whole.len()] {
        let [mut liar, mut honest] = channels(&meeting);
        liar.writer.stream.write_all(&whole[..cut]).expect("sent");
        liar.writer.stream.finish();
        let came = honest.recv();
        match came {
            Err(ChannelError::Closed) => assert_eq!(cut, 0),
            Err(ChannelError::Truncated) => assert!((1..whole.len()).contains(&cut), "{cut}"),
            Ok(came) => assert!(cut == whole.len() && came == bytes(&[3; 20])),
            Err(error) => panic!("{cut}: {error}"),
        }
    }
}

/// The limit is that of a whole call, so a peer that drips bytes gains no time. What has come is kept.
#[test]
fn a_time_limit_ends_a_call_and_keeps_its_bytes() {
    let [mut liar, mut honest] = channels(&Meeting::new());
    honest.set_read_timeout(Some(Duration::ZERO));
    let error = honest.recv().expect_err("nothing is there");
    assert!(matches!(error, ChannelError::Timeout { .. }), "{error}");
    liar.send(&bytes(&[8])).expect("sent");
    let start = Instant::now();
    let came = loop {
        match honest.recv() {
            Err(ChannelError::Timeout { .. }) if start.elapsed() < LONG => thread::yield_now(),
            came => break came.expect("a message"),
        }
    };
    assert_eq!(came, bytes(&[8]));
    let limit = Duration::from_millis(200);
    honest.set_read_timeout(Some(limit));
    let message = framed(&bytes(&[7; 98])).expect("short");
    thread::scope(|scope| {
        scope.spawn(move || {
            for byte in message {
                liar.writer.stream.write_all(&[byte]).expect("written");
                thread::sleep(Duration::from_millis(10));
            }
            liar
        });
        let start = Instant::now();
        let error = honest.recv().expect_err("104 bytes in 1 s");
        assert!(matches!(error, ChannelError::Timeout { .. }), "{error}");
        assert!(start.elapsed() >= limit);
        honest.set_read_timeout(Some(LONG));
        assert_eq!(honest.recv().expect("the rest"), bytes(&[7; 98]));
    });
}

#[test]
fn closing_wakes_both_halves_and_tells_the_peer() {
    let meeting = Meeting::new();
    let [near, mut far] = channels(&meeting);
    let close_handle = near.close_handle();
    let (mut reader, mut writer) = near.split();
    thread::scope(|scope| {
        let reading = scope.spawn(move || reader.recv().map(drop));
        // Nobody reads at the other end.
        let writing = scope.spawn(move || {
            let full = loop {
                if let Err(error) = writer.send(&bytes(&[0; LONGEST]), || {}) {
                    break error;
                }
            };
            (full, writer.send(&bytes(&[]), || {}))
        });
        thread::sleep(Duration::from_millis(100));
        close_handle.clone().close();
        let read = reading.join().expect("no panic");
        assert!(matches!(read, Err(ChannelError::Over)), "{read:?}");
        let (full, later) = writing.join().expect("no panic");
        assert!(matches!(full, ChannelError::Over), "{full}");
        assert!(matches!(later, Err(ChannelError::Over)), "{later:?}");
    });
    let ended = loop {
        if let Err(error) = far.recv() {
            break error;
        }
    };
    let is_end = matches!(ended, ChannelError::Closed | ChannelError::Truncated);
    assert!(is_end, "{ended}");
    // A handle does not keep the channel.
    let [near, mut far] = channels(&meeting);
    let close_handle = near.close_handle();
    drop(near);
    assert!(matches!(far.recv(), Err(ChannelError::Closed)));
    close_handle.close();
}
