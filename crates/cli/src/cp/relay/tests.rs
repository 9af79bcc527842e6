//! Both ends of a relay in one process, with a receiver behind them.

use std::io::PipeReader;
use std::time::Duration;

use super::*;

/// What a test waits for comes at once, or never.
const LONG: Duration = Duration::from_secs(30);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_read_timeout(Some(LONG)).expect("a time limit");
    socket
}

fn next(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = vec![0; MAX_DATAGRAM_BYTES];
    let (count, from) = socket.recv_from(&mut bytes).expect("a datagram");
    bytes.truncate(count);
    (bytes, from)
}

fn entrance(to: &UdpSocket) -> (Arc<Relay>, SocketAddr, PipeReader) {
    let (reader, writer) = io::pipe().expect("a pipe");
    let port = to.local_addr().expect("bound").port();
    let out = Out::new(writer).expect("a writing end");
    let (entrance, at) = Relay::enter(out, port).expect("an entrance");
    (entrance, at, reader)
}

fn exit(to: &UdpSocket) -> (Arc<Relay>, PipeReader) {
    let (reader, writer) = io::pipe().expect("a pipe");
    let port = to.local_addr().expect("bound").port();
    let out = Out::new(writer).expect("a writing end");
    (Relay::exit(out, port).expect("an exit"), reader)
}

/// A receiver, and the address at which senders find it through a relay.
fn receiver_behind_relay() -> (UdpSocket, SocketAddr) {
    let receiver = socket();
    let (entrance, at, to_exit) = entrance(&receiver);
    let (exit, to_entrance) = exit(&receiver);
    thread::spawn(move || exit.read(to_exit));
    thread::spawn(move || entrance.read(to_entrance));
    (receiver, at)
}

#[test]
fn a_receiver_tells_the_flows_of_a_sender_apart() {
    let (receiver, at) = receiver_behind_relay();
    let largest = vec![7; 65_507];
    let [one, two] = [(); 2].map(|()| socket());
    one.send_to(&largest, at).expect("sent");
    let (arrived, from_one) = next(&receiver);
    assert!(arrived == largest);
    two.send_to(b"", at).expect("sent");
    let (arrived, from_two) = next(&receiver);
    assert!(arrived.is_empty() && from_two != from_one);
    receiver.send_to(b"to two", from_two).expect("sent");
    receiver.send_to(&largest, from_one).expect("sent");
    assert_eq!(next(&two), (b"to two".to_vec(), at));
    assert!(next(&one) == (largest, at));
}

#[test]
fn strangers_do_not_end_a_flow_that_has_answers() {
    let (receiver, at) = receiver_behind_relay();
    let strangers: Vec<_> = (0..16).map(|_| socket()).collect();
    let own = socket();
    own.send_to(b"open", at).expect("sent");
    let (_, from_own) = next(&receiver);
    receiver.send_to(b"opened", from_own).expect("sent");
    assert_eq!(next(&own).0, b"opened");
    // The last one takes the flow of the first one.
    let mut from_strangers = Vec::new();
    for stranger in &strangers {
        stranger.send_to(b"stranger", at).expect("sent");
        from_strangers.push(next(&receiver).1);
    }
    assert!(!from_strangers.contains(&from_own));
    assert_eq!(from_strangers[15], from_strangers[0]);
    own.send_to(b"more", at).expect("sent");
    assert_eq!(next(&receiver), (b"more".to_vec(), from_own));
    // Once all flows have answers, the datagram of a new source is dropped.
    for (stranger, from) in strangers.iter().zip(&from_strangers).skip(1) {
        receiver.send_to(b"answer", from).expect("sent");
        assert_eq!(next(stranger).0, b"answer");
    }
    socket().send_to(b"late", at).expect("sent");
    own.send_to(b"end", at).expect("sent");
    assert_eq!(next(&receiver), (b"end".to_vec(), from_own));
    receiver.send_to(b"ended", from_own).expect("sent");
    assert_eq!(next(&own).0, b"ended");
}

#[test]
fn what_is_no_frame_ends_with_an_error() {
    let receiver = socket();
    let (entrance, at, _keep) = entrance(&receiver);
    let (exit, _keep) = exit(&receiver);
    let kind = |relay: &Arc<Relay>, bytes: &[u8]| relay.read(bytes).map_err(|error| error.kind());
    let whole = [0, 0, 2, b'o', b'k'];
    assert_eq!(kind(&exit, &whole), Ok(()));
    assert_eq!(next(&receiver).0, b"ok");
    for bytes in 1..whole.len() {
        assert_eq!(kind(&exit, &whole[..bytes]), Err(ErrorKind::UnexpectedEof));
    }
    assert_eq!(kind(&exit, &[]), Ok(()));
    assert_eq!(kind(&exit, &[16, 0, 0]), Err(ErrorKind::InvalidData));
    assert_eq!(kind(&exit, &[255, 0, 0]), Err(ErrorKind::InvalidData));
    let unasked = kind(&entrance, &[0, 0, 0]);
    assert_eq!(unasked, Err(ErrorKind::InvalidData), "{at} has no source");
}

/// The bytes of frames behind one another, until one has the datagram `last`. `before_each` runs before each.
fn bytes_until(pipe: &mut PipeReader, last: &[u8], mut before_each: impl FnMut()) -> usize {
    let mut bytes = 0;
    loop {
        before_each();
        let mut head = [0; HEAD_BYTES];
        pipe.read_exact(&mut head).expect("a frame");
        let mut datagram = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
        pipe.read_exact(&mut datagram).expect("a frame");
        if datagram == last {
            return bytes;
        }
        bytes += HEAD_BYTES + datagram.len();
    }
}

#[test]
fn a_full_pipe_holds_up_little() {
    let receiver = socket();
    let (entrance, at, mut pipe) = entrance(&receiver);
    let sender = socket();
    let flood = || {
        for _ in 0..10_000 {
            sender.send_to(&[0; 1400], at).expect("sent");
        }
    };
    flood();
    let mark = || assert_eq!(sender.send_to(b"mark", at).expect("sent"), 4);
    let held = bytes_until(&mut pipe, b"mark", mark);
    let in_pipe = 64 << 10;
    assert!(held > in_pipe, "{held}");
    assert!(held <= in_pipe + MAX_WAITING_BYTES + 1403, "{held}");
    // Closing does not wait for the pipe. Only what is in it follows, and what the thread is writing.
    flood();
    entrance.close();
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).expect("it ends");
    assert!(rest.len() <= in_pipe + 1403, "{}", rest.len());
}

#[test]
fn a_closed_relay_listens_no_longer() {
    let receiver = socket();
    let (entrance, at, mut pipe) = entrance(&receiver);
    let sender = socket();
    sender.connect(at).expect("connected");
    entrance.close();
    drop(entrance);
    // The thread of the relay ends after the pipe.
    pipe.read_to_end(&mut Vec::new()).expect("it ends");
    let refused = loop {
        if let Err(error) = sender.send(b"") {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}
