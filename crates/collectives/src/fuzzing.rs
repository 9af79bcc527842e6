//! Readers of bytes from other ranks, for the targets in `fuzz/` and for a test. Not part of the
//! public interface.
//!
//! Each reader panics if it writes what it has read as different bytes.

use crate::bounded::record::Layout;
use crate::control::ControlMessage;
use crate::info::MemberInfo;
use crate::meeting::Greeting;
use crate::segment::Header;

/// Messages between ranks. A message that can be read must be written as the same bytes.
///
/// # Panics
/// The written bytes differ.
pub fn messages(data: &[u8]) {
    for read in [member_info, greeting, control_message, segment] {
        if let Some(written) = read(data) {
            assert_eq!(written, data);
        }
    }
}

/// The record of a bounded operation. The data holds the number of ranks, the number of packets in
/// a part, and bytes. Unused bits become 0.
///
/// # Panics
/// The written bytes differ from those that were read.
pub fn record(data: &[u8]) {
    let Some((&[ranks, packets], record)) = data.split_first_chunk() else {
        return;
    };
    let [ranks, packets] = [ranks, packets].map(usize::from);
    let layout = Layout { ranks, packets };
    if let Some(written) = rewritten(layout, record) {
        // Byte 20 says whether there is a proposal. Unknown repairs after it count as none.
        if record[20] == 1 {
            assert_eq!(written[..21], record[..21]);
        }
        assert_eq!(rewritten(layout, &written), Some(written));
    }
}

fn member_info(bytes: &[u8]) -> Option<Vec<u8>> {
    let info = MemberInfo::decode(bytes).ok()?;
    // Queue-pair information may be any bytes: each rank has a place, or the call returns an error.
    for peer in 0..usize::from(info.ranks) {
        let _ = info.queue_pairs_to(peer);
    }
    Some(info.encode())
}

fn greeting(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(Greeting::decode(bytes).ok()?.encode())
}

fn control_message(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(ControlMessage::decode(bytes)?.encode())
}

fn segment(bytes: &[u8]) -> Option<Vec<u8>> {
    let header = Header::decode(bytes)?.encode();
    Some([&header, &bytes[header.len()..]].concat())
}

fn rewritten(layout: Layout, bytes: &[u8]) -> Option<Vec<u8>> {
    let record = bytes.get(..layout.bytes())?;
    let mut out = vec![0; layout.bytes()];
    layout.write(&mut out, layout.proposal(record), |rank, packet| {
        layout.has_arrived(record, rank, packet)
    });
    Some(out)
}
