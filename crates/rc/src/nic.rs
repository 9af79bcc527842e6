//! A NIC with many queue pairs.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use farwrite_link::Serialiser;
use farwrite_net::header::Header;
use farwrite_net::{Device, Ecn, Frame, NodeId, Output, PRIORITIES, Payload, Ports, ROCE_PORT};

use farwrite_rate::{NotificationPoint, PullPacer, RateControl, ReceiverControl};

use crate::echo::PathNote;
use crate::end::End;
use crate::{
    Completion, ConfigError, Memory, Packet, Paths, PostError, QpConfig, QpCounters, QueuePair,
    Repair, Request, earliest, xp,
};

/// Number of a NIC's first queue pair. Further queue pairs have the numbers after it. InfiniBand
/// reserves 0 and 1 for management.
pub const FIRST_QPN: u32 = 2;
const PORT: usize = 0;
/// `N` of DCQCN (SIGCOMM 2015): the shortest interval between two congestion notifications.
const NOTIFICATION_INTERVAL_NS: u64 = 50_000;

/// The NIC of a host of a network. It uses the host's port 0.
///
/// The NIC chooses a frame only when the port can send it at once. A paused priority (PFC)
/// therefore stops its own queue pairs and no others. Higher priorities go first. Within a
/// priority, acknowledgements go first. Data packets follow by start-time fair queueing (Goyal, Vin
/// and Cheng, SIGCOMM 1996): each queue pair has a start tag, which grows by the bytes that the
/// queue pair sends, and the queue pair with the smallest tag sends next. So queue pairs get equal
/// shares in bytes.
#[derive(Debug)]
pub struct Nic {
    node: NodeId,
    /// Memory that peers write and read.
    pub memory: Memory,
    /// The queue pairs in the order of their numbers; `None` for released ones.
    pub(crate) ends: Vec<Option<Box<ScheduledPair>>>,
    lanes: [Lane; PRIORITIES],
    /// Priorities whose lanes have queue pairs, one bit each.
    busy_lanes: u8,
    /// Times at which queue pairs have something to do: the time, and the index of the queue pair.
    timers: BTreeSet<(u64, usize)>,
    /// The latest time that the network has passed to the NIC.
    pub(crate) now_ns: u64,
    /// Sends congestion notifications for marked packets. Its flows are indices into `ends`.
    pub(crate) notifications: NotificationPoint,
    /// Grants credit to peers. Its flows are indices into `ends`.
    pub(crate) pulls: Option<PullPacer>,
    counters: NicCounters,
    /// Indices of the queue pairs that got completions from a timer.
    finished: BTreeSet<usize>,
}

/// Where the packets of a queue pair go, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The peer's host.
    pub peer: NodeId,
    /// UDP source port of this end's packets. ECMP hashes it to choose among equal paths.
    pub src_port: u16,
    /// Traffic class, 0 to 7; a higher number counts as 7.
    pub priority: u8,
    /// Rate limit in bits of IP datagrams per second, acknowledgements excluded; `None` for no
    /// limit.
    pub rate_bps: Option<u64>,
}

/// Counters of received frames that the NIC dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicCounters {
    /// Frames that are not RoCEv2 packets from the peer of a queue pair of this NIC.
    pub strangers: u64,
    /// Frames whose payload a switch cut off. With
    /// [`Recovery::Trimming`](crate::Recovery::Trimming), the peer retransmits them at once.
    pub trimmed: u64,
}

/// A queue pair with its scheduling state.
#[derive(Debug)]
pub(crate) struct ScheduledPair {
    pub(crate) pair: End,
    connection: Connection,
    /// Time at which the rate limit allows the next packet.
    pace: Option<Serialiser>,
    /// Start tag of fair queueing: the bytes that a queue pair without idle times would have sent.
    tag: u64,
    paths: Paths,
    /// Acknowledgements and data packets sent. Each kind takes turns over the paths.
    sent: [u64; 2],
    /// Tag of the queue pair's entry in `Lane::data`.
    listed_tag: Option<u64>,
    /// Whether the queue pair is in `Lane::acks`.
    listed_ack: bool,
    /// Time of the queue pair's entry in `Nic::timers`.
    timer_ns: Option<u64>,
}

/// The queue pairs of one priority that have something to send now.
#[derive(Debug, Default)]
struct Lane {
    acks: VecDeque<usize>,
    /// Start tag and index, the smallest first. An entry counts if the tag is the queue pair's
    /// `listed_tag`. The others are left here until they come first.
    data: BinaryHeap<Reverse<(u64, usize)>>,
    /// Start tag of the packet that was sent last.
    tag: u64,
}

impl Nic {
    /// The NIC of a host.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            memory: Memory::default(),
            ends: Vec::new(),
            lanes: Default::default(),
            busy_lanes: 0,
            timers: BTreeSet::new(),
            now_ns: 0,
            notifications: NotificationPoint::new(NOTIFICATION_INTERVAL_NS),
            pulls: None,
            counters: NicCounters::default(),
            finished: BTreeSet::new(),
        }
    }

    /// Sets the shortest interval between two congestion notifications to the same peer. The
    /// default is 50 us, `N` of DCQCN. With 0, each marked packet is answered.
    pub fn set_notification_interval(&mut self, interval_ns: u64) {
        self.notifications = NotificationPoint::new(interval_ns);
    }

    /// Grants credit to the peers of queue pairs with
    /// [`Recovery::Trimming`](crate::Recovery::Trimming), or of XP with [`xp::Config::credit`].
    pub fn set_pull_pacer(&mut self, pulls: PullPacer) {
        self.pulls = Some(pulls);
    }

    /// Attaches a congestion controller to a queue pair. It replaces an earlier one.
    ///
    /// # Errors
    /// [`PostError::NoQueuePair`].
    pub fn set_control(
        &mut self,
        qpn: u32,
        rate: Box<dyn RateControl + Send>,
    ) -> Result<(), PostError> {
        let now_ns = self.now_ns;
        let (at, pair) = self.reliable(qpn)?;
        pair.set_control(now_ns, rate);
        self.reschedule(at);
        Ok(())
    }

    /// Sets the rules by which a queue pair repairs losses, with [`Recovery::Own`](crate::Recovery::Own).
    ///
    /// # Errors
    /// [`PostError::NoQueuePair`].
    pub fn set_repair(&mut self, qpn: u32, repair: Box<dyn Repair>) -> Result<(), PostError> {
        self.reliable(qpn)?.1.set_repair(repair);
        Ok(())
    }

    /// Adds a queue pair and returns its number. Numbers count up from [`FIRST_QPN`].
    ///
    /// # Errors
    /// [`ConfigError`], also for a rate of 0 and when all numbers are in use.
    pub fn connect(&mut self, to: Connection, config: QpConfig) -> Result<u32, ConfigError> {
        if to.rate_bps == Some(0) {
            return Err(ConfigError::NoRate);
        }
        let pair = End::Reliable(QueuePair::new(config)?);
        let number = self.add(to, pair, config.paths);
        number.map_err(ConfigError::QueuePairs)
    }

    /// Adds a queue pair of XP and returns its number, which is one of those of [`connect`](Self::connect). The
    /// queue pair has a controller of its own.
    ///
    /// # Errors
    /// [`xp::ConfigError`].
    pub fn connect_xp(
        &mut self,
        to: Connection,
        config: &xp::Config,
    ) -> Result<u32, xp::ConfigError> {
        if to.rate_bps == Some(0) {
            return Err(xp::ConfigError::Zero { field: "rate_bps" });
        }
        let pair = End::Xp(xp::QueuePair::new(config)?);
        let number = self.add(to, pair, Paths::ONE);
        number.map_err(xp::ConfigError::QueuePairs)
    }

    /// Adds a queue pair and returns its number, or the number of queue pairs if all numbers are in use.
    fn add(&mut self, to: Connection, pair: End, paths: Paths) -> Result<u32, usize> {
        let pairs = self.ends.len();
        let qpn = u32::try_from(pairs).ok().map(|pairs| pairs + FIRST_QPN);
        let qpn = qpn.filter(|qpn| *qpn < 1 << 24).ok_or(pairs)?;
        self.ends.push(Some(Box::new(ScheduledPair {
            pair,
            connection: Connection {
                priority: to.priority.min(7),
                ..to
            },
            pace: to.rate_bps.map(Serialiser::new),
            tag: 0,
            paths,
            sent: [0; 2],
            listed_tag: None,
            listed_ack: false,
            timer_ns: None,
        })));
        Ok(qpn)
    }

    /// Same as [`connect`](Self::connect), with a congestion controller.
    ///
    /// # Errors
    /// Same as [`connect`](Self::connect).
    pub fn connect_under(
        &mut self,
        to: Connection,
        config: QpConfig,
        rate: Box<dyn RateControl + Send>,
    ) -> Result<u32, ConfigError> {
        let qpn = self.connect(to, config)?;
        let now_ns = self.now_ns;
        if let Ok((_, pair)) = self.reliable(qpn) {
            pair.set_control(now_ns, rate);
        }
        Ok(qpn)
    }

    /// Posts a request to a queue pair. In a network, reach the NIC through
    /// [`Network::device_mut`](farwrite_net::Network::device_mut), so that it is polled.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post(&mut self, qpn: u32, id: u64, request: Request) -> Result<(), PostError> {
        let (at, pair) = self.reliable(qpn)?;
        pair.post(id, request)?;
        self.reschedule(at);
        Ok(())
    }

    /// Posts a message to a queue pair of XP.
    ///
    /// # Errors
    /// [`xp::PostError`].
    pub fn post_xp_write(&mut self, qpn: u32, write: xp::Write) -> Result<(), xp::PostError> {
        let (at, pair) = self.xp(qpn)?;
        pair.post_write(write)?;
        self.reschedule(at);
        Ok(())
    }

    /// Posts a receive to a queue pair of XP.
    ///
    /// # Errors
    /// [`xp::PostError`].
    pub fn post_xp_receive(&mut self, qpn: u32, receive: xp::Receive) -> Result<(), xp::PostError> {
        let (at, pair) = self.xp(qpn)?;
        pair.post_receive(receive)?;
        self.reschedule(at);
        Ok(())
    }

    /// Posts a receive buffer of `max_bytes` to a queue pair.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_receive(&mut self, qpn: u32, id: u64, max_bytes: u32) -> Result<(), PostError> {
        let (_, pair) = self.reliable(qpn)?;
        pair.post_receive(id, max_bytes)
    }

    /// Removes and returns the oldest completion of a queue pair.
    pub fn poll_completion(&mut self, qpn: u32) -> Option<Completion> {
        let (_, pair) = self.reliable(qpn).ok()?;
        pair.poll_completion()
    }

    /// Removes and returns the oldest completion of a queue pair of XP.
    pub fn poll_xp_completion(&mut self, qpn: u32) -> Option<xp::Completion> {
        let (_, pair) = self.xp(qpn).ok()?;
        pair.poll_completion()
    }

    /// Removes and returns a queue pair that got completions since the last call without a frame
    /// for it: from host software ([`Software`](crate::Software)), by a timeout, or, with XP, because a
    /// message has left.
    pub fn poll_finished(&mut self) -> Option<u32> {
        let at = self.finished.pop_first()?;
        Some(u32::try_from(at).unwrap_or(u32::MAX) + FIRST_QPN)
    }

    /// The counters of a queue pair.
    #[must_use]
    pub fn qp_counters(&self, qpn: u32) -> Option<QpCounters> {
        let end = self.ends.get(index_of(qpn)?)?.as_ref()?;
        Some(end.pair.reliable()?.counters())
    }

    /// The counters of a queue pair of XP.
    #[must_use]
    pub fn xp_counters(&self, qpn: u32) -> Option<xp::Counters> {
        let end = self.ends.get(index_of(qpn)?)?.as_ref()?;
        match &end.pair {
            End::Reliable(_) => None,
            End::Xp(pair) => Some(pair.counters()),
        }
    }

    /// The counters of dropped frames.
    #[must_use]
    pub fn counters(&self) -> NicCounters {
        self.counters
    }

    /// Frees the memory of a queue pair and returns its counters. Its number is not used again, and
    /// packets for it count as strangers. `None`, without effect: the queue pair does not exist, is one of XP, or
    /// has something to do: a request that is not complete, a packet to send, a completion that was
    /// not polled, or packets that wait for software.
    ///
    /// A queue pair that answers its peer must stay: the peer repeats packets whose acknowledgement
    /// was lost.
    pub fn release(&mut self, qpn: u32) -> Option<QpCounters> {
        let (at, end) = self.pair_mut(qpn)?;
        let is_scheduled = end.listed_ack || end.listed_tag.is_some() || end.timer_ns.is_some();
        let pair = end.pair.reliable()?;
        if is_scheduled || !pair.is_idle() {
            return None;
        }
        let counters = pair.counters();
        self.ends[at] = None;
        Some(counters)
    }

    /// A queue pair and its index.
    fn pair_mut(&mut self, qpn: u32) -> Option<(usize, &mut ScheduledPair)> {
        let at = index_of(qpn)?;
        let end = self.ends.get_mut(at)?.as_mut()?;
        Some((at, end))
    }

    /// A reliable connection and its index.
    fn reliable(&mut self, qpn: u32) -> Result<(usize, &mut QueuePair), PostError> {
        let pair = self.pair_mut(qpn);
        let pair = pair.and_then(|(at, end)| Some((at, end.pair.reliable_mut()?)));
        pair.ok_or(PostError::NoQueuePair(qpn))
    }

    /// A queue pair of XP and its index.
    fn xp(&mut self, qpn: u32) -> Result<(usize, &mut xp::QueuePair), xp::PostError> {
        let pair = self.pair_mut(qpn);
        let pair = pair.and_then(|(at, end)| Some((at, end.pair.xp_mut()?)));
        pair.ok_or(xp::PostError::NoQueuePair(qpn))
    }

    /// Updates the schedule entries of a queue pair after its state changed.
    pub(crate) fn reschedule(&mut self, at: usize) {
        let Some(end) = &mut self.ends[at] else {
            return;
        };
        let wanted = end.pair.xp_mut().and_then(xp::QueuePair::take_wanted);
        if let (Some(packets), Some(pulls)) = (wanted, &mut self.pulls) {
            pulls.ask(self.now_ns, u32::try_from(at).unwrap_or(u32::MAX), packets);
        }
        let priority = end.connection.priority;
        let lane = &mut self.lanes[usize::from(priority)];
        if end.pair.has_ack() && !end.listed_ack {
            lane.acks.push_back(at);
            end.listed_ack = true;
        }
        let listed_tag = end.listed_tag.take();
        let mut timer_ns = end.pair.next_timeout(self.now_ns);
        if end.pair.has_data() {
            let free_ns = end.pace.as_ref().map_or(0, Serialiser::free_ns);
            let free_ns = free_ns.max(end.pair.next_send_ns(self.now_ns));
            if free_ns <= self.now_ns {
                // A queue pair that was idle does not catch up on what it missed.
                end.tag = end.tag.max(lane.tag);
                end.listed_tag = Some(end.tag);
            } else {
                timer_ns = Some(timer_ns.map_or(free_ns, |timer_ns| timer_ns.min(free_ns)));
            }
        }
        if end.listed_tag != listed_tag {
            lane.data
                .extend(end.listed_tag.map(|tag| Reverse((tag, at))));
        }
        let is_busy = !lane.acks.is_empty() || !lane.data.is_empty();
        self.busy_lanes = self.busy_lanes & !(1 << priority) | u8::from(is_busy) << priority;
        if timer_ns != end.timer_ns {
            if let Some(timer_ns) = end.timer_ns {
                self.timers.remove(&(timer_ns, at));
            }
            self.timers.extend(timer_ns.map(|timer_ns| (timer_ns, at)));
            end.timer_ns = timer_ns;
        }
    }

    /// Handles the timers that are due.
    fn handle_timers(&mut self) {
        while let Some(&(at_ns, at)) = self.timers.first()
            && at_ns <= self.now_ns
        {
            self.timers.pop_first();
            let Some(end) = &mut self.ends[at] else {
                continue;
            };
            end.timer_ns = None;
            end.pair.handle_timeout(self.now_ns, &mut self.memory);
            if end.pair.has_completion() {
                self.finished.insert(at);
            }
            self.reschedule(at);
        }
    }

    /// Chooses the next frame of a priority.
    fn next_frame(&mut self, priority: usize) -> Option<Frame> {
        let lane = &mut self.lanes[priority];
        let (at, frame) = if let Some(at) = lane.acks.pop_front() {
            let end = self.ends[at].as_mut()?;
            end.listed_ack = false;
            let packet = end.pair.poll_ack()?;
            (at, end.frame(self.node, 0, packet))
        } else {
            let (tag, at, end) = loop {
                let Reverse((tag, at)) = lane.data.pop()?;
                match &mut self.ends[at] {
                    Some(end) if end.listed_tag == Some(tag) => break (tag, at, end),
                    _ => {}
                }
            };
            lane.tag = tag;
            end.listed_tag = None;
            let packet = end.pair.poll_data(self.now_ns, &self.memory)?;
            let frame = end.frame(self.node, 1, packet);
            end.charge(self.now_ns, u64::from(frame.ip_bytes()));
            if end.pair.xp_mut().is_some_and(|pair| pair.has_completion()) {
                self.finished.insert(at);
            }
            (at, frame)
        };
        self.reschedule(at);
        Some(frame)
    }
}

/// Index of a queue pair, from its number.
fn index_of(qpn: u32) -> Option<usize> {
    usize::try_from(qpn.checked_sub(FIRST_QPN)?).ok()
}

impl ScheduledPair {
    /// A frame with a packet. `kind`: 0 for acknowledgements, 1 for data.
    fn frame(&mut self, node: NodeId, kind: usize, packet: Packet) -> Frame {
        let connection = &self.connection;
        let src_port = self.paths.port(connection.src_port, self.sent[kind]);
        self.sent[kind] += 1;
        let telemetry = self.pair.telemetry_of(&packet);
        Frame {
            src: node,
            dst: connection.peer,
            src_port,
            dst_port: ROCE_PORT,
            ipv4_id: 0,
            priority: connection.priority,
            ecn: Ecn::Capable0,
            header: Header::Roce(packet.header),
            payload: packet.payload,
            telemetry,
        }
    }

    /// Charges a packet to the fair share and the rate limit of the queue pair.
    fn charge(&mut self, now_ns: u64, bytes: u64) {
        self.tag += bytes;
        if let Some(pace) = &mut self.pace {
            // Back-to-back packets keep the fraction of a nanosecond.
            if now_ns > pace.free_ns() {
                pace.accept(now_ns, bytes);
            } else {
                pace.append(bytes);
            }
        }
    }
}

impl Device for Nic {
    fn handle(&mut self, now_ns: u64, _port: usize, frame: Frame) {
        self.now_ns = now_ns;
        let payload = match frame.payload {
            // The switch cut off nothing.
            Payload::Trimmed(0) => Payload::Bytes([].into()),
            payload => payload,
        };
        self.counters.trimmed += u64::from(matches!(payload, Payload::Trimmed(_)));
        let Header::Roce(header) = frame.header else {
            self.counters.strangers += 1;
            return;
        };
        let at = index_of(header.bth.dest_qp);
        let packet = Packet { header, payload };
        let known = at.filter(|at| match self.ends.get(*at) {
            Some(Some(end)) => end.connection.peer == frame.src,
            _ => false,
        });
        let Some(at) = known else {
            self.counters.strangers += 1;
            return;
        };
        self.note_arrival(at, frame.ecn, &packet);
        if let Some(end) = &mut self.ends[at] {
            let marked = frame.ecn == Ecn::Experienced;
            if marked || frame.telemetry.is_some() {
                let telemetry = frame.telemetry;
                end.pair.note_path(PathNote { marked, telemetry });
            }
            end.pair.handle_packet(now_ns, &packet, &mut self.memory);
        }
        self.reschedule(at);
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        self.now_ns = now_ns;
        self.handle_timers();
        self.handle_notices();
        let mut ready = ports.ready_priorities(PORT) & self.busy_lanes;
        while let Some(priority) = ready.checked_ilog2() {
            if let Some(frame) = self.next_frame(priority as usize) {
                return Some(Output::Send { port: PORT, frame });
            }
            ready ^= 1 << priority;
        }
        None
    }

    fn next_ns(&self) -> Option<u64> {
        let timer_ns = self.timers.first().map(|(at_ns, _)| *at_ns);
        let pulls_ns = self.pulls.as_ref().and_then(PullPacer::next_timeout);
        earliest([timer_ns, self.notifications.next_timeout(), pulls_ns])
    }
}
