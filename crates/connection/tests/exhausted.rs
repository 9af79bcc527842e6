//! A listener whose program runs out of file descriptors goes on when some are free again. The limit applies to the
//! whole process, so this test has its own process.

use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

use farwrite_connection::{ConnectionOptions, Connector, Keys, Listener};
use farwrite_keys::Psk;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn too_many_open_files_pass() {
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let options = ConnectionOptions::default();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(loopback, &keys, &options).expect("a port");
    let connector = Connector::bind(&options).expect("a port");
    let connect = || connector.connect_any(&[listener.local_addr()], &keys, "");
    let limits = getrlimit(Resource::Nofile);
    let current = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current, ..limits }).expect("a lower limit");
    let hoard: Vec<_> = (0..).map_while(|_| File::open("/dev/null").ok()).collect();
    // A connection needs a descriptor for a moment: its end asks for the route to the peer.
    let error = connect().map(drop).expect_err("no descriptor is left");
    let text = error.to_string();
    assert!(text.contains("Too many open files"), "{text}");
    drop(hoard);
    let near = connect().expect("connected");
    let far = listener.accept(LONG).expect("no failure");
    near.close();
    let ended = far.expect("a connection").wait_ended(LONG);
    assert!(ended.expect("it runs").is_some());
}
