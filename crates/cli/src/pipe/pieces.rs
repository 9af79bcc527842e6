//! The bytes of a pipe as pieces, with their hash behind them (P15.2), for readers and writers that block.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use blake3::{Hash, Hasher};

use super::{HEAD_BYTES, PIECE_BYTES};

/// Why a pipe was cut off.
#[derive(Debug)]
pub(crate) enum Cut {
    Read(io::Error),
    Write(io::Error),
    /// The pieces are not those of a pipe, or their hash is another one.
    Corrupt(&'static str),
}

/// The length of a piece, before its bytes.
fn head(length: usize) -> [u8; HEAD_BYTES] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

/// Writes everything as pieces, and the hash. Adds to `count` what it has read.
pub(crate) fn encode(
    from: &mut (impl Read + ?Sized),
    to: &mut (impl Write + ?Sized),
    count: &AtomicU64,
) -> Result<Hash, Cut> {
    let mut hasher = Hasher::new();
    let mut piece = vec![0; HEAD_BYTES + PIECE_BYTES];
    loop {
        let length = match from.read(&mut piece[HEAD_BYTES..]) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Cut::Read(error)),
        };
        if length == 0 {
            break;
        }
        let end = HEAD_BYTES + length;
        hasher.update(&piece[HEAD_BYTES..end]);
        piece[..HEAD_BYTES].copy_from_slice(&head(length));
        to.write_all(&piece[..end]).map_err(Cut::Write)?;
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
    let hash = hasher.finalize();
    let last = [&head(0)[..], hash.as_bytes()].concat();
    let written = to.write_all(&last).and_then(|()| to.flush());
    written.map_err(Cut::Write)?;
    Ok(hash)
}

/// Writes the bytes of all pieces, and compares their hash. Adds to `count` what it has written.
pub(crate) fn decode(
    from: &mut (impl Read + ?Sized),
    to: &mut (impl Write + ?Sized),
    count: &AtomicU64,
) -> Result<Hash, Cut> {
    let mut hasher = Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head).map_err(Cut::Read)?;
        let length = u32::from_be_bytes(head) as usize;
        if length == 0 {
            break;
        }
        let piece = piece.get_mut(..length);
        let piece = piece.ok_or(Cut::Corrupt("a piece is longer than it may be"))?;
        from.read_exact(piece).map_err(Cut::Read)?;
        hasher.update(piece);
        to.write_all(piece).map_err(Cut::Write)?;
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
    let mut told = [0; blake3::OUT_LEN];
    from.read_exact(&mut told).map_err(Cut::Read)?;
    let hash = hasher.finalize();
    match hash == told {
        true => Ok(hash),
        false => Err(Cut::Corrupt(
            "the bytes that arrived are not those that were sent: their BLAKE3 differs",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_whole_or_cut() {
        let bytes: Vec<u8> = (0..600_000_u32).map(|at| at.to_be_bytes()[3]).collect();
        for length in [0, 1, PIECE_BYTES, bytes.len()] {
            let (mut pieces, mut out) = (Vec::new(), Vec::new());
            let count = AtomicU64::new(0);
            let hash = encode(&mut &bytes[..length], &mut pieces, &count).expect("sent");
            assert_eq!(count.load(Ordering::Relaxed), length as u64);
            let came = decode(&mut &pieces[..], &mut out, &count).expect("whole");
            assert!(came == hash && out == bytes[..length], "{length}");
            for cut in [0, 3, pieces.len() - 33, pieces.len() - 1] {
                let ended = decode(&mut &pieces[..cut], &mut io::sink(), &count);
                assert!(matches!(ended, Err(Cut::Read(_))), "{length}, {cut}");
            }
            let last = pieces.len() - 1;
            pieces[last] ^= 1;
            let ended = decode(&mut &pieces[..], &mut io::sink(), &count);
            assert!(matches!(ended, Err(Cut::Corrupt(_))), "{length}");
        }
        let long = head(PIECE_BYTES + 1);
        let ended = decode(&mut &long[..], &mut io::sink(), &AtomicU64::new(0));
        assert!(matches!(ended, Err(Cut::Corrupt(_))));
    }
}
