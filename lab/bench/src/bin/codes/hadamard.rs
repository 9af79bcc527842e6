//! Compares the block Hadamard transform with copying the same memory.

use std::hint::black_box;

use farwrite_codes::Kernel;
use farwrite_codes::hadamard::{Element, Interleave, Transform};
use farwrite_units::stats::median;
use half::{bf16, f16};

use crate::coded_message::thread_time;

/// Elements per block in the measurements of the stride.
const BLOCK: usize = 1024;
/// Payload bytes of a packet.
const PAYLOAD: usize = 4096;
/// Numbers of blocks into which a tensor is split, as in `OptiNIC`'s Table 3.
const SPLITS: [usize; 4] = [1, 4, 16, 64];

/// Encodes and decodes a tensor of `bytes` bytes in each format, without a stride and with the
/// largest stride, alternating with copying it. Prints medians of `runs` runs.
pub(crate) fn print(bytes: usize, runs: usize) -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "hadamard     {} MiB, packets of {PAYLOAD} bytes, in cold memory, on one core with {}; \
         GB/s of input, medians of {runs}",
        bytes >> 20,
        Kernel::best(),
    );
    rows("f32", bytes, runs, &SPLITS, |value| value)?;
    rows("f16", bytes, runs, &[], f16::from_f32)?;
    rows("bf16", bytes, runs, &[], bf16::from_f32)
}

fn rows<T: Element>(
    name: &str,
    bytes: usize,
    runs: usize,
    splits: &[usize],
    of: impl Fn(f32) -> T,
) -> Result<(), Box<dyn std::error::Error>> {
    let elements = bytes / size_of::<T>();
    let packet =
        Interleave::packet_elements(PAYLOAD, size_of::<T>()).ok_or("no element fits a packet")?;
    let mut shapes = vec![
        Interleave::new(BLOCK, packet, 1)?,
        Interleave::new(BLOCK, packet, packet)?,
    ];
    for split in splits {
        let block = (elements / split).checked_ilog2().unwrap_or(0).min(25);
        shapes.push(Interleave::new(1 << block, packet, 1)?);
    }
    let transforms: Vec<Transform> = shapes.into_iter().map(Transform::new).collect();
    let input: Vec<T> = (0..elements)
        .map(|at| of((at % 251) as f32 - 125.0))
        .collect();
    let mut output = vec![of(1.0); elements];
    let mut copying = Vec::new();
    let mut seconds = vec![[Vec::new(), Vec::new()]; transforms.len()];
    for _ in 0..runs.max(1) {
        let start = thread_time();
        output.copy_from_slice(&input);
        black_box(&mut output);
        copying.push((thread_time() - start).as_secs_f64());
        for (transform, [encoding, decoding]) in transforms.iter().zip(&mut seconds) {
            let start = thread_time();
            transform.encode(&input, &mut output, &[elements])?;
            black_box(&mut output);
            let middle = thread_time();
            transform.decode(&input, &mut output, &[elements])?;
            black_box(&mut output);
            encoding.push((middle - start).as_secs_f64());
            decoding.push((thread_time() - middle).as_secs_f64());
        }
    }
    let copying = median(&copying);
    let speed = |seconds: f64| (elements * size_of::<T>()) as f64 / seconds / 1e9;
    println!("{name:<22} {:6.2}  memcpy", speed(copying));
    for (transform, seconds) in transforms.iter().zip(&seconds) {
        for (what, seconds) in ["encode", "decode"].into_iter().zip(seconds) {
            let seconds = median(seconds);
            let (shape, share) = (transform.interleave(), copying / seconds);
            println!(
                "{:<22} {:6.2}  {share:4.2} of memcpy  {:5.1} ms, blocks of {}, stride {}",
                format!("{name} {what}"),
                speed(seconds),
                seconds * 1e3,
                shape.block(),
                shape.stride(),
            );
        }
    }
    Ok(())
}
