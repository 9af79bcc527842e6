//! O7: what packets that are lost do to the values of a message, by the layout of its
//! coefficients.

use farwrite_codes::hadamard::{Interleave, Rescale, Transform, TransformError};
use farwrite_rng::SplitMix;

use crate::Failure;
use crate::measured::Measured;
use crate::rows::{Panel, Rows};

/// Values of a message: 4 MiB.
const VALUES: usize = 1 << 20;
/// Values of a packet, and of a block: 4 KiB.
const PACKET: usize = 1 << 10;
const DROPS: [f64; 6] = [0.001, 0.005, 0.01, 0.02, 0.05, 0.1];
const STRIDES: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// How coefficients that arrive count, and the ending of the names of measures: `ByArrived` is
/// what ships.
const RESCALES: [(Rescale, &str); 2] = [(Rescale::ByArrived, ""), (Rescale::Never, "_unscaled")];

/// A way of putting values into packets.
struct Layout {
    panel: &'static str,
    series: String,
    transform: Transform,
}

pub(crate) fn run(rows: &Rows, messages: u64) -> Result<(), Failure> {
    let conditions = format!(
        "{messages} messages of {VALUES} normally distributed values of f32, {PACKET} a packet, \
         packets dropped independently, seeds 1 to {messages}"
    );
    println!("{conditions}");
    println!(
        "{:<26} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "layout", "drop", "error", "worst", "destroyed", "unscaled"
    );
    for layout in layouts()? {
        let panel = rows.panel("O7", layout.panel, &conditions);
        let measured = measure(&layout.transform, messages)?;
        for (drop, errors) in DROPS.into_iter().zip(&measured) {
            add(&panel, &layout.series, drop, errors);
        }
    }
    Ok(())
}

fn layouts() -> Result<Vec<Layout>, TransformError> {
    let layout = |panel, series: &str, block, stride| {
        Ok(Layout {
            panel,
            series: series.into(),
            transform: Transform::new(Interleave::new(block, PACKET, stride)?),
        })
    };
    // A block of one value is not transformed.
    let mut layouts = vec![
        layout("layouts", "not transformed", 1, 1)?,
        layout("layouts", "whole message", VALUES, 1)?,
    ];
    for stride in STRIDES {
        layouts.push(layout("strides", &stride.to_string(), PACKET, stride)?);
    }
    Ok(layouts)
}

/// Errors by drop rate, each for all ways of rescaling.
fn measure(
    transform: &Transform,
    messages: u64,
) -> Result<Vec<[Measured; RESCALES.len()]>, TransformError> {
    let mut all = vec![[Measured::default(); RESCALES.len()]; DROPS.len()];
    let (mut encoded, mut estimate) = (vec![0.0; VALUES], vec![0.0; VALUES]);
    for seed in 1..=messages {
        let values = normal(seed);
        let mut sent = vec![0.0; VALUES];
        transform.encode(&values, &mut sent, &[VALUES])?;
        for (drop, measured) in DROPS.into_iter().zip(&mut all) {
            let lost = lost(seed, drop);
            for ((rescale, _), measured) in RESCALES.into_iter().zip(measured) {
                encoded.copy_from_slice(&sent);
                let arrived = |_, packet: usize| !lost[packet];
                transform.decode_partial(
                    &mut encoded,
                    &mut estimate,
                    &[VALUES],
                    arrived,
                    rescale,
                )?;
                measured.take(&values, &estimate, PACKET);
            }
        }
    }
    Ok(all)
}

/// Normally distributed values of mean 0 and variance 1, by Box and Muller.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds to the format of tensors"
)]
fn normal(seed: u64) -> Vec<f32> {
    let mut rng = SplitMix::new(seed);
    let pairs = (0..VALUES / 2).flat_map(|_| {
        let length = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * rng.unit()).sin_cos();
        [length * sin, length * cos]
    });
    pairs.map(|value| value as f32).collect()
}

/// Which packets are lost. All layouts lose the same ones.
fn lost(seed: u64, drop: f64) -> Vec<bool> {
    let mut rng = SplitMix::new(!seed);
    (0..VALUES / PACKET).map(|_| rng.chance(drop)).collect()
}

fn add(panel: &Panel<'_>, series: &str, drop: f64, errors: &[Measured; RESCALES.len()]) {
    for ((_, ending), errors) in RESCALES.into_iter().zip(errors) {
        for (measure, value) in [
            ("error", errors.error()),
            ("worst_block", errors.worst_block()),
            ("destroyed", errors.destroyed()),
        ] {
            panel.add(series, drop, &format!("{measure}{ending}"), value);
        }
    }
    let [scaled, unscaled] = errors;
    println!(
        "{series:<26} {drop:>6} {:>9.4} {:>9.4} {:>9.4} {:>9.4}",
        scaled.error(),
        scaled.worst_block(),
        scaled.destroyed(),
        unscaled.error(),
    );
}
