//! A program without a free file descriptor accepts connections: they share the socket of their listener. The limit
//! applies to the whole process, so this test has its own process.

use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

use farwrite_connection::{ConnectionOptions, Connector, Keys, Listener};
use farwrite_keys::Psk;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn connections_take_no_descriptor() {
    let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
    let options = ConnectionOptions::default();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(loopback, &keys, &options).expect("a port");
    let connector = Connector::bind(&options).expect("a port");
    let limits = getrlimit(Resource::Nofile);
    let current = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current, ..limits }).expect("a lower limit");
    let hoard: Vec<_> = (0..).map_while(|_| File::open("/dev/null").ok()).collect();
    File::open("/dev/null").expect_err("no descriptor is left");
    for _ in 0..3 {
        let near = connector.connect_any(&[listener.local_addr()], &keys, "");
        let near = near.expect("connected");
        let far = listener.accept(LONG).expect("no failure");
        let far = far.expect("a connection");
        near.close();
        assert!(far.wait_ended(LONG).expect("it runs").is_some());
    }
    drop(hoard);
}
