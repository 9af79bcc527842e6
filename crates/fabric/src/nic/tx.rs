//! The send side of a port.

use std::sync::Arc;

use super::burst::{Burst, Payloads};
use super::port::PortState;
use super::regions::RegionsReader;
use super::table::Table;
use super::update::{SendRoute, TxUpdate};
use super::{CarrierTx, header_bytes};
use crate::contract::{Counters, Departed, FabricError, Qpn, TxQueue, WriteWr};

/// The transmit queue of a software NIC's port.
pub struct NicTx<T> {
    carrier: T,
    port: Arc<PortState>,
    regions: RegionsReader,
    queue_pairs: Table<SendQp>,
    /// Departures that were not polled yet.
    departed: Vec<Departed>,
    /// Buffer for the bytes that a post copies, reused.
    copied: Vec<u8>,
}

/// The sending half of a queue pair.
struct SendQp {
    mtu: u32,
    context: u64,
    /// PSN of the next packet, in the low 24 bits.
    psn: u32,
    /// Boxed because it is large.
    remote: Option<Box<SendRoute>>,
}

impl<T: CarrierTx> NicTx<T> {
    pub(super) fn new(carrier: T, port: Arc<PortState>, regions: RegionsReader) -> Self {
        Self {
            carrier,
            port,
            regions,
            queue_pairs: Table::default(),
            departed: Vec::new(),
            copied: Vec::new(),
        }
    }

    /// Applies the updates of the control object.
    fn update(&mut self) {
        for update in self.port.tx.take() {
            match update {
                TxUpdate::Create {
                    qpn,
                    mtu,
                    context,
                    first_psn: psn,
                } => {
                    let queue_pair = SendQp {
                        mtu,
                        context,
                        psn,
                        remote: None,
                    };
                    self.queue_pairs.insert(qpn.0, queue_pair);
                }
                TxUpdate::Connect { qpn, remote } => {
                    if let Some(queue_pair) = self.queue_pairs.get_mut(qpn.0) {
                        queue_pair.remote = Some(Box::new(remote));
                    }
                }
                TxUpdate::Disconnect(qpn) => {
                    if let Some(queue_pair) = self.queue_pairs.get_mut(qpn.0) {
                        queue_pair.remote = None;
                    }
                    self.departed.retain(|departed| departed.qpn != qpn);
                }
                TxUpdate::Destroy(qpn) => {
                    self.queue_pairs.remove(qpn.0);
                    self.departed.retain(|departed| departed.qpn != qpn);
                }
            }
        }
    }
}

impl SendQp {
    fn remote(&self, qpn: Qpn) -> Result<&SendRoute, FabricError> {
        let remote = self.remote.as_deref();
        remote.ok_or(FabricError::NotConnected(qpn.0))
    }

    /// Records that the carrier accepted packets.
    fn sent(&mut self, packets: usize) {
        // PSNs count modulo 2^24, so higher bits do not matter.
        #[allow(clippy::cast_possible_truncation)]
        let packets = packets as u32;
        self.psn = self.psn.wrapping_add(packets);
    }
}

impl<T: CarrierTx> TxQueue for NicTx<T> {
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        self.update();
        let queue_pair = self.queue_pairs.get_mut(qpn.0);
        let queue_pair = queue_pair.ok_or(FabricError::UnknownQp(qpn.0))?;
        let regions = self.regions.read();
        let payloads = Payloads::find(&regions, writes, queue_pair.mtu, &mut self.copied)?;
        let remote = queue_pair.remote(qpn)?;
        let burst = Burst::of_writes(writes, &payloads, remote, queue_pair.psn);
        let (taken, bytes) = send(&mut self.carrier, qpn, &burst)?;
        drop(regions);
        queue_pair.sent(taken);
        count_sent(&self.port, taken, bytes);
        let context = queue_pair.context;
        // If the carrier did not accept all writes, the last accepted one completes too.
        let cut = (taken < writes.len()).then_some(taken);
        let completed = (1..=taken).zip(writes);
        let completed = completed.filter(|(index, w)| w.signaled || cut == Some(*index));
        let departed = completed.map(|(_, write)| Departed {
            qpn,
            context,
            wr_id: write.wr_id,
        });
        self.departed.extend(departed);
        Ok(taken)
    }

    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        self.update();
        let queue_pair = self.queue_pairs.get_mut(qpn.0);
        let queue_pair = queue_pair.ok_or(FabricError::UnknownQp(qpn.0))?;
        super::burst::check_length(payload.len() as u64, queue_pair.mtu)?;
        let remote = queue_pair.remote(qpn)?;
        let burst = Burst::of_send(payload, remote, queue_pair.psn);
        let (taken, bytes) = send(&mut self.carrier, qpn, &burst)?;
        queue_pair.sent(taken);
        count_sent(&self.port, taken, bytes);
        Ok(taken == 1)
    }

    fn poll(&mut self, out: &mut Vec<Departed>) -> Result<(), FabricError> {
        self.update();
        out.append(&mut self.departed);
        Ok(())
    }
}

impl<T> Drop for NicTx<T> {
    fn drop(&mut self) {
        self.port.tx.close();
    }
}

/// Sends a burst. Returns the number of packets that the carrier accepted, and the bytes of their
/// IP datagrams.
fn send<T: CarrierTx>(
    carrier: &mut T,
    qpn: Qpn,
    burst: &Burst<'_>,
) -> Result<(usize, u64), FabricError> {
    let taken = carrier.send(burst).map_err(|error| match error {
        FabricError::Io { .. } => error,
        error => FabricError::BrokenQp {
            qpn,
            source: Box::new(error),
        },
    })?;
    let taken = taken.min(burst.len());
    let bytes = burst.udp_bytes(taken) + taken as u64 * header_bytes(burst.flow().dst());
    Ok((taken, bytes))
}

/// Counts packets that a port sent, and the bytes of their IP datagrams.
fn count_sent(port: &PortState, packets: usize, bytes: u64) {
    port.count(&Counters {
        sent_packets: packets as u64,
        sent_bytes: bytes,
        ..Counters::default()
    });
}
