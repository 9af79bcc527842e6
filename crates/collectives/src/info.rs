//! The information that one rank needs about the others before they can be connected.
//!
//! ```text
//!   0  [u8; 4]  "FWCL"
//!   4  u16      version
//!   6  u16      rank
//!   8  u16      number of ranks
//!  10  u32      bytes of a packet
//!  14  u32      packets of a segment
//!  18  u32      segments in flight at the start
//!  22  u32      segments in flight at most
//!  26  u8       id of the bounded scheme (P5)
//!  27  [u8; 6]  its parameters
//!  33  u64      policy of bounded operations: 0 OptiNIC, 1 Celeris, 2 loss target
//!  41  u64      its target, in millionths; 0 where it has none
//!  49  u64      its round trip, in nanoseconds; 0 where it has none
//!  57  u64      the least time of bounded operations, in nanoseconds
//!  65  u64      the most time
//!  73  u32      values of a block of the Hadamard transform; 0: contributions are not transformed
//!  77  u32      its stride; 0: as many blocks as a packet has values
//!  81  u32      1 if the reduced parts of bounded all-reduces have a deadline, otherwise 0
//!  85  u32      algorithm of bounded all-reduces: 1 by sites, 2 ring, 3 direct
//!  89  u32      for each rank: its site, plus 1; 0 where there are no sites
//!               for each other rank, in order, four times, for collective operations, for
//!               bounded ones, for point-to-point operations and for control messages:
//!               u16 bytes, and as many bytes of queue-pair information (P6)
//! ```
//!
//! All numbers are big-endian.

use farwrite::{QpInfo, SchemeTag};
use farwrite_deadline::Policy;

use crate::bounded::BoundedOptions;
use crate::operation::Delivery;

/// The version of the messages between ranks.
pub(crate) const VERSION: u16 = 10;
/// The maximum number of ranks in a group.
pub(crate) const MAX_RANKS: usize = 1024;

/// The number of queue pairs between two ranks.
pub(crate) const QUEUE_PAIRS: usize = 4;

const MAGIC: [u8; 4] = *b"FWCL";

/// The information of one member.
#[derive(Debug)]
pub(crate) struct MemberInfo {
    pub(crate) rank: u16,
    pub(crate) ranks: u16,
    pub(crate) shape: Shape,
    /// For each other rank, in order: the information of [`QUEUE_PAIRS`] queue pairs.
    pub(crate) queue_pairs: Vec<Vec<u8>>,
}

/// The options that must be equal at all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) packet_bytes: u32,
    pub(crate) packets_per_segment: u32,
    pub(crate) segments_in_flight: u32,
    pub(crate) most_segments_in_flight: u32,
    pub(crate) bounded: BoundedShape,
    /// The site of each rank.
    pub(crate) sites: Vec<u32>,
}

/// [`BoundedOptions`] as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BoundedShape {
    scheme: SchemeTag,
    /// The number of the policy, its target in millionths, and its round trip in nanoseconds.
    policy: [u64; 3],
    /// The minimum and the maximum timeout.
    bounds_ns: [u64; 2],
    /// Block and stride of the Hadamard transform.
    hadamard: [u32; 2],
    /// Whether the reduced parts of all-reduces have a deadline.
    parts: u32,
    /// The algorithm of all-reduces.
    algorithm: u32,
}

impl From<BoundedOptions> for BoundedShape {
    fn from(options: BoundedOptions) -> Self {
        let BoundedOptions {
            scheme,
            policy,
            algorithm,
            bounds,
            hadamard,
            parts,
        } = options;
        Self {
            scheme: scheme.tag(),
            policy: match policy {
                Policy::OptiNic => [0; 3],
                Policy::Celeris => [1, 0, 0],
                Policy::LossTarget { target_ppm, rtt_ns } => [2, target_ppm.into(), rtt_ns],
            },
            bounds_ns: [bounds.min_ns, bounds.max_ns],
            hadamard: hadamard.map_or([0; 2], |hadamard| [hadamard.block, hadamard.stride]),
            parts: u32::from(parts == Delivery::Bounded),
            algorithm: algorithm.code().into(),
        }
    }
}

impl MemberInfo {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        for number in [VERSION, self.rank, self.ranks] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        let Shape {
            packet_bytes,
            packets_per_segment,
            segments_in_flight,
            most_segments_in_flight,
            bounded,
            ref sites,
        } = self.shape;
        let segments = [
            packets_per_segment,
            segments_in_flight,
            most_segments_in_flight,
        ];
        for number in [packet_bytes].into_iter().chain(segments) {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.push(bounded.scheme.id);
        out.extend_from_slice(&bounded.scheme.params);
        for number in bounded.policy.iter().chain(&bounded.bounds_ns) {
            out.extend_from_slice(&number.to_be_bytes());
        }
        let last = [&bounded.parts, &bounded.algorithm];
        let numbers = bounded.hadamard.iter().chain(last);
        for number in numbers.chain(sites) {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for info in &self.queue_pairs {
            let length = u16::try_from(info.len()).expect("queue-pair information is short");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(info);
        }
        out
    }

    /// Reads the information of another member from arbitrary bytes.
    ///
    /// # Errors
    /// A description of the problem.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(bytes);
        let too_short = || format!("{} bytes are too few for the information", bytes.len());
        let magic: [u8; 4] = reader.array().ok_or_else(too_short)?;
        if magic != MAGIC {
            return Err(format!(
                "the first four bytes are {magic:02x?}: this is not the information of a rank"
            ));
        }
        let version = reader.u16().ok_or_else(too_short)?;
        if version != VERSION {
            return Err(format!(
                "it speaks version {version} of the protocol of groups, this rank {VERSION}"
            ));
        }
        let mut read = || {
            let (rank, ranks) = (reader.u16()?, reader.u16()?);
            let mut shape = Shape {
                packet_bytes: reader.u32()?,
                packets_per_segment: reader.u32()?,
                segments_in_flight: reader.u32()?,
                most_segments_in_flight: reader.u32()?,
                bounded: BoundedShape {
                    scheme: SchemeTag {
                        id: reader.array::<1>()?[0],
                        params: reader.array()?,
                    },
                    policy: [reader.u64()?, reader.u64()?, reader.u64()?],
                    bounds_ns: [reader.u64()?, reader.u64()?],
                    hadamard: [reader.u32()?, reader.u32()?],
                    parts: reader.u32()?,
                    algorithm: reader.u32()?,
                },
                sites: Vec::new(),
            };
            for _ in 0..ranks {
                shape.sites.push(reader.u32()?);
            }
            let mut queue_pairs = Vec::new();
            for _ in 0..QUEUE_PAIRS * usize::from(ranks.saturating_sub(1)) {
                let length = reader.u16()?;
                queue_pairs.push(reader.bytes(length.into())?.to_vec());
            }
            Some(Self {
                rank,
                ranks,
                shape,
                queue_pairs,
            })
        };
        let info = read().ok_or_else(too_short)?;
        match reader.0.len() {
            0 => Ok(info),
            more => Err(format!("{more} bytes follow the information")),
        }
    }

    /// The information of this member about its queue pairs to rank `peer`.
    ///
    /// # Errors
    /// A description of the problem.
    pub(crate) fn queue_pairs_to(&self, peer: usize) -> Result<[QpInfo; QUEUE_PAIRS], String> {
        let place = QUEUE_PAIRS * (peer - usize::from(peer > usize::from(self.rank)));
        let infos = self.queue_pairs.get(place..place + QUEUE_PAIRS);
        let infos = infos.ok_or_else(|| format!("it has no queue pairs to rank {peer}"))?;
        let infos = infos.iter().map(|bytes| QpInfo::decode(bytes));
        let infos: Result<Vec<QpInfo>, _> = infos.collect();
        let infos = infos.map_err(|error| error.to_string())?;
        Ok(infos.try_into().expect("as many as were asked for"))
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::Hadamard;
    use crate::operation::Algorithm;
    use proptest::prelude::*;

    fn info() -> MemberInfo {
        MemberInfo {
            rank: 1,
            ranks: 3,
            shape: Shape {
                packet_bytes: 1408,
                packets_per_segment: 512,
                segments_in_flight: 16,
                most_segments_in_flight: 256,
                bounded: BoundedOptions::default().into(),
                sites: vec![1, 1, 2],
            },
            queue_pairs: (0..2 * QUEUE_PAIRS).map(|i| vec![7; i]).collect(),
        }
    }

    #[test]
    fn information_comes_back() {
        let decoded = MemberInfo::decode(&info().encode()).unwrap();
        assert_eq!((decoded.rank, decoded.ranks), (1, 3));
        assert_eq!(decoded.shape, info().shape);
        assert_eq!(decoded.queue_pairs, info().queue_pairs);
        // None of these is queue-pair information.
        assert!(decoded.queue_pairs_to(0).is_err());
        assert!(decoded.queue_pairs_to(2).is_err());
        assert!(decoded.queue_pairs_to(9).is_err());
    }

    #[test]
    fn every_bounded_option_counts() {
        let default = BoundedOptions::default();
        let mut others = [default; 7];
        others[0].scheme = "best-effort+sr".parse().unwrap();
        others[1].policy = Policy::Celeris;
        others[2].policy = Policy::LossTarget {
            target_ppm: 10_000,
            rtt_ns: 10_000_001,
        };
        others[3].bounds.max_ns += 1;
        others[4].hadamard = Some(Hadamard::default());
        others[5].parts = Delivery::Bounded;
        others[6].algorithm = Algorithm::Ring;
        for other in others {
            assert_ne!(BoundedShape::from(other), BoundedShape::from(default));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_information_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            at in 0..120_usize,
            byte in any::<u8>(),
        ) {
            let mut changed = info().encode();
            let at = at % changed.len();
            changed[at] = byte;
            for bytes in [bytes, changed] {
                if let Ok(decoded) = MemberInfo::decode(&bytes) {
                    prop_assert_eq!(decoded.encode(), bytes);
                }
            }
        }
    }
}
