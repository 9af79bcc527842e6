//! Reads: bytes of a peer's memory, sent on request.

use farwrite_fabric::contract::Fabric;

use super::Endpoint;
use crate::error::Error;
use crate::handle::{QueuePair, RecvHandle};
use crate::memory::MrSlice;
use crate::reads::{ExposedRegion, ReadOptions};

impl<F: Fabric> Endpoint<F> {
    /// Lets the peer of a queue pair read a slice of memory. The endpoint sends any bytes of the
    /// slice that the peer requests, until [`Endpoint::conceal`]. The region of the slice cannot be
    /// deregistered before that. If the bytes change during a read, the peer can get old and new
    /// bytes in any mixture.
    ///
    /// A queue pair on which memory is exposed sends answers to reads and nothing else. Expose
    /// memory before the peer knows about it: a read of a region that is not exposed fails.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Direction`] if messages were sent on the queue pair,
    /// [`Error::Fabric`] for a region that is not registered here.
    pub fn expose(&mut self, qp: QueuePair, source: MrSlice) -> Result<ExposedRegion, Error> {
        // A wrong region that is found only while sending would break the queue pair.
        self.fabric.region(source.region.lkey)?;
        let exposed = self.queue_pairs.get_mut(qp)?.expose(source)?;
        self.region_users.note(source.region.lkey, qp.index);
        Ok(exposed)
    }

    /// Ends the exposure of a region. Reads that the endpoint is answering fail, and so do later
    /// ones. Packets that the fabric has taken may still leave: the region can be deregistered when
    /// none of them is left.
    ///
    /// # Errors
    /// [`Error::NotExposed`].
    pub fn conceal(&mut self, qp: QueuePair, region: ExposedRegion) -> Result<(), Error> {
        self.queue_pairs.get_mut(qp)?.conceal(region)?;
        self.schedule.wake(qp.index);
        Ok(())
    }

    /// Reads as many bytes as `target` holds from a region that the peer exposes, starting at
    /// `offset`. The read posts a receive and requests its message. The handle shows what arrives,
    /// as for any receive. [`RecvHandle::read_refusal`] says why a peer refused. Several reads may
    /// be open at once, as many as the queue pair has slots. [`Endpoint::complete_recv`] ends a read
    /// early.
    ///
    /// A queue pair on which reads are posted receives their answers and nothing else.
    ///
    /// ```
    /// use farwrite::{Endpoint, Outcome, QpOptions, ReadOptions, UdpConfig};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut a = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
    /// let mut b = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
    /// let (qa, qb) = (a.create_qp(QpOptions::default())?, b.create_qp(QpOptions::default())?);
    /// let (info_a, info_b) = (a.qp_info(qa)?, b.qp_info(qb)?);
    /// a.connect_qp(qa, &info_b)?;
    /// b.connect_qp(qb, &info_a)?;
    ///
    /// let weights = b.register(vec![7_u8; 1 << 20])?;
    /// let exposed = b.expose(qb, weights.whole())?;
    /// let target = a.register(vec![0_u8; 4096])?;
    /// let read = a.post_read(qa, target.whole(), exposed, 8192, ReadOptions::default())?;
    /// while read.outcome().is_none() {
    ///     a.poll_now()?;
    ///     b.poll_now()?;
    /// }
    /// assert_eq!(read.outcome(), Some(Outcome::Whole));
    /// assert_eq!(a.memory(target)?, vec![7; 4096]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Endpoint::post_recv_with`]; [`Error::UnknownScheme`] also for a read without a
    /// scheme; [`Error::TooLong`] also if the parity of the scheme exceeds the largest message;
    /// [`Error::NotConnected`]; [`Error::NoReads`] if the peer's version does not answer reads;
    /// [`Error::Sdr`] for a scheme with parity if the queue pair has none;
    /// [`Error::Direction`] if receives were posted for messages.
    pub fn post_read(
        &mut self,
        qp: QueuePair,
        target: MrSlice,
        region: ExposedRegion,
        offset: u64,
        options: ReadOptions,
    ) -> Result<RecvHandle, Error> {
        let pair = self.queue_pairs.get_mut(qp)?;
        let source = (region, offset);
        let posted = pair.post_read(&mut self.fabric, &self.known, target, source, options)?;
        self.region_users.note(target.region.lkey, qp.index);
        self.schedule.wake(qp.index);
        Ok(posted)
    }
}
