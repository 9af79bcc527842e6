//! Receives through one port.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use farwrite_wire::header::{DEFAULT_PKEY, Reth};
use farwrite_wire::icrc::{self, IdRange};
use farwrite_wire::opcode::{UC_SEND_ONLY, UC_WRITE_ONLY_WITH_IMM};
use farwrite_wire::packet::{Packet, ParseError};

use super::port::Port;
use super::table::Table;
use super::windows::{Batch, Placed, Slots, Worker};
use super::{Arrival, CarrierRx, ROCE_PORT, header_bytes};
use crate::contract::{
    Completion, Counters, DropReason, FabricError, Qpn, RxWorker, SendArrival, Sender, WindowSet,
};

/// How many keys of destroyed window sets are remembered, to tell a late packet from a forged one.
const REVOKED_KEPT: usize = 1 << 12;

/// The receive worker of a software NIC's port.
pub struct NicRx<R> {
    carrier: R,
    port: Arc<Port>,
    worker: Worker,
    tables: Tables,
}

/// A change that the control object makes to what a port receives.
pub(super) enum RxUpdate {
    Create {
        qpn: Qpn,
        mtu: u32,
        takes_sends: bool,
        context: u64,
    },
    /// From where writes may come.
    Permit {
        qpn: Qpn,
        source: Option<SocketAddr>,
    },
    Destroy(Qpn),
    AddWindows(WindowSet, Arc<Slots>),
    RemoveWindows(WindowSet),
}

/// What packets are looked up in.
#[derive(Default)]
struct Tables {
    queue_pairs: Table<RecvQp>,
    windows: Table<Key>,
    /// Keys of `windows` that are [`Key::Revoked`], the oldest first.
    revoked: VecDeque<u32>,
}

/// The receiving half of a queue pair.
struct RecvQp {
    mtu: u32,
    takes_sends: bool,
    context: u64,
    /// `None`: it is not connected.
    source: Option<SocketAddr>,
}

/// What a remote key stands for.
enum Key {
    Windows(Arc<Slots>),
    Revoked,
}

impl<R> NicRx<R> {
    pub(super) fn new(carrier: R, port: Arc<Port>, worker: Worker) -> Self {
        Self {
            carrier,
            port,
            worker,
            tables: Tables::default(),
        }
    }

    /// Who moves the packets.
    pub fn carrier(&self) -> &R {
        &self.carrier
    }
}

impl<R: CarrierRx> RxWorker for NicRx<R> {
    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        let batch = self.worker.begin_batch();
        // After the batch has begun: a window set that is destroyed from now on keeps its slots.
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
    /// Takes in what the control object has changed.
    fn update(&mut self, port: &Port) {
        for update in port.rx.take() {
            match update {
                RxUpdate::Create {
                    qpn,
                    mtu,
                    takes_sends,
                    context,
                } => {
                    let queue_pair = RecvQp {
                        mtu,
                        takes_sends,
                        context,
                        source: None,
                    };
                    self.queue_pairs.insert(qpn.0, queue_pair);
                }
                RxUpdate::Permit { qpn, source } => {
                    if let Some(queue_pair) = self.queue_pairs.get_mut(qpn.0) {
                        queue_pair.source = source;
                    }
                }
                RxUpdate::Destroy(qpn) => {
                    self.queue_pairs.remove(qpn.0);
                }
                RxUpdate::AddWindows(set, slots) => {
                    self.windows.insert(set.0, Key::Windows(slots));
                }
                RxUpdate::RemoveWindows(set) => self.revoke(set),
            }
        }
    }

    fn revoke(&mut self, set: WindowSet) {
        self.windows.insert(set.0, Key::Revoked);
        self.revoked.push_back(set.0);
        if self.revoked.len() > REVOKED_KEPT
            && let Some(oldest) = self.revoked.pop_front()
            // It may have been drawn again.
            && matches!(self.windows.get(oldest), Some(Key::Revoked))
        {
            self.windows.remove(oldest);
        }
    }
}

/// Puts `payload` where a write wants it, or says why not; then nothing was written. Without
/// payload there is nothing to check (IBTA 9.7.4.1.5).
fn place(
    windows: &mut Table<Key>,
    write: Reth,
    payload: &[u8],
    batch: &Batch<'_>,
) -> Result<Placed, DropReason> {
    if payload.is_empty() {
        return Ok(Placed::InMemory);
    }
    match windows.get(write.rkey) {
        None => Err(DropReason::UnknownKey),
        Some(Key::Revoked) => Err(DropReason::RevokedKey),
        Some(Key::Windows(slots)) => slots.place(write.remote_addr, payload, batch),
    }
}

/// One batch of a worker.
struct Receiver<'a> {
    tables: &'a mut Tables,
    batch: &'a Batch<'a>,
    counters: Counters,
    out: &'a mut Vec<Completion>,
}

impl Receiver<'_> {
    /// Applies a packet, or drops it and counts why.
    ///
    /// The checks run in this order, and the first that fails gives the reason: the form, the ICRC,
    /// the queue pair, its peer, the opcode, the MTU, a receive buffer, the key, the bounds. (Bytes
    /// whose opcode no table has cannot be read any further, so that comes with the form.) Only a
    /// packet that passes all of them changes anything.
    fn receive(&mut self, arrival: &Arrival<'_>) {
        match self.apply(arrival) {
            Ok(()) => {
                let bytes = arrival.payload.len() as u64;
                self.counters.received_packets += 1;
                self.counters.received_bytes += bytes + header_bytes(arrival.flow.src());
            }
            Err(reason) => self.counters.dropped[reason as usize] += 1,
        }
    }

    fn apply(&mut self, arrival: &Arrival<'_>) -> Result<(), DropReason> {
        let packet = Packet::parse(arrival.payload).map_err(form)?;
        let bth = packet.bth();
        if bth.pkey != DEFAULT_PKEY {
            return Err(DropReason::Malformed);
        }
        check_icrc(arrival)?;
        let Tables {
            queue_pairs,
            windows,
            ..
        } = &mut *self.tables;
        let queue_pair = queue_pairs.get(bth.dest_qp);
        let queue_pair = queue_pair.ok_or(DropReason::UnknownQp)?;
        let permitted = queue_pair.source.ok_or(DropReason::Stranger)?;
        let is_peer = is_from(permitted, arrival.flow.src());
        let request = Request::of(&packet);
        if !is_peer && !matches!(request, Some(Request::Send)) {
            return Err(DropReason::Stranger);
        }
        let request = request.ok_or(DropReason::UnsupportedOpcode)?;
        let bytes = u32::try_from(packet.payload().len()).map_err(|_| DropReason::TooLong)?;
        if bytes > queue_pair.mtu {
            return Err(DropReason::TooLong);
        }
        let Arrival {
            ecn, arrived_ns, ..
        } = *arrival;
        let (qpn, context) = (Qpn(bth.dest_qp), queue_pair.context);
        match request {
            Request::Send => {
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
            Request::Write { reth, imm } => {
                let placed = place(windows, reth, packet.payload(), self.batch)?;
                self.out.push(Completion::Write {
                    qpn,
                    context,
                    imm,
                    bytes,
                    ecn,
                    arrived_ns,
                });
                if placed == Placed::Nowhere {
                    return Err(DropReason::NullKey);
                }
            }
        }
        Ok(())
    }
}

/// What a packet asks for.
enum Request {
    Write { reth: Reth, imm: u32 },
    Send,
}

impl Request {
    /// `None` for opcodes that are not served.
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

/// Whether a packet from `from` comes from the source that a queue pair permits. An IPv4 address in
/// IPv6 notation is the IPv4 address.
///
/// The port has to match too, unless the peer is a hardware or kernel RNIC, which is known by its
/// port: RNICs receive on 4791 and spread their flows over many source ports (IBTA annex A17.9.2).
fn is_from(permitted: SocketAddr, from: SocketAddr) -> bool {
    let (ip, port) = (permitted.ip().to_canonical(), permitted.port());
    ip == from.ip().to_canonical() && (port == from.port() || port == ROCE_PORT)
}

/// The reason to count for bytes that are no packet.
fn form(error: ParseError) -> DropReason {
    match error {
        ParseError::UnknownOpcode(_) | ParseError::BoxMessage => DropReason::UnsupportedOpcode,
        _ => DropReason::Malformed,
    }
}

/// Software ends use few IPv4 identifications. RNICs use all, and send to [`ROCE_PORT`] only, so a
/// port of our own choice keeps the ICRC at its full strength.
fn check_icrc(arrival: &Arrival<'_>) -> Result<(), DropReason> {
    let Arrival {
        payload,
        flow,
        ipv4_id,
        ..
    } = *arrival;
    let accept = if flow.dst().port() == ROCE_PORT {
        IdRange::ANY
    } else {
        IdRange::SOFTWARE
    };
    let sealed_with = icrc::verify(flow, payload, ipv4_id, accept);
    sealed_with.map(drop).map_err(|_| DropReason::BadIcrc)
}
