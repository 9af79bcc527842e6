//! A stream for threads: `Read` and `Write`.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use farwrite::{Endpoint, QpOptions, QpWaker, QueuePair, RealTime};
use std::task::Waker;

use crate::error::Error;
use crate::options::StreamOptions;
use crate::receiver::StreamReceiver;
use crate::sender::StreamSender;
use crate::shared::{HalfState, Shared};
use crate::task::StreamTask;

/// Bytes that are copied at a time. The endpoint's thread waits for that long at most.
const COPY_BYTES: usize = 64 * 1024;

/// A byte stream in both directions, for threads.
///
/// [`Stream::split`] gives a half to each of two threads. Dropping a half ends it: the peer reads
/// the end of the stream after what was written, and its writes fail once nobody reads them. What
/// was written still leaves, as long as the endpoint's thread runs: call
/// [`Stream::wait_delivered`] before the program ends.
///
/// A thread that reads or writes again and again may poll the endpoint itself, and so run tasks of the endpoint, calls of
/// other threads and wakers. So it should hold no lock that these take.
///
/// ```
/// use std::io::{Read, Write};
/// use farwrite::{Endpoint, QpOptions, UdpConfig};
/// use farwrite_stream::{Stream, StreamOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Two ends in one process. `connect` and `listen` do this between machines.
/// let (options, base) = (StreamOptions::default(), QpOptions::default());
/// let mut a = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
/// let mut b = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
/// let (mut to_b, mut task_a) = Stream::create(&mut a, &options, &base)?;
/// let (mut to_a, mut task_b) = Stream::create(&mut b, &options, &base)?;
/// let (info_a, info_b) = (a.qp_info(task_a.queue_pair())?, b.qp_info(task_b.queue_pair())?);
/// a.connect_qp(task_a.queue_pair(), &info_b)?;
/// b.connect_qp(task_b.queue_pair(), &info_a)?;
/// let (a, b) = (a.start_thread()?, b.start_thread()?);
/// a.add_task_of(task_a.queue_pair(), move |a| task_a.run(a))?;
/// b.add_task_of(task_b.queue_pair(), move |b| task_b.run(b))?;
///
/// to_b.write_all(b"hello")?;
/// to_b.end(std::net::Shutdown::Write);
/// let mut heard = String::new();
/// to_a.read_to_string(&mut heard)?;
/// assert_eq!(heard, "hello");
/// # Ok(())
/// # }
/// ```
pub struct Stream {
    pub(crate) reader: ReadHalf,
    pub(crate) writer: WriteHalf,
}

/// The half of a [`Stream`] that reads.
#[derive(Debug)]
pub struct ReadHalf {
    pub(crate) shared: Arc<Shared>,
    timeout: Option<Duration>,
}

/// The half of a [`Stream`] that writes.
#[derive(Debug)]
pub struct WriteHalf {
    pub(crate) shared: Arc<Shared>,
    timeout: Option<Duration>,
}

/// Ends a [`Stream`] from any thread, and tells programs that poll when it is ready.
#[derive(Clone)]
pub struct StreamControl(Arc<Shared>);

impl StreamControl {
    /// Ends both directions, as dropping both halves does: what was written still leaves. Calls on the stream
    /// that wait fail with [`Error::Closed`] or [`Error::NotReading`].
    pub fn close(&self) {
        self.0.close();
    }

    /// As [`Stream::reset`]. Calls on the stream that wait fail with [`Error::Finished`] or
    /// [`Error::NotReading`].
    pub fn reset(&self, code: u32) {
        self.0.reset(code);
        self.0.stop(code);
    }

    /// A descriptor that is readable while a read would not wait. Wait for it with `poll` or `epoll`, and do not
    /// read it. It stays open as long as the caller holds it.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the process has too many open files.
    pub fn read_descriptor(&self) -> Result<Arc<OwnedFd>, Error> {
        self.0.receiver.descriptor()
    }

    /// As [`StreamControl::read_descriptor`], for writes. After [`WriteHalf::finish`], it is readable while
    /// [`WriteHalf::wait_delivered`] would not wait.
    ///
    /// # Errors
    /// Those of [`StreamControl::read_descriptor`].
    pub fn write_descriptor(&self) -> Result<Arc<OwnedFd>, Error> {
        self.0.sender.descriptor()
    }

    /// As [`Stream::queue_pair`].
    #[must_use]
    pub fn queue_pair(&self) -> QueuePair {
        self.0.queue_pair()
    }

    /// The code with which the peer has given its direction up, or reads no more; `None` if it has done neither.
    #[must_use]
    pub fn peer_code(&self) -> Option<u32> {
        let receiver = self.0.receiver.lock();
        let sender = self.0.sender.lock();
        match (receiver.half.error(), sender.half.error()) {
            (Some(Error::Reset(code)), _) | (_, Some(Error::Stopped(code))) => Some(*code),
            _ => None,
        }
    }
}

impl Stream {
    /// Creates a queue pair with a stream on it. The caller connects the queue pair
    /// ([`StreamTask::queue_pair`]), and has the task run
    /// ([`ProgressThread::add_task_of`](farwrite::ProgressThread::add_task_of)).
    ///
    /// # Errors
    /// Options that are out of range, and the errors of [`Endpoint::create_qp`].
    pub fn create<F: RealTime>(
        endpoint: &mut Endpoint<F>,
        options: &StreamOptions,
        base: &QpOptions,
    ) -> Result<(Self, StreamTask), Error> {
        options.check()?;
        let queue_pair = options.queue_pair(base);
        let qp = endpoint.create_qp(queue_pair.clone())?;
        let waker = endpoint.waker_of(qp);
        Ok(Self::on_queue_pair(waker, qp, options, &queue_pair))
    }

    /// Creates the stream on a queue pair that has the options `queue_pair`
    /// ([`StreamOptions::queue_pair`]), and carries nothing else. `waker` makes the endpoint's thread
    /// run the task.
    #[must_use]
    pub fn on_queue_pair(
        waker: QpWaker,
        qp: QueuePair,
        options: &StreamOptions,
        queue_pair: &QpOptions,
    ) -> (Self, StreamTask) {
        let sender = StreamSender::new(qp, options, queue_pair);
        let receiver = StreamReceiver::new(qp, options);
        let shared = Arc::new(Shared::new(sender, receiver, waker));
        let stream = Self {
            reader: ReadHalf {
                shared: Arc::clone(&shared),
                timeout: None,
            },
            writer: WriteHalf {
                shared: Arc::clone(&shared),
                timeout: None,
            },
        };
        (stream, StreamTask::new(shared))
    }

    /// Returns the queue pair of the stream, for its statistics ([`Endpoint::qp_stats`]). A stream of a connection
    /// goes on over another one when the path comes to carry only smaller packets.
    #[must_use]
    pub fn queue_pair(&self) -> QueuePair {
        self.reader.shared.queue_pair()
    }

    /// Returns what ends the stream while other threads use its halves.
    #[must_use]
    pub fn control(&self) -> StreamControl {
        StreamControl(Arc::clone(&self.reader.shared))
    }

    /// Separates the halves, for two threads.
    #[must_use]
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.reader, self.writer)
    }

    /// Sets the longest time that a read may take. `None`, the default: no limit.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.reader.set_timeout(timeout);
    }

    /// Sets the longest time that a write may take. `None`, the default: no limit.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.writer.set_timeout(timeout);
    }

    /// Ends one direction or both, as the methods of the halves do: [`WriteHalf::finish`],
    /// [`ReadHalf::stop`] with code 0. (The name `shutdown` is left to `AsyncWriteExt` of tokio.)
    pub fn end(&self, which: Shutdown) {
        if which != Shutdown::Read {
            self.writer.finish();
        }
        if which != Shutdown::Write {
            self.reader.stop(0);
        }
    }

    /// Gives up both directions with a code: [`WriteHalf::reset`] and [`ReadHalf::stop`].
    pub fn reset(&self, code: u32) {
        self.writer.reset(code);
        self.reader.stop(code);
    }

    /// As [`WriteHalf::wait_delivered`].
    ///
    /// # Errors
    /// Those of [`WriteHalf::wait_delivered`].
    pub fn wait_delivered(&self) -> Result<(), Error> {
        self.writer.wait_delivered()
    }
}

impl ReadHalf {
    /// Sets the longest time that a read may take. `None`, the default: no limit. A read that takes
    /// longer fails with [`io::ErrorKind::TimedOut`], and the stream goes on.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Whether a read would not wait. If it would, `waker` is woken once, at the latest when it would not. For a
    /// thread that waits for other things too.
    #[must_use]
    pub fn is_ready(&self, waker: &Waker) -> bool {
        self.shared.receiver.is_ready(waker)
    }

    /// Reads no more, and asks the peer to send no more: its writes fail with [`Error::Stopped`].
    pub fn stop(&self, code: u32) {
        self.shared.stop(code);
    }

    /// Takes what has arrived, if there is something.
    pub(crate) fn take(receiver: &mut StreamReceiver, out: &mut [u8]) -> Option<io::Result<usize>> {
        let length = out.len().min(COPY_BYTES);
        receiver
            .read(&mut out[..length])
            .map_err(io::Error::from)
            .transpose()
    }
}

impl WriteHalf {
    /// Sets the longest time that a write may take. `None`, the default: no limit. A write that
    /// finds no room for that long fails with [`io::ErrorKind::TimedOut`], and the stream goes on.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Ends the direction: the peer reads the end of the stream after what was written. Does not
    /// wait.
    pub fn finish(&self) {
        self.shared.finish();
    }

    /// Gives up the direction: the peer's reads fail with [`Error::Reset`]. What has not left is
    /// dropped.
    pub fn reset(&self, code: u32) {
        self.shared.reset(code);
    }

    /// Waits until the peer's endpoint has everything that was written, and the end of the
    /// direction if it has ended. The peer's program may not have read it. The time limit of writes
    /// holds.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and the error that ended the direction.
    pub fn wait_delivered(&self) -> Result<(), Error> {
        self.wait(|sender| Self::delivered(&mut sender.half))?
    }

    /// Ends the direction, and waits until the peer has everything, has ended its direction, and
    /// knows that this end has everything. Call it before a program ends, if the peer waits for
    /// what it has written. It takes half a second and four round trips longer than
    /// [`WriteHalf::wait_delivered`]. The time limit of writes holds.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and the error that ended the direction.
    pub fn close(self) -> Result<(), Error> {
        self.finish();
        self.wait_delivered()?;
        self.wait(|sender| match sender.half.error() {
            // The peer has ended the connection after that.
            Some(_) if sender.half.had_delivered => Some(Ok(())),
            Some(error) => Some(Err(error.clone())),
            None => sender.is_settled.then_some(Ok(())),
        })?
    }

    /// As [`Half::wait`](crate::shared::Half::wait), within the time limit of writes.
    fn wait<R>(
        &self,
        ready: impl FnMut(&mut HalfState<StreamSender>) -> Option<R>,
    ) -> Result<R, Error> {
        let Shared { sender, waker, .. } = &*self.shared;
        sender.wait(waker, self.timeout, ready)
    }

    /// Whether the peer has everything; `None` while it is not known.
    pub(crate) fn delivered(sender: &mut StreamSender) -> Option<Result<(), Error>> {
        match sender.error() {
            Some(_) if sender.had_delivered => Some(Ok(())),
            Some(error) => Some(Err(error.clone())),
            None => sender.is_delivered().then_some(Ok(())),
        }
    }

    /// Writes as much as there is room for, if there is some.
    pub(crate) fn give(sender: &mut StreamSender, bytes: &[u8]) -> Option<io::Result<usize>> {
        let length = bytes.len().min(COPY_BYTES);
        match sender.write(&bytes[..length]) {
            Ok(0) if length > 0 => None,
            written => Some(written.map_err(io::Error::from)),
        }
    }
}

impl Read for ReadHalf {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Shared {
            receiver, waker, ..
        } = &*self.shared;
        let (read, is_short) = receiver.wait(waker, self.timeout, |receiver| {
            let read = Self::take(&mut receiver.half, out)?;
            Some((read, receiver.half.is_short()))
        })?;
        let read = read?;
        // Buffers may be free again.
        if is_short {
            self.shared.waker.wake_or_poll();
        }
        Ok(read)
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.wait(|sender| Self::give(&mut sender.half, bytes))??;
        self.shared.waker.wake_or_poll();
        Ok(written)
    }

    /// Does nothing: what was written leaves without it. [`WriteHalf::wait_delivered`] waits.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.reader.read(out)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    /// Does nothing: what was written leaves without it. [`Stream::wait_delivered`] waits.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ReadHalf {
    fn drop(&mut self) {
        self.shared.receiver.lock().is_dropped = true;
        self.stop(0);
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.shared.sender.lock().is_dropped = true;
        self.finish();
    }
}
