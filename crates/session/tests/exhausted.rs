//! A receiver that runs out of file descriptors continues when some are free again. The limit
//! applies to the whole process, so this test has its own process.

mod common;

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use common::PATIENT;
use farwrite_session::{Channel, Listener, Psk, Refusal};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn too_many_open_files_pass() {
    let psk = Psk::generate().expect("key");
    let mut listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("loopback");
    let addr = listener.local_addr();
    let limits = getrlimit(Resource::Nofile);
    let current = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current, ..limits }).expect("a lower limit");
    let mut hoard: Vec<_> = (0..).map_while(|_| File::open("/dev/null").ok()).collect();
    // One descriptor is free for the peer's socket, and none for the other end of the connection.
    hoard.pop();
    let peer = TcpStream::connect(addr).expect("the operating system's queue takes it");
    File::open("/dev/null").expect_err("no descriptor is left");

    let (report, reports) = channel();
    let start = Instant::now();
    thread::scope(|scope| {
        let accepts = scope.spawn(|| {
            listener.accept(&psk, PATIENT, Some(PATIENT), |refusal| {
                let _ = report.send(match refusal {
                    Refusal::Accept(source) => Errno::from_io_error(source),
                    Refusal::Peer { .. } => panic!("{refusal}"),
                });
            })
        });
        let errno = reports.recv_timeout(PATIENT).expect("it is reported");
        assert_eq!(errno, Some(Errno::MFILE));
        drop(hoard);
        Channel::initiate(peer, &psk, PATIENT).expect("the peer gets in");
        accepts.join().expect("no panic").expect("it goes on");
    });
    assert!(start.elapsed() < PATIENT);
    assert!(reports.try_recv().is_err(), "it is reported once");
}
