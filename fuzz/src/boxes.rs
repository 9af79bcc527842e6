//! Targets of the boxes crate.

use farwrite_boxes::lowar::{Coding, Config, Lowar, Shape};
use farwrite_boxes::netrt::{self, NetRt};
use farwrite_boxes::{PathBox, Side};
use farwrite_wire::icrc::{Flow, Icrc};
use std::net::SocketAddr;

/// The key of the box.
pub const KEY: [u8; 32] = [3; 32];
const MAX_UNITS: usize = 8;
const MAX_HELD: usize = 6;
const MAX_POOL_BYTES: usize = 1000;
/// Type of service of packets that NetRT has repeated.
const REPEAT_TOS: u8 = 0xC0;
const TAG_BYTES: usize = 16;

/// Frames for a LoWAR box with little memory, as [`feed`] reads them. All units come back.
pub fn lowar(data: &[u8]) {
    let config = Config {
        key: Some(KEY),
        coding: Coding::Fixed(Shape::new(4, 2).expect("a shape")),
        max_units: MAX_UNITS,
        max_held: MAX_HELD,
        max_streams: 3,
        ..Config::default()
    };
    let far_frames = |how: u8| how != 3;
    feed(Lowar::new(&config, 1), data, far_frames, |lowar| {
        assert!(lowar.free_units().into_iter().all(|free| free <= MAX_UNITS));
    });
}

/// Frames for a NetRT box with little memory, as [`feed`] reads them. The pool keeps its limit.
pub fn netrt(data: &[u8]) {
    let config = netrt::Config {
        key: Some(KEY),
        pool_bytes: MAX_POOL_BYTES,
        max_held: MAX_HELD,
        max_flows: 3,
        repeat_dscp: REPEAT_TOS >> 2,
        ..netrt::Config::new(1_000_000_000, 50_000)
    };
    // Copies of packets are dropped.
    let far_frames = |how: u8| how < 2;
    feed(NetRt::new(&config, 1), data, far_frames, |netrt| {
        assert!(netrt.pool_bytes() <= MAX_POOL_BYTES);
    });
}

/// Gives frames to a box. The input has, for each frame, a byte that chooses how it is wrapped, a
/// length byte, and that number of bytes.
///
/// The box does not panic. Frames from the near side leave unchanged and in order. Frames from the
/// far side come out if `passes` accepts how they are wrapped. At the end, the box holds nothing.
fn feed<B: PathBox>(mut this: B, data: &[u8], passes: fn(u8) -> bool, check: impl Fn(&B)) {
    let mut now_ns = 0;
    let mut sent = Vec::new();
    let mut far_frames = 0;
    let mut out = [Vec::new(), Vec::new()];
    let mut rest = data;
    while let [wrap, length, more @ ..] = rest {
        let (bytes, after) = more.split_at(more.len().min(usize::from(*length)));
        rest = after;
        let side = if wrap & 1 == 0 { Side::Near } else { Side::Far };
        now_ns += u64::from(wrap >> 4) * 1_000_000;
        this.handle_timeout(now_ns);
        drain(&mut this, &mut out);
        let how = wrap >> 1 & 3;
        let mut frame = wrapped(how, side, bytes);
        if wrap & 8 != 0 && how != 0 {
            frame[15] = REPEAT_TOS;
        }
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

fn drain(this: &mut impl PathBox, out: &mut [Vec<Vec<u8>>; 2]) {
    while let Some(frame) = this.poll() {
        out[usize::from(frame.to == Side::Far)].push(frame.bytes);
    }
}

/// Wraps bytes as a frame, as a UDP payload, with a valid ICRC, or with a valid ICRC and tag.
pub fn wrapped(how: u8, side: Side, bytes: &[u8]) -> Vec<u8> {
    // Packets from the far side are those of the peer, so reports meet streams.
    let (src, dst) = match side {
        Side::Near => ([10, 0, 0, 1], [10, 0, 0, 2]),
        Side::Far => ([10, 0, 0, 2], [10, 0, 0, 1]),
    };
    let mut payload = bytes.to_vec();
    match how {
        0 => return payload,
        1 => {}
        2 => payload.extend(icrc(src, dst, bytes)),
        _ => {
            let mut hash = blake3::Hasher::new_keyed(&KEY);
            for [a, b, c, d] in [src, dst] {
                hash.update(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d]);
            }
            hash.update(bytes);
            payload.extend(&hash.finalize().as_bytes()[..TAG_BYTES]);
            let icrc = icrc(src, dst, &payload);
            payload.extend(icrc);
        }
    }
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    let udp_bytes = 8 + payload.len() as u16;
    frame.extend((20 + udp_bytes).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(src);
    frame.extend(dst);
    for number in [50_000, 4791, udp_bytes, 0] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

fn icrc(src: [u8; 4], dst: [u8; 4], bytes: &[u8]) -> [u8; 4] {
    let (src, dst) = (
        SocketAddr::from((src, 50_000)),
        SocketAddr::from((dst, 4791)),
    );
    let flow = Flow::new(src, dst).expect("one family");
    let icrc = Icrc::new(&flow, 0, bytes.len() + 4);
    icrc.update(bytes).finish().to_le_bytes()
}
