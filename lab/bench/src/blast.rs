//! The raw blast: the speed of UDP sockets alone over loopback.
//!
//! One thread sends batches from a large buffer, which the kernel splits (GSO). Another thread
//! receives joined packets (GRO), and copies each payload to its place in another buffer. Packets
//! have the size of Farwrite's packets, including headers, but no checksum, no keys and no
//! completions. Both threads sleep in the kernel while they wait, like the full stack, so their
//! processor time measures only the work. This is the reference for the full stack.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use farwrite_fabric::udp::{
    self, MAX_BATCH_BYTES, MAX_SEGMENTS, OutgoingBatch, SocketConfig, SocketError, UdpSocket,
};

use crate::meter::{Meter, Moved};
use crate::window::{STALL, Window};

/// BTH, RETH and immediate before the payload.
const HEADER_BYTES: usize = 12 + 16 + 4;
/// ICRC behind it.
const TRAILER_BYTES: usize = 4;
/// IPv4 and UDP headers.
const IP_UDP_BYTES: usize = 20 + 8;
/// Batches per system call.
const BATCHES: usize = 4;

/// The settings of a blast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlastConfig {
    /// Payload bytes of a packet.
    pub(crate) mtu: usize,
    /// Highest number of payload bytes in flight, to avoid losses.
    pub(crate) window_bytes: u64,
    /// Bits a second on the wire, UDP and IPv4 headers included: one batch leaves at a time, and the sender sleeps
    /// until the next one. `None`: as fast as the window allows.
    pub(crate) pace_bps: Option<u64>,
}

/// Sends `source` to `destination` over loopback. Both must have the same length.
///
/// # Errors
/// The sockets'.
pub(crate) fn blast(
    config: BlastConfig,
    source: &[u8],
    destination: &mut [u8],
) -> Result<Moved, SocketError> {
    let socket = SocketConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut tx = UdpSocket::bind(&socket)?;
    let mut rx = UdpSocket::bind(&socket)?;
    let dst = rx.local_addr();
    let window = Window::new(config.window_bytes, STALL);
    let meter = Meter::start();
    let (sent, received) = thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&mut rx, destination, &window));
        let sent = send(&mut tx, dst, source, config, &window);
        window.end();
        (sent, receiver.join().expect("the receiver does not panic"))
    });
    let received = received?;
    Ok(Moved {
        bytes: window.arrived(),
        sent: sent?,
        received,
        usage: meter.read(),
    })
}

fn send(
    socket: &mut UdpSocket,
    dst: SocketAddr,
    source: &[u8],
    config: BlastConfig,
    window: &Window,
) -> Result<u64, SocketError> {
    let mtu = config.mtu;
    let packet_bytes = HEADER_BYTES + mtu + TRAILER_BYTES;
    let per_batch = MAX_SEGMENTS.min(MAX_BATCH_BYTES / packet_bytes);
    let batches = if config.pace_bps.is_some() {
        1
    } else {
        BATCHES
    };
    let mut headers = vec![[0_u8; HEADER_BYTES]; per_batch * batches];
    let (mut at, mut packets) = (0, 0);
    let started = Instant::now();
    while at < source.len() {
        window.wait(at as u64);
        if let Some(pace_bps) = config.pace_bps {
            let wire_bits = packets * (packet_bytes + IP_UDP_BYTES) as u64 * 8;
            let due = Duration::from_secs_f64(wire_bits as f64 / pace_bps as f64);
            thread::sleep(due.saturating_sub(started.elapsed()));
        }
        let end = source.len().min(at + per_batch * batches * mtu);
        for (header, offset) in headers.iter_mut().zip((at..end).step_by(mtu)) {
            header[12..20].copy_from_slice(&(offset as u64).to_be_bytes());
        }
        let mut parts = Vec::with_capacity(3 * headers.len());
        for (header, payload) in headers.iter().zip(source[at..end].chunks(mtu)) {
            parts.push(IoSlice::new(header));
            parts.push(IoSlice::new(payload));
            parts.push(IoSlice::new(&[0; TRAILER_BYTES]));
        }
        let messages: Vec<_> = parts
            .chunks(3 * per_batch)
            .map(|parts| OutgoingBatch {
                src: None,
                dst,
                segment_bytes: packet_bytes,
                parts,
            })
            .collect();
        let taken = socket.send(&messages)?;
        packets += taken as u64;
        at = end.min(at + taken * mtu);
    }
    Ok(packets)
}

fn receive(
    socket: &mut UdpSocket,
    destination: &mut [u8],
    window: &Window,
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
            window.arrive(bytes);
        }
        if packets == before {
            let done = window.has_ended();
            let more = udp::wait([(&*socket, false)], Some(STALL)).unwrap_or(false);
            if done && !more {
                break;
            }
        }
    }
    Ok(packets)
}

/// Copies the payload to the offset in the header. Returns the number of bytes.
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
            pace_bps: None,
        };
        let result = blast(config, &source, &mut destination).unwrap();
        assert_eq!(result.sent, 733);
        assert_eq!(result.received, 733);
        assert_eq!(result.bytes, 3_000_001);
        assert!(source == destination);
    }
}
