//! The inputs of the model: one message, one path, one scheme.

use core::str::FromStr;

use crate::attempts::Attempts;
use crate::error::{ModelError, Unsupported, Wanted, positive, within};
use crate::loss::Loss;
use crate::scheme::Scheme;

/// The variant of the formulas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Exactly the formulas of the paper (sections 4.2.2 and 4.2.3).
    #[default]
    Paper,
    /// A more detailed variant: repeated chunks use the slots of new ones, the last group of a
    /// message may be short, and coding takes time (`docs/model.md` section 5).
    Serial,
    /// As `Serial`, but `sr-nack` and erasure coding follow the shipped protocol: its waits, its
    /// lost reports, and repairs of missing chunks only (`docs/model.md` section 5.3). These two
    /// take their waits from the protocol and not from `rto_rtts` and `beta`. With all schemes, the
    /// end of a message may be lost.
    Protocol,
}

impl FromStr for Variant {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text {
            "paper" => Ok(Self::Paper),
            "serial" => Ok(Self::Serial),
            "protocol" => Ok(Self::Protocol),
            _ => Err(ModelError::Variant(text.to_owned())),
        }
    }
}

/// Speed of coding over all cores, in bits of data a second. `None`: coding takes no time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compute {
    /// At the sender.
    pub encode_bps: Option<f64>,
    /// At the receiver.
    pub decode_bps: Option<f64>,
}

/// The inputs of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The repair scheme.
    pub scheme: Scheme,
    /// Length of the message in bytes.
    pub message_bytes: f64,
    /// Rate of the path in bits a second.
    pub bandwidth_bps: f64,
    /// Round-trip time in seconds.
    pub rtt_s: f64,
    /// The loss model of the chunks.
    pub loss: Loss,
    /// Bytes of a chunk.
    pub chunk_bytes: f64,
    /// Retransmission timeout in round trips. `None`: the default of the scheme
    /// ([`Scheme::default_rto_rtts`]).
    pub rto_rtts: Option<f64>,
    /// How long an EC receiver waits after the injection, as a share of a round trip (paper section
    /// 4.2.3).
    pub beta: f64,
    /// The variant of the formulas.
    pub variant: Variant,
    /// Speed of coding, for the variants other than [`Variant::Paper`].
    pub compute: Compute,
}

impl Setting {
    /// With i.i.d. loss, chunks of one packet of 4096 bytes, the scheme's own timeout, beta 0.5 and the paper's
    /// formulas.
    pub fn new(
        scheme: Scheme,
        message_bytes: f64,
        bandwidth_bps: f64,
        rtt_s: f64,
        loss_chunk: f64,
    ) -> Self {
        Self {
            scheme,
            message_bytes,
            bandwidth_bps,
            rtt_s,
            loss: Loss::iid(loss_chunk),
            chunk_bytes: 4096.0,
            rto_rtts: None,
            beta: 0.5,
            variant: Variant::Paper,
            compute: Compute::default(),
        }
    }

    /// Whether [`Variant::Protocol`] has an answer for this loss, exact or sampled. It has none for
    /// a loss above 0.5: of packets, or of chunks if losses come in bursts.
    ///
    /// # Errors
    ///
    /// A probability is out of range.
    pub fn has_rounds(&self) -> Result<bool, ModelError> {
        let loss = match self.loss {
            Loss::Iid { .. } => self.loss.loss_packet()?,
            Loss::Markov { .. } => self.loss.loss_chunk()?,
        };
        Ok(loss <= MAX_PROTOCOL_LOSS)
    }
}

/// Messages that end late because one packet is lost: their offer, their end, or with `gbn` their last
/// chunk. With `sr-nack`, the last chunk is a block of its own (`blocks.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Late {
    /// The share of messages, and the slots by which they are late, of each of the three.
    pub(crate) delays: [(f64, f64); 3],
}

/// How long after its first transmission an offer, and the end of a message, is repeated, in round
/// trips (protocol P3.8).
pub(crate) const REPEAT_RTTS: f64 = 1.0 / 32.0;
/// How much later a receiver of `sr-nack` notices the loss of a chunk that no packet follows, in
/// round trips (P5.2.4).
pub(crate) const QUIET_RTTS: f64 = 0.25;

impl Late {
    /// A repeat of the offer that arrives while the message leaves delays nothing.
    fn of(setting: &Setting, rtt: f64, chunks: f64, [loss_chunk, loss_packet]: [f64; 2]) -> Self {
        if setting.variant != Variant::Protocol {
            return Self::default();
        }
        let repeat = REPEAT_RTTS * rtt;
        let injection = chunks * (1.0 + setting.scheme.parity_overhead());
        let last_chunk = match setting.scheme {
            Scheme::GoBackN => (loss_chunk.min(1.0 / 3.0), QUIET_RTTS * rtt),
            _ => (0.0, 0.0),
        };
        let packet = loss_packet.min(1.0 / 3.0);
        Self {
            delays: [
                (packet, (repeat - injection).max(0.0)),
                (packet, repeat),
                last_chunk,
            ],
        }
    }
}

/// Shipped receivers keep the packets of a chunk that has not arrived as a whole.
fn attempts(setting: &Setting, [loss_chunk, loss_packet]: [f64; 2]) -> Attempts {
    match (setting.variant, setting.loss) {
        (
            Variant::Protocol,
            Loss::Iid {
                packets_per_chunk, ..
            },
        ) => Attempts::new(loss_packet, f64::from(packets_per_chunk)),
        _ => Attempts::new(loss_chunk, 1.0),
    }
}

/// Highest loss with [`Variant::Protocol`]: of packets, or of chunks if losses come in bursts. Above it, the number of
/// rounds grows beyond what is useful.
pub(crate) const MAX_PROTOCOL_LOSS: f64 = 0.5;
/// Highest number of chunks in a group of the protocol (P5.4).
const MAX_PROTOCOL_GROUP: u32 = 255;
/// Highest number of chunks in a message.
const MAX_CHUNKS: f64 = (1u64 << 40) as f64;

/// A setting with valid arguments, in units of slots. A slot is the time to inject one chunk.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) scheme: Scheme,
    pub(crate) loss: Loss,
    /// Mean loss of chunks, and of single packets.
    pub(crate) loss_chunk: f64,
    pub(crate) loss_packet: f64,
    /// With independent losses, the transmissions of a chunk.
    pub(crate) attempts: Attempts,
    pub(crate) variant: Variant,
    pub(crate) beta: f64,
    /// Seconds of a slot, `T_inj`.
    pub(crate) slot_s: f64,
    /// Chunks of the message, `M`.
    pub(crate) chunks: f64,
    /// Slots of a round trip.
    pub(crate) rtt: f64,
    /// Slots from one transmission of a chunk to the next, `O / T_inj`; whole except in
    /// `Variant::Paper`.
    pub(crate) period: f64,
    /// Slots to encode one chunk.
    pub(crate) encode: f64,
    /// Slots to decode one chunk.
    pub(crate) decode: f64,
    /// What the loss of an offer, of an end, or of the last chunk adds.
    pub(crate) late: Late,
}

impl Checked {
    pub(crate) fn new(setting: &Setting) -> Result<Self, ModelError> {
        setting.scheme.check()?;
        match (setting.variant, setting.scheme) {
            (Variant::Protocol, Scheme::Ec { k, m, .. }) if k + m > MAX_PROTOCOL_GROUP => {
                return Err(ModelError::Unsupported(Unsupported::ProtocolGroup(k + m)));
            }
            _ => {}
        }
        let message_bytes = positive("message_bytes", "bytes", setting.message_bytes)?;
        let bandwidth_bps = positive("bandwidth_bps", "bit/s", setting.bandwidth_bps)?;
        let rtt_s = positive("rtt_s", "s", setting.rtt_s)?;
        let chunk_bytes = positive("chunk_bytes", "bytes", setting.chunk_bytes)?;
        let (loss_chunk, loss_packet) = (setting.loss.loss_chunk()?, setting.loss.loss_packet()?);
        let rto_rtts = setting.rto_rtts.unwrap_or(match setting.variant {
            Variant::Paper | Variant::Serial => setting.scheme.default_rto_rtts(),
            Variant::Protocol => setting.scheme.protocol_waits().0,
        });
        within(
            "rto_rtts",
            "round trips",
            rto_rtts,
            1.0,
            1e6,
            Wanted::TimeoutRtts,
        )?;
        within(
            "beta",
            "round trips",
            setting.beta,
            0.0,
            1e6,
            Wanted::BetaRtts,
        )?;
        let chunks = (message_bytes / chunk_bytes).ceil();
        let (most, fits) = (MAX_CHUNKS * chunk_bytes, Wanted::MessageChunks);
        within("message_bytes", "bytes", message_bytes, 0.0, most, fits)?;
        let slot_s = chunk_bytes * 8.0 / bandwidth_bps;
        let rtt = rtt_s / slot_s;
        // Beyond this range, the slots of a message are below the rounding error of the round trip.
        let sane = Wanted::RoundTripSlots;
        within("rtt_s", "s", rtt_s, slot_s * 1e-12, slot_s * 1e12, sane)?;
        let mut period = 1.0 + rto_rtts * rtt;
        if setting.variant != Variant::Paper {
            period = period.ceil();
        }
        let per_chunk = |argument, rate: Option<f64>| match rate {
            None => Ok(0.0),
            Some(_) if setting.variant == Variant::Paper => Err(ModelError::PaperCoding),
            Some(rate) => positive(argument, "bit/s", rate).map(|rate| bandwidth_bps / rate),
        };
        Ok(Self {
            attempts: attempts(setting, [loss_chunk, loss_packet]),
            late: Late::of(setting, rtt, chunks, [loss_chunk, loss_packet]),
            scheme: setting.scheme,
            loss: setting.loss,
            loss_chunk,
            loss_packet,
            variant: setting.variant,
            beta: setting.beta,
            slot_s,
            chunks,
            rtt,
            period,
            encode: per_chunk("encode_bps", setting.compute.encode_bps)?,
            decode: per_chunk("decode_bps", setting.compute.decode_bps)?,
        })
    }
}
