//! Writes into the window of a stream for scenarios, and the check of what has left.

use std::cell::RefCell;
use std::rc::Rc;

use farwrite::fabric::sim::Verdict;
use farwrite::{Error, MemoryRegion, QpConfig, QpOptions, SendHandle, WriteHandle, WriteOutcome};
use farwrite_wire::packet::Packet;

use crate::parcel::{Inbound, UNTOUCHED};
use crate::world::{Way, World};

pub(crate) const SENT: Option<WriteOutcome> = Some(WriteOutcome::Sent);
pub(crate) const EXPIRED: Option<WriteOutcome> = Some(WriteOutcome::Expired);
pub(crate) const OUTSIDE: Option<WriteOutcome> = Some(WriteOutcome::OutsideWindow);
pub(crate) const CLOSED: Option<WriteOutcome> = Some(WriteOutcome::Closed);

/// A data packet that left.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) at_ns: u64,
    /// Number of the packet in the message.
    packet: u32,
    bytes: Vec<u8>,
}

impl Left {
    /// The number of the write that the packet belongs to.
    fn write(&self) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[0], self.bytes[1]]))
    }
}

/// A write and its memory.
pub(crate) struct Write {
    pub(crate) handle: WriteHandle,
    pub(crate) source: MemoryRegion,
    pub(crate) first_chunk: u32,
    pub(crate) deadline_ns: Option<u64>,
}

/// A window at end b, a stream of end a into it, and all that has left.
pub(crate) struct Window {
    pub(crate) sdr: QpConfig,
    pub(crate) inn: Inbound,
    pub(crate) stream: SendHandle,
    pub(crate) writes: Vec<Write>,
    pub(crate) left: Rc<RefCell<Vec<Left>>>,
}

/// The bytes of a write: its number again and again.
fn content(number: usize, bytes: u64) -> Vec<u8> {
    let number = u16::try_from(number).expect("few writes").to_le_bytes();
    let bytes = usize::try_from(bytes).expect("short");
    assert!(bytes.is_multiple_of(2), "a packet holds the whole number");
    number.into_iter().cycle().take(bytes).collect()
}

impl Window {
    /// Opens a window of `bytes` bytes.
    pub(crate) fn open(world: &mut World, options: &QpOptions, bytes: usize) -> Self {
        let sdr = options.sdr;
        let geometry = sdr.validate().expect("good options");
        let inn = world.post_recv(Way::Forth, bytes).expect("a free slot");
        let a = &mut world.a;
        let stream = a.endpoint.start_stream(a.qp, None).expect("a free slot");
        let left: Rc<RefCell<Vec<Left>>> = Rc::default();
        let log = Rc::clone(&left);
        world.traffic.filter(move |seen| {
            if seen.is_data() {
                let packet = Packet::parse(&seen.datagram.payload).expect("ends send packets");
                let imm = packet.imm().expect("a write has one");
                log.borrow_mut().push(Left {
                    at_ns: seen.now_ns,
                    packet: geometry.decode_immediate(imm).packet,
                    bytes: packet.payload().to_vec(),
                });
            }
            Verdict::Pass
        });
        Self {
            sdr,
            inn,
            stream,
            writes: Vec::new(),
            left,
        }
    }

    /// Writes `bytes` bytes from a chunk on.
    pub(crate) fn write(
        &mut self,
        world: &mut World,
        first_chunk: u32,
        bytes: u64,
        deadline_ns: Option<u64>,
    ) -> Result<usize, Error> {
        let number = self.writes.len();
        let endpoint = &mut world.a.endpoint;
        let source = endpoint.register(content(number, bytes))?;
        let written = endpoint.write(&self.stream, source.whole(), first_chunk, deadline_ns);
        let handle = match written {
            Ok(handle) => handle,
            Err(error) => {
                endpoint.deregister(source)?;
                return Err(error);
            }
        };
        self.writes.push(Write {
            handle,
            source,
            first_chunk,
            deadline_ns,
        });
        Ok(number)
    }

    pub(crate) fn outcome(&self, number: usize) -> Option<WriteOutcome> {
        self.writes[number].handle.outcome()
    }

    pub(crate) fn sent_bytes(&self, number: usize) -> u64 {
        self.writes[number].handle.sent_bytes()
    }

    /// Checks that what each write reports is what has left: each packet of its first bytes once
    /// and in order, before its deadline, and no other. Checks that the memory of writes that have
    /// ended comes back.
    pub(crate) fn check_left(&self, world: &mut World) {
        let mtu = u64::from(self.sdr.mtu);
        let left = self.left.borrow();
        for (number, write) in self.writes.iter().enumerate() {
            let of_write = || left.iter().filter(|left| left.write() == number);
            let first = write.first_chunk * self.sdr.packets_per_chunk;
            let packets: Vec<u32> = of_write().map(|left| left.packet - first).collect();
            let sent_bytes = write.handle.sent_bytes();
            let expected: Vec<u32> = (0..).take(packets.len()).collect();
            assert_eq!(packets, expected, "write {number}");
            let bytes: u64 = of_write().map(|left| left.bytes.len() as u64).sum();
            assert_eq!(bytes, sent_bytes, "write {number}");
            let of_it = content(number, bytes);
            assert!(of_write().all(|left| of_it.starts_with(&left.bytes)));
            assert_eq!(expected.len() as u64, sent_bytes.div_ceil(mtu));
            let in_time = |left: &Left| write.deadline_ns.is_none_or(|end| left.at_ns < end);
            assert!(of_write().all(in_time), "write {number} left too late");
            let length = write.source.length();
            match write.handle.outcome() {
                SENT => assert_eq!(sent_bytes, length, "write {number}"),
                OUTSIDE => assert_eq!(sent_bytes, 0, "write {number}"),
                outcome => {
                    assert!(outcome.is_some(), "write {number} is open");
                    assert!(sent_bytes < length, "write {number} was not cut");
                }
            }
            let back = world.a.endpoint.deregister(write.source);
            back.expect("its memory is not used any more");
        }
    }

    /// Checks that the window and its bitmap show exactly the packets that have left, over a path
    /// that loses and reorders none. Write numbers must be below 60,000.
    pub(crate) fn check_window(&self, world: &mut World) {
        let buffer = world.buffer(Way::Forth, &self.inn);
        let mtu = self.sdr.mtu as usize;
        let mut expected = vec![UNTOUCHED; buffer.len()];
        let mut arrived = vec![false; buffer.len().div_ceil(mtu)];
        for left in self.left.borrow().iter() {
            let start = left.packet as usize * mtu;
            let end = start + left.bytes.len();
            expected[start..end].copy_from_slice(&left.bytes);
            arrived[left.packet as usize] = true;
        }
        assert!(buffer == expected, "the window is not what has left");
        let bitmap = self.inn.recv.bitmap();
        for (chunk, packets) in (0..).zip(arrived.chunks(self.sdr.packets_per_chunk as usize)) {
            let is_there = packets.iter().all(|&arrived| arrived);
            assert_eq!(bitmap.get(chunk), is_there, "chunk {chunk}");
        }
    }
}
