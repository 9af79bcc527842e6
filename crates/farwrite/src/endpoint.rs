//! The endpoint, the main type of the library.

mod memory;
mod polling;
mod reads;
mod streams;

use std::time::Duration;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Counters, Departed, Fabric, FabricError, QpRoute, Table};
use farwrite_sdr::{EndpointId, QpInfo};
use farwrite_wire::control::Outcome;
use farwrite_wire::sealing::Cipher;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::coding::{Coded, Coding};
use crate::completions::Notice;
use crate::error::Error;
use crate::events::DropEvents;
use crate::handle::{QueuePair, RecvHandle, SendHandle};
use crate::memory::MrSlice;
use crate::options::{QpOptions, RecvOptions, SendOptions};
use crate::pair::{Pair, QpStats};
use crate::peer::{PeerStats, PeerTable};
use crate::queue_pairs::QueuePairs;
use crate::receiving::Receiving;
use crate::region_users::RegionUsers;
use crate::registry::{Registry, SchemeResolver};
use crate::schedule::Schedule;
use crate::turns::Turns;
use crate::user_wakes::UserWakes;

/// One end of any number of queue pairs over one fabric.
///
/// An endpoint has no clock. All work happens in [`Endpoint::poll`], at the time that the caller
/// passes, so the same code runs in real and in virtual time. An endpoint starts no threads unless
/// the user asks for them: [`Endpoint::start_workers`] starts threads that receive,
/// [`Endpoint::code_on`] threads that compute parity, and [`Endpoint::start_thread`] one that polls.
pub struct Endpoint<F: Fabric> {
    id: EndpointId,
    /// Dropped before `fabric`: its threads read registered memory, so they end first.
    pub(crate) coding: Coding,
    pub(crate) fabric: Adapter<F>,
    queue_pairs: QueuePairs,
    region_users: RegionUsers,
    peers: PeerTable,
    /// Schedule of the peers, by number.
    peer_schedule: Schedule,
    /// Schedule of the queue pairs.
    schedule: Schedule,
    turns: Turns,
    /// Queue pairs whose messages or resources may have changed since their users were last served.
    pub(crate) users: Schedule,
    pub(crate) user_wakes: UserWakes,
    pub(crate) receiving: Receiving,
    known: Registry,
    keys: ChaCha12Rng,
    // Empty between polls, kept for their capacity.
    notices: Vec<Notice>,
    departed: Vec<Departed>,
    coded: Vec<Coded>,
    /// The time of the last poll.
    now_ns: u64,
    /// When the next poll must look for arrivals and for what coding threads have done.
    next_look_ns: Option<u64>,
    /// Whether the last poll has posted packets whose departure no poll has seen.
    has_posted: bool,
    drop_events: DropEvents,
    reports_events: bool,
}

impl<F: Fabric> Endpoint<F> {
    /// How many cores compute parity at the same time.
    #[must_use]
    pub fn coding_cores(&self) -> usize {
        self.coding.cores()
    }

    /// Creates an endpoint over a fabric. The endpoint derives its id and the keys of control
    /// packets from `seed`. If strangers can send packets to this endpoint, `seed` must come from
    /// the operating system's random number generator.
    ///
    /// # Panics
    /// If a queue or worker of the fabric was handed out before: the endpoint must drive all of
    /// them.
    pub fn new(fabric: F, seed: [u8; 32]) -> Self {
        let mut keys = ChaCha12Rng::from_seed(seed);
        let mut id = [0; 16];
        keys.fill_bytes(&mut id);
        Self {
            id: EndpointId(id),
            coding: Coding::default(),
            fabric: Adapter::new(fabric).expect("the fabric has all its queues and workers"),
            queue_pairs: QueuePairs::default(),
            region_users: RegionUsers::default(),
            peers: PeerTable::default(),
            peer_schedule: Schedule::default(),
            schedule: Schedule::default(),
            turns: Turns::default(),
            users: Schedule::default(),
            user_wakes: UserWakes::default(),
            receiving: Receiving::default(),
            known: Registry::new(),
            keys,
            notices: Vec::new(),
            departed: Vec::new(),
            coded: Vec::new(),
            now_ns: 0,
            next_look_ns: None,
            has_posted: false,
            drop_events: DropEvents::default(),
            reports_events: true,
        }
    }

    /// Reports no events ([`TARGET`](crate::events::TARGET)) of queue pairs that are created from now on, nor dropped
    /// packets: for an endpoint beside the one that a program observes.
    pub fn mute_events(&mut self) {
        self.reports_events = false;
    }

    /// Returns the random id of this endpoint instance. Peers receive it with [`Endpoint::qp_info`]
    /// (P6.1).
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// Returns the id of the endpoint that a queue pair is connected to, as claimed by that
    /// endpoint. Returns `None` before the queue pair is connected. Queue pairs with equal ids
    /// share a peer.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`].
    pub fn peer_id(&self, qp: QueuePair) -> Result<Option<EndpointId>, Error> {
        Ok(self.queue_pairs.get(qp)?.peer_endpoint())
    }

    /// Returns the fabric for reading.
    pub fn fabric(&self) -> &F {
        &self.fabric
    }

    /// Returns the fabric, for waiting on it or advancing it. The endpoint does not know queue
    /// pairs and keys that are created directly through the fabric. Do not use the endpoint's own
    /// queue pairs and keys through the fabric. Give context 0 to queue pairs that you create
    /// through the fabric.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Adds user-defined schemes, for sending and for offers from the peer.
    pub fn add_scheme(&mut self, resolver: SchemeResolver) {
        self.known.add(resolver);
    }

    /// Lets each group of chunks be encoded or rebuilt only `delay` after the endpoint has begun with
    /// it, while everything else goes on. In virtual time, this stands for threads that code
    /// ([`Endpoint::code_on`]).
    ///
    /// # Errors
    /// [`Error::Fabric`] if a thread has failed that coded until now.
    pub fn delay_coding(&mut self, delay: Duration) -> Result<(), Error> {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Ok(self.coding.delay(delay_ns)?)
    }

    /// Creates a queue pair: one SDR queue pair, which uses `generations * channels + 1` queue
    /// pairs of the fabric.
    ///
    /// # Errors
    /// [`Error::Config`] for invalid options, [`Error::Fabric`].
    pub fn create_qp(&mut self, options: QpOptions) -> Result<QueuePair, Error> {
        let name = self.queue_pairs.next_name();
        let name = name.ok_or(FabricError::OutOfResources(Table::QueuePair))?;
        let mut control_key = [0; 32];
        self.keys.fill_bytes(&mut control_key);
        let pair = Pair::create(
            &mut self.fabric,
            name,
            options,
            control_key,
            self.reports_events,
        )?;
        self.receiving.insert(name.index, &pair.receive);
        self.queue_pairs.insert(pair);
        Ok(name)
    }

    /// Returns what the peer needs to connect to a queue pair (P6). The result contains a key, so
    /// send it over a confidential channel.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`].
    pub fn qp_info(&self, qp: QueuePair) -> Result<QpInfo, Error> {
        Ok(self.queue_pairs.get(qp)?.info(&self.fabric, self.id))
    }

    /// Connects a queue pair to the peer's queue pair. If the peer is behind address translation or
    /// a relay, first write the addresses to send to into `peer`. If the call fails, the queue pair
    /// does not change. It can be connected later, to this peer or to another.
    ///
    /// # Errors
    /// [`Error::Connect`] if the two queue pairs are not compatible, [`Error::RateControl`] if
    /// other queue pairs to the peer have a different rate control, [`Error::Sealing`] if one end
    /// requires sealed packets and the other does not seal, [`Error::NoCredit`] and
    /// [`Error::LineRate`] with [`RateControl::Eqds`](crate::RateControl::Eqds), [`Error::Fabric`].
    pub fn connect_qp(&mut self, qp: QueuePair, peer: &QpInfo) -> Result<(), Error> {
        let pair = self.queue_pairs.get_mut(qp)?;
        pair.connect(&mut self.fabric, &mut self.peers, peer)?;
        self.schedule.wake(qp.index);
        Ok(())
    }

    /// Returns the cipher of the data packets of a connected queue pair; `None` if they are not sealed
    /// ([`QpOptions::sealing`]).
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`].
    pub fn cipher(&self, qp: QueuePair) -> Result<Option<Cipher>, Error> {
        Ok(self.queue_pairs.get(qp)?.cipher())
    }

    /// Moves a connected queue pair to other routes, one for each channel. The first route also
    /// carries the control packets. Open messages continue. Use this to follow a peer whose
    /// addresses are translated or change (P6.2).
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::Fabric`] for a wrong number of routes, invalid
    /// addresses, or a queue pair that is not connected.
    pub fn set_routes(&mut self, qp: QueuePair, routes: &[QpRoute]) -> Result<(), Error> {
        let pair = self.queue_pairs.get(qp)?;
        pair.set_routes(&mut self.fabric, routes)?;
        if let (Some(number), Some(first)) = (pair.peer_number(), routes.first()) {
            self.peers.follow(number, first.destination);
        }
        Ok(())
    }

    /// Destroys a queue pair. Its open messages end as failed.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::Fabric`].
    pub fn destroy_qp(&mut self, qp: QueuePair) -> Result<(), Error> {
        match self.queue_pairs.remove(qp)? {
            Some(pair) => self.end_pair(qp.index, pair),
            None => Ok(()),
        }
    }

    /// Destroys a queue pair, and creates another one in its place: the tasks and wakers of the old one
    /// ([`ProgressThread::add_task_of`](crate::ProgressThread::add_task_of)) go on with the new one. Use this to
    /// go on with smaller packets: the MTU of a queue pair does not change.
    ///
    /// # Errors
    /// Those of [`Endpoint::destroy_qp`] and [`Endpoint::create_qp`], and [`Error::Fabric`] if the new one got
    /// another place. The old queue pair is gone in any case.
    pub fn replace_qp(&mut self, qp: QueuePair, options: QpOptions) -> Result<QueuePair, Error> {
        self.destroy_qp(qp)?;
        // The place that was freed last is taken first.
        let new = self.create_qp(options)?;
        if new.index == qp.index {
            return Ok(new);
        }
        // Tasks belong to the place: those of the old queue pair would never run again.
        self.destroy_qp(new)?;
        Err(FabricError::OutOfResources(Table::QueuePair).into())
    }

    /// Ends a queue pair because of `reason`: later calls fail with [`Error::BrokenQueuePair`], until it is destroyed.
    /// Open messages of bounded schemes end as at their deadlines, and all others as failed.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`], [`Error::Fabric`].
    pub fn break_qp(&mut self, qp: QueuePair, reason: Error) -> Result<(), Error> {
        let pair = self.queue_pairs.get_mut(qp)?;
        let ended = pair.end_bounded(&mut self.fabric, &self.known);
        let Some(pair) = self.queue_pairs.break_at(qp.index, reason) else {
            return ended;
        };
        let destroyed = self.end_pair(qp.index, pair);
        ended.and(destroyed)
    }

    /// Returns all resources of a queue pair to the fabric. Its open messages end as failed.
    fn end_pair(&mut self, index: u32, pair: Pair) -> Result<(), Error> {
        self.schedule.remove(index);
        self.users.wake(index);
        self.turns.remove(index);
        self.receiving.remove(pair.name);
        if let Some(peer) = pair.peer_number()
            && self.peers.leave(peer, index, pair.place_in_queue())
        {
            self.peer_schedule.remove(peer_index(peer));
        }
        // Threads may still read its parity memory, which is deregistered now.
        let settled = self.coding.forget(pair.name);
        let destroyed = pair.destroy(&mut self.fabric);
        settled.and(destroyed).map_err(Error::from)
    }

    /// Posts a buffer for the next message of a queue pair. Buffers and messages match in order.
    /// The receive accepts any message that fits, and has no deadline.
    ///
    /// # Errors
    /// The same as for [`Endpoint::post_recv_with`].
    pub fn post_recv(&mut self, qp: QueuePair, target: MrSlice) -> Result<RecvHandle, Error> {
        self.post_recv_with(qp, target, RecvOptions::default())
    }

    /// Posts a buffer for the next message of a queue pair, with a deadline or with properties of
    /// the message that are known in advance.
    ///
    /// # Errors
    /// [`Error::Retry`] while all slots are posted, or while no packet has arrived yet for the last
    /// message in the next slot; [`Error::OutOfBounds`], [`Error::TooLong`],
    /// [`Error::UnknownScheme`], [`Error::Sdr`] if an immediate is expected and the queue pair
    /// carries none, [`Error::Direction`] if reads were posted on it, [`Error::SwitchedOff`],
    /// [`Error::Fabric`] for a region that is not registered here, or read-only.
    pub fn post_recv_with(
        &mut self,
        qp: QueuePair,
        target: MrSlice,
        options: RecvOptions,
    ) -> Result<RecvHandle, Error> {
        let pair = self.queue_pairs.get_mut(qp)?;
        let posted = pair.post_recv(&mut self.fabric, &self.known, target, &options)?;
        self.region_users.note(target.region.lkey, qp.index);
        self.schedule.wake(qp.index);
        Ok(posted)
    }

    /// Ends a receive before its scheme ends it, or a receive without a scheme. When this call
    /// returns, no packet can change the memory of the receive, and its slot is free, also if the
    /// receive had ended before. The sender is notified of `outcome`.
    ///
    /// # Errors
    /// [`Error::NoSuchMessage`] once the receive has ended.
    pub fn complete_recv(&mut self, recv: &RecvHandle, outcome: Outcome) -> Result<(), Error> {
        let pair = self.queue_pairs.get_mut(recv.pair)?;
        let ended = pair.complete_recv(&mut self.fabric, recv.message, outcome);
        if matches!(ended, Ok(()) | Err(Error::NoSuchMessage(_))) {
            pair.wait_closed(&mut self.fabric, Some(recv.message));
            self.schedule.wake(recv.pair.index);
        }
        ended
    }

    /// Clears the bitmap of a receive that has ended, and keeps its memory for a later receive of the
    /// queue pair. Programs in other languages read the bits by their address
    /// ([`ChunkBitmap::as_ptr`](crate::ChunkBitmap::as_ptr)): it stays readable until the queue pair is
    /// destroyed. Returns false, and keeps nothing, if the receive is open or a clone of its handle or
    /// bitmap exists.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`].
    pub fn reuse_bitmap(&mut self, recv: RecvHandle) -> Result<bool, Error> {
        let pair = self.queue_pairs.get_mut(recv.pair)?;
        Ok(recv.outcome().is_some() && pair.reuse_bitmap(recv.bitmap))
    }

    /// Sends a message from `source`. The bytes of `source` must not change until the send has an
    /// outcome.
    ///
    /// # Errors
    /// [`Error::Retry`] while all slots are in flight, [`Error::NotConnected`],
    /// [`Error::OutOfBounds`], [`Error::TooLong`], [`Error::UnknownScheme`], [`Error::Sdr`],
    /// [`Error::Direction`] if the queue pair answers reads, [`Error::SwitchedOff`],
    /// [`Error::Stream`] for a [`SendOptions::first_chunk`] that the message cannot have,
    /// [`Error::Fabric`] for a region that is not registered here.
    pub fn post_send(
        &mut self,
        qp: QueuePair,
        source: MrSlice,
        options: SendOptions,
    ) -> Result<SendHandle, Error> {
        // A wrong region that is found only while sending would break the queue pair.
        self.fabric.region(source.region.lkey)?;
        let pair = self.queue_pairs.get_mut(qp)?;
        let posted = pair.post_send(source, options, &self.known)?;
        self.region_users.note(source.region.lkey, qp.index);
        self.schedule.wake(qp.index);
        Ok(posted)
    }

    /// Cancels a send. The send ends as failed at this end as soon as the fabric holds none of its
    /// packets. The receiver keeps its buffer until it closes the receive.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::Fabric`] when the fabric has failed permanently.
    pub fn cancel_send(&mut self, send: &SendHandle) -> Result<(), Error> {
        self.take_departures()?;
        let pair = self.queue_pairs.get_mut(send.pair)?;
        pair.cancel_send(send.message);
        self.schedule.wake(send.pair.index);
        Ok(())
    }

    /// Returns the names of the queue pairs that are not broken.
    pub(crate) fn queue_pair_names(&self) -> impl Iterator<Item = QueuePair> {
        self.queue_pairs.iter().map(|pair| pair.name)
    }

    /// Returns the statistics of a queue pair.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`].
    pub fn qp_stats(&self, qp: QueuePair) -> Result<QpStats, Error> {
        Ok(self.queue_pairs.get(qp)?.stats())
    }

    /// Returns since when chunks of a message that is repaired have left, and no ACK has reported a new one:
    /// the peer may be gone, or the path carries no such packets. `None` if nothing waits for an ACK. Messages
    /// that wait for a buffer of the peer, and those of bounded schemes or without one, do not count.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`].
    pub fn unacknowledged_since(&self, qp: QueuePair) -> Result<Option<u64>, Error> {
        Ok(self.queue_pairs.get(qp)?.unacknowledged_since())
    }

    /// Returns the statistics of the peer that a queue pair shares with all others to the same
    /// peer.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`], [`Error::NotConnected`].
    pub fn peer_stats(&self, qp: QueuePair) -> Result<PeerStats, Error> {
        Ok(self.peers.get(self.peer_number(qp)?).stats())
    }

    /// Changes the maximum rate to the peer of a queue pair, in bits per second on the wire (0 counts
    /// as 1). All queue pairs to this peer share the rate. With a fixed rate, this is the new rate.
    /// Queue pairs that connect to the peer later need this rate too
    /// ([`RateControl::at_most`](crate::RateControl::at_most)). Only the adaptive and the fixed rate
    /// control change. The others ignore the call.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`], [`Error::NotConnected`].
    pub fn set_max_rate(&mut self, qp: QueuePair, max_rate_bps: u64) -> Result<(), Error> {
        let peer = self.peer_number(qp)?;
        let peer = self.peers.get_mut(peer);
        peer.sending.set_max_rate(max_rate_bps.max(1));
        Ok(())
    }

    /// Returns how many packets have left for the peer of a queue pair, and how many have arrived from it
    /// and were verified. Who keeps a route (P6.2) must know both. The first number may count packets of
    /// other queue pairs to the same peer, so only its growth has a meaning.
    ///
    /// # Errors
    /// Those of [`Endpoint::peer_stats`].
    pub fn traffic(&self, qp: QueuePair) -> Result<[u64; 2], Error> {
        let peer = self.peers.get(self.peer_number(qp)?);
        Ok(self.queue_pairs.get(qp)?.traffic(peer))
    }

    pub(crate) fn peer_number(&self, qp: QueuePair) -> Result<usize, Error> {
        let peer = self.queue_pairs.get(qp)?.peer_number();
        peer.ok_or(Error::NotConnected(qp.serial))
    }

    /// Returns the fabric's counters of packets carried and dropped.
    pub fn counters(&self) -> Counters {
        self.fabric.counters()
    }
}

/// Converts the number of a peer to an index for schedules.
fn peer_index(peer: usize) -> u32 {
    u32::try_from(peer).expect("at most as many peers as queue pairs")
}
