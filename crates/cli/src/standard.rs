//! The standard input and output as streams of bytes.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, dup};

use crate::exit::{Exit, Failure, OrExit};

/// Waits where the stream returns [`ErrorKind::WouldBlock`]. A program that shares the stream, such as rsync or ssh, may
/// make it non-blocking at any time. This program does not undo that, because the other program relies on it.
pub(crate) struct Blocking<T>(pub(crate) T);

impl<T: AsFd> Blocking<T> {
    fn retry<R>(
        &mut self,
        ready: PollFlags,
        mut call: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match call(&mut self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                ended => return ended,
            }
            match poll(&mut [PollFd::new(&self.0, ready)], None) {
                // If the stream has failed, the call returns why.
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<T: AsFd + Read> Read for Blocking<T> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.retry(PollFlags::IN, |stream| stream.read(room))
    }
}

impl<T: AsFd + Write> Write for Blocking<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(PollFlags::OUT, |stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.retry(PollFlags::OUT, T::flush)
    }
}

/// Waits until a stream is ready, but not longer than `limit`. A signal can end the wait earlier. Returns whether the
/// stream is ready.
pub(crate) fn is_ready(
    stream: impl AsFd,
    ready: PollFlags,
    limit: Duration,
) -> Result<bool, Errno> {
    let limit = Timespec::try_from(limit).ok();
    match poll(&mut [PollFd::new(&stream, ready)], limit.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The standard input, without the buffer of `Stdin`.
pub(crate) fn own_input() -> Result<Blocking<File>, Failure> {
    let input = dup(io::stdin()).or_exit(Exit::Other, "taking the standard input")?;
    Ok(Blocking(input.into()))
}

/// The standard output, without the buffer of `Stdout`, which looks for line ends.
pub(crate) fn own_output() -> Result<Blocking<File>, Failure> {
    let output = dup(io::stdout()).or_exit(Exit::Other, "taking the standard output")?;
    Ok(Blocking(output.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    #[test]
    fn a_non_blocking_stream_carries_all_bytes() {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        for end in [&near, &far] {
            end.set_nonblocking(true).expect("non-blocking");
        }
        // More than the socket holds, so that both ends wait.
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_be_bytes()[2]).collect();
        let of_thread = bytes.clone();
        let writing = thread::spawn(move || Blocking(far).write_all(&of_thread));
        let mut came = Vec::new();
        let read = Blocking(near).read_to_end(&mut came);
        read.expect("it waits");
        writing.join().expect("no panic").expect("it waits");
        assert!(came == bytes, "{} bytes came", came.len());
    }

    #[test]
    fn a_reader_that_leaves_ends_the_wait() {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        far.set_nonblocking(true).expect("non-blocking");
        let writing = thread::spawn(move || Blocking(far).write_all(&vec![0; 3_000_000]));
        (&near).read_exact(&mut [0; 1]).expect("a byte");
        drop(near);
        let ended = writing.join().expect("no panic").expect_err("nobody reads");
        let kinds = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert!(kinds.contains(&ended.kind()), "{ended}");
    }
}
