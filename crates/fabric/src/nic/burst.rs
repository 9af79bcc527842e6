//! Outgoing packets.

use std::net::SocketAddr;
use std::ops::Range;

use farwrite_net::prefetch;
use farwrite_wire::header::ICRC_BYTES;
use farwrite_wire::icrc::{Flow, Icrc};
use farwrite_wire::request::{SendOnly, WriteImm, pad_bytes};
use farwrite_wire::sealing::SEALING_BYTES;

use super::MAX_SGE;
use super::regions::{Found, Regions};
use super::sealing::Sealer;
use super::update::SendRoute;
use crate::contract::{FabricError, Sge, WriteWr};

const PSN_MASK: u32 = 0x00ff_ffff;
/// Largest padding that fills a payload up to a multiple of 4 bytes.
const MAX_PAD_BYTES: usize = 3;

/// Packets from one port to one peer, in order.
///
/// The payload of a packet consists of pieces of registered memory, which are not copied, or of
/// bytes that were copied before.
pub struct Burst<'a> {
    work: Work<'a>,
    remote: &'a SendRoute,
    first_psn: u32,
}

/// The requests of a burst.
#[derive(Clone, Copy)]
enum Work<'a> {
    Writes {
        writes: &'a [WriteWr<'a>],
        payloads: &'a Payloads<'a>,
    },
    Send(&'a [u8]),
}

/// The payloads of writes, as pieces that were checked.
pub(super) struct Payloads<'a> {
    pieces: Vec<Piece<'a>>,
    /// For each write, the end (exclusive) of its pieces in `pieces`.
    ends: Vec<usize>,
    /// Sealed payloads, and copies of bytes that a peer may write: the ICRC and the packet must have
    /// the same bytes.
    copied: &'a [u8],
    omits_icrc: bool,
}

/// The bytes of one scatter entry.
enum Piece<'a> {
    InPlace(&'a [u8]),
    /// Bytes of [`Payloads::copied`].
    Copied(Range<usize>),
    /// Ghost bytes, read as zeros.
    Ghost(usize),
}

impl Piece<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::InPlace(bytes) => bytes.len(),
            Self::Copied(range) => range.len(),
            Self::Ghost(bytes) => *bytes,
        }
    }
}

pub(super) struct BurstSealing<'a> {
    pub(super) sealer: &'a mut Sealer,
    pub(super) remote: &'a SendRoute,
    /// PSN of the next packet.
    pub(super) psn: u32,
    /// Counter of the next packet.
    pub(super) counter: &'a mut u64,
}

impl BurstSealing<'_> {
    /// Seals the payload of the next packet, `bytes[start..]`.
    fn seal(
        &mut self,
        write: &WriteWr<'_>,
        bytes: &mut Vec<u8>,
        start: usize,
    ) -> Result<(), FabricError> {
        let plain_bytes = u32::try_from(bytes.len() - start).unwrap_or(u32::MAX);
        let packet = WriteImm {
            dest_qp: self.remote.qpn.0,
            psn: self.psn & PSN_MASK,
            remote_addr: write.remote_addr,
            rkey: write.rkey.0,
            imm: write.imm,
            payload_bytes: plain_bytes.saturating_add(SEALING_BYTES),
        };
        let counter = *self.counter;
        // Before sealing: no failure lets a counter be used again.
        *self.counter += 1;
        self.psn = self.psn.wrapping_add(1);
        self.sealer.seal(counter, &packet, bytes, start)
    }
}

/// Source of the zeros of ghosts: as many as the largest packet has bytes.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

impl<'a> Payloads<'a> {
    /// Checks writes against the MTU and against the memory that they name. Copies bytes that
    /// cannot be read in place to `copied`.
    pub(super) fn find(
        regions: &'a Regions,
        writes: &[WriteWr<'_>],
        mtu: u32,
        copied: &'a mut Vec<u8>,
    ) -> Result<Self, FabricError> {
        copied.clear();
        let mut pieces = Vec::with_capacity(writes.len());
        let mut ends = Vec::with_capacity(writes.len());
        let mut regions = regions.lookups();
        for write in writes {
            check_entries(write.local, mtu)?;
            for sge in write.local {
                let piece = match regions.find(sge)? {
                    Found::Bytes(bytes) => Piece::InPlace(bytes),
                    Found::Ghost => Piece::Ghost(sge.length as usize),
                    Found::Shared => {
                        let start = copied.len();
                        copied.resize(start + sge.length as usize, 0);
                        regions.copy_out(sge, &mut copied[start..])?;
                        Piece::Copied(start..copied.len())
                    }
                };
                pieces.push(piece);
            }
            ends.push(pieces.len());
        }
        Ok(Self {
            pieces,
            ends,
            copied,
            omits_icrc: false,
        })
    }

    /// Checks writes as [`Payloads::find`] does.
    pub(super) fn check(
        regions: &Regions,
        writes: &[WriteWr<'_>],
        mtu: u32,
    ) -> Result<(), FabricError> {
        let mut regions = regions.lookups();
        for write in writes {
            check_entries(write.local, mtu)?;
            for sge in write.local {
                regions.find(sge)?;
            }
        }
        Ok(())
    }

    /// Same as [`Payloads::find`], for a queue pair that seals. Each payload is read once, into
    /// `copied`, and sealed there: memory that changes meanwhile cannot give two texts for one
    /// counter.
    pub(super) fn seal(
        regions: &'a Regions,
        writes: &[WriteWr<'_>],
        mtu: u32,
        copied: &'a mut Vec<u8>,
        sealing: &mut BurstSealing<'_>,
    ) -> Result<Self, FabricError> {
        copied.clear();
        let mut pieces = Vec::with_capacity(writes.len());
        let mut regions = regions.lookups();
        for (index, write) in writes.iter().enumerate() {
            check_entries(write.local, mtu)?;
            // As in `Packet::prefetch`.
            let next = writes.get(index + 1).map_or(&[][..], |next| next.local);
            for sge in next {
                if let Ok(Found::Bytes(bytes)) = regions.find(sge) {
                    prefetch(bytes);
                }
            }
            let start = copied.len();
            for sge in write.local {
                match regions.find(sge)? {
                    Found::Bytes(bytes) => copied.extend_from_slice(bytes),
                    found => {
                        let at = copied.len();
                        copied.resize(at + sge.length as usize, 0);
                        if matches!(found, Found::Shared) {
                            regions.copy_out(sge, &mut copied[at..])?;
                        }
                    }
                }
            }
            sealing.seal(write, copied, start)?;
            pieces.push(Piece::Copied(start..copied.len()));
        }
        Ok(Self {
            ends: (1..=pieces.len()).collect(),
            pieces,
            copied,
            omits_icrc: sealing.sealer.omits_icrc(),
        })
    }

    fn of(&self, index: usize) -> &[Piece<'a>] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.pieces[start..self.ends[index]]
    }
}

/// One packet of a [`Burst`].
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    request: TxRequest<'a>,
    dest_qp: u32,
    psn: u32,
    payload_bytes: u32,
    omits_icrc: bool,
}

#[derive(Clone, Copy)]
enum TxRequest<'a> {
    Write {
        write: &'a WriteWr<'a>,
        pieces: &'a [Piece<'a>],
        copied: &'a [u8],
    },
    Send(&'a [u8]),
}

impl TxRequest<'_> {
    /// At most the MTU and what sealing adds, because `find` or `seal` has checked it.
    fn payload_bytes(&self) -> u32 {
        let bytes = match self {
            Self::Write { pieces, .. } => pieces.iter().map(Piece::bytes).sum(),
            Self::Send(payload) => payload.len(),
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

/// The bytes around the payload of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    head: [u8; WriteImm::HEADER_BYTES],
    head_bytes: usize,
    tail: [u8; MAX_PAD_BYTES + ICRC_BYTES],
    tail_bytes: usize,
}

impl<'a> Burst<'a> {
    pub(super) fn of_writes(
        writes: &'a [WriteWr<'a>],
        payloads: &'a Payloads<'a>,
        remote: &'a SendRoute,
        first_psn: u32,
    ) -> Self {
        Self {
            work: Work::Writes { writes, payloads },
            remote,
            first_psn,
        }
    }

    /// A burst of one SEND, whose payload fits the MTU.
    pub(super) fn of_send(payload: &'a [u8], remote: &'a SendRoute, first_psn: u32) -> Self {
        Self {
            work: Work::Send(payload),
            remote,
            first_psn,
        }
    }

    /// Destination of the packets, with the interface of a link-local address.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        self.remote.destination
    }

    /// The addresses in the headers of the packets.
    #[must_use]
    pub fn flow(&self) -> &Flow {
        &self.remote.flow
    }

    /// The addresses that the ICRC covers.
    #[must_use]
    pub fn sealed_as(&self) -> &Flow {
        let sealed_as = self.remote.sealed_as.as_deref();
        sealed_as.unwrap_or(&self.remote.flow)
    }

    /// Number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.work {
            Work::Writes { writes, .. } => writes.len(),
            Work::Send(_) => 1,
        }
    }

    /// Whether there are no packets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packet with this index, from 0.
    #[must_use]
    pub fn packet(&self, index: usize) -> Option<Packet<'a>> {
        let request = match self.work {
            Work::Writes { writes, payloads } => TxRequest::Write {
                write: writes.get(index)?,
                pieces: payloads.of(index),
                copied: payloads.copied,
            },
            Work::Send(payload) => (index == 0).then_some(TxRequest::Send(payload))?,
        };
        // PSNs count modulo 2^24, so higher bits do not matter.
        #[allow(clippy::cast_possible_truncation)]
        let psn = self.first_psn.wrapping_add(index as u32) & PSN_MASK;
        Some(Packet {
            request,
            dest_qp: self.remote.qpn.0,
            psn,
            payload_bytes: request.payload_bytes(),
            omits_icrc: matches!(self.work, Work::Writes { payloads, .. } if payloads.omits_icrc),
        })
    }

    /// All packets in order.
    pub fn packets(&self) -> impl Iterator<Item = Packet<'a>> {
        (0..self.len()).map_while(|index| self.packet(index))
    }

    /// Bytes of the UDP payloads of the first `count` packets.
    pub(super) fn udp_bytes(&self, count: usize) -> u64 {
        let packets = self.packets().take(count);
        packets.map(|packet| packet.udp_bytes() as u64).sum()
    }
}

impl<'a> Packet<'a> {
    /// Bytes of the UDP payload: headers, payload, padding and ICRC.
    #[must_use]
    pub fn udp_bytes(&self) -> usize {
        let head_bytes = match self.request {
            TxRequest::Write { .. } => WriteImm::HEADER_BYTES,
            TxRequest::Send(_) => SendOnly::HEADER_BYTES,
        };
        let padded = self.payload_bytes as usize + usize::from(pad_bytes(self.payload_bytes));
        head_bytes + padded + ICRC_BYTES
    }

    /// The payload, in at most [`MAX_SGE`] pieces.
    pub fn payload(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (pieces, copied, sent) = match self.request {
            TxRequest::Write { pieces, copied, .. } => (pieces, copied, None),
            TxRequest::Send(payload) => (&[][..], &[][..], Some(payload)),
        };
        let pieces = pieces.iter().map(move |piece| match piece {
            Piece::InPlace(bytes) => bytes,
            Piece::Copied(range) => &copied[range.clone()],
            Piece::Ghost(bytes) => &ZEROS[..*bytes],
        });
        pieces.chain(sent)
    }

    /// Begins to load the payload into the cache, while the packet before is sealed. By itself, the processor
    /// does not load memory of the next page ahead.
    pub fn prefetch(&self) {
        if let TxRequest::Write { pieces, .. } = self.request {
            for piece in pieces {
                if let Piece::InPlace(bytes) = piece {
                    prefetch(*bytes);
                }
            }
        }
    }

    /// The packet without its payload, if it is a write of ghost bytes.
    #[must_use]
    pub fn as_ghost(&self) -> Option<WriteImm> {
        let TxRequest::Write { write, pieces, .. } = self.request else {
            return None;
        };
        let exists = |piece: &Piece<'_>| !matches!(piece, Piece::Ghost(_));
        let is_ghost = !pieces.is_empty() && !pieces.iter().any(exists);
        is_ghost.then(|| self.write(write))
    }

    fn write(&self, write: &WriteWr<'_>) -> WriteImm {
        WriteImm {
            dest_qp: self.dest_qp,
            psn: self.psn,
            remote_addr: write.remote_addr,
            rkey: write.rkey.0,
            imm: write.imm,
            payload_bytes: self.payload_bytes,
        }
    }

    /// The headers and the trailer of the packet for the addresses of `flow` and the IPv4
    /// identification `ipv4_id` (ignored for IPv6). Reads the payload to compute the ICRC. If both ends omit
    /// it (P2.7), its bytes are zero.
    #[must_use]
    pub fn seal(&self, flow: &Flow, ipv4_id: u16) -> Seal {
        let (head, head_bytes) = self.head();
        let mut tail = [0; MAX_PAD_BYTES + ICRC_BYTES];
        let pad_bytes = usize::from(pad_bytes(self.payload_bytes)).min(MAX_PAD_BYTES);
        let (pad, icrc) = tail.split_at_mut(pad_bytes);
        if !self.omits_icrc {
            let crc = Icrc::new(flow, ipv4_id, self.udp_bytes()).update(&head[..head_bytes]);
            let crc = self.payload().fold(crc, Icrc::update).update(pad);
            icrc[..ICRC_BYTES].copy_from_slice(&crc.finish().to_le_bytes());
        }
        Seal {
            head,
            head_bytes,
            tail,
            tail_bytes: pad_bytes + ICRC_BYTES,
        }
    }

    /// Appends the whole packet to `out`, for carriers that must copy.
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
            TxRequest::Write { write, .. } => (self.write(write).header(), WriteImm::HEADER_BYTES),
            TxRequest::Send(_) => {
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
    /// The bytes before the payload: 32 for a write, 12 for a SEND.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }

    /// The bytes after the payload: 0 to 3 of padding, and the ICRC.
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        &self.tail[..self.tail_bytes]
    }
}

/// Checks the number of scatter entries and their total length.
fn check_entries(local: &[Sge], mtu: u32) -> Result<(), FabricError> {
    if local.len() > MAX_SGE {
        return Err(FabricError::BadAttribute {
            name: "scatter entries",
            value: local.len().to_string(),
            want: format!("at most {MAX_SGE}"),
        });
    }
    check_length(local.iter().map(|sge| u64::from(sge.length)).sum(), mtu)
}

pub(super) fn check_length(length: u64, mtu: u32) -> Result<(), FabricError> {
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
