//! A running bridge and its thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farwrite_boxes::{Backpressure, BoxFrame, Class, Middlebox, Side};
use farwrite_trains::{VNET_BYTES, mark_congestion};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::interface::{Incoming, Interface, Received, Room};
use crate::queue::Outgoing;
use crate::sort::{Sorted, ethernet_bytes, sort};
use crate::throttle::Throttle;
use crate::{BridgeError, BridgeTask, privileges, sys};

/// Interval at which the bridge checks a queue that pauses the near side, and a full queue of the
/// kernel.
const LOOK_NS: u64 = 50_000;
/// Interval at which the thread publishes its report.
const REPORT_NS: u64 = 100_000_000;

/// The settings of a bridge.
#[derive(Clone, Debug)]
pub struct BridgeConfig {
    /// The interface towards the NICs.
    pub near: String,
    /// The interface towards the path.
    pub far: String,
    /// How to slow senders down when repair packets queue up; `None` to never do so.
    pub backpressure: Option<Backpressure>,
    /// Bitmap of the priorities that PFC frames stop when packets queue up. The box can stop more
    /// of them.
    pub priorities: u8,
    /// The longest IP packet that the box may send to the path; `None` if nothing says so.
    pub longest_bytes: Option<usize>,
}

/// A running bridge. Dropping it stops the bridge, and the frames that the box holds are lost.
pub struct Bridge<B: Middlebox> {
    thread: Option<JoinHandle<Result<(), BridgeError>>>,
    shared: Arc<Mutex<BridgeReport<B::Counters>>>,
    stop: Arc<OwnedFd>,
    down: Vec<String>,
}

/// The counters of a bridge.
#[derive(Clone, Debug, Default)]
pub struct BridgeReport<C> {
    /// Since the bridge was started.
    pub elapsed: Duration,
    /// At the near interface.
    pub near: SideReport,
    /// At the far interface.
    pub far: SideReport,
    /// How often a priority of the near side was paused.
    pub pauses: u64,
    /// Packets marked with congestion experienced.
    pub marked: u64,
    /// Repairs dropped because more than 4 MiB were queued at the far interface.
    pub repairs_dropped: u64,
    /// The counters of the box.
    pub counters: C,
}

/// The counters of a bridge at one interface. A train counts as one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideReport {
    /// Frames received.
    pub received: u64,
    /// Of these, the frames that bypassed the box because their checksums or segments were
    /// unfinished.
    pub around: u64,
    /// Of these, the frames addressed to this machine, or limited to this link, for instance pause
    /// frames.
    pub local: u64,
    /// Frames that the kernel dropped because the bridge did not read them in time, and frames that
    /// were too long or too short to read.
    pub unread: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames lost because the kernel refused to send them: they were longer than the interface's
    /// MTU, or the interface was down.
    pub unsent: u64,
}

impl<B> Bridge<B>
where
    B: Middlebox + Send + 'static,
    B::Counters: Clone + Default + Send,
{
    /// Opens the interfaces, gives up the privileges of the process, and starts the thread. The process keeps
    /// no capability. If it runs as root, it goes on as user and group 65534 (`nobody`), where these exist.
    ///
    /// Threads that run already keep the capabilities of a process that has some without being root.
    ///
    /// # Errors
    /// [`BridgeError`].
    pub fn start(config: &BridgeConfig, inner: B) -> Result<Self, BridgeError> {
        let system = |what| move |source| BridgeError::System { what, source };
        let [near, far] = open(config)?;
        let down = [&near, &far].into_iter().filter(|end| !end.link().is_up);
        let down = down.map(|end| end.name().to_owned()).collect();
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system(BridgeTask::Eventfd)(error.into()))?;
        let stop = Arc::new(stop);
        let shared = Arc::default();
        let (source, mbps) = (near.address(), near.speed_mbps());
        let throttle = Throttle::new(config.backpressure, config.priorities, source, mbps);
        let worker = Worker {
            inner,
            ends: [End::new(near), End::new(far)],
            throttle,
            received: Received::default(),
            start: Instant::now(),
            stop: Arc::clone(&stop),
            shared: Arc::clone(&shared),
            kernel_bytes: 0,
            marked: 0,
        };
        // The thread inherits the priority, which nothing may set later. Without it, frames wait for a core
        // more often.
        let urgent = sys::raise_priority().is_ok();
        let thread = privileges::give_up()
            .map_err(system(BridgeTask::Privileges))
            .and_then(|()| {
                let thread = thread::Builder::new().name("bridge".into());
                let thread = thread.spawn(move || worker.run());
                thread.map_err(system(BridgeTask::Thread))
            });
        if urgent {
            sys::lower_priority().map_err(system(BridgeTask::Privileges))?;
        }
        let thread = thread?;
        Ok(Self {
            thread: Some(thread),
            shared,
            stop,
            down,
        })
    }

    /// The interfaces that were down when the bridge was started. They carry frames from when they
    /// come up.
    #[must_use]
    pub fn down(&self) -> &[String] {
        &self.down
    }

    /// Whether the bridge still forwards frames. It stops by itself when an interface disappears.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }

    /// The counters so far, at most 100 ms old.
    #[must_use]
    pub fn report(&self) -> BridgeReport<B::Counters> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.clone()
    }

    /// Stops the bridge. Returns the final counters, and the error if the bridge had ended by
    /// itself before.
    ///
    /// # Panics
    /// If the thread of the bridge panicked.
    pub fn stop(mut self) -> (BridgeReport<B::Counters>, Result<(), BridgeError>) {
        wake(&self.stop);
        let result = match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        };
        (self.report(), result)
    }
}

/// Opens the near and the far interface.
fn open(config: &BridgeConfig) -> Result<[Interface; 2], BridgeError> {
    if config.near == config.far {
        return Err(BridgeError::SameInterface(config.near.clone()));
    }
    let [near, far] = [&config.near, &config.far].map(|name| Interface::open(name));
    let (near, far) = (near?, far?);
    let mtu_bytes = far.link().mtu_bytes;
    match config.longest_bytes.filter(|asked| *asked > mtu_bytes) {
        Some(asked_bytes) => Err(BridgeError::TooLong {
            asked_bytes,
            interface: config.far.clone(),
            mtu_bytes,
        }),
        None => Ok([near, far]),
    }
}

/// Wakes the thread, so that it ends.
fn wake(stop: &OwnedFd) {
    // This fails only if the count is at its maximum. Then the eventfd is already readable.
    let _ = rustix::io::write(stop, &1u64.to_ne_bytes());
}

impl<B: Middlebox> Drop for Bridge<B> {
    fn drop(&mut self) {
        wake(&self.stop);
        // Ignore the thread's result, which `stop` would return. A panic while dropping would end
        // the process.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An interface and the queue of frames to send.
struct End {
    interface: Interface,
    /// Frames to this address are for this machine.
    address: [u8; 6],
    queue: Outgoing,
    room: Room,
    report: SideReport,
}

impl End {
    fn new(interface: Interface) -> Self {
        Self {
            address: interface.address(),
            interface,
            queue: Outgoing::default(),
            room: Room::Signalled,
            report: SideReport::default(),
        }
    }
}

struct Worker<B: Middlebox> {
    inner: B,
    ends: [End; 2],
    throttle: Throttle,
    received: Received,
    start: Instant,
    /// An eventfd. It becomes readable when the thread must end.
    stop: Arc<OwnedFd>,
    shared: Arc<Mutex<BridgeReport<B::Counters>>>,
    /// Bytes in the kernel's queue of the far interface at the last turn.
    kernel_bytes: u64,
    marked: u64,
}

const NEAR: usize = 0;
const FAR: usize = 1;

impl<B: Middlebox> Worker<B>
where
    B::Counters: Clone,
{
    fn run(mut self) -> Result<(), BridgeError> {
        let mut reported_ns = 0;
        let result = loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            let now_ns = self.now_ns();
            if now_ns >= reported_ns + REPORT_NS {
                reported_ns = now_ns;
                self.report();
                if let Err(error) = self.ends.iter().try_for_each(|end| end.interface.check()) {
                    break Err(error);
                }
            }
        };
        self.report();
        result
    }

    /// Sleeps until there is work, and does it. Returns `false` when the bridge must end.
    fn turn(&mut self) -> Result<bool, BridgeError> {
        if self.wait()? {
            return Ok(false);
        }
        for side in [NEAR, FAR] {
            if !self.ends[1 - side].queue.is_full() {
                self.take(side)?;
            }
        }
        let now_ns = self.now_ns();
        if self.inner.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.inner.handle_timeout(now_ns);
            self.drain();
        }
        for end in &mut self.ends {
            end.room = end.interface.send(&mut end.queue)?;
        }
        self.pause();
        Ok(true)
    }

    /// Waits for frames, for room in a queue, or for the next timeout. Returns `true` when the
    /// bridge must end.
    fn wait(&self) -> Result<bool, BridgeError> {
        let renew_ns = self.throttle.renew_at_ns();
        let tries = self.ends.iter().any(|end| end.room == Room::Later);
        let look_ns = (tries || renew_ns.is_some()).then(|| self.now_ns() + LOOK_NS);
        let times = [self.inner.next_ns(), renew_ns, look_ns];
        let next_ns = times.into_iter().flatten().min();
        let sleep = next_ns.map(|at_ns| at_ns.saturating_sub(self.now_ns()));
        // Wake up for reports even if no frame arrives.
        let sleep = Duration::from_nanos(sleep.unwrap_or(REPORT_NS).min(REPORT_NS));
        let timeout = Timespec::try_from(sleep).ok();
        let flags = |side: usize| {
            let mut flags = PollFlags::empty();
            if !self.ends[1 - side].queue.is_full() {
                flags |= PollFlags::IN;
            }
            let end = &self.ends[side];
            if !end.queue.is_empty() && end.room == Room::Signalled {
                flags |= PollFlags::OUT;
            }
            flags
        };
        let [near, far] = &self.ends;
        let mut fds = [
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            PollFd::new(&near.interface, flags(NEAR)),
            PollFd::new(&far.interface, flags(FAR)),
        ];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(fds[0].revents().contains(PollFlags::IN)),
            Err(error) => Err(BridgeError::System {
                what: BridgeTask::Wait,
                source: error.into(),
            }),
        }
    }

    /// Receives the frames that arrived at one side.
    fn take(&mut self, side: usize) -> Result<(), BridgeError> {
        let count = self.ends[side].interface.receive(&mut self.received)?;
        let now_ns = self.now_ns();
        for index in 0..count {
            let incoming = self.received.get(index);
            self.carry(now_ns, side, incoming);
        }
        Ok(())
    }

    fn carry(&mut self, now_ns: u64, side: usize, incoming: Incoming) {
        let End {
            report, address, ..
        } = &mut self.ends[side];
        let Incoming::Frame(vnet, frame) = incoming else {
            report.unread += 1;
            return;
        };
        report.received += 1;
        match sort(&vnet, frame, address) {
            Sorted::Local => report.local += 1,
            Sorted::Around(vnet, frame) => {
                report.around += 1;
                self.ends[1 - side].queue.push(Class::Data, vnet, frame);
            }
            Sorted::Through(packets) => {
                let from = if side == NEAR { Side::Near } else { Side::Far };
                for packet in packets {
                    self.inner.handle(now_ns, from, packet);
                }
                self.drain();
            }
        }
    }

    /// Moves frames from the box to the queues.
    fn drain(&mut self) {
        let [near, far] = &mut self.ends;
        while let Some(sent) = self.inner.poll() {
            let BoxFrame {
                to,
                class,
                ahead,
                bytes,
            } = sent;
            let mut frame = bytes;
            match to {
                Side::Near => near.queue.push(class, [0; VNET_BYTES], frame),
                Side::Far => {
                    let queued_bytes = self.kernel_bytes + far.queue.bytes();
                    if self.throttle.marks(queued_bytes) {
                        let ethernet = ethernet_bytes(&frame);
                        self.marked += u64::from(mark_congestion(&mut frame[ethernet..]));
                    }
                    if ahead {
                        far.queue.push_ahead(class, frame);
                    } else {
                        far.queue.push(class, [0; VNET_BYTES], frame);
                    }
                }
            }
        }
    }

    /// Pauses or resumes the near side. If the kernel has no room for the PFC frame, it stays due. A
    /// frame that fails for another reason is lost: the pause is renewed or expires by itself.
    fn pause(&mut self) {
        let now_ns = self.now_ns();
        let [near, far] = &mut self.ends;
        self.kernel_bytes = far.interface.queued_bytes();
        let queued_bytes = self.kernel_bytes + far.queue.bytes();
        let stops = self.inner.stops();
        if let Some(frame) = self.throttle.pause(now_ns, queued_bytes, stops)
            && !near.interface.offer(&frame)
        {
            self.throttle.not_sent(&frame);
        }
    }

    fn report(&mut self) {
        let sides = self.ends.each_mut().map(|end| {
            let (sent, unsent) = end.queue.counts();
            let kernel = end.interface.dropped();
            SideReport {
                sent,
                unsent,
                unread: end.report.unread + kernel,
                ..end.report
            }
        });
        let [near, far] = sides;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = BridgeReport {
            elapsed: self.start.elapsed(),
            near,
            far,
            pauses: self.throttle.pauses(),
            marked: self.marked,
            repairs_dropped: self.ends[FAR].queue.repairs_dropped(),
            counters: self.inner.counters(),
        };
    }

    fn now_ns(&self) -> u64 {
        // 64 bits of nanoseconds are 584 years.
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
