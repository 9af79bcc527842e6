//! OT3: the time of the transform, by the number of blocks of a message, beside copying its bytes.

use std::hint::black_box;
use std::time::Duration;

use farwrite_codes::Kernel;
use farwrite_codes::hadamard::{Interleave, Transform, TransformError};
use farwrite_units::stats::median;
use nix::time::{ClockId, clock_gettime};

use crate::Failure;
use crate::conditions;
use crate::rows::Rows;

/// Values of a message: 128 MiB.
const VALUES: usize = 1 << 25;
/// Values of a packet: 4 KiB.
const PACKET: usize = 1 << 10;
const SPLITS: [usize; 4] = [1, 4, 16, 64];
/// Splits into blocks of one packet each, the shape for interleaving.
const PACKETS: usize = VALUES / PACKET;

/// A shape of the transform.
struct SplitShape {
    series: &'static str,
    splits: usize,
    transform: Transform,
    seconds: Vec<f64>,
}

pub(crate) fn run(rows: &Rows, runs: u16) -> Result<(), Failure> {
    let conditions = format!(
        "{} MiB of f32 in cold memory, processor time of one thread with {}, medians of {runs} \
         alternating runs; {}",
        (VALUES * size_of::<f32>()) >> 20,
        Kernel::best(),
        conditions::text(),
    );
    println!("{conditions}");
    let mut shapes = shapes()?;
    let copying = median(measure(&mut shapes, runs)?);
    println!("memcpy {:.1} ms", copying * 1e3);
    let panel = rows.panel("OT3", "128 MiB", &conditions);
    for shape in &mut shapes {
        let seconds = median(&shape.seconds);
        let (series, splits) = (shape.series, shape.splits);
        println!(
            "{series}, {splits} blocks: {:.1} ms, {:.2} times memcpy",
            seconds * 1e3,
            seconds / copying,
        );
        panel.add(series, splits as f64, "ms", seconds * 1e3);
        panel.add(series, splits as f64, "of_memcpy", seconds / copying);
    }
    panel.add("memcpy", 1.0, "ms", copying * 1e3);
    Ok(())
}

fn shapes() -> Result<Vec<SplitShape>, TransformError> {
    let shape = |series, splits, stride| {
        let interleave = Interleave::new(VALUES / splits, PACKET, stride)?;
        Ok(SplitShape {
            series,
            splits,
            transform: Transform::new(interleave),
            seconds: Vec::new(),
        })
    };
    let mut shapes = Vec::new();
    for splits in SPLITS {
        shapes.push(shape("stride 1", splits, 1)?);
    }
    shapes.push(shape("stride 1", PACKETS, 1)?);
    shapes.push(shape("stride 1024", PACKETS, PACKET)?);
    Ok(shapes)
}

/// Measures all shapes in turn, `runs` times. Returns the seconds of copying.
fn measure(shapes: &mut [SplitShape], runs: u16) -> Result<Vec<f64>, TransformError> {
    let input: Vec<f32> = (0..VALUES).map(|at| (at % 251) as f32 - 125.0).collect();
    let mut output = vec![1.0; VALUES];
    let mut copying = Vec::new();
    for _ in 0..runs {
        let start = thread_time();
        output.copy_from_slice(&input);
        black_box(&mut output);
        copying.push((thread_time() - start).as_secs_f64());
        for shape in &mut *shapes {
            let start = thread_time();
            shape.transform.encode(&input, &mut output, &[VALUES])?;
            black_box(&mut output);
            shape.seconds.push((thread_time() - start).as_secs_f64());
        }
    }
    Ok(copying)
}

/// Processor time of this thread: other work on the machine does not count.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
