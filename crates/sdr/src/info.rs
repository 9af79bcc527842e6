//! The information that the two ends exchange before they can be connected (P6).

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use farwrite_wire::timing::Timing;

use crate::config::{ConfigError, ImmediateSplit, QpConfig};
use crate::fields::{EndpointId, FieldError, Fields};

/// Version of the protocol that this crate implements.
pub const VERSION: u16 = 3;

const MAGIC: [u8; 4] = *b"FWQP";
/// Bytes before the addresses.
const FIXED_BYTES: usize = 72;
/// Bytes of an address: an IPv6 address, or an IPv4 address mapped into IPv6, and a UDP port.
const ADDRESS_BYTES: usize = 18;
const QPN_BYTES: usize = 4;
/// Queue pair numbers 0 and 1 are reserved (IBTA 3.5.3), and a number has 24 bits.
const QPN_RANGE: core::ops::Range<u32> = 2..1 << 24;

/// The out-of-band information of a queue pair.
///
/// It holds a key, so it must only be sent over a confidential channel.
#[derive(Clone, PartialEq, Eq)]
pub struct QpInfo {
    /// The shape of the queue pair.
    pub config: QpConfig,
    /// The destination of control packets.
    pub control: SocketAddr,
    /// The destinations of the data packets, one for each channel.
    pub channels: Vec<SocketAddr>,
    /// Number of the control queue pair.
    pub control_qpn: u32,
    /// Numbers of the data queue pairs, by generation, then by channel.
    pub data_qpns: Vec<Vec<u32>>,
    /// Key of the tags on control packets sent to this end (P4.2).
    pub control_key: [u8; 32],
    /// The timing of this end.
    pub timing: Timing,
    /// The endpoint instance that the queue pair belongs to.
    pub endpoint: EndpointId,
    /// Whether this end grants credit to senders that ask for it (P4.12).
    pub grants_credit: bool,
    /// Whether this end answers requests for reads (P3.13). Older versions do not.
    pub answers_reads: bool,
    /// Whether this end reads the count of stale packets in peer feedback (P4.10). Older versions do
    /// not.
    pub reads_stale: bool,
    /// Whether this end seals data packets if the peer does too (P2.7). Older versions do not.
    pub seals: bool,
    /// Whether this end connects only to a peer that seals.
    pub requires_sealing: bool,
    /// Whether the processor of this end has instructions for AES, which choose the cipher.
    pub has_aes: bool,
    /// Whether this end omits the ICRC of sealed packets if the peer does too (P2.7).
    pub omits_icrc: bool,
}

impl fmt::Debug for QpInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpInfo")
            .field("config", &self.config)
            .field("control", &self.control)
            .field("channels", &self.channels)
            .field("control_qpn", &self.control_qpn)
            .field("data_qpns", &self.data_qpns)
            .field("timing", &self.timing)
            .field("endpoint", &self.endpoint)
            .field("grants_credit", &self.grants_credit)
            .field("answers_reads", &self.answers_reads)
            .field("reads_stale", &self.reads_stale)
            .field("seals", &self.seals)
            .field("requires_sealing", &self.requires_sealing)
            .field("has_aes", &self.has_aes)
            .field("omits_icrc", &self.omits_icrc)
            .finish_non_exhaustive()
    }
}

/// Why bytes are not valid queue-pair information, or why information cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InfoError {
    /// The input is shorter than valid information.
    #[error("{got} bytes of queue-pair information, at least {want} expected")]
    Length {
        /// Actual bytes.
        got: usize,
        /// Least number of bytes expected.
        want: usize,
    },
    /// The input is not queue-pair information.
    #[error("the first four bytes are {0:02x?}: this is no queue-pair information")]
    Magic([u8; 4]),
    /// The information was created by another protocol version.
    #[error("the peer speaks version {theirs} of the protocol, this end {VERSION}")]
    Version {
        /// The peer's version.
        theirs: u16,
    },
    /// A shape or timing that is not valid.
    #[error("the peer's queue pair has an impossible shape or timing: {0}")]
    Config(#[from] ConfigError),
    /// The number of addresses or queue pairs does not match the number of channels and
    /// generations.
    #[error("{got} {what}, {want} expected")]
    Count {
        /// The kind of item.
        what: Counted,
        /// Actual number.
        got: usize,
        /// Expected number.
        want: usize,
    },
    /// An address that cannot be a destination.
    #[error("{0} is not an address to send to")]
    Address(SocketAddr),
    /// A number that is not a valid queue pair number.
    #[error("{0:#x} is not the number of a queue pair: from 2 to 0xffffff")]
    Qpn(u32),
    /// A number that two queue pairs have.
    #[error("the number {0:#x} of a queue pair comes twice")]
    TwoQueuePairs(u32),
    /// An error in the typed fields at the end.
    #[error("bad fields of queue-pair information: {0}")]
    Field(#[from] FieldError),
}

/// What [`InfoError::Count`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Counted {
    /// Addresses, one for each channel.
    #[error("channel addresses")]
    ChannelAddresses,
    /// Generations, each with its queue pairs.
    #[error("generations of queue pairs")]
    Generations,
    /// Queue pairs of one generation, one for each channel.
    #[error("queue pairs of a generation")]
    QueuePairs,
}

impl QpInfo {
    /// Encodes the information as in P6.
    ///
    /// # Errors
    /// [`InfoError::Count`], [`InfoError::Address`], [`InfoError::Qpn`],
    /// [`InfoError::TwoQueuePairs`], [`InfoError::Config`] if the fields are not consistent.
    pub fn encode(&self) -> Result<Vec<u8>, InfoError> {
        self.check()?;
        let config = &self.config;
        let mut out = Vec::with_capacity(bytes_before_fields(config));
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&[config.generations, config.channels]);
        out.extend_from_slice(&config.mtu.to_be_bytes());
        out.extend_from_slice(&config.packets_per_chunk.to_be_bytes());
        out.extend_from_slice(&config.slots.to_be_bytes());
        let split = config.split;
        let parity = u8::from(config.parity);
        out.extend_from_slice(&[split.id_bits, split.offset_bits, split.user_bits, parity]);
        out.extend_from_slice(&config.max_message_bytes.to_be_bytes());
        out.extend_from_slice(&self.control_key);
        out.extend_from_slice(&self.control_qpn.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        for address in self.addresses() {
            let ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            out.extend_from_slice(&ip.octets());
            out.extend_from_slice(&address.port().to_be_bytes());
        }
        for qpn in self.data_qpns.iter().flatten() {
            out.extend_from_slice(&qpn.to_be_bytes());
        }
        debug_assert_eq!(out.len(), bytes_before_fields(config));
        let fields = Fields {
            timing: self.timing,
            endpoint: self.endpoint,
            grants_credit: self.grants_credit,
            answers_reads: self.answers_reads,
            reads_stale: self.reads_stale,
            seals: self.seals,
            requires_sealing: self.requires_sealing,
            has_aes: self.has_aes,
            omits_icrc: self.omits_icrc,
        };
        fields.encode(&mut out);
        Ok(out)
    }

    /// Decodes the bytes of P6. They are untrusted input.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, InfoError> {
        let mut reader = Reader(bytes);
        let short = InfoError::Length {
            got: bytes.len(),
            want: FIXED_BYTES,
        };
        let info = Self::read_fixed(&mut reader).ok_or(short)?;
        let (magic, version, mut info) = info;
        if magic != MAGIC {
            return Err(InfoError::Magic(magic));
        }
        if version != VERSION {
            return Err(InfoError::Version { theirs: version });
        }
        info.config.validate()?;
        let lengths = InfoError::Length {
            got: bytes.len(),
            want: bytes_before_fields(&info.config),
        };
        info.read_tables(&mut reader).ok_or(lengths)?;
        let fields = Fields::decode(reader.0)?;
        (info.timing, info.endpoint) = (fields.timing, fields.endpoint);
        info.grants_credit = fields.grants_credit;
        info.answers_reads = fields.answers_reads;
        info.reads_stale = fields.reads_stale;
        info.seals = fields.seals;
        info.requires_sealing = fields.requires_sealing;
        info.has_aes = fields.has_aes;
        info.omits_icrc = fields.omits_icrc;
        info.check()?;
        Ok(info)
    }

    fn read_fixed(reader: &mut Reader<'_>) -> Option<([u8; 4], u16, Self)> {
        let magic = reader.array()?;
        let version = u16::from_be_bytes(reader.array()?);
        let [generations, channels] = reader.array()?;
        let mtu = reader.u32()?;
        let packets_per_chunk = reader.u32()?;
        let slots = reader.u32()?;
        let [id_bits, offset_bits, user_bits, parity] = reader.array()?;
        let max_message_bytes = u64::from_be_bytes(reader.array()?);
        let control_key = reader.array()?;
        let control_qpn = reader.u32()?;
        let _: [u8; 4] = reader.array()?;
        let info = Self {
            config: QpConfig {
                mtu,
                packets_per_chunk,
                split: ImmediateSplit {
                    id_bits,
                    offset_bits,
                    user_bits,
                },
                slots,
                parity: parity != 0,
                max_message_bytes,
                generations,
                channels,
            },
            control: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
            channels: Vec::new(),
            control_qpn,
            data_qpns: Vec::new(),
            control_key,
            timing: Timing::default(),
            endpoint: EndpointId([0; 16]),
            grants_credit: false,
            answers_reads: false,
            reads_stale: false,
            seals: false,
            requires_sealing: false,
            has_aes: false,
            omits_icrc: false,
        };
        Some((magic, version, info))
    }

    fn read_tables(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        self.control = reader.address()?;
        for _ in 0..self.config.channels {
            self.channels.push(reader.address()?);
        }
        for _ in 0..self.config.generations {
            let channels = 0..self.config.channels;
            let qpns = channels.map(|_| reader.u32()).collect::<Option<_>>()?;
            self.data_qpns.push(qpns);
        }
        Some(())
    }

    fn addresses(&self) -> impl Iterator<Item = &SocketAddr> {
        core::iter::once(&self.control).chain(&self.channels)
    }

    /// Checks that the fields are consistent and valid.
    pub(crate) fn check(&self) -> Result<(), InfoError> {
        self.config.validate()?;
        self.timing.validate().map_err(ConfigError::from)?;
        let channels = usize::from(self.config.channels);
        let count = |what, got, want| {
            let fits = got == want;
            fits.then_some(())
                .ok_or(InfoError::Count { what, got, want })
        };
        count(Counted::ChannelAddresses, self.channels.len(), channels)?;
        let generations = usize::from(self.config.generations);
        count(Counted::Generations, self.data_qpns.len(), generations)?;
        for qpns in &self.data_qpns {
            count(Counted::QueuePairs, qpns.len(), channels)?;
        }
        for address in self.addresses() {
            if address.port() == 0 || address.ip().is_unspecified() {
                return Err(InfoError::Address(*address));
            }
        }
        let qpns = self.data_qpns.iter().flatten().chain([&self.control_qpn]);
        let mut qpns: Vec<u32> = qpns.copied().collect();
        if let Some(&qpn) = qpns.iter().find(|qpn| !QPN_RANGE.contains(qpn)) {
            return Err(InfoError::Qpn(qpn));
        }
        // Keys and counters of sealed packets belong to a number (P2.7), so two queue pairs with one
        // number would use both twice.
        qpns.sort_unstable();
        match qpns.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(InfoError::TwoQueuePairs(two[0])),
            None => Ok(()),
        }
    }
}

fn bytes_before_fields(config: &QpConfig) -> usize {
    let channels = usize::from(config.channels);
    FIXED_BYTES
        + ADDRESS_BYTES * (1 + channels)
        + QPN_BYTES * channels * usize::from(config.generations)
}

/// Reads bytes from the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let ip = IpAddr::V6(Ipv6Addr::from(self.array::<16>()?)).to_canonical();
        let port = u16::from_be_bytes(self.array()?);
        Some(SocketAddr::new(ip, port))
    }
}
