//! The receive side of a port.
//!
//! [`NicRx::poll`] runs one batch. Each datagram goes through the checks of [`Receiver::receive`],
//! in the order of [`DropReason`]. A write that passes is copied straight to the memory of its
//! window: the key selects a window set, and the address selects a slot in it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use farwrite_wire::header::{DEFAULT_PKEY, Reth};
use farwrite_wire::icrc::{self, IdRange};
use farwrite_wire::opcode::{UC_SEND_ONLY, UC_WRITE_ONLY_WITH_IMM};
use farwrite_wire::packet::{Packet, ParseError};
use farwrite_wire::sealing::SEALING_BYTES;

use super::port::PortState;
use super::sealing::Opener;
use super::table::Table;
use super::update::RxUpdate;
use super::windows::{Batch, Placed, Slots, Worker};
use super::{Arrival, CarrierRx, ROCE_PORT, header_bytes};
use crate::contract::{
    Completion, Counters, DropReason, FabricError, Qpn, RxWorker, SendArrival, Sender, WindowSet,
};

/// Number of keys of destroyed window sets that are remembered, to distinguish late packets from
/// forged ones.
const REVOKED_KEPT: usize = 1 << 12;

/// The receive worker of a software NIC's port.
pub struct NicRx<R> {
    carrier: R,
    port: Arc<PortState>,
    worker: Worker,
    tables: Tables,
}

/// The tables in which packets are looked up.
#[derive(Default)]
struct Tables {
    queue_pairs: Table<RecvQp>,
    windows: Table<KeyState>,
    /// The [`KeyState::Revoked`] keys of `windows`, oldest first.
    revoked: VecDeque<u32>,
}

struct RecvQp {
    serial: u64,
    mtu: u32,
    takes_sends: bool,
    context: u64,
    /// Permitted source of writes; `None` if not connected.
    source: Option<SocketAddr>,
    /// Set if the writes are sealed. Boxed because it is large.
    opener: Option<Box<Opener>>,
}

impl RecvQp {
    /// Whether a packet has no ICRC to check: it is a sealed write, and its tag is checked instead.
    fn omits_icrc(&self, request: Option<&RxRequest>) -> bool {
        let is_write = matches!(request, Some(RxRequest::Write { .. }));
        is_write
            && self
                .opener
                .as_ref()
                .is_some_and(|opener| opener.omits_icrc())
    }
}

/// The meaning of a remote key.
enum KeyState {
    Windows(Arc<Slots>),
    Revoked,
}

impl<R> NicRx<R> {
    pub(super) fn new(carrier: R, port: Arc<PortState>, worker: Worker) -> Self {
        Self {
            carrier,
            port,
            worker,
            tables: Tables::default(),
        }
    }

    /// The carrier of the port.
    pub fn carrier(&self) -> &R {
        &self.carrier
    }
}

impl<R: CarrierRx> RxWorker for NicRx<R> {
    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        let batch = self.worker.begin_batch();
        // The batch has already begun, so a window set that is destroyed from now on keeps its
        // slots until the batch ends.
        self.tables.update(&self.port);
        let mut receiver = Receiver {
            tables: &mut self.tables,
            batch: &batch,
            counters: Counters::default(),
            out,
        };
        let more = self.carrier.recv(|arrival| receiver.receive(arrival));
        self.port.count(&receiver.counters);
        more
    }

    fn end_batch(&mut self) {
        self.worker.end_batch();
    }
}

impl<R> Drop for NicRx<R> {
    fn drop(&mut self) {
        self.port.rx.close();
    }
}

impl Tables {
    /// Applies the updates of the control object.
    fn update(&mut self, port: &PortState) {
        for update in port.rx.take() {
            match update {
                RxUpdate::Create {
                    qpn,
                    serial,
                    mtu,
                    takes_sends,
                    context,
                } => {
                    let queue_pair = RecvQp {
                        serial,
                        mtu,
                        takes_sends,
                        context,
                        source: None,
                        opener: None,
                    };
                    self.queue_pairs.insert(qpn.0, queue_pair);
                }
                RxUpdate::Seal { qpn, with } => {
                    if let Some(queue_pair) = self.queue_pairs.get_mut(qpn.0) {
                        let opener = with.map(|one_way| Opener::new(one_way, qpn));
                        queue_pair.opener = opener.map(Box::new);
                    }
                }
                RxUpdate::Permit { qpn, source } => {
                    if let Some(queue_pair) = self.queue_pairs.get_mut(qpn.0) {
                        queue_pair.source = source;
                        if source.is_none() {
                            queue_pair.opener = None;
                        }
                    }
                }
                RxUpdate::Destroy(qpn) => {
                    self.queue_pairs.remove(qpn.0);
                }
                RxUpdate::AddWindows(set, slots) => {
                    self.windows.insert(set.0, KeyState::Windows(slots));
                }
                RxUpdate::RemoveWindows(set) => self.revoke(set),
            }
        }
    }

    fn revoke(&mut self, set: WindowSet) {
        self.windows.insert(set.0, KeyState::Revoked);
        self.revoked.push_back(set.0);
        if self.revoked.len() > REVOKED_KEPT
            && let Some(oldest) = self.revoked.pop_front()
            // The key may have been drawn again for another set.
            && matches!(self.windows.get(oldest), Some(KeyState::Revoked))
        {
            self.windows.remove(oldest);
        }
    }
}

/// Copies the payload of a write through the queue pair `serial` to its destination. If it returns a reason,
/// nothing was written. An empty payload is not checked (IBTA 9.7.4.1.5).
fn place(
    windows: &mut Table<KeyState>,
    serial: u64,
    write: Reth,
    payload: &[u8],
    batch: &Batch<'_>,
) -> Result<Placed, DropReason> {
    if payload.is_empty() {
        return Ok(Placed::InMemory);
    }
    match windows.get(write.rkey) {
        None => Err(DropReason::UnknownKey),
        Some(KeyState::Revoked) => Err(DropReason::RevokedKey),
        Some(KeyState::Windows(slots)) if !slots.is_bound_to(serial) => Err(DropReason::ForeignKey),
        Some(KeyState::Windows(slots)) => slots.place(write.remote_addr, payload, batch),
    }
}

fn parse(bytes: &[u8]) -> Result<Packet<'_>, DropReason> {
    let packet = Packet::parse(bytes).map_err(form)?;
    if packet.bth().pkey != DEFAULT_PKEY {
        return Err(DropReason::Malformed);
    }
    Ok(packet)
}

/// Finds the queue pair of a packet, and its operation. Checks the ICRC, unless the tag replaces it, and the
/// source: whether the packet comes from the peer. Only a SEND may come from elsewhere.
fn find<'a>(
    queue_pairs: &'a mut Table<RecvQp>,
    packet: &Packet<'_>,
    arrival: &Arrival<'_>,
) -> Result<(&'a mut RecvQp, RxRequest, bool), DropReason> {
    let queue_pair = queue_pairs.get_mut(packet.bth().dest_qp);
    let request = RxRequest::of(packet);
    let found = queue_pair.as_deref();
    if !found.is_some_and(|queue_pair| queue_pair.omits_icrc(request.as_ref())) {
        check_icrc(arrival)?;
    }
    let queue_pair = queue_pair.ok_or(DropReason::UnknownQp)?;
    let permitted = queue_pair.source.ok_or(DropReason::Stranger)?;
    let is_peer = is_from(permitted, arrival.flow.src());
    if !is_peer && !matches!(request, Some(RxRequest::Send)) {
        return Err(DropReason::Stranger);
    }
    let request = request.ok_or(DropReason::UnsupportedOpcode)?;
    Ok((queue_pair, request, is_peer))
}

/// Verifies a sealed write with `payload_bytes` of payload, and decrypts the payload in place.
fn open<'a>(
    opener: &mut Opener,
    packet: &'a mut [u8],
    payload_bytes: u32,
) -> Result<&'a [u8], DropReason> {
    let parts = packet.split_first_chunk_mut();
    let (header, rest) = parts.ok_or(DropReason::Malformed)?;
    let payload = rest.get_mut(..payload_bytes as usize);
    opener.open(header, payload.ok_or(DropReason::Malformed)?)
}

/// One batch of a worker.
struct Receiver<'a> {
    tables: &'a mut Tables,
    batch: &'a Batch<'a>,
    counters: Counters,
    out: &'a mut Vec<Completion>,
}

impl Receiver<'_> {
    /// Applies a packet, or drops it and counts the reason.
    ///
    /// The first failing check determines the reason: form, ICRC (unless the tag replaces it), queue pair,
    /// peer, opcode, MTU, receive buffer, counter, tag, key, binding of the key, bounds. (An invalid opcode fails the
    /// check of the form, because the rest of the packet cannot be parsed.) Only a packet that
    /// passes all checks changes any state.
    fn receive(&mut self, arrival: &mut Arrival<'_>) {
        match self.apply(arrival) {
            Ok(()) => {
                let bytes = arrival.payload.len() as u64;
                self.counters.received_packets += 1;
                self.counters.received_bytes += bytes + header_bytes(arrival.flow.src());
            }
            Err(reason) => self.counters.dropped[reason as usize] += 1,
        }
    }

    fn apply(&mut self, arrival: &mut Arrival<'_>) -> Result<(), DropReason> {
        let packet = parse(arrival.payload)?;
        let bth = packet.bth();
        let Tables {
            queue_pairs,
            windows,
            ..
        } = &mut *self.tables;
        let (queue_pair, request, is_peer) = find(queue_pairs, &packet, arrival)?;
        let bytes = u32::try_from(packet.payload().len()).map_err(|_| DropReason::TooLong)?;
        let opener = match request {
            RxRequest::Send => None,
            RxRequest::Write { .. } => queue_pair.opener.as_deref_mut(),
        };
        let sealing_bytes = opener.as_ref().map_or(0, |_| SEALING_BYTES);
        if bytes > queue_pair.mtu + sealing_bytes {
            return Err(DropReason::TooLong);
        }
        let Arrival {
            ecn, arrived_ns, ..
        } = *arrival;
        let (qpn, context) = (Qpn(bth.dest_qp), queue_pair.context);
        let serial = queue_pair.serial;
        match request {
            RxRequest::Send => {
                if !queue_pair.takes_sends {
                    return Err(DropReason::NoReceive);
                }
                let from = if is_peer {
                    Sender::Validated
                } else {
                    self.counters.unvalidated_packets += 1;
                    Sender::Unvalidated(arrival.flow.src())
                };
                self.out.push(Completion::Send(Box::new(SendArrival {
                    qpn,
                    context,
                    payload: packet.payload().to_vec(),
                    from,
                    ecn,
                    arrived_ns,
                })));
            }
            RxRequest::Write { reth, imm } => {
                let payload = match opener {
                    None => packet.payload(),
                    Some(opener) => open(opener, arrival.payload, bytes)?,
                };
                let placed = place(windows, serial, reth, payload, self.batch)?;
                self.out.push(Completion::Write {
                    qpn,
                    context,
                    imm,
                    bytes: bytes - sealing_bytes,
                    ecn,
                    arrived_ns,
                });
                if placed == Placed::NoWindow {
                    return Err(DropReason::NullKey);
                }
            }
        }
        Ok(())
    }
}

enum RxRequest {
    Write { reth: Reth, imm: u32 },
    Send,
}

impl RxRequest {
    /// `None` for opcodes that the NIC does not serve.
    fn of(packet: &Packet<'_>) -> Option<Self> {
        match packet.opcode().value {
            UC_WRITE_ONLY_WITH_IMM => Some(Self::Write {
                reth: packet.reth()?,
                imm: packet.imm()?,
            }),
            UC_SEND_ONLY => Some(Self::Send),
            _ => None,
        }
    }
}

/// Whether `from` matches the source that a queue pair permits. An IPv4-mapped IPv6 address equals
/// the IPv4 address.
///
/// The port must match too, unless the permitted port is 4791: then the peer is a hardware or
/// kernel RNIC, which receives on 4791 and sends from many source ports (IBTA annex A17.9.2).
fn is_from(permitted: SocketAddr, from: SocketAddr) -> bool {
    let (ip, port) = (permitted.ip().to_canonical(), permitted.port());
    ip == from.ip().to_canonical() && (port == from.port() || port == ROCE_PORT)
}

/// The drop reason for bytes that are not a packet.
fn form(error: ParseError) -> DropReason {
    match error {
        ParseError::UnknownOpcode(_) | ParseError::BoxMessage => DropReason::UnsupportedOpcode,
        _ => DropReason::Malformed,
    }
}

/// Checks the ICRC. Software ends use few IPv4 identifications. RNICs use all, but send to
/// [`ROCE_PORT`] only. On any other port, accepting few identifications keeps the ICRC at its full
/// strength.
fn check_icrc(arrival: &Arrival<'_>) -> Result<(), DropReason> {
    let flow = arrival.flow;
    let accept = if flow.dst().port() == ROCE_PORT {
        IdRange::ANY
    } else {
        IdRange::SOFTWARE
    };
    let sealed_with = icrc::verify(flow, arrival.payload, arrival.ipv4_id, accept);
    sealed_with.map(drop).map_err(|_| DropReason::BadIcrc)
}
