//! The two ends of a probe.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farwrite_files::{Hello, Message};
use farwrite_probe::{Error, ResponderSummary, answer};
use farwrite_session::{Channel, Psk};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the prober's end of a channel, and a thread that returns the responder's end after the
/// prober's hello.
pub(crate) fn channels() -> (Channel, JoinHandle<Channel>) {
    let psk = Psk::generate().expect("key");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    let addr = listener.local_addr().expect("address");
    let of_responder = psk.clone();
    let responder = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("connection");
        let mut channel = Channel::accept(stream, &of_responder, PATIENCE).expect("channel");
        let Message::Hello(hello) = channel.recv().expect("hello") else {
            panic!("not a hello");
        };
        assert!(hello.has(Hello::PROBES));
        channel
    });
    let stream = TcpStream::connect(addr).expect("connection");
    let prober = Channel::initiate(stream, &psk, PATIENCE).expect("channel");
    (prober, responder)
}

/// Runs a responder for one prober.
pub(crate) fn answering(
    channel: JoinHandle<Channel>,
) -> JoinHandle<Result<ResponderSummary, Error>> {
    thread::spawn(move || answer(channel.join().expect("no panic"), None, &|| false))
}
