//! The send side of a port.

use std::sync::Arc;

use super::burst::{Burst, BurstSealing, Payloads};
use super::port::PortState;
use super::regions::{Regions, RegionsReader};
use super::sealing::Sealer;
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

struct SendQp {
    mtu: u32,
    context: u64,
    /// PSN of the next packet, in the low 24 bits.
    psn: u32,
    /// Boxed because it is large.
    remote: Option<Box<SendRoute>>,
    /// Set if the writes are sealed, or were.
    sealing: Option<Box<SendSealing>>,
}

#[derive(Default)]
struct SendSealing {
    /// `None` after the queue pair was disconnected.
    sealer: Option<Sealer>,
    /// Counter of the next sealed packet. It never goes back, also where the queue pair is connected
    /// again.
    counter: u64,
}

/// Number of writes that are sealed before the carrier takes them. So what was sealed is still in the
/// cache when the ICRC is computed and the packets are copied (256 KiB for packets of 4096 bytes).
const SEALED_AHEAD: usize = 64;

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

    /// The carrier of the port.
    pub fn carrier(&self) -> &T {
        &self.carrier
    }

    /// The same, to change its settings.
    pub fn carrier_mut(&mut self) -> &mut T {
        &mut self.carrier
    }

    /// Makes the packet of a SEND, and passes it to the carrier by `pass`. Returns whether the carrier has
    /// accepted it.
    fn send_by(
        &mut self,
        pass: fn(&mut T, &Burst<'_>) -> Result<usize, FabricError>,
        qpn: Qpn,
        payload: &[u8],
    ) -> Result<bool, FabricError> {
        self.update();
        let queue_pair = self.queue_pairs.get_mut(qpn.0);
        let queue_pair = queue_pair.ok_or(FabricError::UnknownQp(qpn.0))?;
        super::burst::check_length(payload.len() as u64, queue_pair.mtu)?;
        let remote = queue_pair.remote(qpn)?;
        let burst = Burst::of_send(payload, remote, queue_pair.psn);
        let passed = pass(&mut self.carrier, &burst);
        let (taken, bytes) = accepted(passed, qpn, &burst)?;
        queue_pair.sent(taken);
        count_sent(&self.port, taken, bytes);
        Ok(taken == 1)
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
                        sealing: None,
                    };
                    self.queue_pairs.insert(qpn.0, queue_pair);
                }
                TxUpdate::Seal { qpn, with } => {
                    if let Some(queue_pair) = self.queue_pairs.get_mut(qpn.0) {
                        queue_pair.seal(with.map(Sealer::new));
                    }
                }
                TxUpdate::Connect { qpn, remote } => {
                    if let Some(queue_pair) = self.queue_pairs.get_mut(qpn.0) {
                        queue_pair.remote = Some(Box::new(remote));
                    }
                }
                TxUpdate::Disconnect(qpn) => {
                    if let Some(queue_pair) = self.queue_pairs.get_mut(qpn.0) {
                        queue_pair.remote = None;
                        queue_pair.seal(None);
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
    fn seal(&mut self, sealer: Option<Sealer>) {
        if sealer.is_some() || self.sealing.is_some() {
            self.sealing.get_or_insert_default().sealer = sealer;
        }
    }

    fn seals(&self) -> bool {
        let sealing = self.sealing.as_ref();
        sealing.is_some_and(|sealing| sealing.sealer.is_some())
    }

    fn remote(&self, qpn: Qpn) -> Result<&SendRoute, FabricError> {
        let remote = self.remote.as_deref();
        remote.ok_or(FabricError::NotConnected(qpn.0))
    }

    /// Makes the packets of writes, sealed if the queue pair seals, and sends them. Returns the number
    /// of packets that the carrier accepted, and the bytes of their IP datagrams.
    ///
    /// Packets that were sealed and not accepted are discarded with their counters: a later post seals
    /// the writes again.
    fn post<T: CarrierTx>(
        &mut self,
        carrier: &mut T,
        qpn: Qpn,
        writes: &[WriteWr<'_>],
        regions: &Regions,
        copied: &mut Vec<u8>,
    ) -> Result<(usize, u64), FabricError> {
        let remote = self.remote.as_deref();
        let payloads = match (self.sealing.as_deref_mut(), remote) {
            (
                Some(SendSealing {
                    sealer: Some(sealer),
                    counter,
                }),
                Some(remote),
            ) => {
                let mut sealing = BurstSealing {
                    sealer,
                    remote,
                    psn: self.psn,
                    counter,
                };
                Payloads::seal(regions, writes, self.mtu, copied, &mut sealing)?
            }
            _ => Payloads::find(regions, writes, self.mtu, copied)?,
        };
        let remote = remote.ok_or(FabricError::NotConnected(qpn.0))?;
        let burst = Burst::of_writes(writes, &payloads, remote, self.psn);
        let sent = accepted(carrier.send(&burst), qpn, &burst)?;
        self.sent(sent.0);
        Ok(sent)
    }

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
        let mut ahead = writes.len().max(1);
        if queue_pair.seals() {
            // Nothing is sent if one of them is wrong.
            Payloads::check(&regions, writes, queue_pair.mtu)?;
            ahead = SEALED_AHEAD;
        }
        let mut taken = 0;
        for part in writes.chunks(ahead) {
            let posted = queue_pair.post(&mut self.carrier, qpn, part, &regions, &mut self.copied);
            match posted {
                Ok((packets, bytes)) => {
                    count_sent(&self.port, packets, bytes);
                    taken += packets;
                    if packets < part.len() {
                        break;
                    }
                }
                // The error comes again with the next post.
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
        }
        drop(regions);
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
        self.send_by(T::send, qpn, payload)
    }

    fn hold_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        self.send_by(T::hold, qpn, payload)
    }

    fn flush(&mut self) -> Result<bool, FabricError> {
        self.carrier.flush()
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

/// Returns the number of packets of a burst that the carrier accepted, and the bytes of their IP datagrams.
fn accepted(
    passed: Result<usize, FabricError>,
    qpn: Qpn,
    burst: &Burst<'_>,
) -> Result<(usize, u64), FabricError> {
    let taken = passed.map_err(|error| match error {
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
