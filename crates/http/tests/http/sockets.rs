//! Unix sockets, and how a server begins and ends.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use farwrite_http::{Address, Limits, Page, PageServer};

use crate::{all, get, is_page, page, start};

fn at(path: &Path) -> std::io::Result<PageServer> {
    PageServer::start(&Address::Unix(path.into()), "unix", Limits::default(), page)
}

fn answer(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    all(stream)
}

#[test]
fn a_unix_socket_is_made_and_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("page");
    let server = at(&path).expect("it listens");
    assert!(is_page(&answer(&path)));
    let mode = fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o002, 0, "others cannot connect: {mode:o}");
    let error = at(&path).expect_err("it is taken");
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    assert!(is_page(&answer(&path)), "the first one goes on");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn only_a_stale_socket_is_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("page");
    // The standard library leaves the file, like a process that is killed.
    drop(UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists());
    let server = at(&path).expect("it listens");
    assert!(is_page(&answer(&path)));
    // The socket of another program stays.
    fs::remove_file(&path).expect("it is there");
    let other = UnixListener::bind(&path).expect("a socket");
    drop(server);
    assert!(path.exists());
    drop(other);
    fs::remove_file(&path).expect("it is there");
    fs::write(&path, "a file").expect("written");
    let error = at(&path).expect_err("it is no socket");
    assert!(error.to_string().contains("no socket"), "{error}");
    assert_eq!(fs::read(&path).expect("it is there"), b"a file");
}

#[test]
fn a_dropped_server_frees_its_port() {
    let (server, address) = start("dropped", Limits::default());
    let open = TcpStream::connect(address).expect("it listens");
    assert!(is_page(&get(address)));
    drop(server);
    assert_eq!(all(open), "");
    assert!(TcpStream::connect(address).is_err());
    let address = Address::Tcp(address);
    PageServer::start(&address, "again", Limits::default(), page).expect("the port is free");
}

#[test]
fn a_page_that_panics_ends_only_its_server() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let broken = || -> Page { panic!("this is part of the test") };
    let server = PageServer::start(&address, "broken", Limits::default(), broken);
    let server = server.expect("it listens");
    let address = server.local_addr().expect("a port");
    assert_eq!(get(address), "");
    // The connection ends before the listener.
    while TcpStream::connect(address).is_ok() {
        thread::yield_now();
    }
}
