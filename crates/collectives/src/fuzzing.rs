//! Readers of bytes from other ranks, for the targets in `fuzz/` and for a test. Not part of the
//! public interface.
//!
//! Each reader panics if it writes what it has read as different bytes.

use std::net::{Ipv4Addr, SocketAddr};

use farwrite::{Endpoint, UdpConfig};

use crate::bounded::record::Layout;
use crate::control::ControlMessage;
use crate::error::CollectiveError;
use crate::info::MemberInfo;
use crate::meeting::MeetingMessage;
use crate::options::GroupOptions;
use crate::rendezvous::{Rendezvous, Terms};
use crate::seal;
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

/// The messages of rank 1 of 2 before ranks are connected, as rank 0 reads them: for each round, a u16 length and
/// bytes. Rank 0 has a socket on loopback. It refuses the messages, or goes on to the next round.
///
/// # Panics
/// The messages, which no rank has sealed, open with a key; or the system has no socket.
pub fn rendezvous(data: &[u8]) {
    let mut rest = data;
    let mut message = || {
        let (&length, more) = rest.split_first_chunk().unwrap_or((&[0, 0], rest));
        let length = usize::from(u16::from_be_bytes(length)).min(more.len());
        let (message, more) = more.split_at(length);
        rest = more;
        message.to_vec()
    };
    let messages = [message(), message(), message(), message()];
    assert!(seal::open(&[7; 32], data).is_err());
    // What rank 0 refuses first needs no socket.
    if MeetingMessage::decode(&messages[0]).is_ok() {
        let _ = meet(messages);
    }
}

fn meet([offers, joined, sizes, info]: [Vec<u8>; 4]) -> Result<(), CollectiveError> {
    let terms = Terms {
        rank: 0,
        ranks: 2,
        // Little memory, so that a run is short.
        group: GroupOptions {
            packets_per_segment: 32,
            segments_in_flight: 1,
            most_segments_in_flight: 1,
            ..GroupOptions::default()
        },
        packet_bytes: None,
    };
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let endpoint = Endpoint::over_udp(&UdpConfig::new(local)).expect("a socket on loopback");
    let mut rendezvous = Rendezvous::new(endpoint, terms, None);
    let ours = rendezvous.next(&[])?.expect("an offer");
    let ours = rendezvous.next(&[ours, offers])?.expect("it joins");
    rendezvous.next(&[ours, joined])?;
    // There is no path, so rank 0 says the size that rank 1 says.
    let mut ours = sizes.clone();
    if let Some(rank) = ours.get_mut(7..9) {
        rank.fill(0);
    }
    let (mut member, mut paths, _) = rendezvous.create(&[ours, sizes])?;
    let ours = member.info()?;
    paths.connect(&mut member, &[ours, info])
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
    Some(MeetingMessage::decode(bytes).ok()?.encode())
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
