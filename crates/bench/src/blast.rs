//! The raw blast: how fast UDP sockets alone move memory over loopback.
//!
//! One thread sends batches cut by the kernel (GSO) out of a large buffer, another receives them
//! joined (GRO) and puts each payload in its place in another. Packets have the size of Farwrite's,
//! headers included, but mean nothing: no checksum, no keys, no completions. What a full stack
//! reaches is held against this.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_fabric::udp::{
    self, MAX_BATCH_BYTES, MAX_SEGMENTS, Outgoing, SocketConfig, SocketError, UdpSocket,
};

use crate::meter::{Meter, Usage};

/// BTH, RETH and immediate before the payload.
const HEADER_BYTES: usize = 12 + 16 + 4;
/// ICRC behind it.
const TRAILER_BYTES: usize = 4;
/// Batches handed to one system call.
const BATCHES: usize = 4;
/// After so long without progress what is in flight counts as lost.
const STALL: Duration = Duration::from_millis(20);

/// How to blast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlastConfig {
    /// Payload bytes of a packet.
    pub(crate) mtu: usize,
    /// Most payload bytes between sender and receiver, so that speed is measured and not loss.
    pub(crate) window_bytes: u64,
}

/// What a blast did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlastResult {
    /// Payload bytes that arrived.
    pub(crate) bytes: u64,
    /// Packets sent.
    pub(crate) sent: u64,
    /// Packets that arrived.
    pub(crate) received: u64,
    /// From the first packet sent to the last one placed.
    pub(crate) usage: Usage,
}

impl BlastResult {
    /// Payload that arrived, in bits per second.
    pub(crate) fn goodput_bps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.usage.wall.as_secs_f64()
    }

    /// Share of packets that did not arrive.
    pub(crate) fn loss_packet(&self) -> f64 {
        1.0 - self.received as f64 / self.sent as f64
    }
}

/// Where sender and receiver see each other.
#[derive(Default)]
struct Progress {
    received_bytes: AtomicU64,
    sender_done: AtomicBool,
}

/// Sends `source` to `destination`, which is of the same length, over loopback.
///
/// # Errors
/// The sockets'.
pub(crate) fn blast(
    config: BlastConfig,
    source: &[u8],
    destination: &mut [u8],
) -> Result<BlastResult, SocketError> {
    let socket = SocketConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut tx = UdpSocket::bind(&socket)?;
    let mut rx = UdpSocket::bind(&socket)?;
    let dst = rx.local_addr();
    let progress = Progress::default();
    let meter = Meter::start();
    let (sent, received) = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&mut rx, destination, &progress));
        let sent = send(&mut tx, dst, source, config, &progress);
        progress.sender_done.store(true, Ordering::Release);
        (sent, receiver.join().expect("the receiver does not panic"))
    });
    let received = received?;
    Ok(BlastResult {
        bytes: progress.received_bytes.into_inner(),
        sent: sent?,
        received,
        usage: meter.stop(),
    })
}

fn send(
    socket: &mut UdpSocket,
    dst: SocketAddr,
    source: &[u8],
    config: BlastConfig,
    progress: &Progress,
) -> Result<u64, SocketError> {
    let packet_bytes = HEADER_BYTES + config.mtu + TRAILER_BYTES;
    let per_batch = MAX_SEGMENTS.min(MAX_BATCH_BYTES / packet_bytes);
    let mut headers = vec![[0_u8; HEADER_BYTES]; per_batch * BATCHES];
    let (mut at, mut packets, mut lost) = (0, 0, 0);
    while at < source.len() {
        let mut stalled = Instant::now();
        loop {
            let received = progress.received_bytes.load(Ordering::Acquire);
            if at as u64 <= received + lost + config.window_bytes {
                break;
            }
            if stalled.elapsed() > STALL {
                lost = at as u64 - received;
                stalled = Instant::now();
            }
            thread::yield_now();
        }
        let end = source.len().min(at + per_batch * BATCHES * config.mtu);
        for (header, offset) in headers.iter_mut().zip((at..end).step_by(config.mtu)) {
            header[12..20].copy_from_slice(&(offset as u64).to_be_bytes());
        }
        let mut parts = Vec::with_capacity(3 * headers.len());
        for (header, payload) in headers.iter().zip(source[at..end].chunks(config.mtu)) {
            parts.push(IoSlice::new(header));
            parts.push(IoSlice::new(payload));
            parts.push(IoSlice::new(&[0; TRAILER_BYTES]));
        }
        let messages: Vec<_> = parts
            .chunks(3 * per_batch)
            .map(|parts| Outgoing {
                src: None,
                dst,
                segment_bytes: packet_bytes,
                parts,
            })
            .collect();
        let taken = socket.send(&messages)?;
        packets += taken as u64;
        at = end.min(at + taken * config.mtu);
    }
    Ok(packets)
}

fn receive(
    socket: &mut UdpSocket,
    destination: &mut [u8],
    progress: &Progress,
) -> Result<u64, SocketError> {
    let (mut packets, mut bytes) = (0, 0);
    while bytes < destination.len() as u64 {
        let (batches, _) = socket.recv()?;
        let before = packets;
        for batch in batches {
            for packet in batch.segments() {
                let Some(placed) = place(packet, destination) else {
                    continue;
                };
                bytes += placed as u64;
                packets += 1;
            }
            progress.received_bytes.store(bytes, Ordering::Release);
        }
        if packets == before {
            let done = progress.sender_done.load(Ordering::Acquire);
            let more = udp::wait([(&*socket, false)], Some(STALL)).unwrap_or(false);
            if done && !more {
                break;
            }
        }
    }
    Ok(packets)
}

/// Copies the payload to the offset that the header names; the number of bytes.
fn place(packet: &[u8], destination: &mut [u8]) -> Option<usize> {
    let offset = u64::from_be_bytes(*packet.get(12..20)?.first_chunk()?);
    let payload = packet.get(HEADER_BYTES..packet.len().checked_sub(TRAILER_BYTES)?)?;
    let place = destination.get_mut(usize::try_from(offset).ok()?..)?;
    place.get_mut(..payload.len())?.copy_from_slice(payload);
    Some(payload.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_lands_in_its_place() {
        let source: Vec<u8> = (0..3_000_001_u32)
            .map(|i| (i % 251).to_le_bytes()[0])
            .collect();
        let mut destination = vec![0; source.len()];
        let config = BlastConfig {
            mtu: 4096,
            window_bytes: 1 << 20,
        };
        let result = blast(config, &source, &mut destination).unwrap();
        assert_eq!(result.sent, 733);
        assert_eq!(result.received, 733);
        assert_eq!(result.bytes, 3_000_001);
        assert!(source == destination);
    }
}
