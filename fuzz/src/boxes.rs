//! Targets of the boxes crate.

use farwrite_boxes::lowar::{Coding, Config, Lowar, Shape};
use farwrite_boxes::{PathBox, Side};
use farwrite_wire::icrc::{Flow, Icrc};
use std::net::SocketAddr;

/// The key of the box.
pub const KEY: [u8; 32] = [3; 32];
const MAX_UNITS: usize = 8;
const MAX_HELD: usize = 6;
const TAG_BYTES: usize = 16;

/// Frames for a box with little memory: each is a byte that says how it is wrapped, a length byte,
/// and that many bytes. None panics; frames from the near side leave unchanged and in order; of
/// those from the far side, only box messages do not come out; in the end nothing is held.
pub fn lowar(data: &[u8]) {
    let config = Config {
        key: Some(KEY),
        coding: Coding::Fixed(Shape::new(4, 2).expect("a shape")),
        max_units: MAX_UNITS,
        max_held: MAX_HELD,
        max_streams: 3,
        ..Config::default()
    };
    let mut lowar = Lowar::new(&config, 1);
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
        lowar.handle_timeout(now_ns);
        let frame = wrapped(wrap >> 1 & 3, side, bytes);
        match side {
            Side::Near => sent.push(frame.clone()),
            Side::Far => far_frames += usize::from(wrap >> 1 & 3 != 3),
        }
        lowar.handle(now_ns, side, frame);
        drain(&mut lowar, &mut out);
        assert!(lowar.held() <= MAX_HELD);
        assert!(lowar.free_units().into_iter().all(|free| free <= MAX_UNITS));
    }
    lowar.handle_timeout(now_ns + 1_000_000_000);
    drain(&mut lowar, &mut out);
    assert_eq!(lowar.held(), 0);
    let [near, far] = out;
    assert!(near.len() >= far_frames);
    let mut left = far.iter();
    assert!(sent.iter().all(|frame| left.any(|out| out == frame)));
}

fn drain(lowar: &mut Lowar, out: &mut [Vec<Vec<u8>>; 2]) {
    while let Some((side, frame)) = lowar.poll() {
        out[usize::from(side == Side::Far)].push(frame);
    }
}

/// The bytes as a frame; as a UDP payload; with a right ICRC behind them; with the right tag too.
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
