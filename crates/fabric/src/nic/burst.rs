//! Packets on their way out.

use std::net::SocketAddr;

use farwrite_wire::header::ICRC_BYTES;
use farwrite_wire::icrc::{Flow, Icrc};
use farwrite_wire::request::{SendOnly, WriteImm, pad_bytes};

use super::keys::Keys;
use super::{MAX_SGE, Nic, header_bytes};
use crate::contract::{FabricError, Qpn, RemoteQp, Sge, WriteWr};

/// Most bytes that fill a payload up to a multiple of 4.
const MAX_PAD_BYTES: usize = 3;

/// Packets that go, in order, from one port to one peer. Nothing is copied: a packet's payload are
/// pieces of registered memory.
pub struct Burst<'a> {
    keys: &'a Keys,
    work: Work<'a>,
    port: u16,
    remote: RemoteQp,
    first_psn: u32,
}

/// What a burst is made of.
#[derive(Clone, Copy)]
enum Work<'a> {
    Writes(&'a [WriteWr<'a>]),
    Send(&'a [u8]),
}

/// One packet of a [`Burst`].
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    keys: &'a Keys,
    request: Request<'a>,
    dest_qp: u32,
    psn: u32,
    payload_bytes: u32,
}

#[derive(Clone, Copy)]
enum Request<'a> {
    Write(&'a WriteWr<'a>),
    Send(&'a [u8]),
}

impl Request<'_> {
    /// At most the MTU, as was checked.
    fn payload_bytes(&self) -> u32 {
        match self {
            Self::Write(write) => write.local.iter().map(|sge| sge.length).sum(),
            Self::Send(payload) => u32::try_from(payload.len()).unwrap_or(u32::MAX),
        }
    }
}

/// What surrounds the payload of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    head: [u8; WriteImm::HEADER_BYTES],
    head_bytes: usize,
    tail: [u8; MAX_PAD_BYTES + ICRC_BYTES],
    tail_bytes: usize,
}

impl<'a> Burst<'a> {
    /// Checks writes against the queue pair and the memory that they name.
    pub(super) fn of_writes(
        nic: &'a Nic,
        qpn: Qpn,
        writes: &'a [WriteWr<'a>],
    ) -> Result<Self, FabricError> {
        let mtu = nic.queue_pairs.get(qpn)?.attr.mtu;
        for write in writes {
            check_write(&nic.keys, write, mtu)?;
        }
        Self::new(nic, qpn, Work::Writes(writes))
    }

    /// Checks a SEND against the queue pair.
    pub(super) fn of_send(nic: &'a Nic, qpn: Qpn, payload: &'a [u8]) -> Result<Self, FabricError> {
        let mtu = nic.queue_pairs.get(qpn)?.attr.mtu;
        check_length(payload.len() as u64, mtu)?;
        Self::new(nic, qpn, Work::Send(payload))
    }

    fn new(nic: &'a Nic, qpn: Qpn, work: Work<'a>) -> Result<Self, FabricError> {
        let queue_pair = nic.queue_pairs.get(qpn)?;
        let remote = queue_pair.remote.ok_or(FabricError::NotConnected(qpn.0))?;
        Ok(Self {
            keys: &nic.keys,
            work,
            port: queue_pair.attr.port,
            remote,
            first_psn: queue_pair.psn,
        })
    }

    /// The port that the packets leave by.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where they go.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.remote.addr
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.work {
            Work::Writes(writes) => writes.len(),
            Work::Send(_) => 1,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packet with this index, counted from 0.
    #[must_use]
    pub fn packet(&self, index: usize) -> Option<Packet<'a>> {
        let request = match self.work {
            Work::Writes(writes) => Request::Write(writes.get(index)?),
            Work::Send(payload) => (index == 0).then_some(Request::Send(payload))?,
        };
        // PSNs count modulo 2^24, so nothing above matters.
        #[allow(clippy::cast_possible_truncation)]
        let psn = self.first_psn.wrapping_add(index as u32) & 0x00ff_ffff;
        Some(Packet {
            keys: self.keys,
            request,
            dest_qp: self.remote.qpn.0,
            psn,
            payload_bytes: request.payload_bytes(),
        })
    }

    /// All packets in order.
    pub fn packets(&self) -> impl Iterator<Item = Packet<'a>> {
        (0..self.len()).map_while(|index| self.packet(index))
    }

    /// Bytes of the IP datagrams that the first `count` packets make.
    pub(super) fn ip_bytes(&self, count: usize) -> u64 {
        let packets = self.packets().take(count);
        let udp_bytes: usize = packets.map(|packet| packet.udp_bytes()).sum();
        udp_bytes as u64 + count as u64 * header_bytes(self.remote.addr)
    }
}

impl<'a> Packet<'a> {
    /// Bytes of the UDP payload: headers, payload, padding and ICRC.
    #[must_use]
    pub fn udp_bytes(&self) -> usize {
        let head_bytes = match self.request {
            Request::Write(_) => WriteImm::HEADER_BYTES,
            Request::Send(_) => SendOnly::HEADER_BYTES,
        };
        let padded = self.payload_bytes as usize + usize::from(pad_bytes(self.payload_bytes));
        head_bytes + padded + ICRC_BYTES
    }

    /// The payload, in at most [`MAX_SGE`] pieces.
    pub fn payload(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (local, inline): (&[Sge], _) = match self.request {
            Request::Write(write) => (write.local, None),
            Request::Send(payload) => (&[], Some(payload)),
        };
        let keys = self.keys;
        // Every entry was found valid when the burst was made.
        let pieces = local.iter().filter_map(|sge| keys.slice(sge).ok());
        pieces.chain(inline)
    }

    /// Headers and trailer of the packet as `flow` carries it, with the IPv4 identification
    /// `ipv4_id` (not looked at for IPv6). Reads the payload, for the ICRC.
    #[must_use]
    pub fn seal(&self, flow: &Flow, ipv4_id: u16) -> Seal {
        let (head, head_bytes) = self.head();
        let mut tail = [0; MAX_PAD_BYTES + ICRC_BYTES];
        let pad_bytes = usize::from(pad_bytes(self.payload_bytes)).min(MAX_PAD_BYTES);
        let (pad, icrc) = tail.split_at_mut(pad_bytes);
        let crc = Icrc::new(flow, ipv4_id, self.udp_bytes()).update(&head[..head_bytes]);
        let crc = self.payload().fold(crc, Icrc::update).update(pad);
        icrc[..ICRC_BYTES].copy_from_slice(&crc.finish().to_le_bytes());
        Seal {
            head,
            head_bytes,
            tail,
            tail_bytes: pad_bytes + ICRC_BYTES,
        }
    }

    /// Appends the whole packet to `out`: for carriers that have to copy.
    pub fn append_to(&self, flow: &Flow, ipv4_id: u16, out: &mut Vec<u8>) {
        let seal = self.seal(flow, ipv4_id);
        out.extend_from_slice(seal.head());
        self.payload()
            .for_each(|piece| out.extend_from_slice(piece));
        out.extend_from_slice(seal.tail());
    }

    fn head(&self) -> ([u8; WriteImm::HEADER_BYTES], usize) {
        let Self {
            dest_qp,
            psn,
            payload_bytes,
            ..
        } = *self;
        match self.request {
            Request::Write(write) => {
                let packet = WriteImm {
                    dest_qp,
                    psn,
                    remote_addr: write.remote_addr,
                    rkey: write.rkey.0,
                    imm: write.imm,
                    payload_bytes,
                };
                (packet.header(), WriteImm::HEADER_BYTES)
            }
            Request::Send(_) => {
                let packet = SendOnly {
                    dest_qp,
                    psn,
                    payload_bytes,
                };
                let mut head = [0; WriteImm::HEADER_BYTES];
                head[..SendOnly::HEADER_BYTES].copy_from_slice(&packet.header());
                (head, SendOnly::HEADER_BYTES)
            }
        }
    }
}

impl Seal {
    /// What comes before the payload: 32 bytes for a write, 12 for a SEND.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    /// What comes after it: 0 to 3 bytes of padding and the ICRC.
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        &self.tail[..self.tail_bytes]
    }
}

fn check_write(keys: &Keys, write: &WriteWr<'_>, mtu: u32) -> Result<(), FabricError> {
    if write.local.len() > MAX_SGE {
        return Err(FabricError::BadAttribute {
            name: "scatter entries",
            value: write.local.len().to_string(),
            want: format!("at most {MAX_SGE}"),
        });
    }
    let mut total = 0;
    for sge in write.local {
        keys.slice(sge)?;
        total += u64::from(sge.length);
    }
    check_length(total, mtu)
}

fn check_length(length: u64, mtu: u32) -> Result<(), FabricError> {
    let limit = u64::from(mtu);
    if length > limit {
        return Err(FabricError::OutOfBounds {
            offset: 0,
            length,
            limit,
        });
    }
    Ok(())
}
