//! One socket of an emulator, and the end behind it.

use std::io::IoSlice;
use std::net::SocketAddr;

use farwrite_fabric::udp::{
    MAX_BATCH_BYTES, MAX_SEGMENTS, OutgoingBatch, ReceivedBatch, SocketConfig, UdpSocket,
};
use farwrite_link::Datagram;
use farwrite_wire::icrc::{self, Flow, IdRange, MixedFamilies};

use super::config::{Side, UdpEmulatorError};
use super::counters::DirectionCounters;

/// One socket of an emulator.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) socket: UdpSocket,
    pub(super) end: Option<End>,
    /// Whether to relay datagrams unchanged.
    verbatim: bool,
}

/// The end behind a port.
#[derive(Debug)]
pub(super) struct End {
    addr: SocketAddr,
    /// Addresses of packets from the end to the port.
    inward: Flow,
    /// Addresses of packets from the port to the end.
    outward: Flow,
}

impl End {
    fn new(addr: SocketAddr, port: SocketAddr) -> Result<Self, MixedFamilies> {
        Ok(Self {
            addr,
            inward: Flow::new(addr, port)?,
            outward: Flow::new(port, addr)?,
        })
    }
}

impl Port {
    pub(super) fn open(side: &Side, verbatim: bool) -> Result<Self, UdpEmulatorError> {
        side.validate()?;
        let socket = UdpSocket::bind(&SocketConfig::new(side.listen))?;
        let end = side.end.map(|addr| End::new(addr, socket.local_addr()));
        Ok(Self {
            end: end.transpose()?,
            socket,
            verbatim,
        })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }
}

/// Turns datagrams from one end into datagrams for the other end, each sealed for its new addresses
/// with identification 0.
pub(super) fn turn_around<'a>(
    received: &'a ReceivedBatch<'_>,
    from: &'a mut Option<End>,
    from_addr: SocketAddr,
    to: &'a Port,
    counters: &'a mut DirectionCounters,
) -> impl Iterator<Item = Datagram> + 'a {
    let src = received.src;
    if from.is_none() {
        *from = learn(received, from_addr, to.verbatim);
    }
    let known = from.as_ref().filter(|end| end.addr == src);
    received
        .segments()
        .zip(0..)
        .filter_map(move |(packet, index)| {
            let Some(end) = known else {
                counters.strangers += 1;
                return None;
            };
            // Ends on this machine send batches that the kernel cuts, so the index is the
            // identification.
            let verify = || icrc::verify(&end.inward, packet, index, IdRange::SOFTWARE);
            let id = match to.verbatim {
                true => Some(0),
                false => verify().ok(),
            };
            counters.bad_icrc += u64::from(id.is_none());
            let Some(next) = &to.end else {
                counters.no_end += 1;
                return None;
            };
            let mut datagram = Datagram {
                src: to.addr(),
                dst: next.addr,
                tos: 0,
                id: 0,
                payload: packet.to_vec(),
            };
            if !to.verbatim {
                let id = id.unwrap_or(0);
                reseal(&mut datagram, (&end.inward, id), (&next.outward, 0));
            }
            Some(datagram)
        })
}

/// Learns the address of an end: the source of a packet with a valid ICRC. If ICRCs are not
/// checked, any packet counts.
fn learn(received: &ReceivedBatch<'_>, port: SocketAddr, verbatim: bool) -> Option<End> {
    let end = End::new(received.src, port).ok()?;
    if verbatim {
        return Some(end);
    }
    let is_right =
        |(packet, index)| icrc::verify(&end.inward, packet, index, IdRange::SOFTWARE).is_ok();
    received.segments().zip(0..).any(is_right).then_some(end)
}

/// Number of leading `datagrams` that can leave as one GSO batch: those for the same end that have
/// the length of the first one, and then one shorter datagram.
pub(super) fn run_length(datagrams: &[Datagram], gso: bool) -> usize {
    let Some(first) = datagrams.first() else {
        return 0;
    };
    let segment_bytes = first.payload.len();
    if !gso || segment_bytes == 0 {
        return 1;
    }
    let most = MAX_SEGMENTS.min(MAX_BATCH_BYTES / segment_bytes).max(1);
    let same_way = |d: &&Datagram| (d.src, d.dst) == (first.src, first.dst);
    let candidates = datagrams.iter().take(most).take_while(same_way);
    let mut run = 0;
    for datagram in candidates {
        let bytes = datagram.payload.len();
        if bytes > segment_bytes || bytes == 0 {
            break;
        }
        run += 1;
        if bytes < segment_bytes {
            break;
        }
    }
    run
}

/// Returns the number of datagrams that the system did not accept.
pub(super) fn send_run(port: &mut Port, run: &mut [Datagram]) -> u64 {
    let Some(end) = &port.end else {
        return run.len() as u64;
    };
    for (datagram, index) in run.iter_mut().zip(0..) {
        if !port.verbatim && datagram.id != index {
            let id = datagram.id;
            reseal(datagram, (&end.outward, id), (&end.outward, index));
            datagram.id = index;
        }
    }
    let mut parts = [IoSlice::new(&[]); MAX_SEGMENTS];
    for (part, datagram) in parts.iter_mut().zip(&*run) {
        *part = IoSlice::new(&datagram.payload);
    }
    let message = OutgoingBatch {
        src: None,
        dst: end.addr,
        segment_bytes: run.first().map_or(0, |datagram| datagram.payload.len()),
        parts: &parts[..run.len()],
    };
    let sent = port.socket.send(&[message]).unwrap_or(0);
    (run.len() - sent) as u64
}

fn reseal(datagram: &mut Datagram, old: (&Flow, u16), new: (&Flow, u16)) {
    let bytes = datagram.payload.len();
    if let Some(field) = datagram.payload.last_chunk_mut() {
        *field = icrc::reseal(old, new, bytes, u32::from_le_bytes(*field)).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(port: u16, bytes: usize) -> Datagram {
        Datagram {
            src: SocketAddr::from(([127, 0, 0, 1], 1)),
            dst: SocketAddr::from(([127, 0, 0, 1], port)),
            tos: 0,
            id: 0,
            payload: vec![0; bytes],
        }
    }

    /// Returns the lengths of the batches in which datagrams with these ports and sizes leave.
    fn runs(datagrams: &[(u16, usize)], gso: bool) -> Vec<usize> {
        let datagrams: Vec<_> = datagrams
            .iter()
            .map(|(port, bytes)| to(*port, *bytes))
            .collect();
        let mut rest = &datagrams[..];
        let mut runs = Vec::new();
        while !rest.is_empty() {
            runs.push(run_length(rest, gso));
            rest = &rest[runs[runs.len() - 1]..];
        }
        runs
    }

    #[test]
    fn a_run_has_one_way_and_one_size_but_for_a_shorter_last() {
        let sizes = [
            (1, 9),
            (1, 9),
            (1, 8),
            (1, 8),
            (1, 9),
            (2, 9),
            (2, 9),
            (1, 9),
        ];
        assert_eq!(runs(&sizes, true), [3, 1, 1, 2, 1]);
        assert_eq!(runs(&sizes, false), [1; 8]);
        assert_eq!(runs(&[(1, 0), (1, 0), (1, 9), (1, 0)], true), [1; 4]);
        assert_eq!(run_length(&[], true), 0);
    }

    #[test]
    fn a_run_is_no_longer_than_the_kernel_takes() {
        assert_eq!(runs(&[(1, 100); 150], true), [64, 64, 22]);
        assert_eq!(runs(&[(1, 4136); 40], true), [15, 15, 10]);
        assert_eq!(runs(&[(1, 65_507); 2], true), [1, 1]);
    }
}
