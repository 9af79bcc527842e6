//! Tests of the SDR core through its public interface. This file has their common helpers.

mod api;
mod arrivals;
mod geometry;
mod healing;
mod hostile;
mod info;
mod lossy;
mod parity;
mod reads;
mod release;
mod terms;
mod threads;
mod workers;
mod world;
mod wraparound;

use farwrite_sdr::{
    Arrival, ChunkBitmap, EndpointId, ImmediateParts, ImmediateSplit, MessageId, Place, QpConfig,
    QpInfo, SdrQp, Terms, Timing,
};
use farwrite_wire::control::{CriticalChunks, Offer, SchemeTag};

/// Returns a small shape with short packets, so that all numbers wrap soon.
pub(crate) fn small() -> QpConfig {
    QpConfig {
        mtu: 64,
        packets_per_chunk: 4,
        split: ImmediateSplit {
            id_bits: 10,
            offset_bits: 18,
            user_bits: 4,
        },
        slots: 4,
        parity: false,
        max_message_bytes: 4096,
        generations: 4,
        channels: 2,
    }
}

/// Returns a peer of the given shape.
pub(crate) fn info(config: QpConfig) -> QpInfo {
    let channels = usize::from(config.channels);
    let address = "192.0.2.1:4791".parse().unwrap();
    QpInfo {
        config,
        control: address,
        channels: vec![address; channels],
        control_qpn: 0x11,
        data_qpns: data_qpns(config),
        control_key: [7; 32],
        timing: Timing::wide_area(),
        endpoint: EndpointId([9; 16]),
        grants_credit: false,
        answers_reads: true,
        reads_stale: true,
        seals: false,
        requires_sealing: false,
        has_aes: false,
        omits_icrc: false,
    }
}

/// Returns numbers that count up from 0x12.
fn data_qpns(config: QpConfig) -> Vec<Vec<u32>> {
    let generations = 0..u32::from(config.generations);
    let channels = u32::from(config.channels);
    let first = |generation| 0x12 + generation * channels;
    let numbers = |first| (first..first + channels).collect();
    generations.map(first).map(numbers).collect()
}

/// Returns a queue pair connected to a peer of its own shape.
pub(crate) fn connected(config: QpConfig) -> SdrQp {
    let mut qp = SdrQp::new(config, Timing::wide_area()).unwrap();
    qp.connect(&info(config)).unwrap();
    qp
}

/// Posts a buffer of `length` bytes as the next receive.
pub(crate) fn post(qp: &mut SdrQp, length: u64) -> ChunkBitmap {
    post_with(qp, length, Terms::default())
}

/// Like [`post`], with terms.
pub(crate) fn post_with(qp: &mut SdrQp, length: u64, terms: Terms) -> ChunkBitmap {
    let place = qp.next_recv().unwrap();
    let target = Place {
        rkey: place.generation.into(),
        base: qp.geometry().slot_base(place.slot),
        length,
    };
    qp.post_recv(place, target, terms).unwrap()
}

/// Delivers all control messages of one queue pair to the other. Returns their number.
pub(crate) fn tell(now_ns: u64, from: &mut SdrQp, to: &mut SdrQp) -> usize {
    let mut count = 0;
    while let Some(control) = from.poll_control(now_ns, world::RTT_NS) {
        to.handle_control(now_ns, &control).unwrap();
        count += 1;
    }
    count
}

/// Delivers packet `packet` of message `message`, which has `bytes` bytes.
pub(crate) fn arrive(
    qp: &SdrQp,
    message: impl Into<MessageId>,
    packet: u32,
    bytes: u32,
) -> Arrival {
    let (geometry, message) = (qp.geometry(), message.into());
    let parts = ImmediateParts {
        slot: geometry.slot(message),
        packet,
        fragment: 0,
    };
    let imm = geometry.encode_immediate(parts);
    qp.table()
        .handle_packet(geometry.generation(message), imm, bytes)
}

/// Returns the offer of a message of known length.
pub(crate) fn offer(message: u64, length: u64) -> Offer {
    Offer {
        message,
        length: Some(length),
        has_immediate: false,
        scheme: SchemeTag::default(),
        critical: CriticalChunks::NONE,
        cleared: 0,
        withdrawn: None,
        answers_read: false,
    }
}

/// Returns the split without user immediates.
pub(crate) fn without_user_bits() -> ImmediateSplit {
    ImmediateSplit {
        id_bits: 14,
        offset_bits: 18,
        user_bits: 0,
    }
}
