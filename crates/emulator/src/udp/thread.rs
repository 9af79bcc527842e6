//! The thread of an emulator.

use std::collections::HashMap;
use std::mem;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use farwrite_fabric::udp::SocketError;
use farwrite_link::{Datagram, Link, LinkConfig, LinkDirection};
use rustix::event::{PollFd, PollFlags};

use super::UdpControl;
use super::config::{UdpEmulatorConfig, UdpEmulatorError};
use super::counters::{DirectionCounters, UdpEmulatorCounters};
use super::port::{Port, run_length, send_run, turn_around};

use crate::Task;
use crate::timed_link::{TimedLink, direction_seeds};

/// Timer slack of the thread: large enough that at some Gbit/s packets leave in batches.
const TIMER_SLACK_NS: u64 = 20_000;

pub(super) struct UdpThread {
    /// For each channel, the port toward end A and the port toward end B.
    channels: Vec<[Port; 2]>,
    channel_of: HashMap<SocketAddr, usize>,
    /// The forward direction, from port 0 to port 1 of each channel, and the backward direction.
    directions: [UdpDirection; 2],
    down: bool,
    shared: Arc<UdpControl>,
}

/// One direction of all channels.
struct UdpDirection {
    link: TimedLink<Datagram>,
    counters: DirectionCounters,
    /// Datagrams that leave in this round; empty between rounds.
    due: Vec<Datagram>,
}

impl UdpDirection {
    fn new(
        direction: LinkDirection,
        config: LinkConfig,
        seed: u64,
        start: Instant,
    ) -> Result<Self, UdpEmulatorError> {
        let link = Link::new(config, seed)
            .map_err(|source| UdpEmulatorError::Link { direction, source })?;
        Ok(Self {
            link: TimedLink::new(link, start),
            counters: DirectionCounters::default(),
            due: Vec::new(),
        })
    }
}

impl UdpThread {
    pub(super) fn new(
        config: &UdpEmulatorConfig,
        shared: Arc<UdpControl>,
    ) -> Result<Self, UdpEmulatorError> {
        let start = Instant::now();
        let [forward, backward] = direction_seeds(config.seed);
        let directions = [
            UdpDirection::new(LinkDirection::Forward, config.forward, forward, start)?,
            UdpDirection::new(LinkDirection::Backward, config.backward, backward, start)?,
        ];
        if config.channels.is_empty() {
            return Err(UdpEmulatorError::NoChannel);
        }
        let mut channels = Vec::new();
        let mut channel_of = HashMap::new();
        for (i, channel) in config.channels.iter().enumerate() {
            let ports = [&channel.a, &channel.b].map(|side| Port::open(side, config.verbatim));
            let [a, b] = ports;
            let ports = [a?, b?];
            channel_of.extend(ports.iter().map(|port| (port.addr(), i)));
            channels.push(ports);
        }
        Ok(Self {
            channels,
            channel_of,
            directions,
            down: false,
            shared,
        })
    }

    pub(super) fn addresses(&self) -> Vec<[SocketAddr; 2]> {
        let addresses = |ports: &[Port; 2]| ports.each_ref().map(Port::addr);
        self.channels.iter().map(addresses).collect()
    }

    /// Relays until the handle stops the thread. Each round waits, receives datagrams, and sends
    /// those that are due.
    pub(super) fn run(&mut self) -> Result<(), UdpEmulatorError> {
        // By default, the kernel wakes a thread up to 50 us late. If the kernel refuses this
        // option, that lateness stays.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
        loop {
            let readable = self.wait()?;
            if self.shared.stop.load(Ordering::SeqCst) {
                return Ok(());
            }
            for (channel, direction) in readable {
                self.receive(channel, direction)?;
            }
            self.apply_flags();
            self.deliver(0);
            self.deliver(1);
            *self.shared.counters() = self.counters();
        }
    }

    /// Waits until a datagram arrives, a datagram is due, or the handle wakes the thread. Returns
    /// the ports that have datagrams, as channel and direction.
    fn wait(&self) -> Result<Vec<(usize, usize)>, UdpEmulatorError> {
        let [forward, backward] = self.directions.each_ref().map(|d| d.link.next_ns());
        let due_ns = forward.into_iter().chain(backward).min();
        let timeout = self.directions[0].link.sleep_until(due_ns);
        let sockets = self.channels.iter().flatten().map(|port| &port.socket);
        let mut fds: Vec<_> = sockets.map(|s| PollFd::new(s, PollFlags::IN)).collect();
        fds.push(PollFd::new(&self.shared.wake, PollFlags::IN));
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(e) => return Err(UdpEmulatorError::system(Task::Wait, e.into())),
        }
        let is_readable = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if fds.pop().is_some_and(|wake| is_readable(&wake)) {
            self.shared.wake.reset();
        }
        let ports = fds.iter().enumerate().filter(|(_, fd)| is_readable(fd));
        Ok(ports.map(|(i, _)| (i / 2, i % 2)).collect())
    }

    /// Receives one batch from a socket, and puts it into the link.
    fn receive(&mut self, channel: usize, direction: usize) -> Result<(), SocketError> {
        let now_ns = self.directions[direction].link.now_ns();
        let [a, b] = &mut self.channels[channel];
        let (from, to) = if direction == 0 { (a, b) } else { (b, a) };
        let from_addr = from.addr();
        let (helping, _) = from.socket.recv()?;
        // Apply the flags first: datagrams sent after the link was cut must not pass.
        apply_flags(&self.shared, &mut self.down, &mut self.directions);
        let most_bytes = self.shared.most_bytes.load(Ordering::SeqCst);
        let UdpDirection { link, counters, .. } = &mut self.directions[direction];
        let mut too_long = 0;
        for received in helping {
            for datagram in turn_around(&received, &mut from.end, from_addr, to, counters) {
                if datagram.payload.len() > most_bytes {
                    too_long += 1;
                    continue;
                }
                link.send(now_ns, datagram);
            }
        }
        counters.too_long += too_long;
        Ok(())
    }

    /// Sends all datagrams that are due.
    fn deliver(&mut self, direction: usize) {
        let UdpDirection {
            link,
            counters,
            due,
        } = &mut self.directions[direction];
        let now_ns = link.now_ns();
        while let Some((due_ns, datagram)) = link.take_due(now_ns) {
            link.note_departure(due_ns, now_ns, 1);
            due.push(datagram);
        }
        let mut rest = &mut due[..];
        while let Some(first) = rest.first() {
            let channel = self.channel_of.get(&first.src);
            let Some(ports) = channel.and_then(|channel| self.channels.get_mut(*channel)) else {
                break;
            };
            let port = &mut ports[1 - direction];
            let length = run_length(rest, port.socket.granted().gso);
            let (run, later) = mem::take(&mut rest).split_at_mut(length);
            counters.unsent += send_run(port, run);
            rest = later;
        }
        due.clear();
    }

    fn apply_flags(&mut self) {
        apply_flags(&self.shared, &mut self.down, &mut self.directions);
    }

    fn counters(&self) -> UdpEmulatorCounters {
        let [forward, backward] = [0, 1].map(|direction| {
            let UdpDirection { link, counters, .. } = &self.directions[direction];
            let into = self.channels.iter().map(|ports| &ports[direction].socket);
            let out = self
                .channels
                .iter()
                .map(|ports| &ports[1 - direction].socket);
            DirectionCounters {
                link: link.counters(),
                late: link.lateness().late_packets(),
                worst_lateness_ns: link.lateness().max_ns(),
                socket_drops: into.map(|socket| socket.drops()).sum(),
                unsent: counters.unsent + out.map(|socket| socket.unsent()).sum::<u64>(),
                ..*counters
            }
        });
        UdpEmulatorCounters { forward, backward }
    }
}

/// Cuts or restores the links if the handle has asked for it.
fn apply_flags(shared: &UdpControl, down: &mut bool, directions: &mut [UdpDirection; 2]) {
    let wanted = shared.down.load(Ordering::SeqCst);
    if mem::replace(down, wanted) != wanted {
        directions.iter_mut().for_each(|d| d.link.set_down(wanted));
    }
}
