//! The socket that a server listens at.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::Address;

/// The most connections that the kernel keeps until they are accepted. A client beyond them waits for
/// a second, and then tries again.
const WAITING: i32 = 1024;

/// A listening socket. Its file, if it has one, is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    /// The port, if it is a TCP socket.
    pub(crate) local: Option<SocketAddr>,
    _file: Option<SocketFile>,
}

impl Listener {
    pub(crate) fn bind(address: &Address) -> Result<Self> {
        let (socket, local, file) = match address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let local = listener.local_addr()?;
                (OwnedFd::from(listener), Some(local), None)
            }
            Address::Unix(path) => {
                let listener = bind_unix(path)?;
                let file = SocketFile::new(path)?;
                (OwnedFd::from(listener), None, Some(file))
            }
        };
        rustix::net::listen(&socket, WAITING)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket,
            local,
            _file: file,
        })
    }

    /// The next connection that waits; `None` if none waits, or if the system has no room for it.
    pub(crate) fn accept(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            match rustix::net::accept_with(&self.socket, flags) {
                // A client that has already left (accept(2)).
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                accepted => return accepted.ok(),
            }
        }
    }
}

/// Binds a Unix socket. Who may connect is decided by the umask: connecting needs the permission to
/// write to the file (unix(7)). A socket that an earlier process of this user has left is removed.
fn bind_unix(path: &Path) -> Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            remove_stale(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

fn remove_stale(path: &Path) -> Result<()> {
    let there = fs::symlink_metadata(path)?;
    let refuse = |kind, what: &str| Err(Error::new(kind, what));
    if !there.file_type().is_socket() {
        return refuse(
            ErrorKind::AlreadyExists,
            "a file has this name, which is no socket",
        );
    }
    if there.uid() != rustix::process::geteuid().as_raw() {
        return refuse(ErrorKind::AlreadyExists, "another user has a socket there");
    }
    // Without waiting: a program that is stopped accepts nothing.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        _ => refuse(ErrorKind::AddrInUse, "another program listens there"),
    }
}

/// The file of a Unix socket.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> Result<Self> {
        Ok(Self {
            path: std::path::absolute(path)?,
            id: id(path)?,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another program may have put its own socket there.
        if id(&self.path).is_ok_and(|id| id == self.id) {
            // A socket that stays is removed by the next process that listens there.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of a file.
fn id(path: &Path) -> Result<(u64, u64)> {
    let there = fs::symlink_metadata(path)?;
    Ok((there.dev(), there.ino()))
}
