//! Readers of files, for the targets in `crates/fuzz`. Not part of an interface.

use crate::{known_paths, link_file, peers, trace};

/// The text of a link file. The values are those of a path.
///
/// # Panics
/// A value is out of range.
pub fn link_file(text: &str) {
    let Ok(path) = link_file::parse(text) else {
        return;
    };
    if let Ok(Some(loss)) = path.loss_packet() {
        assert!((0.0..1.0).contains(&loss), "{loss}");
    }
    let pace_bps = path.pace_bps().unwrap_or(1_000_000);
    assert!((8_000..=100_000_000_000).contains(&pace_bps));
    let _ = (path.start(), path.has_one_packet_chunks());
}

/// The text of the file of known paths.
///
/// # Panics
/// What was read is not written as the same paths.
pub fn known_paths(text: &str) {
    let Some(known) = known_paths::parse(text) else {
        return;
    };
    let written = toml::to_string(&known).expect("what was read can be written");
    assert_eq!(known_paths::parse(&written), Some(known), "{written}");
}

/// The text of the file of peers. All that can be read are found by their keys.
///
/// # Panics
/// One is not.
pub fn peers(text: &str) {
    let Ok(peers) = peers::Peers::parse(text) else {
        return;
    };
    for (name, key) in peers.known().iter() {
        assert_eq!(peers.of(key).map(|peer| peer.name.as_str()), Some(name));
    }
}

/// The bytes of a trace. What can be read can be drawn.
pub fn trace(bytes: &[u8]) {
    trace::draw_bytes(bytes);
}
