//! The datagrams of a handshake (P12.3). This module reads and writes their fields. It verifies none
//! of them.

use farwrite_keys::PAKE_BYTES;

/// The version of P12 that this end speaks.
pub(crate) const VERSION: u16 = 1;
/// The first byte of each datagram (P2.1).
const FIRST_BYTE: u8 = farwrite::fabric::udp::HANDSHAKE_PACKET;
/// Bytes before the content of a datagram: first byte, kind, version, number.
const HEADER_BYTES: usize = 12;
/// Bytes of a cookie: the time slot, and the tag.
pub(super) const COOKIE_BYTES: usize = 20;
/// Length of a hello. No answer to it is longer, so an answer to a forged source is no larger than
/// what its sender has sent.
pub(super) const HELLO_BYTES: usize = 64;
/// The longest datagram of a handshake. Each path carries it (RFC 8200 section 5, minus headers).
pub(super) const MAX_BYTES: usize = 1200;

const HELLO: u8 = 0;
const RETRY: u8 = 1;
const OPENING: u8 = 2;
const ANSWER: u8 = 3;
const PROOF: u8 = 4;
const REFUSAL: u8 = 5;
const EXCHANGE: u8 = 6;
const EXCHANGED: u8 = 7;

/// Proves that its holder receives at an address.
pub(super) type Cookie = [u8; COOKIE_BYTES];
/// A message of the exchange about a code.
pub(super) type Pake = [u8; PAKE_BYTES];

pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    let (_, number) = bytes.first_chunk::<HEADER_BYTES>()?.split_last_chunk()?;
    Some(u64::from_be_bytes(*number))
}

/// How the two ends authenticate each other. The number is that of P12.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Both hold a pre-shared key: `Noise_NNpsk0`.
    PreShared = 0,
    /// Each has an identity: `Noise_IK`.
    Identities = 1,
    /// Both know a code, and have exchanged messages of SPAKE2: `Noise_NNpsk0` with the key that follows.
    Code = 2,
}

impl Pattern {
    fn of(number: u8) -> Option<Self> {
        let all = [Self::PreShared, Self::Identities, Self::Code];
        all.into_iter().find(|pattern| *pattern as u8 == number)
    }
}

/// Why a responder refuses an opening, with the number of P12.3. Nothing protects a refusal in a datagram of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It speaks another version: the one in the header.
    Version = 1,
    /// It does not accept this kind of key.
    Pattern = 2,
    /// The first Noise message does not verify: the keys differ.
    Keys = 3,
    /// Its code is used up.
    CodeUsed = 4,
    /// It verifies no more openings at the moment. The initiator repeats its own.
    OverBudget = 5,
}

impl Refusal {
    fn of(number: u8) -> Option<Self> {
        let all = [
            Self::Version,
            Self::Pattern,
            Self::Keys,
            Self::CodeUsed,
            Self::OverBudget,
        ];
        all.into_iter().find(|refusal| *refusal as u8 == number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// Asks for a cookie.
    Hello,
    /// Has a cookie.
    Retry(Cookie),
    /// The initiator's message of the exchange about a code, with the cookie.
    Exchange {
        cookie: Cookie,
        pake: &'a Pake,
    },
    /// The responder's message of that exchange.
    Exchanged(&'a Pake),
    Opening(Opening<'a>),
    /// The second Noise message.
    Answer(&'a [u8]),
    /// A Noise transport message of the initiator.
    Proof(&'a [u8]),
    /// Ends the handshake; `None` for a reason that this version does not know.
    Refusal(Option<Refusal>),
}

/// The first Noise message, with the cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening<'a> {
    pub(super) cookie: Cookie,
    /// `None` for a pattern that this version does not know.
    pub(super) pattern: Option<Pattern>,
    /// The initiator's message of the exchange about a code; `None` with other patterns.
    pub(super) pake: Option<&'a Pake>,
    /// What the handshake's hash covers besides the Noise message.
    pub(super) prologue: &'a [u8],
    pub(super) noise: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) version: u16,
    /// Drawn by the initiator. It names the handshake.
    pub(super) number: u64,
    pub(super) content: Content<'a>,
}

impl<'a> Packet<'a> {
    /// Reads a datagram; `None` if it has not the shape of one of version 1. Of another version, only a
    /// hello and a refusal are read, whose shapes stay (P12.7).
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [first, kind, v0, v1, number @ ..] = *header;
        if first != FIRST_BYTE || bytes.len() > MAX_BYTES {
            return None;
        }
        let version = u16::from_be_bytes([v0, v1]);
        let number = u64::from_be_bytes(number);
        let content = match kind {
            HELLO if bytes.len() == HELLO_BYTES => Content::Hello,
            REFUSAL => match *body {
                [reason] => Content::Refusal(Refusal::of(reason)),
                _ => return None,
            },
            _ if version != VERSION => return None,
            RETRY => Content::Retry(body.try_into().ok()?),
            EXCHANGE => {
                let (cookie, pake) = body.split_first_chunk()?;
                Content::Exchange {
                    cookie: *cookie,
                    pake: pake.try_into().ok()?,
                }
            }
            EXCHANGED => Content::Exchanged(body.try_into().ok()?),
            OPENING => {
                let (cookie, rest) = body.split_first_chunk()?;
                let (pattern, rest) = rest.split_first()?;
                let pattern = Pattern::of(*pattern);
                let (pake, noise) = match pattern {
                    Some(Pattern::Code) => {
                        let (pake, noise) = rest.split_first_chunk()?;
                        (Some(pake), noise)
                    }
                    _ => (None, rest),
                };
                Content::Opening(Opening {
                    cookie: *cookie,
                    pattern,
                    pake,
                    prologue: &bytes[..bytes.len() - noise.len()],
                    noise,
                })
            }
            ANSWER => Content::Answer(body),
            PROOF => Content::Proof(body),
            _ => return None,
        };
        Some(Self {
            version,
            number,
            content,
        })
    }
}

/// A datagram with these parts behind its header.
fn datagram(kind: u8, number: u64, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![FIRST_BYTE, kind];
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend(parts.concat());
    bytes
}

pub(super) fn hello(number: u64) -> Vec<u8> {
    datagram(HELLO, number, &[&[0; HELLO_BYTES - HEADER_BYTES]])
}

pub(super) fn retry(number: u64, cookie: &Cookie) -> Vec<u8> {
    datagram(RETRY, number, &[cookie])
}

pub(super) fn exchange(number: u64, cookie: &Cookie, pake: &[u8]) -> Vec<u8> {
    datagram(EXCHANGE, number, &[cookie, pake])
}

pub(super) fn exchanged(number: u64, pake: &[u8]) -> Vec<u8> {
    datagram(EXCHANGED, number, &[pake])
}

/// The beginning of an opening, which is the prologue of the Noise handshake. With a code, both messages of the
/// exchange belong to that too.
pub(super) fn prologue(number: u64, cookie: &Cookie, pattern: Pattern) -> Vec<u8> {
    datagram(OPENING, number, &[cookie, &[pattern as u8]])
}

pub(super) fn answer(number: u64, noise: &[u8]) -> Vec<u8> {
    datagram(ANSWER, number, &[noise])
}

pub(super) fn proof(number: u64, noise: &[u8]) -> Vec<u8> {
    datagram(PROOF, number, &[noise])
}

pub(super) fn refusal(number: u64, reason: Refusal) -> Vec<u8> {
    datagram(REFUSAL, number, &[&[reason as u8]])
}
