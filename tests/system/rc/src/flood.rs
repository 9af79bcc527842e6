//! Sends the packets of a message over and over, as fast as an interface takes them, without a NIC behind it.

use std::error::Error;
use std::time::{Duration, Instant};

use farwrite_net::Payload;
use farwrite_net::header::Roce;
use farwrite_rc::Packet;
use farwrite_wire::header::Bth;

use crate::host::{Host, QPN};

/// Packets of the message. A box sees a sender that goes back after them.
const PACKETS: u32 = 4096;
/// SEND First, Middle and Last.
const OPCODES: [u8; 3] = [0x00, 0x01, 0x02];

/// Floods the peer of a host for this long. Returns the frames sent.
pub(crate) fn flood(
    host: &Host,
    mtu_bytes: u32,
    duration: Duration,
) -> Result<u64, Box<dyn Error>> {
    let payload = Payload::Bytes(vec![0x5A; mtu_bytes as usize].into());
    let packet = |psn: u32| {
        let opcode = OPCODES[usize::from(psn > 0) + usize::from(psn + 1 == PACKETS)];
        let header = Roce::new(Bth::new(opcode, QPN, psn));
        let payload = payload.clone();
        host.wrap(Packet { header, payload })
    };
    let frames: Vec<_> = (0..PACKETS).map(packet).collect::<Result<_, _>>()?;
    let (start, mut sent, mut at) = (Instant::now(), 0, 0);
    while start.elapsed() < duration {
        // A full queue refuses frames. They are sent again.
        let taken = host.send_many(frames[at..].iter().map(Vec::as_slice));
        sent += taken as u64;
        at = (at + taken) % frames.len();
    }
    Ok(sent)
}
