//! What two ends tell each other: in the handshake, and over the session queue pair (P12.5, P12.6).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use farwrite::QpInfo;
use farwrite::routes::RouteOffer;
use farwrite_keys::Text;
use serde::{Deserialize, Serialize};

use crate::cutover::EndedMessages;
use crate::error::Error;
use crate::purpose::Purpose;

/// The longest message of the session queue pair.
pub(crate) const MAX_BYTES: u64 = 4096;
/// The longest name of a queue pair.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// The capability of an end that goes on with smaller packets.
pub(crate) const GOES_ON: u64 = 1;

/// The payload of an answer and of a proof.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub(crate) software: Text,
    /// What the sender can do: [`GOES_ON`].
    pub(crate) capabilities: u64,
    pub(crate) queue_pair: QpInfo,
    pub(crate) route: RouteOffer,
    /// What the initiator wants, one purpose, or what the responder serves.
    pub(crate) purposes: Vec<Purpose>,
    /// Source and destination with which the reader's last packet of the handshake arrived.
    pub(crate) seen: Flow,
    /// The first messages of the initiator, as they would follow on the session queue pair.
    pub(crate) messages: Vec<Vec<u8>>,
}

/// The source and the destination of packets.
pub(crate) type Flow = (SocketAddr, SocketAddr);

/// The fields as they are sent.
#[derive(Serialize, Deserialize)]
struct IntroductionFields {
    software: Text,
    capabilities: u64,
    queue_pair: Vec<u8>,
    route: Vec<u8>,
    purposes: Vec<Purpose>,
    seen: Vec<u8>,
    messages: Vec<Vec<u8>>,
}

/// Why bytes of a peer that has proven itself are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer breaks the protocol: {0}")]
pub struct Malformed(String);

impl Malformed {
    pub(crate) fn new(why: impl ToString) -> Self {
        Self(why.to_string())
    }
}

impl Introduction {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let fields = IntroductionFields {
            software: self.software.clone(),
            capabilities: self.capabilities,
            queue_pair: self.queue_pair.encode().map_err(Malformed::new)?,
            route: self.route.encode().to_vec(),
            purposes: self.purposes.clone(),
            seen: [encode_address(self.seen.0), encode_address(self.seen.1)].concat(),
            messages: self.messages.clone(),
        };
        postcard::to_stdvec(&fields).map_err(Malformed::new)
    }

    /// Bytes behind the last field are those of a later version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (fields, _) =
            postcard::take_from_bytes::<IntroductionFields>(bytes).map_err(Malformed::new)?;
        Ok(Self {
            software: fields.software,
            capabilities: fields.capabilities,
            queue_pair: QpInfo::decode(&fields.queue_pair).map_err(Malformed::new)?,
            route: RouteOffer::decode(&fields.route).map_err(Malformed::new)?,
            purposes: fields.purposes,
            seen: decode_flow(&fields.seen)?,
            messages: fields.messages,
        })
    }
}

/// Bytes of an address: 16 of IPv6, and 2 of the port (P6).
const ADDRESS_BYTES: usize = 18;

pub(crate) fn encode_address(address: SocketAddr) -> Vec<u8> {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    [&ip.octets()[..], &address.port().to_be_bytes()].concat()
}

fn decode_flow(bytes: &[u8]) -> Result<Flow, Malformed> {
    let address = |bytes: &[u8]| {
        let (ip, port) = bytes.split_first_chunk()?;
        let ip = Ipv6Addr::from(*ip).to_canonical();
        let port = u16::from_be_bytes(port.try_into().ok()?);
        Some(SocketAddr::new(ip, port))
    };
    let flow = bytes
        .split_at_checked(ADDRESS_BYTES)
        .and_then(|(source, destination)| Some((address(source)?, address(destination)?)));
    let want = 2 * ADDRESS_BYTES;
    flow.ok_or_else(|| Malformed(format!("{} bytes of addresses, want {want}", bytes.len())))
}

/// A message of the session queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The sender is ready. The initiator states the MTU that it has found.
    Ready { mtu: u32 },
    /// Opens a queue pair.
    Open {
        number: u32,
        name: String,
        queue_pair: Vec<u8>,
    },
    /// The queue pair is open.
    Opened { number: u32, queue_pair: Vec<u8> },
    /// The queue pair is not opened.
    Refused { number: u32, reason: Text },
    /// The sender has closed the queue pair.
    Close { number: u32 },
    /// The sender ends the connection.
    Bye { cause: ByeCause, reason: Text },
    /// The sender has ended the connection, and takes no answer.
    Left,
    /// The path carries only packets of this MTU.
    Smaller { mtu: u32 },
    /// The initiator goes on over another queue pair with smaller packets.
    Cutover {
        number: u32,
        queue_pair: Vec<u8>,
        ended: EndedMessages,
    },
    /// The responder goes on over another queue pair too.
    CutoverAccepted {
        number: u32,
        queue_pair: Vec<u8>,
        ended: EndedMessages,
    },
    /// What the program says apart from its queue pairs.
    Notice { bytes: Vec<u8> },
}

/// The number of the first kind that this version does not know.
const UNKNOWN_KINDS: u8 = 11;

/// Why an end ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ByeCause {
    /// The program has closed it.
    Closed,
    /// The peer's key is no longer among the known peers.
    NoLongerKnown,
    /// The peer breaks the protocol, or something failed.
    Failed,
    /// The program has no place for this connection at the moment.
    Busy,
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("memory takes any message")
    }

    /// Whether this message is longer than the session queue pair carries.
    pub(crate) fn is_too_long(&self) -> bool {
        self.encode().len() as u64 > MAX_BYTES
    }

    /// Reads a message; `None` for a kind of a later version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        if bytes.first().is_some_and(|kind| *kind >= UNKNOWN_KINDS) {
            return Ok(None);
        }
        let (message, _) = postcard::take_from_bytes(bytes).map_err(Malformed::new)?;
        if let Self::Open { name, .. } = &message {
            check_name(name).map_err(Malformed::new)?;
        }
        Ok(Some(message))
    }
}

/// Names are for programs and for people: short, and printable.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_fit = name.len() <= MAX_NAME_BYTES && Text::new(name).as_str() == name;
    let bytes = name.len();
    is_fit.then_some(()).ok_or(Error::InvalidName { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_later_versions_are_ignored() {
        let ready = Message::Ready { mtu: 4096 };
        let mut bytes = ready.encode();
        assert_eq!(bytes[0], 0);
        assert_eq!(Message::decode(&bytes), Ok(Some(ready.clone())));
        bytes.extend_from_slice(b"a field of a later version");
        assert_eq!(Message::decode(&bytes), Ok(Some(ready)));
        let last = Message::Notice { bytes: Vec::new() };
        assert_eq!(last.encode()[0], UNKNOWN_KINDS - 1);
        assert_eq!(Message::decode(&[UNKNOWN_KINDS, 9, 9]), Ok(None));
        assert!(Message::decode(&[]).is_err());
        let name = "n".repeat(MAX_NAME_BYTES + 1);
        let open = |name: &str| Message::Open {
            number: 0,
            name: name.to_owned(),
            queue_pair: Vec::new(),
        };
        assert!(Message::decode(&open(&name).encode()).is_err());
        assert!(Message::decode(&open("a\nb").encode()).is_err());
        assert!(Message::decode(&open(&name[1..]).encode()).is_ok());
    }
}
