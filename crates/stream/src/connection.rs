//! Streams over a connection: one end opens them by name, and the other accepts them.

use std::time::Duration;

use farwrite::QpOptions;
use farwrite_connection::{Connection, OpenedQueuePair};

use crate::error::Error;
use crate::options::StreamOptions;
use crate::stream::Stream;

/// Opens and accepts streams over a connection. A stream is a queue pair of the connection
/// ([`Connection::open_queue_pair`]).
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::{Ipv4Addr, Shutdown, SocketAddr};
/// use std::time::Duration;
/// use farwrite_connection::{ConnectionOptions, Keys, Listener, connect};
/// use farwrite_keys::Psk;
/// use farwrite_stream::{ConnectionExt, StreamOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (options, limit) = (StreamOptions::default(), Duration::from_secs(10));
/// let keys = Keys::of_psk(&Psk::generate()?);
/// let port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
/// let listener = Listener::bind(port, &keys, &ConnectionOptions::default())?;
/// let addr = listener.local_addr().to_string();
/// // The other machine.
/// let remote = std::thread::spawn(move || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///     let connection = listener.accept(limit)?.ok_or("nobody connects")?;
///     let (_name, mut stream) = connection.accept_stream(None, &options, limit)?.ok_or("no stream")?;
///     stream.write_all(b"hello")?;
///     Ok(stream.wait_delivered()?)
/// });
/// let connection = connect(&addr, &keys, "the other machine", &ConnectionOptions::default())?;
/// let mut stream = connection.open_stream("greeting", &options, limit)?;
/// stream.end(Shutdown::Write);
/// let mut heard = String::new();
/// stream.read_to_string(&mut heard)?;
/// assert_eq!(heard, "hello");
/// # remote.join().expect("no panic").map_err(|error| error.to_string())?;
/// # Ok(())
/// # }
/// ```
pub trait ConnectionExt {
    /// Opens a stream that the peer accepts. The name says to the peer what the stream is for; names
    /// may repeat. Both ends must give the same `message_bytes` and `messages`. Waits at most `limit`
    /// for the peer to accept it, and for a place if it has too many queue pairs
    /// ([`ConnectionOptions::max_queue_pairs`](farwrite_connection::ConnectionOptions::max_queue_pairs)).
    /// A stream takes a place until both directions have ended and its user has dropped it.
    ///
    /// # Errors
    /// [`Error::Options`], and [`Error::Connection`] with the errors of
    /// [`Connection::open_queue_pair`].
    fn open_stream(
        &self,
        name: &str,
        options: &StreamOptions,
        limit: Duration,
    ) -> Result<Stream, Error>;

    /// Accepts the next stream that the peer opens by `name`, or by any name, if `None`, and returns
    /// it with its name. Waits at most `limit`, and returns `None` after that. If the peer also opens
    /// queue pairs that are not streams, accept by name: each request is taken once.
    ///
    /// # Errors
    /// [`Error::Options`], and [`Error::Connection`] with the errors of
    /// [`Connection::accept_queue_pair`].
    fn accept_stream(
        &self,
        name: Option<&str>,
        options: &StreamOptions,
        limit: Duration,
    ) -> Result<Option<(String, Stream)>, Error>;
}

impl ConnectionExt for Connection {
    fn open_stream(
        &self,
        name: &str,
        options: &StreamOptions,
        limit: Duration,
    ) -> Result<Stream, Error> {
        options.check()?;
        let queue_pair = queue_pair(self.mtu(), options);
        let pair = self.open_queue_pair(name, queue_pair.clone(), limit)?;
        over(pair, options, &queue_pair)
    }

    fn accept_stream(
        &self,
        name: Option<&str>,
        options: &StreamOptions,
        limit: Duration,
    ) -> Result<Option<(String, Stream)>, Error> {
        options.check()?;
        let of_stream = *options;
        let made = move |mtu| queue_pair(mtu, &of_stream);
        let Some(pair) = self.accept_queue_pair_with(name, made, limit)? else {
            return Ok(None);
        };
        let name = pair.name().to_owned();
        let queue_pair = queue_pair(self.mtu(), options);
        Ok(Some((name, over(pair, options, &queue_pair)?)))
    }
}

/// Options of the queue pair of a stream. Packets are as large as the path carries.
fn queue_pair(mtu: u32, options: &StreamOptions) -> QpOptions {
    let mut base = QpOptions::default();
    base.sdr.mtu = mtu;
    options.queue_pair(&base)
}

/// Makes a stream of an opened queue pair.
fn over(
    pair: OpenedQueuePair,
    options: &StreamOptions,
    queue_pair: &QpOptions,
) -> Result<Stream, Error> {
    let connection = pair.connection().clone();
    let qp = pair.queue_pair();
    let waker = connection.thread().waker_of(qp);
    let (stream, mut task) = Stream::on_queue_pair(waker, qp, options, queue_pair);
    pair.set_user(task.cutover())?;
    let mut is_retired = false;
    let run = move |endpoint: &mut _| {
        // The task holds the queue pair, which keeps the connection open until the stream is over.
        if let Some(ended) = pair.connection().ended() {
            task.fail(endpoint, &Error::ConnectionEnded(ended));
        }
        let state = task.run(endpoint);
        if task.is_retired && !std::mem::replace(&mut is_retired, true) {
            // The stream is over: another one may take its place.
            pair.retire();
        }
        state
    };
    connection.thread().add_task_of(qp, run)?;
    Ok(stream)
}
