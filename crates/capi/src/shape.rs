//! From the attributes of `sdr_qp_create` to the options of a queue pair.

use std::env;
use std::time::Duration;

use farwrite::{
    ImmediateSplit, MAX_GENERATIONS, MIN_GENERATIONS, QpConfig, QpOptions, RateControl, Sealing,
    packet_overhead_bytes,
};

use crate::context::Context;
use crate::failure::Failure;
use crate::sdr::{sdr_mtu, sdr_qp_attr};

/// The payload of a packet with `SDR_MTU_64`; each next value of `enum sdr_mtu` has twice as much.
const LEAST_MTU: u32 = 64;
/// After this time without an answer to pings, a peer counts as vanished, and sends to it end.
const VANISHED_AFTER: Duration = Duration::from_secs(60);
/// Bits of the user immediate in each packet, as in the paper.
const USER_BITS: u8 = 4;

/// The shape of a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct QpShape {
    pub(crate) options: QpOptions,
    /// Packets on the wire in one packet of the program's MTU.
    pub(crate) packets_a_bit: u32,
}

impl QpShape {
    pub(crate) fn new(attr: &sdr_qp_attr, context: &Context) -> Result<Self, Failure> {
        let mtu = mtu(attr)?;
        let chunk = log_bytes(
            "bitmap_chunk_size_log_bytes",
            attr.bitmap_chunk_size_log_bytes.into(),
            31,
        )?;
        let in_flight = log_bytes(
            "max_in_flight_log_bytes",
            attr.max_in_flight_log_bytes as u64,
            62,
        )?;
        if chunk < u64::from(mtu) || chunk > in_flight {
            return Err(Failure::new(format!(
                "a bitmap chunk of {chunk} bytes: it must have at least the {mtu} bytes of a packet, and at \
                 most the {in_flight} bytes that may be in flight"
            )));
        }
        if attr.max_log_num_msgs > 15 {
            return Err(Failure::new(format!(
                "max_log_num_msgs = {}: must be at most 15",
                attr.max_log_num_msgs
            )));
        }
        let sealing = match context.psk {
            Some(_) => Sealing::Required,
            None => Sealing::Off,
        };
        let wire_mtu = wire_mtu(mtu, sealing, context)?;
        let packets_per_chunk = u32::try_from(chunk / u64::from(wire_mtu)).unwrap_or(u32::MAX);
        let (split, max_message_bytes) = split(attr.max_log_num_msgs, in_flight, wire_mtu);
        let sdr = QpConfig {
            mtu: wire_mtu,
            packets_per_chunk,
            split,
            slots: 1 << attr.max_log_num_msgs,
            parity: false,
            max_message_bytes,
            generations: generations()?,
            channels: context.channels,
        };
        sdr.validate()
            .map_err(|error| Failure::new(error.to_string()))?;
        let max_bps = (attr.rate_limit > 0).then(|| u64::from(attr.rate_limit) * 1000);
        let options = QpOptions {
            sdr,
            rate_control: RateControl::Adaptive {
                max_bps,
                start: None,
            },
            sealing,
            default_deadline: default_deadline()?,
            vanished_after: Some(VANISHED_AFTER),
            sends: attr.send_enable != 0,
            receives: attr.recv_enable != 0,
            ..QpOptions::default()
        };
        Ok(Self {
            options,
            packets_a_bit: mtu / wire_mtu,
        })
    }
}

/// The payload bytes of a packet, as the program sees it.
fn mtu(attr: &sdr_qp_attr) -> Result<u32, Failure> {
    let value = attr.mtu.value();
    match value <= sdr_mtu::SDR_MTU_4096 as u32 {
        true => Ok(LEAST_MTU << value),
        false => Err(Failure::new(format!(
            "mtu = {value}: not a value of enum sdr_mtu"
        ))),
    }
}

fn log_bytes(what: &str, log: u64, most: u64) -> Result<u64, Failure> {
    match log <= most {
        true => Ok(1 << log),
        false => Err(Failure::new(format!(
            "{what} = {log}: must be at most {most}"
        ))),
    }
}

/// The payload bytes of a packet on the wire: the program's MTU, or the largest power of two below it
/// that the interface carries.
fn wire_mtu(mtu: u32, sealing: Sealing, context: &Context) -> Result<u32, Failure> {
    if let Ok(text) = env::var("FARWRITE_MTU") {
        let chosen = text
            .parse()
            .ok()
            .filter(|chosen: &u32| chosen.is_power_of_two() && (LEAST_MTU..=mtu).contains(chosen));
        return chosen.ok_or_else(|| {
            Failure::new(format!(
                "FARWRITE_MTU={text}: must be a power of two from {LEAST_MTU} to the program's {mtu}"
            ))
        });
    }
    let overhead = packet_overhead_bytes(context.is_v4) + sealing.reserved_bytes();
    let room = context
        .interface_mtu
        .unwrap_or(u32::MAX)
        .saturating_sub(overhead);
    let fitting = 1 << room.min(context.max_mtu).max(LEAST_MTU).ilog2();
    Ok(mtu.min(fitting))
}

/// How immediates are divided, and the longest message: the paper's split, if it has room for the
/// messages.
fn split(log_messages: u32, in_flight: u64, mtu: u32) -> (ImmediateSplit, u64) {
    // A length has 32 bits.
    let most = in_flight.min(u32::MAX.into());
    let offset_bits = |bytes: u64| bytes.div_ceil(mtu.into()).next_power_of_two().ilog2();
    let needed = offset_bits(most);
    let usual = QpConfig::default().split;
    if log_messages <= usual.id_bits.into() && needed <= usual.offset_bits.into() {
        return (usual, most);
    }
    let id_bits = u8::try_from(log_messages).unwrap_or(u8::MAX);
    let with = |user_bits: u8| ImmediateSplit {
        id_bits,
        offset_bits: (32 - id_bits - user_bits).min(31),
        user_bits,
    };
    let fits = |split: &ImmediateSplit| u32::from(split.offset_bits) >= needed;
    let mut splits = [USER_BITS, 2, 1].into_iter().map(with);
    let mut split = splits.find(fits).unwrap_or(with(1));
    // A split has 32 bits, of which at most 31 are of the offset.
    split.user_bits = 32 - id_bits - split.offset_bits;
    let longest = u64::from(mtu) << split.offset_bits;
    (split, most.min(longest))
}

/// `FARWRITE_DEADLINE_MS`.
fn default_deadline() -> Result<Option<Duration>, Failure> {
    let Ok(text) = env::var("FARWRITE_DEADLINE_MS") else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(0) => Ok(None),
        Ok(ms) => Ok(Some(Duration::from_millis(ms))),
        Err(_) => Err(Failure::new(format!(
            "FARWRITE_DEADLINE_MS={text}: not a number of milliseconds"
        ))),
    }
}

/// `SDR_QP_NUM_GENERATIONS`, within what a queue pair can have.
fn generations() -> Result<u8, Failure> {
    let Ok(text) = env::var("SDR_QP_NUM_GENERATIONS") else {
        return Ok(QpConfig::default().generations);
    };
    match text.trim().parse::<u32>() {
        Ok(count) => {
            let count = count.clamp(MIN_GENERATIONS.into(), MAX_GENERATIONS.into());
            Ok(u8::try_from(count).unwrap_or(MAX_GENERATIONS))
        }
        Err(_) => Err(Failure::new(format!(
            "SDR_QP_NUM_GENERATIONS={text}: not a number"
        ))),
    }
}
