//! A stream without I/O: both halves on one queue pair.

use farwrite::{Endpoint, Fabric, QpOptions, QueuePair};

use crate::options::StreamOptions;
use crate::receiver::StreamReceiver;
use crate::sender::StreamSender;

/// A byte stream on a queue pair, for programs that poll their endpoint themselves. It has no clock
/// and no thread.
///
/// ```
/// use farwrite::{Endpoint, QpOptions, UdpConfig};
/// use farwrite_stream::{ByteStream, StreamOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut a = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
/// let mut b = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
/// let options = StreamOptions::default();
/// let queue_pair = options.queue_pair(&QpOptions::default());
/// let (qa, qb) = (a.create_qp(queue_pair.clone())?, b.create_qp(queue_pair.clone())?);
/// let (info_a, info_b) = (a.qp_info(qa)?, b.qp_info(qb)?);
/// a.connect_qp(qa, &info_b)?;
/// b.connect_qp(qb, &info_a)?;
///
/// let mut to_b = ByteStream::new(qa, &options, &queue_pair);
/// let mut to_a = ByteStream::new(qb, &options, &queue_pair);
/// assert_eq!(to_b.sender.write(b"hello")?, 5);
/// to_b.sender.finish();
/// let (mut heard, mut piece) = (Vec::new(), [0; 64]);
/// loop {
///     to_b.progress(&mut a);
///     a.poll_now()?;
///     b.poll_now()?;
///     to_a.progress(&mut b);
///     match to_a.receiver.read(&mut piece)? {
///         Some(0) => break,
///         Some(length) => heard.extend_from_slice(&piece[..length]),
///         None => {}
///     }
/// }
/// assert_eq!(heard, b"hello");
/// # Ok(())
/// # }
/// ```
pub struct ByteStream {
    /// What this end writes.
    pub sender: StreamSender,
    /// What this end reads.
    pub receiver: StreamReceiver,
}

impl ByteStream {
    /// Creates the stream on a queue pair with these options ([`StreamOptions::queue_pair`]), which
    /// carries nothing else. The queue pair may be connected later.
    #[must_use]
    pub fn new(qp: QueuePair, options: &StreamOptions, queue_pair: &QpOptions) -> Self {
        Self {
            sender: StreamSender::new(qp, options, queue_pair),
            receiver: StreamReceiver::new(qp, options),
        }
    }

    /// Moves bytes between the stream and the endpoint. Call it after each poll, and poll again at
    /// once if it returns true: something has changed, and the endpoint may have work.
    pub fn progress<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> bool {
        progress(&mut self.sender, &mut self.receiver, endpoint)
    }

    /// Reads no more, and asks the peer to send no more. The peer's writes fail with
    /// [`Error::Stopped`](crate::Error::Stopped). A second call does nothing.
    pub fn stop(&mut self, code: u32) {
        stop(&mut self.sender, &mut self.receiver, code);
    }

    /// Gives back the memory that the stream has registered, after its queue pair was destroyed. Returns
    /// how many regions the fabric still uses: call this again after a poll until it returns 0.
    pub fn release<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> usize {
        release(&mut self.sender, &mut self.receiver, endpoint)
    }

    /// Returns whether both directions have ended, so that the queue pair can be destroyed. Wait a
    /// few seconds first: the peer may not know yet that its messages have arrived.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.sender.is_over() && self.receiver.is_over()
    }
}

/// As [`ByteStream::progress`].
pub(crate) fn progress<F: Fabric>(
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
    endpoint: &mut Endpoint<F>,
) -> bool {
    let received = receiver.progress(endpoint);
    if let Some(code) = received.stop {
        sender.take_stop(code);
    }
    if let Some(error) = &received.failed {
        sender.take_failure(error);
    }
    let sent = sender.progress(endpoint);
    received.changed || sent
}

/// As [`ByteStream::release`].
pub(crate) fn release<F: Fabric>(
    sender: &mut StreamSender,
    receiver: &mut StreamReceiver,
    endpoint: &mut Endpoint<F>,
) -> usize {
    sender.release(endpoint) + receiver.release(endpoint)
}

/// As [`ByteStream::stop`].
pub(crate) fn stop(sender: &mut StreamSender, receiver: &mut StreamReceiver, code: u32) {
    if receiver.stop() {
        sender.stop_peer(code);
    }
}
