//! Answers HTTP requests with one page, such as the counters of a program.
//!
//! [`PageServer`] listens at a TCP address or at a Unix socket. One thread serves all connections. Each
//! connection gets one answer: to GET and HEAD the page, whatever the path in the request is. Clients
//! are strangers, so everything that they can cost is limited ([`Limits`], [`MAX_HEAD_BYTES`]): bytes
//! of a request, time and number of connections, and requests in a second. The header fields of a
//! request are not interpreted, and its body is not read. So a client can ask for no memory.
//!
//! [`Exchange`] is the protocol without sockets.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use farwrite_http::{Limits, Page, PageServer};
//!
//! # let directory = tempfile::tempdir()?;
//! let path = directory.path().join("page");
//! let page = || Page { content_type: "text/plain", text: "hello\n".to_owned() };
//! let address = format!("unix:{}", path.display()).parse()?;
//! let server = PageServer::start(&address, "page", Limits::default(), page)?;
//!
//! let mut client = std::os::unix::net::UnixStream::connect(&path)?;
//! client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod exchange;
mod listener;
mod page_server;

pub use address::{Address, AddressError};
pub use exchange::{Exchange, MAX_HEAD_BYTES, Page, Wants};
pub use page_server::{Limits, PageServer};
