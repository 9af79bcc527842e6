//! A queue pair on an interface, in real time.

use std::error::Error;
use std::time::{Duration, Instant};

use farwrite_bridge::{Incoming, Interface, Received};
use farwrite_net::header::Header;
use farwrite_net::{Ecn, Frame, NodeId, ROCE_PORT};
use farwrite_rc::{Memory, Packet, QpConfig, QueuePair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::cable::Cable;
use crate::frame::{Ethernet, Taken};

/// The number of the queue pair at both ends.
pub(crate) const QPN: u32 = 2;
const SRC_PORT: u16 = 50_000;
/// Maximum number of packets sent before the next read from the interface.
const BURST: usize = 16;

pub(crate) struct Host {
    pub(crate) pair: QueuePair,
    pub(crate) memory: Memory,
    /// PFC frames obeyed.
    pub(crate) paused: u64,
    /// Packets whose ICRC or UDP checksum is wrong. They are dropped.
    pub(crate) damaged: u64,
    interface: Interface,
    cable: Cable,
    received: Received,
    ends: [NodeId; 2],
    ethernet: Ethernet,
    mac: [u8; 6],
    start: Instant,
    paused_until_ns: u64,
}

impl Host {
    pub(crate) fn open(
        interface: &str,
        ends: [NodeId; 2],
        ethernet: Ethernet,
        cable: Cable,
        config: QpConfig,
    ) -> Result<Self, Box<dyn Error>> {
        let interface = Interface::open(interface)?;
        Ok(Self {
            pair: QueuePair::new(config)?,
            memory: Memory::default(),
            paused: 0,
            damaged: 0,
            mac: interface.address(),
            interface,
            cable,
            received: Received::default(),
            ends,
            ethernet,
            start: Instant::now(),
            paused_until_ns: 0,
        })
    }

    /// Waits for work, for at most this long, and does it.
    pub(crate) fn turn(&mut self, at_most: Duration) -> Result<(), Box<dyn Error>> {
        self.wait(at_most)?;
        self.depart();
        let count = self.interface.receive(&mut self.received)?;
        for index in 0..count {
            if let Incoming::Frame(_, bytes) = self.received.get(index) {
                self.take(&bytes);
            }
        }
        let now_ns = self.now_ns();
        if self
            .pair
            .next_timeout()
            .is_some_and(|at_ns| at_ns <= now_ns)
        {
            self.pair.handle_timeout(now_ns, &mut self.memory);
        }
        while let Some(packet) = self.pair.poll_ack() {
            self.send(packet)?;
        }
        for _ in 0..BURST {
            if !self.may_send() {
                break;
            }
            match self.pair.poll_data(now_ns, &self.memory) {
                Some(packet) => self.send(packet)?,
                None => break,
            }
        }
        Ok(())
    }

    fn wait(&self, at_most: Duration) -> Result<(), Box<dyn Error>> {
        let now_ns = self.now_ns();
        let data_ns = self.pair.has_data().then(|| self.may_send_ns());
        let times = [self.pair.next_timeout(), data_ns, self.cable.next_ns()];
        let wait = times.into_iter().flatten().min();
        let wait = wait.map_or(at_most, |at_ns| {
            Duration::from_nanos(at_ns.saturating_sub(now_ns)).min(at_most)
        });
        let mut fds = [PollFd::new(&self.interface, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::try_from(wait)?)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn may_send(&self) -> bool {
        self.pair.has_data() && self.may_send_ns() <= self.now_ns()
    }

    /// When a data packet may leave.
    fn may_send_ns(&self) -> u64 {
        self.paused_until_ns.max(self.cable.opens_ns())
    }

    fn take(&mut self, bytes: &[u8]) {
        match self.ethernet.take(bytes) {
            Taken::Pause(ns) => {
                self.paused += 1;
                self.paused_until_ns = self.now_ns() + ns;
            }
            Taken::Damaged => self.damaged += 1,
            Taken::Packet(frame) if [frame.dst, frame.src] == self.ends => {
                if let Header::Roce(header) = frame.header {
                    let payload = frame.payload;
                    let packet = Packet { header, payload };
                    let now_ns = self.now_ns();
                    self.pair.handle_packet(now_ns, &packet, &mut self.memory);
                }
            }
            Taken::Packet(_) | Taken::Other => {}
        }
    }

    fn send(&mut self, packet: Packet) -> Result<(), Box<dyn Error>> {
        let bytes = self.wrap(packet)?;
        self.cable.put(self.now_ns(), bytes);
        self.depart();
        Ok(())
    }

    /// Sends the frames that have left the cable.
    fn depart(&mut self) {
        while let Some(bytes) = self.cable.take(self.now_ns()) {
            // A full queue loses the frame, and Go-Back-N repeats it. The queue of a real NIC would wait.
            let _ = self.interface.send_frame(&bytes);
        }
    }

    /// The frame of a packet to the peer.
    pub(crate) fn wrap(&self, packet: Packet) -> Result<Vec<u8>, Box<dyn Error>> {
        let frame = Frame {
            src: self.ends[0],
            dst: self.ends[1],
            src_port: SRC_PORT,
            dst_port: ROCE_PORT,
            ipv4_id: 0,
            priority: self.ethernet.priority,
            ecn: Ecn::Capable0,
            header: Header::Roce(packet.header),
            payload: packet.payload,
            telemetry: None,
        };
        self.ethernet.wrap(self.mac, &frame)
    }

    /// Sends the first of these frames. Returns the number that the interface took.
    pub(crate) fn send_many<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> usize {
        self.interface.send_frames(frames).unwrap_or(0)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
