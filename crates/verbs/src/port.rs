//! What the control object, the queue and the worker of a port share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farwrite_fabric::contract::{Counters, DropReason};

use crate::buffers::Buffers;
use crate::device::{Device, DeviceQp, PortAddress};
use crate::receiving::Receiving;
use crate::sending::Sending;

pub(crate) struct Port {
    pub(crate) address: PortAddress,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) counts: Counts,
    pub(crate) device: Arc<Device>,
}

/// A queue pair of the device, with the buffers of its receive requests.
pub(crate) struct QueuePair {
    /// Dropped before the buffers.
    pub(crate) device: DeviceQp,
    pub(crate) buffers: ReceiveBuffers,
}

/// Where the receive requests of a queue pair place SENDs.
pub(crate) enum ReceiveBuffers {
    /// A buffer for each request.
    Own(Buffers),
    /// One buffer for all requests, which nobody reads, because the queue pair receives writes only.
    /// Without a buffer, a SEND would break the queue pair of some devices.
    Shared(Arc<Buffers>),
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) sent_packets: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_packets: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    /// SENDs for which the device found no buffer that is large enough.
    pub(crate) no_receive: AtomicU64,
}

impl Counts {
    pub(crate) fn add_to(&self, sum: &mut Counters) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sum.sent_packets += get(&self.sent_packets);
        sum.sent_bytes += get(&self.sent_bytes);
        sum.received_packets += get(&self.received_packets);
        sum.received_bytes += get(&self.received_bytes);
        sum.dropped[DropReason::NoReceive as usize] += get(&self.no_receive);
    }
}

impl PortAddress {
    /// Bytes of the IP datagram of a write with immediate.
    pub(crate) fn write_bytes(self, payload: u64) -> u64 {
        // RETH and immediate.
        self.send_bytes(payload) + 16 + 4
    }

    /// Bytes of the IP datagram of a SEND.
    pub(crate) fn send_bytes(self, payload: u64) -> u64 {
        let ip = if self.ip.is_ipv4() { 20 } else { 40 };
        // UDP, BTH, padding and ICRC.
        ip + 8 + 12 + payload.next_multiple_of(4) + 4
    }
}
