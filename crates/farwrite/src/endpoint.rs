//! The endpoint: what a user of the library holds.

mod polling;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Counters, Departed, Fabric, FabricError, Memory, QpPath, Region};
use farwrite_sdr::{EndpointId, QpInfo};
use farwrite_wire::control::Outcome;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::error::Error;
use crate::events::DropEvents;
use crate::handle::{QueuePair, RecvHandle, SendHandle};
use crate::intake::Notice;
use crate::memory::{MemoryRegion, MrSlice};
use crate::options::{QpOptions, RecvOptions, SendOptions};
use crate::pair::{Coder, Pair, QpStats};
use crate::path::{PathStats, PeerPaths};
use crate::queue_pairs::QueuePairs;
use crate::reception::Reception;
use crate::registry::{Registry, SchemeResolver};
use crate::schedule::Schedule;
use crate::turns::Turns;

/// One end of any number of queue pairs over one fabric.
///
/// An endpoint holds no clock: everything happens in [`Endpoint::poll`], at the time that its caller
/// says, so the same code runs in real and in virtual time. It starts no thread unless its user asks
/// for some: [`Endpoint::start_workers`] to receive, [`Endpoint::start_thread`] to poll.
pub struct Endpoint<F: Fabric> {
    id: EndpointId,
    pub(crate) fabric: Adapter<F>,
    queue_pairs: QueuePairs,
    paths: PeerPaths,
    /// Of paths, by number.
    path_schedule: Schedule,
    /// Of queue pairs.
    schedule: Schedule,
    turns: Turns,
    pub(crate) reception: Reception,
    known: Registry,
    keys: ChaCha12Rng,
    coder: Coder,
    // Empty between polls, kept for their capacity.
    notices: Vec<Notice>,
    departed: Vec<Departed>,
    /// The time of the last poll.
    now_ns: u64,
    drop_events: DropEvents,
}

impl<F: Fabric> Endpoint<F> {
    /// An endpoint over a fabric. `seed` feeds the endpoint's id and the keys of control packets: it
    /// must come from the operating system's randomness wherever a stranger may send packets.
    ///
    /// # Panics
    /// If a queue or worker of the fabric was handed out before: the endpoint drives them all.
    pub fn new(fabric: F, seed: [u8; 32]) -> Self {
        let mut keys = ChaCha12Rng::from_seed(seed);
        let mut id = [0; 16];
        keys.fill_bytes(&mut id);
        Self {
            id: EndpointId(id),
            fabric: Adapter::new(fabric).expect("the fabric has all its queues and workers"),
            queue_pairs: QueuePairs::default(),
            paths: PeerPaths::default(),
            path_schedule: Schedule::default(),
            schedule: Schedule::default(),
            turns: Turns::default(),
            reception: Reception::default(),
            known: Registry::new(),
            keys,
            coder: Coder::default(),
            notices: Vec::new(),
            departed: Vec::new(),
            now_ns: 0,
            drop_events: DropEvents::default(),
        }
    }

    /// A random id of this instance, which peers get with [`Endpoint::qp_info`] (P6.1).
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// The id of the endpoint that a queue pair is connected to, as that endpoint claims it; `None`
    /// before it is connected. Queue pairs with equal ids share a path and a peer.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`].
    pub fn peer_id(&self, qp: QueuePair) -> Result<Option<EndpointId>, Error> {
        Ok(self.queue_pairs.get(qp)?.peer_endpoint())
    }

    /// The fabric, to look at.
    pub fn fabric(&self) -> &F {
        &self.fabric
    }

    /// The fabric, to wait on or to advance. Queue pairs and keys made through it are not known
    /// here, and those made here must not be touched through it. Give queue pairs made through it
    /// the context 0.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Makes schemes of the user's own known, for sending and for offers of the peer.
    pub fn add_scheme(&mut self, resolver: SchemeResolver) {
        self.known.add(resolver);
    }

    /// Registers memory: the endpoint owns it until [`Endpoint::deregister`].
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric is out of keys.
    pub fn register(&mut self, memory: impl Memory + 'static) -> Result<MemoryRegion, Error> {
        self.register_region(Region::owned(memory))
    }

    /// Registers memory that [`Endpoint::deregister`] gave back, a caller's, or a ghost.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric is out of keys, or takes no ghosts.
    pub fn register_region(&mut self, region: Region) -> Result<MemoryRegion, Error> {
        let length = region.length();
        let lkey = self.fabric.register(region)?;
        Ok(MemoryRegion { lkey, length })
    }

    /// Gives memory back.
    ///
    /// # Errors
    /// [`Error::Fabric`] while a message is sent from it or received into it, or the fabric holds
    /// packets that it has not sent.
    pub fn deregister(&mut self, region: MemoryRegion) -> Result<Region, Error> {
        self.take_departures()?;
        if self.queue_pairs.iter().any(|pair| pair.uses(region.lkey)) {
            return Err(FabricError::InUse("the memory region").into());
        }
        Ok(self.fabric.deregister(region.lkey)?)
    }

    /// The bytes of a region that no receive is open into; none of a ghost.
    ///
    /// # Errors
    /// [`Error::Fabric`] if it is not registered here, or a receive is open into it: read what has
    /// arrived of that with [`Endpoint::read_memory`].
    pub fn memory(&self, region: MemoryRegion) -> Result<&[u8], Error> {
        Ok(self.fabric.memory(region.lkey)?)
    }

    /// Copies bytes of a region, from `offset` on, to `out`; zeros from a ghost. Chunks whose bits
    /// are set have their bytes.
    ///
    /// # Errors
    /// [`Error::Fabric`] for bytes that are not registered here.
    pub fn read_memory(
        &self,
        region: MemoryRegion,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), Error> {
        Ok(self.fabric.copy_out(region.lkey, offset, out)?)
    }

    /// Copies `bytes` into a region, from `offset` on. Bytes of a message being sent must stay as
    /// they are: repeats are read from here.
    ///
    /// # Errors
    /// [`Error::Fabric`] for bytes that are not registered here.
    pub fn write_memory(
        &mut self,
        region: MemoryRegion,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        Ok(self.fabric.copy_in(region.lkey, offset, bytes)?)
    }

    /// Makes a queue pair: one SDR queue pair, which is `generations * channels + 1` of the fabric.
    ///
    /// # Errors
    /// [`Error::Config`] for options that cannot work, [`Error::Fabric`].
    pub fn create_qp(&mut self, options: QpOptions) -> Result<QueuePair, Error> {
        let name = self.queue_pairs.next_name();
        let name = name.ok_or(FabricError::OutOfResources("queue pair"))?;
        let mut control_key = [0; 32];
        self.keys.fill_bytes(&mut control_key);
        let pair = Pair::create(&mut self.fabric, name, options, control_key)?;
        self.reception.insert(name.index, pair.inlet());
        self.queue_pairs.insert(pair);
        Ok(name)
    }

    /// What the peer needs to connect to a queue pair (P6). It holds a key: it must travel
    /// confidentially.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`].
    pub fn qp_info(&self, qp: QueuePair) -> Result<QpInfo, Error> {
        Ok(self.queue_pairs.get(qp)?.info(&self.fabric, self.id))
    }

    /// Joins a queue pair to the peer's. Behind address translation, or a relay, write the
    /// addresses to send to into `peer` first. A queue pair that could not be connected is as it
    /// was before, so it can be connected later, to this peer or to another.
    ///
    /// # Errors
    /// [`Error::Connect`] where the two do not fit together, [`Error::RateControl`] where other queue
    /// pairs to the peer have another rate control, [`Error::Fabric`].
    pub fn connect_qp(&mut self, qp: QueuePair, peer: &QpInfo) -> Result<(), Error> {
        let pair = self.queue_pairs.get_mut(qp)?;
        pair.connect(&mut self.fabric, &mut self.paths, peer)?;
        self.schedule.wake(qp.index);
        Ok(())
    }

    /// Puts a connected queue pair on other paths: one for each channel, of which the first carries
    /// the control packets too. Its messages go on. This is how a queue pair follows a peer whose
    /// addresses are translated, or change (P6.2).
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::Fabric`] for another number of paths, addresses that
    /// cannot be, or a queue pair that is not connected.
    pub fn set_paths(&mut self, qp: QueuePair, paths: &[QpPath]) -> Result<(), Error> {
        self.queue_pairs.get(qp)?.set_paths(&mut self.fabric, paths)
    }

    /// Ends a queue pair; its open messages end as failed.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::Fabric`].
    pub fn destroy_qp(&mut self, qp: QueuePair) -> Result<(), Error> {
        match self.queue_pairs.remove(qp)? {
            Some(pair) => self.end_pair(qp.index, pair),
            None => Ok(()),
        }
    }

    /// Gives back all that a queue pair has; its open messages end as failed.
    fn end_pair(&mut self, index: u32, pair: Pair) -> Result<(), Error> {
        self.schedule.remove(index);
        self.turns.remove(index);
        self.reception.remove(index, pair.name().serial);
        if let Some(path) = pair.peer_path()
            && self.paths.leave(path, index, pair.place())
        {
            self.path_schedule.remove(path_index(path));
        }
        Ok(pair.destroy(&mut self.fabric)?)
    }

    /// Posts a buffer for the next message of a queue pair; buffers and messages match in order.
    /// Any message that fits is received, however long it takes.
    ///
    /// # Errors
    /// As [`Endpoint::post_recv_with`].
    pub fn post_recv(&mut self, qp: QueuePair, target: MrSlice) -> Result<RecvHandle, Error> {
        self.post_recv_with(qp, target, RecvOptions::default())
    }

    /// Posts a buffer for the next message of a queue pair, with a deadline or with what is known
    /// of the message.
    ///
    /// # Errors
    /// [`Error::Retry`] while all slots are posted, or nothing has come yet of the message that was
    /// last in the next slot; [`Error::OutOfBounds`], [`Error::TooLong`], [`Error::UnknownScheme`],
    /// [`Error::Sdr`] for an immediate where the queue pair carries none.
    pub fn post_recv_with(
        &mut self,
        qp: QueuePair,
        target: MrSlice,
        options: RecvOptions,
    ) -> Result<RecvHandle, Error> {
        let pair = self.queue_pairs.get_mut(qp)?;
        let posted = pair.post_recv(&mut self.fabric, &self.known, target, &options)?;
        self.schedule.wake(qp.index);
        Ok(posted)
    }

    /// Ends a receive before its scheme did, or one that has no scheme: no packet changes its
    /// memory when this returns, and its slot is free. The sender is told `outcome`.
    ///
    /// # Errors
    /// [`Error::NoSuchMessage`] once it is over.
    pub fn complete_recv(&mut self, recv: &RecvHandle, outcome: Outcome) -> Result<(), Error> {
        let pair = self.queue_pairs.get_mut(recv.pair)?;
        pair.complete_recv(&mut self.fabric, recv.message, outcome)?;
        pair.wait_closed(&mut self.fabric, Some(recv.message));
        self.schedule.wake(recv.pair.index);
        Ok(())
    }

    /// Sends a message from `source`, which must not change until the send's outcome is known.
    ///
    /// # Errors
    /// [`Error::Retry`] while all slots are in flight, [`Error::NotConnected`],
    /// [`Error::OutOfBounds`], [`Error::TooLong`], [`Error::UnknownScheme`], [`Error::Sdr`],
    /// [`Error::Fabric`] for a region that is not registered here.
    pub fn post_send(
        &mut self,
        qp: QueuePair,
        source: MrSlice,
        options: SendOptions,
    ) -> Result<SendHandle, Error> {
        // Found out while sending, it would break the queue pair.
        self.fabric.region(source.region.lkey)?;
        let pair = self.queue_pairs.get_mut(qp)?;
        let posted = pair.post_send(source, options, &self.known)?;
        self.schedule.wake(qp.index);
        Ok(posted)
    }

    /// Starts a streaming send (paper section 3.1.2): a message without a scheme, whose chunks
    /// [`Endpoint::send_chunks`] adds, in any order and as often as wanted.
    ///
    /// # Errors
    /// As [`Endpoint::post_send`].
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

    /// Sends `source` to the chunks of a stream from `first_chunk` on. Chunks may be sent again,
    /// also when the stream has ended; only the last chunk of the message may be short.
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
        self.schedule.wake(stream.pair.index);
        Ok(())
    }

    /// Says how long a stream's message is: as far as its furthest run of chunks.
    ///
    /// # Errors
    /// [`Error::NoSuchMessage`], [`Error::Stream`] if it was said before.
    pub fn end_stream(&mut self, stream: &SendHandle) -> Result<(), Error> {
        let pair = self.queue_pairs.get_mut(stream.pair)?;
        pair.end_stream(stream.message)?;
        self.schedule.wake(stream.pair.index);
        Ok(())
    }

    /// Gives a send up. It ends as failed here, as soon as the fabric holds no packets of it. The
    /// receiver keeps its buffer until it closes it.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::Fabric`] when the fabric is broken for good.
    pub fn cancel_send(&mut self, send: &SendHandle) -> Result<(), Error> {
        self.take_departures()?;
        let pair = self.queue_pairs.get_mut(send.pair)?;
        pair.cancel_send(send.message);
        self.schedule.wake(send.pair.index);
        Ok(())
    }

    /// What a queue pair has done so far.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`].
    pub fn qp_stats(&self, qp: QueuePair) -> Result<QpStats, Error> {
        Ok(self.queue_pairs.get(qp)?.stats())
    }

    /// What is known of the path that a queue pair shares with all others to the same peer.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`], [`Error::NotConnected`].
    pub fn path_stats(&self, qp: QueuePair) -> Result<PathStats, Error> {
        let path = self.queue_pairs.get(qp)?.peer_path();
        let path = path.ok_or(Error::NotConnected(qp.serial))?;
        Ok(self.paths.get(path).stats())
    }

    /// What the fabric has carried and dropped.
    pub fn counters(&self) -> Counters {
        self.fabric.counters()
    }
}

/// The number of a path, as schedules name it.
fn path_index(path: usize) -> u32 {
    u32::try_from(path).expect("at most as many paths as queue pairs")
}
