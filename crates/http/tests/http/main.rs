//! Tests of the server over sockets.

mod attacks;
mod sockets;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use farwrite_http::{Limits, Page, PageServer};

/// A server on a free port of the loopback interface.
fn start(name: &str, limits: Limits) -> (PageServer, SocketAddr) {
    let address = "127.0.0.1:0".parse().expect("an address");
    let server = PageServer::start(&address, name, limits, page).expect("it listens");
    let local = server.local_addr().expect("a port");
    (server, local)
}

fn page() -> Page {
    Page {
        content_type: "text/plain",
        text: "count 7\n".to_owned(),
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    let time = Some(Duration::from_secs(20));
    stream.set_read_timeout(time).expect("a time");
    stream
}

/// Everything that the server sends. A connection that is reset ends too.
fn all(mut stream: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).expect("text")
}

/// The answer to an ordinary request.
fn get(address: SocketAddr) -> String {
    let mut stream = connect(address);
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).expect("a request");
    all(stream)
}

/// Whether this is the page.
fn is_page(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\ncount 7\n")
}
