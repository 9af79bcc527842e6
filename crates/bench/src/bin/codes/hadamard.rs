//! The block Hadamard transform beside copying the same memory.

use std::hint::black_box;

use farwrite_codes::Kernel;
use farwrite_codes::hadamard::{Element, Interleave, Transform};
use half::{bf16, f16};

use crate::contest::thread_time;

/// Elements of a block.
const BLOCK: usize = 1024;
/// Bytes of a packet's payload.
const PAYLOAD: usize = 4096;

/// Encodes and decodes a tensor of so many bytes in each format, without a stride and with the
/// largest, in turn with copying it; prints medians of so many runs.
pub(crate) fn print(bytes: usize, runs: usize) -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "hadamard     {} MiB, blocks of {BLOCK} elements, packets of {PAYLOAD} bytes, in cold \
         memory, on one core with {}; GB/s of input, medians of {runs}",
        bytes >> 20,
        Kernel::best(),
    );
    rows("f32", bytes, runs, |value| value)?;
    rows("f16", bytes, runs, f16::from_f32)?;
    rows("bf16", bytes, runs, bf16::from_f32)
}

fn rows<T: Element>(
    name: &str,
    bytes: usize,
    runs: usize,
    of: impl Fn(f32) -> T,
) -> Result<(), Box<dyn std::error::Error>> {
    let element = size_of::<T>();
    let elements = bytes / element;
    let packet = Interleave::packet_elements(PAYLOAD, element).ok_or("no element fits a packet")?;
    let transforms =
        [1, packet].map(|stride| Interleave::new(BLOCK, packet, stride).map(Transform::new));
    let [still, strided] = transforms;
    let (still, strided) = (still?, strided?);
    let input: Vec<T> = (0..elements)
        .map(|at| of((at % 251) as f32 - 125.0))
        .collect();
    let mut output = vec![of(1.0); elements];
    let mut seconds: [Vec<f64>; 5] = Default::default();
    for _ in 0..runs.max(1) {
        for (what, seconds) in seconds.iter_mut().enumerate() {
            let start = thread_time();
            match what {
                0 => output.copy_from_slice(&input),
                1 => still.encode(&input, &mut output, &[elements])?,
                2 => still.decode(&input, &mut output, &[elements])?,
                3 => strided.encode(&input, &mut output, &[elements])?,
                _ => strided.decode(&input, &mut output, &[elements])?,
            }
            black_box(&mut output);
            seconds.push((thread_time() - start).as_secs_f64());
        }
    }
    let medians = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    });
    let line = |what: &str, stride: usize, seconds: f64| {
        let speed = (elements * element) as f64 / seconds / 1e9;
        let share = medians[0] / seconds;
        println!("{name:<5}{what:<7} stride {stride:<5} {speed:6.2}  {share:4.2} of memcpy");
    };
    let copy = (elements * element) as f64 / medians[0] / 1e9;
    println!("{name:<5}memcpy {:13}{copy:6.2}", "");
    line("encode", 1, medians[1]);
    line("decode", 1, medians[2]);
    line("encode", packet, medians[3]);
    line("decode", packet, medians[4]);
    Ok(())
}
