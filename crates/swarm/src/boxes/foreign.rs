//! Traffic that boxes must not touch: fragments of packets, and other datagrams to the port of RoCEv2.

use farwrite_boxes::{BoxFrame, Middlebox, Side};
use farwrite_net::checksum;
use farwrite_rng::SplitMix;

use super::headers::Headers;

/// Where the IP header of a frame of the network is.
const IP: usize = 14;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// Share of the frames after which a foreign one comes.
const SHARE: f64 = 0.05;
/// The next-header number of IPv6 fragments (RFC 8200, 4.5).
const IPV6_FRAGMENT: u8 = 44;

/// Draws foreign frames, and checks that a box passes them on as they are and at once.
#[derive(Debug)]
pub(crate) struct Foreign {
    rng: SplitMix,
    /// How many the box got.
    pub(crate) frames: u64,
    /// What the box did with the first one that it did not pass on.
    pub(crate) broken: Option<String>,
}

impl Foreign {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: SplitMix::new(seed),
            frames: 0,
            broken: None,
        }
    }

    /// A foreign frame that follows `frame` of the network, or nothing.
    pub(crate) fn draw(&mut self, headers: Headers, frame: &[u8]) -> Option<Vec<u8>> {
        if !self.rng.chance(SHARE) {
            return None;
        }
        Some(match self.rng.index(3) {
            0 => headers.for_box(&self.datagram(frame)),
            at => fragment(headers.for_box(frame), headers, at == 1),
        })
    }

    /// Gives the box a foreign frame. The box has nothing else to send.
    pub(crate) fn pass<B: Middlebox>(
        &mut self,
        now_ns: u64,
        inner: &mut B,
        from: Side,
        frame: &[u8],
    ) {
        self.frames += 1;
        inner.handle(now_ns, from, frame.to_vec());
        let passed: Vec<BoxFrame> = std::iter::from_fn(|| inner.poll()).collect();
        let whole = matches!(&passed[..], [one] if one.to != from && one.bytes == frame);
        if !whole {
            let what = format!("{frame:x?}, not RoCEv2, from {from:?}, leaves as {passed:x?}");
            self.broken.get_or_insert(what);
        }
    }

    /// A datagram to the same port whose payload is not a RoCEv2 packet.
    fn datagram(&mut self, frame: &[u8]) -> Vec<u8> {
        let headers = IP + IPV4_BYTES + UDP_BYTES;
        let mut bytes = frame[..headers].to_vec();
        bytes.extend((0..self.rng.within(4..80)).map(|_| self.rng.next().to_le_bytes()[0]));
        let length = |from: usize| u16::try_from(bytes.len() - from).expect("a short datagram");
        let (ip_bytes, udp_bytes) = (length(IP), length(IP + IPV4_BYTES));
        let mut put = |at: usize, value: u16| {
            bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        put(IP + 2, ip_bytes);
        put(IP + IPV4_BYTES + 4, udp_bytes);
        put(IP + 10, 0);
        let sum = checksum(0, &bytes[IP..IP + IPV4_BYTES]);
        bytes[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

/// Makes a frame of the box the first or a later fragment of its packet.
fn fragment(mut frame: Vec<u8>, headers: Headers, is_first: bool) -> Vec<u8> {
    let ip = headers.ip();
    if headers.ipv6 {
        frame[ip + 6] = IPV6_FRAGMENT;
    } else if is_first {
        frame[ip + 6] = 0x20;
    } else {
        frame[ip + 7] = 3;
    }
    frame
}
