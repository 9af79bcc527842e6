//! Targets of the route crate.

use std::net::SocketAddr;

use farwrite_route::{Config, MIN_BYTES, Role, Route, RoutePacket};

const KEY: [u8; 32] = [7; 32];
/// The bytes that the tag covers, and the place of the tag.
const CONTENT: usize = 60;
const TAG: std::ops::Range<usize> = 60..76;

/// Route packets of a peer that has the key: for each, 1 byte of time, 1 of address and 60 of content.
/// Until an end has accepted an address, it sends no more bytes there than came from there.
pub fn receive(data: &[u8]) {
    let _ = RoutePacket::open(&KEY, data);
    let named = SocketAddr::from(([192, 0, 2, 1], 5));
    let local = SocketAddr::from(([192, 0, 2, 2], 5));
    let mut route = Route::new(
        Config {
            role: Role::Responder,
            number: 0,
            send_key: [8; 32].into(),
            send_index: 0,
            recv_key: KEY.into(),
            recv_index: 0,
            local,
            peer: named,
            search: None,
        },
        0,
    );
    let mut accepted = [false; 4];
    let (mut now_ns, mut came, mut sent) = (0, [0_usize; 4], [0_usize; 4]);
    for chunk in data.chunks_exact(2 + CONTENT) {
        now_ns += u64::from(chunk[0]) * 10_000_000;
        let from = usize::from(chunk[1] % 4);
        let mut bytes = vec![0; MIN_BYTES + usize::from(chunk[1] / 4) * 16];
        bytes[..CONTENT].copy_from_slice(&chunk[2..]);
        let length = u16::try_from(bytes.len()).expect("short");
        bytes[58..60].copy_from_slice(&length.to_be_bytes());
        let tag = blake3::keyed_hash(&KEY, &bytes[..CONTENT]);
        bytes[TAG].copy_from_slice(&tag.as_bytes()[..16]);
        let src = SocketAddr::from(([198, 51, 100, from as u8], 9));
        if route.receive(now_ns, src, local, &bytes).is_ok() {
            came[from] += bytes.len() + 48;
        }
        while let Some(out) = route.poll_transmit(now_ns) {
            if let SocketAddr::V4(to) = out.to
                && to.ip().octets()[..3] == [198, 51, 100]
            {
                sent[usize::from(to.ip().octets()[3])] += out.bytes.len() + 48;
            }
        }
        for place in 0..4 {
            let address = SocketAddr::from(([198, 51, 100, place as u8], 9));
            // An address that has answered belongs to the peer.
            accepted[place] |= route
                .addresses()
                .is_some_and(|addresses| addresses.peer == address);
            assert!(accepted[place] || sent[place] <= came[place]);
        }
    }
}
