//! How a message fills: the chunk bitmap of the receiver over time, grouped into rows.

use std::ops::Range;
use std::time::{Duration, Instant};

use farwrite::{ChunkBitmap, RecvHandle};

/// The maximum number of rows for the chunks of a transfer.
pub(crate) const ROWS: u64 = 90;

/// How a transfer fills over time.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    /// The number of chunks in each row, in the order of the message.
    pub(crate) rows: Vec<u32>,
    /// The times since the first chunk was sent, and by row, the number of chunks that had arrived.
    pub(crate) samples: Vec<(Duration, Vec<u32>)>,
}

/// Reads bitmaps repeatedly, without any call to the endpoint that fills them.
pub(crate) struct Sampler {
    bitmaps: Vec<ChunkBitmap>,
    /// By row: the runs of chunks in the bitmaps.
    rows: Vec<Vec<(usize, Range<u32>)>>,
    taken: Vec<(Instant, Vec<u32>)>,
}

impl Sampler {
    /// A sampler for messages that arrive by these receives. `chunks` holds the number of chunks of
    /// each message.
    pub(crate) fn new(recvs: &[RecvHandle], chunks: &[u32]) -> Self {
        Self {
            bitmaps: recvs.iter().map(|recv| recv.bitmap().clone()).collect(),
            rows: cut(chunks, ROWS),
            taken: Vec::new(),
        }
    }

    /// Takes a sample. Returns the total number of chunks that have arrived.
    pub(crate) fn sample(&mut self) -> u64 {
        let count = |row: &Vec<(usize, Range<u32>)>| {
            let runs = row.iter();
            runs.map(|(bitmap, run)| count(&self.bitmaps[*bitmap], run))
                .sum()
        };
        let arrived: Vec<u32> = self.rows.iter().map(count).collect();
        let total = arrived.iter().copied().map(u64::from).sum();
        self.taken.push((Instant::now(), arrived));
        total
    }

    /// The samples, with times relative to `start`.
    pub(crate) fn finish(self, start: Instant) -> Fill {
        let since_start =
            |(at, arrived): (Instant, Vec<u32>)| (at.saturating_duration_since(start), arrived);
        let chunks =
            |row: &Vec<(usize, Range<u32>)>| row.iter().map(|(_, run)| run.end - run.start).sum();
        Fill {
            rows: self.rows.iter().map(chunks).collect(),
            samples: self.taken.into_iter().map(since_start).collect(),
        }
    }
}

/// Divides messages with these numbers of chunks into at most `rows` rows of nearly equal length.
fn cut(chunks: &[u32], rows: u64) -> Vec<Vec<(usize, Range<u32>)>> {
    let total: u64 = chunks.iter().copied().map(u64::from).sum();
    let rows = rows.min(total);
    let row = |i: u64| total * i / rows..total * (i + 1) / rows;
    (0..rows).map(|i| runs(chunks, &row(i))).collect()
}

/// The runs within each message for a range of all chunks.
fn runs(chunks: &[u32], range: &Range<u64>) -> Vec<(usize, Range<u32>)> {
    let mut runs = Vec::new();
    let mut first = 0;
    for (message, &count) in chunks.iter().enumerate() {
        let within =
            |at: u64| u32::try_from(at.saturating_sub(first)).map_or(count, |at| at.min(count));
        let run = within(range.start)..within(range.end);
        if !run.is_empty() {
            runs.push((message, run));
        }
        first += u64::from(count);
    }
    runs
}

/// The number of bits that are set in a run.
fn count(bitmap: &ChunkBitmap, run: &Range<u32>) -> u32 {
    let words = run.start / 64..run.end.div_ceil(64);
    let masked = |word: u32| {
        let mut bits = bitmap.word(word);
        let first = word * 64;
        bits &= u64::MAX << run.start.saturating_sub(first).min(63);
        if run.end - first < 64 {
            bits &= (1 << (run.end - first)) - 1;
        }
        bits.count_ones()
    };
    words.map(masked).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_cover_every_chunk_once() {
        for (chunks, rows) in [
            (vec![65_536], 90),
            (vec![7], 90),
            (vec![100, 100, 3], 4),
            (vec![1], 90),
        ] {
            let mut seen: Vec<Vec<u32>> = chunks.iter().map(|&n| vec![0; n as usize]).collect();
            let cut = cut(&chunks, rows);
            assert!(cut.len() as u64 <= rows);
            for (message, run) in cut.iter().flatten() {
                for chunk in run.clone() {
                    seen[*message][chunk as usize] += 1;
                }
            }
            assert!(seen.iter().flatten().all(|&times| times == 1), "{chunks:?}");
        }
    }
}
