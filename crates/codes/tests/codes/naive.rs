//! A second implementation of the codes, directly from their definition. It is slow.

use farwrite_codes::{Code, Kind};

/// Returns the product in GF(2^8) with the polynomial 0x11D, by shifts and additions.
fn mul(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1D;
        }
        b >>= 1;
    }
    product
}

/// Returns the inverse, which is a^254.
fn inv(a: u8) -> u8 {
    (0..254).fold(1, |power, _| mul(power, a))
}

/// Returns the parity of a group, computed byte by byte.
pub(crate) fn parity(code: Code, data: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let chunks: Vec<&[u8]> = data.chunks(chunk_bytes).collect();
    let factor = |parity: usize, data: usize| match code.kind() {
        Kind::Xor => u8::from(data % code.m() == parity),
        Kind::Mds => inv(u8::try_from((code.k() + parity) ^ data).unwrap()),
    };
    let mut out = Vec::new();
    for parity in 0..code.parity_chunks(chunks.len()) {
        let factors: Vec<u8> = (0..chunks.len()).map(|data| factor(parity, data)).collect();
        out.extend((0..chunk_bytes).map(|at| {
            let bytes = chunks
                .iter()
                .map(|chunk| chunk.get(at).copied().unwrap_or(0));
            factors
                .iter()
                .zip(bytes)
                .fold(0, |sum, (f, byte)| sum ^ mul(*f, byte))
        }));
    }
    out
}
