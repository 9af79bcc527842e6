//! The two ends of a probe.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farwrite::ReservedPort;
use farwrite_connection::{ConnectionOptions, Keys, Listener, connect};
use farwrite_keys::Psk;
use farwrite_probe::{Control, Error, ResponderSummary, answer};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The responder's end, once the prober has asked.
pub(crate) struct Responder {
    pub(crate) control: Control,
    pub(crate) port: ReservedPort,
}

/// Returns the prober's end of a control, and a thread that returns the responder's.
pub(crate) fn ends() -> (Control, JoinHandle<Responder>) {
    ends_through(|addr| addr)
}

/// The same; the prober connects to the address that `path` returns for that of the responder.
pub(crate) fn ends_through(
    path: impl FnOnce(SocketAddr) -> SocketAddr,
) -> (Control, JoinHandle<Responder>) {
    let keys = Keys::of_psk(&Psk::generate().expect("key"));
    let options = ConnectionOptions {
        connect_limit: PATIENCE,
        largest_mtu: Some(Control::MTU),
        ..ConnectionOptions::default()
    };
    let port = ReservedPort::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("port");
    let listener = Listener::bind_beside(&port, &keys, &options).expect("listener");
    let to = path(port.local_addr());
    let responder = thread::spawn(move || {
        let connection = listener.accept(PATIENCE).expect("no failure");
        let connection = connection.expect("a connection");
        let control = Control::accept(&connection, PATIENCE).expect("a probe");
        Responder {
            control: control.expect("in time"),
            port,
        }
    });
    let connection = connect(&to.to_string(), &keys, "", &options).expect("connection");
    let prober = Control::open(&connection, PATIENCE).expect("control");
    (prober, responder)
}

/// Runs a responder for one prober.
pub(crate) fn answering(
    responder: JoinHandle<Responder>,
) -> JoinHandle<Result<ResponderSummary, Error>> {
    thread::spawn(move || {
        let Responder { control, port } = responder.join().expect("no panic");
        answer(control, &port, &|| false)
    })
}
