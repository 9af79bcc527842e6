//! Targets of the boxes crate.

use farwrite_boxes::lowar::{BlockShape, Coding, Config, Lowar};
use farwrite_boxes::netrt::{self, NetRt};
use farwrite_boxes::{Middlebox, Side};
use farwrite_wire::icrc::{Flow, Icrc};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The key of the box.
pub const KEY: [u8; 32] = [3; 32];
const MAX_UNITS: usize = 8;
const MAX_HELD: usize = 6;
const MAX_POOL_BYTES: usize = 1000;
/// Type of service of packets that NetRT has repeated.
const REPEAT_TOS: u8 = 0xC0;
/// An Ethernet header without its type.
const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
/// Tags of 802.1Q and 802.1ad, with a priority.
const TAGS: [[u8; 4]; 2] = [[0x88, 0xA8, 0x60, 1], [0x81, 0, 0x60, 2]];
const TAG_BYTES: usize = 16;

/// Set in the first byte of an input where the box chooses its shape.
const ADAPTIVE: u8 = 0x80;

/// Frames for a LoWAR box with little memory, as `feed` reads them. All units come back.
pub fn lowar(data: &[u8]) {
    let is_adaptive = data.first().is_some_and(|first| first & ADAPTIVE != 0);
    let coding = if is_adaptive {
        Coding::Adaptive
    } else {
        Coding::Fixed(BlockShape::new(4, 2).expect("a shape"))
    };
    let config = Config {
        key: Some(KEY.into()),
        coding,
        max_units: MAX_UNITS,
        max_held: MAX_HELD,
        max_connections: 3,
        ..Config::default()
    };
    let far_frames = |how: u8| how != 3;
    feed(Lowar::new(&config, 1), data, far_frames, |lowar| {
        assert!(lowar.free_units().into_iter().all(|free| free <= MAX_UNITS));
    });
}

/// Frames for a NetRT box with little memory, as `feed` reads them. The pool keeps its limit.
pub fn netrt(data: &[u8]) {
    let config = netrt::Config {
        key: Some(KEY.into()),
        pool_bytes: MAX_POOL_BYTES,
        max_held: MAX_HELD,
        max_connections: 3,
        repeat_dscp: REPEAT_TOS >> 2,
        ..netrt::Config::new(1_000_000_000, 50_000)
    };
    // Copies of packets are dropped.
    let far_frames = |how: u8| how < 2;
    feed(NetRt::new(&config, 1), data, far_frames, |netrt| {
        assert!(netrt.pool_bytes() <= MAX_POOL_BYTES);
    });
}

/// Gives frames to a box. The first byte of the input chooses IPv4 or IPv6 and the number of VLAN
/// tags; its highest bit chooses whether a LoWAR box adapts. Then the input has, for each frame, a byte
/// that chooses how it is wrapped, a length byte, and that number of bytes.
///
/// The box does not panic. Frames from the near side leave unchanged and in order. Frames from the
/// far side come out if `passes` accepts how they are wrapped. At the end, the box holds nothing.
fn feed<B: Middlebox>(mut this: B, data: &[u8], passes: fn(u8) -> bool, check: impl Fn(&B)) {
    let mut now_ns = 0;
    let mut sent = Vec::new();
    let mut far_frames = 0;
    let mut out = [Vec::new(), Vec::new()];
    let Some((&layers, mut rest)) = data.split_first() else {
        return;
    };
    let layers = Layers::of(layers);
    while let [wrap, length, more @ ..] = rest {
        let (bytes, after) = more.split_at(more.len().min(usize::from(*length)));
        rest = after;
        let side = if wrap & 1 == 0 { Side::Near } else { Side::Far };
        now_ns += u64::from(wrap >> 4) * 1_000_000;
        this.handle_timeout(now_ns);
        drain(&mut this, &mut out);
        let how = wrap >> 1 & 3;
        let tos = if wrap & 8 != 0 { REPEAT_TOS } else { 0 };
        let frame = wrapped(layers, tos, how, side, bytes);
        match side {
            Side::Near => sent.push(frame.clone()),
            Side::Far => far_frames += usize::from(passes(how)),
        }
        this.handle(now_ns, side, frame);
        drain(&mut this, &mut out);
        assert!(this.held() <= MAX_HELD);
        check(&this);
    }
    this.handle_timeout(now_ns + 1_000_000_000);
    drain(&mut this, &mut out);
    assert_eq!(this.held(), 0);
    let [near, far] = out;
    assert!(near.len() >= far_frames);
    let mut left = far.iter();
    assert!(sent.iter().all(|frame| left.any(|out| out == frame)));
}

fn drain(this: &mut impl Middlebox, out: &mut [Vec<Vec<u8>>; 2]) {
    while let Some(frame) = this.poll() {
        out[usize::from(frame.to == Side::Far)].push(frame.bytes);
    }
}

/// What is around the UDP payload.
#[derive(Clone, Copy, Debug)]
pub struct Layers {
    /// IPv6 instead of IPv4.
    pub v6: bool,
    /// Number of VLAN tags, at most 3. A box knows two.
    pub tags: usize,
}

impl Layers {
    /// The layers that the first byte of an input selects.
    pub fn of(byte: u8) -> Self {
        Self {
            v6: byte & 1 == 1,
            tags: usize::from(byte >> 1 & 3),
        }
    }

    fn addresses(self, side: Side) -> [IpAddr; 2] {
        // Packets from the far side are those of the peer, so reports meet streams.
        let numbers = match side {
            Side::Near => [1, 2],
            Side::Far => [2, 1],
        };
        numbers.map(|number| {
            if self.v6 {
                Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, number).into()
            } else {
                Ipv4Addr::new(10, 0, 0, number as u8).into()
            }
        })
    }
}

/// Wraps bytes as a frame, as a UDP payload, with a valid ICRC, or with a valid ICRC and tag.
pub fn wrapped(layers: Layers, tos: u8, how: u8, side: Side, bytes: &[u8]) -> Vec<u8> {
    let [src, dst] = layers.addresses(side);
    let mut payload = bytes.to_vec();
    match how {
        0 => return payload,
        1 => {}
        2 => payload.extend(icrc(src, dst, bytes)),
        _ => {
            let mut hash = blake3::Hasher::new_keyed(&KEY);
            for address in [src, dst] {
                hash.update(&mapped(address).octets());
            }
            hash.update(bytes);
            payload.extend(&hash.finalize().as_bytes()[..TAG_BYTES]);
            let icrc = icrc(src, dst, &payload);
            payload.extend(icrc);
        }
    }
    let mut frame = ADDRESSES.to_vec();
    for number in 0..layers.tags {
        frame.extend(TAGS[number.min(1)]);
    }
    let udp_bytes = 8 + payload.len() as u16;
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            frame.extend([8, 0, 0x45, tos]);
            frame.extend((20 + udp_bytes).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            frame.extend(src.octets());
            frame.extend(dst.octets());
        }
        _ => {
            frame.extend([0x86, 0xDD, 0x60 | tos >> 4, tos << 4, 0, 0]);
            frame.extend(udp_bytes.to_be_bytes());
            frame.extend([17, 64]);
            frame.extend(mapped(src).octets());
            frame.extend(mapped(dst).octets());
        }
    }
    for number in [50_000, 4791, udp_bytes, 0] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn icrc(src: IpAddr, dst: IpAddr, bytes: &[u8]) -> [u8; 4] {
    let (src, dst) = (SocketAddr::new(src, 50_000), SocketAddr::new(dst, 4791));
    let flow = Flow::new(src, dst).expect("one family");
    let icrc = Icrc::new(&flow, 0, bytes.len() + 4);
    icrc.update(bytes).finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use farwrite_boxes::BoxFrame;

    use super::*;

    /// Of the first start of a box.
    fn stamp(serial: u8) -> Vec<u8> {
        [[0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, serial]].concat()
    }

    /// The target seals messages correctly, so that they reach the code behind the seal: a probe and a request are
    /// answered, a report is taken.
    #[test]
    fn the_target_seals_as_boxes_do() {
        // IPv4 and IPv6, with up to two tags.
        for layers in (0..6).map(Layers::of) {
            check_seals(layers);
        }
    }

    fn check_seals(layers: Layers) {
        let message = |kind: u8, body: Vec<u8>| {
            let mut message = vec![0x1F, 0, 0x12, 0x34, kind, 0, 0, 0, 0, 0, 0, 0];
            message.extend([0, 4, 2, 0, 0, 0, 0, 0]);
            message.extend(body);
            wrapped(layers, 0, 3, Side::Far, &message)
        };
        let config = Config {
            key: Some(KEY.into()),
            ..Config::default()
        };
        let mut lowar = Lowar::new(&config, 1);
        lowar.handle(0, Side::Far, message(2, stamp(1)));
        assert_eq!(lowar.counters().reports_sent, 1);
        assert!(matches!(lowar.poll(), Some(BoxFrame { to: Side::Far, .. })));
        // A write of 8 bytes makes the box ask, and the report answers.
        let mut write = vec![0x0A, 0, 0xFF, 0xFF, 0, 0, 0x12, 0x34, 0, 0, 0, 1];
        write.extend([0; 12]);
        write.extend([0, 0, 0, 8]);
        write.extend([7; 8]);
        lowar.handle(0, Side::Near, wrapped(layers, 0, 2, Side::Near, &write));
        let report = [stamp(1), stamp(1), vec![0; 40]].concat();
        lowar.handle(0, Side::Far, message(4, report));
        assert_eq!(lowar.counters().reports_received, 1);
        // A request about a flow that is not known is answered by a notice.
        let mut request = vec![0x1F, 0, 0x12, 0x34, 7, 0, 0, 0, 0, 0, 0, 5];
        request.extend([0; 16]);
        request.push(1);
        let config = netrt::Config {
            key: Some(KEY.into()),
            ..netrt::Config::new(1_000_000_000, 50_000)
        };
        let request = wrapped(layers, 0, 3, Side::Far, &request);
        let mut netrt = NetRt::new(&config, 1);
        netrt.handle(0, Side::Far, request);
        assert_eq!(netrt.counters().notices_sent, 1);
        assert!(matches!(netrt.poll(), Some(BoxFrame { to: Side::Far, .. })));
    }
}
