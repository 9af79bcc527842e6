//! Targets of the codes crate.

use farwrite_codes::{ChunkMask, Code, Codec, CodecError, Decoder, Kernel, Kind, Layout, Present};

/// The name of a code. A name that was read is written the same, except for the form of its numbers.
pub fn name(data: &[u8]) {
    let Ok(code) = String::from_utf8_lossy(data).parse::<Code>() else {
        return;
    };
    assert_eq!(code.to_string().parse(), Ok(code));
    assert!(code.k() + code.m() <= 255);
}

/// Number of bytes of an input before those of the group.
const HEADER_BYTES: usize = 8 + 2 * MASK_BYTES;
const MASK_BYTES: usize = 32;

/// A group. The input selects its shape, lengths, losses and kernel, and has its bytes. Recovery restores
/// the bytes, or returns an error and changes nothing. Recovery chunk by chunk does the same.
pub fn decode(data: &[u8]) {
    let Some((header, bytes)) = data.split_first_chunk::<HEADER_BYTES>() else {
        return;
    };
    let [
        flags,
        k,
        m,
        chunk_bytes,
        data_bytes,
        more,
        excess,
        kernel,
        ..,
    ] = *header;
    let kind = if flags & 1 == 0 { Kind::Mds } else { Kind::Xor };
    let Ok(code) = Code::new(kind, k.into(), m.into()) else {
        return;
    };
    let kernels: Vec<Kernel> = Kernel::available().collect();
    let codec = Codec::with_kernel(code, kernels[usize::from(kernel) % kernels.len()]);
    let data_bytes = usize::from(u16::from_le_bytes([data_bytes, more & 0x1F]));
    let chunk_bytes = usize::from(chunk_bytes);
    let present = Present {
        data: mask(&header[8..][..MASK_BYTES]),
        parity: mask(&header[8 + MASK_BYTES..]),
    };
    let sent: Vec<u8> = bytes.iter().copied().cycle().take(data_bytes).collect();
    let whole = Layout::new(code, sent.len(), chunk_bytes).ok();
    let whole = whole.filter(|layout| layout.groups() == 1);
    let parity_bytes = whole.map_or(data_bytes, |layout| layout.parity_bytes());
    // Sometimes with a length that does not fit.
    let parity_bytes = parity_bytes + usize::from(excess / 255);
    let mut parity = vec![0; parity_bytes];
    let encoded = codec.encode(&sent, chunk_bytes, &mut parity);
    let mut received = sent.clone();
    let chunks = received.chunks_mut(chunk_bytes.max(1));
    for (_, chunk) in chunks
        .enumerate()
        .filter(|(i, _)| !present.data.contains(*i))
    {
        chunk.fill(0xDB);
    }
    let damaged = received.clone();
    let result = codec.recover(&mut received, &parity, chunk_bytes, &present);
    let Some(layout) = whole.filter(|_| encoded.is_ok()) else {
        assert!(encoded.is_err() && result == encoded && received == damaged);
        return;
    };
    let chunks = layout.data_chunks();
    match result {
        Ok(()) => assert!(code.recoverable(chunks, &present) && received == sent),
        Err(CodecError::NotRecoverable { .. }) => {
            assert!(!code.recoverable(chunks, &present) && received == damaged);
        }
        Err(error) => panic!("{error}"),
    }

    let (decoded, again) = chunk_by_chunk(&codec, &damaged, &parity, chunk_bytes, &present);
    assert_eq!(decoded, result.is_ok());
    assert!(again == received);
}

/// Decodes the chunks that are present. Returns whether the others could be rebuilt, and the data.
fn chunk_by_chunk(
    codec: &Codec,
    damaged: &[u8],
    parity: &[u8],
    chunk_bytes: usize,
    present: &Present,
) -> (bool, Vec<u8>) {
    let mut scratch = vec![0; parity.len()];
    let mut decoder =
        Decoder::new(codec, damaged.len(), chunk_bytes, &mut scratch).expect("the lengths fit");
    for (i, chunk) in damaged.chunks(chunk_bytes).enumerate() {
        if present.data.contains(i) {
            decoder.add_data(i, chunk).expect("it is new");
        }
    }
    for (i, chunk) in parity.chunks(chunk_bytes).enumerate() {
        if present.parity.contains(i) {
            decoder.add_parity(i, chunk).expect("it is new");
        }
    }
    let mut data = damaged.to_vec();
    let decoded = decoder.finish(&mut data).is_ok();
    (decoded, data)
}

fn mask(bytes: &[u8]) -> ChunkMask {
    let bit = |&at: &usize| bytes[at / 8] >> (at % 8) & 1 == 1;
    (0..bytes.len() * 8).filter(bit).collect()
}
