//! What ranks give each other before they are connected, one message in each round.
//!
//! ```text
//!   0  [u8; 4]  "FWCM"
//!   4  u16      version
//!   6  u8       round
//!   7  u16      rank
//!   9  u16      number of ranks
//!  11           offers: for each other rank, in order: 52 bytes, the offer of a route (P6.2)
//!               joined: nothing
//!               sizes:  u32, the largest packets of this rank
//! ```
//!
//! All numbers are big-endian. The information about queue pairs ([`info`](crate::info)) is the last
//! message.

use farwrite::routes::RouteOffer;

use crate::info::VERSION;

const MAGIC: [u8; 4] = *b"FWCM";
const HEAD_BYTES: usize = 11;

/// A message of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeetingMessage {
    pub(crate) rank: u16,
    pub(crate) ranks: u16,
    pub(crate) content: Content,
}

/// What a rank says in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// One route to each other rank, in order.
    Offers(Vec<RouteOffer>),
    /// The rank knows the offers of all others, and answers route packets.
    Joined,
    /// The packet size that the rank requires, or that its routes carry.
    Sizes { packet_bytes: u32 },
}

impl Content {
    fn round(&self) -> u8 {
        match self {
            Self::Offers(_) => 0,
            Self::Joined => 1,
            Self::Sizes { .. } => 2,
        }
    }
}

impl MeetingMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.push(self.content.round());
        out.extend_from_slice(&self.rank.to_be_bytes());
        out.extend_from_slice(&self.ranks.to_be_bytes());
        match &self.content {
            Content::Offers(offers) => out.extend(offers.iter().flat_map(RouteOffer::encode)),
            Content::Joined => {}
            Content::Sizes { packet_bytes } => out.extend_from_slice(&packet_bytes.to_be_bytes()),
        }
        out
    }

    /// Reads the message of another rank from arbitrary bytes.
    ///
    /// # Errors
    /// A description of the problem.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (head, body) = bytes
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or_else(|| format!("{} bytes are too few for a message", bytes.len()))?;
        let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        if head[..4] != MAGIC {
            let magic = &head[..4];
            return Err(format!(
                "the first four bytes are {magic:02x?}: this is not the message of a rank"
            ));
        }
        let version = number(4);
        if version != VERSION {
            return Err(format!(
                "it speaks version {version} of the protocol of groups, this rank {VERSION}"
            ));
        }
        let (rank, ranks) = (number(7), number(9));
        let wrong = || format!("round {} with {} bytes", head[6], body.len());
        let content = match head[6] {
            0 => {
                let others = usize::from(ranks.saturating_sub(1));
                let offers = body.chunks_exact(RouteOffer::BYTES);
                if others * RouteOffer::BYTES != body.len() {
                    return Err(wrong());
                }
                let offers: Result<_, _> = offers.map(RouteOffer::decode).collect();
                Content::Offers(offers.map_err(|error| error.to_string())?)
            }
            1 if body.is_empty() => Content::Joined,
            2 => Content::Sizes {
                packet_bytes: u32::from_be_bytes(body.try_into().map_err(|_| wrong())?),
            },
            _ => return Err(wrong()),
        };
        Ok(Self {
            rank,
            ranks,
            content,
        })
    }
}

/// The place of another rank among all ranks other than `rank`.
pub(crate) fn index_of_peer(peer: usize, rank: usize) -> usize {
    peer - usize::from(peer > rank)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offer() -> impl Strategy<Value = RouteOffer> {
        let parts = (
            any::<[u8; 4]>(),
            any::<u16>(),
            any::<[u8; 32]>(),
            any::<u16>(),
        );
        parts.prop_map(|(ip, port, key, index)| RouteOffer {
            address: (ip, port).into(),
            key,
            index,
        })
    }

    fn greeting() -> impl Strategy<Value = MeetingMessage> {
        let content = prop_oneof![
            prop::collection::vec(offer(), 0..4).prop_map(Content::Offers),
            Just(Content::Joined),
            any::<u32>().prop_map(|packet_bytes| Content::Sizes { packet_bytes }),
        ];
        (any::<u16>(), 1..4_u16, content).prop_map(|(rank, ranks, content)| MeetingMessage {
            rank,
            ranks: match &content {
                Content::Offers(offers) => u16::try_from(offers.len()).expect("few") + 1,
                _ => ranks,
            },
            content,
        })
    }

    proptest! {
        #[test]
        fn messages_survive_and_changed_ones_are_read_or_refused(
            greeting in greeting(),
            at in 0..60_usize,
            byte in any::<u8>(),
            cut in 0..60_usize,
        ) {
            let bytes = greeting.encode();
            prop_assert_eq!(MeetingMessage::decode(&bytes), Ok(greeting));
            let mut changed = bytes.clone();
            let at = at % changed.len();
            changed[at] = byte;
            for bytes in [&changed[..], &bytes[..cut.min(bytes.len())]] {
                if let Ok(decoded) = MeetingMessage::decode(bytes) {
                    prop_assert_eq!(decoded.encode(), bytes);
                }
            }
        }
    }
}
