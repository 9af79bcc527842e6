//! Streams: sends without a scheme, whose user decides what is sent, and writes into their windows.

use farwrite_fabric::contract::Fabric;

use super::Endpoint;
use crate::error::Error;
use crate::handle::{QueuePair, SendHandle};
use crate::memory::MrSlice;
use crate::writes::WriteHandle;

impl<F: Fabric> Endpoint<F> {
    /// Starts a streaming send (paper section 3.1.2): a message without a scheme.
    /// [`Endpoint::send_chunks`] adds its chunks in any order, and can send a chunk several times.
    ///
    /// # Errors
    /// The same as for [`Endpoint::post_send`].
    pub fn start_stream(
        &mut self,
        qp: QueuePair,
        immediate: Option<u32>,
    ) -> Result<SendHandle, Error> {
        let pair = self.queue_pairs.get_mut(qp)?;
        let started = pair.start_stream(immediate)?;
        self.schedule.wake(qp.index);
        Ok(started)
    }

    /// Sends `source` as chunks of a stream, starting at `first_chunk`. Chunks may be sent again,
    /// even after the stream has ended. Only the last chunk of the message may be short.
    ///
    /// # Errors
    /// [`Error::NoSuchMessage`], [`Error::Stream`], [`Error::OutOfBounds`], [`Error::TooLong`],
    /// [`Error::Fabric`] for a region that is not registered here.
    pub fn send_chunks(
        &mut self,
        stream: &SendHandle,
        source: MrSlice,
        first_chunk: u32,
    ) -> Result<(), Error> {
        self.fabric.region(source.region.lkey)?;
        let pair = self.queue_pairs.get_mut(stream.pair)?;
        pair.continue_stream(stream.message, source, first_chunk)?;
        let lkey = source.region.lkey;
        self.region_users.note(lkey, stream.pair.index);
        self.schedule.wake(stream.pair.index);
        Ok(())
    }

    /// Ends a stream and sets the length of its message: the message ends where its furthest run of
    /// chunks ends.
    ///
    /// # Errors
    /// [`Error::NoSuchMessage`], [`Error::Stream`] if the stream has already ended.
    pub fn end_stream(&mut self, stream: &SendHandle) -> Result<(), Error> {
        let pair = self.queue_pairs.get_mut(stream.pair)?;
        pair.end_stream(stream.message)?;
        self.schedule.wake(stream.pair.index);
        Ok(())
    }

    /// Writes `source` into the window of a stream, starting at `first_chunk`, until a deadline. The
    /// window is the peer's buffer for the stream. It stays open until the peer completes the
    /// receive, so writes need no other receive: each may write a part of the window again.
    ///
    /// Only this end times a write (OptiNIC 3.1.2). The first poll at or after `deadline_ns` cuts
    /// it: what the fabric has not taken is dropped, and never leaves. `None`: no deadline. Nothing
    /// is repeated, and the peer does not learn where writes begin and end.
    ///
    /// The writes and runs of a stream leave in the order of the calls. A newer write of the same
    /// range follows the older one, and does not end it: give the older one the deadline after which
    /// its bytes are worth nothing. The path can lose and reorder packets: a packet that the network
    /// held back can bring older bytes back. A write ends where a chunk ends, or where the message
    /// ends: nothing can be added behind a short chunk.
    ///
    /// ```
    /// use farwrite::{Endpoint, Outcome, QpOptions, UdpConfig, WriteOutcome};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut a = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
    /// let mut b = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
    /// let (qa, qb) = (a.create_qp(QpOptions::default())?, b.create_qp(QpOptions::default())?);
    /// let (info_a, info_b) = (a.qp_info(qa)?, b.qp_info(qb)?);
    /// a.connect_qp(qa, &info_b)?;
    /// b.connect_qp(qb, &info_a)?;
    ///
    /// let window = b.register(vec![0_u8; 1 << 20])?;
    /// let recv = b.post_recv(qb, window.whole())?;
    /// let stream = a.start_stream(qa, None)?;
    /// let source = a.register(vec![7_u8; 1 << 18])?;
    /// let write = a.write(&stream, source.whole(), 0, None)?;
    /// while write.outcome().is_none() {
    ///     a.poll_now()?;
    ///     b.poll_now()?;
    /// }
    /// assert_eq!((write.outcome(), write.sent_bytes()), (Some(WriteOutcome::Sent), 1 << 18));
    /// // The receiver sees what has arrived by now, and closes the window.
    /// assert!(recv.bitmap().bytes() <= write.sent_bytes());
    /// b.complete_recv(&recv, Outcome::Partial)?;
    /// let arrived = recv.partial().expect("it is partial");
    /// assert!(!arrived.has_chunk(0) || b.memory(window)?[0] == 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Endpoint::send_chunks`]. [`Error::Stream`] also for a deadline that is not after
    /// the last poll, for a write that ends beyond the window, and while too many writes are open.
    /// If the window is not known yet, a write that does not fit it ends later, as
    /// [`WriteOutcome::OutsideWindow`](crate::WriteOutcome::OutsideWindow).
    pub fn write(
        &mut self,
        stream: &SendHandle,
        source: MrSlice,
        first_chunk: u32,
        deadline_ns: Option<u64>,
    ) -> Result<WriteHandle, Error> {
        self.fabric.region(source.region.lkey)?;
        let pair = self.queue_pairs.get_mut(stream.pair)?;
        let message = stream.message;
        let write = pair.write(self.now_ns, message, source, first_chunk, deadline_ns)?;
        let lkey = source.region.lkey;
        self.region_users.note(lkey, stream.pair.index);
        self.schedule.wake(stream.pair.index);
        Ok(write)
    }
}
