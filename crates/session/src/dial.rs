//! Finding a peer.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::Error;

/// Pause between two attempts to reach a peer that does not listen yet.
const REDIAL: Duration = Duration::from_millis(100);

/// Opens a connection. While all addresses refuse, nobody listens there yet: it tries again until
/// `patience` is over, so that either end may be started first. (Finding the address of a host name
/// takes the time that the operating system takes.)
///
/// # Errors
/// [`Error::Resolve`], [`Error::Connect`].
pub fn dial(to: impl ToSocketAddrs, patience: Duration) -> Result<TcpStream, Error> {
    let deadline = Instant::now() + patience;
    let addrs: Vec<SocketAddr> = to.to_socket_addrs().map_err(Error::Resolve)?.collect();
    let nowhere = std::io::Error::new(ErrorKind::NotFound, "the name has no addresses");
    let mut failed = Error::Resolve(nowhere);
    loop {
        let mut refused = false;
        for (tried, &addr) in addrs.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addrs.len() - tried).unwrap_or(u32::MAX);
            match attempt(addr, share.max(Duration::from_millis(1))) {
                Ok(stream) => return Ok(stream),
                Err(source) => {
                    refused |= source.kind() == ErrorKind::ConnectionRefused;
                    failed = Error::Connect { addr, source };
                }
            }
        }
        if !refused || Instant::now() + REDIAL >= deadline {
            return Err(failed);
        }
        std::thread::sleep(REDIAL);
    }
}

fn attempt(addr: SocketAddr, timeout: Duration) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&addr, timeout)?;
    // A port of this machine that nobody listens on can be given to the caller: it then meets itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}
