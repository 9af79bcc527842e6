//! The error of a tensor after packet loss matches the documented expectations. The tests run many
//! seeded trials.

use farwrite_codes::hadamard::{Interleave, Rescale, Transform};
use farwrite_rng::SplitMix;
use half::f16;

use crate::common::{distance, norm, tensor, values};

/// Packets of the group under test.
const PACKETS: usize = 64;
const LOSS: f64 = 0.1;
const ARRIVING: f32 = 0.9;
const TRIALS: usize = if cfg!(miri) { 3 } else { 3000 };

/// Draws which of `PACKETS` packets arrive. With `burst`, losses come in bursts of this mean
/// length.
fn arrivals(rng: &mut SplitMix, burst: Option<f64>) -> [bool; PACKETS] {
    let mut lost = rng.unit() < LOSS;
    core::array::from_fn(|_| {
        let now = lost;
        lost = match burst {
            None => rng.unit() < LOSS,
            Some(mean) if now => rng.unit() >= 1.0 / mean,
            Some(mean) => rng.unit() < LOSS / (1.0 - LOSS) / mean,
        };
        !now
    })
}

/// The results of many trials, as shares of the tensor's energy.
struct Trials {
    /// Energy of the difference between the mean of all estimates and the tensor.
    bias: f64,
    /// Mean energy of the error of an estimate.
    error: f64,
    /// Mean of `(packets - arrived) / arrived`, or 1 for a trial in which nothing arrived.
    expected: f64,
}

fn trials(rescale: Rescale, burst: Option<f64>) -> Trials {
    let shape = Interleave::new(64, 64, 64).unwrap();
    let elements = shape.group();
    let transform = Transform::new(shape);
    let input = tensor::<f32>(elements, 7);
    let exact = values(&input);
    let mut encoded = vec![0.0; elements];
    transform.encode(&input, &mut encoded, &[elements]).unwrap();
    let energy = norm(&exact).powi(2);
    let mut rng = SplitMix::new(11);
    let (mut sum, mut error, mut expected) = (vec![0.0; elements], 0.0, 0.0);
    let mut estimate = vec![0.0; elements];
    for _ in 0..TRIALS {
        let arrived = arrivals(&mut rng, burst);
        let mut received = encoded.clone();
        transform
            .decode_partial(
                &mut received,
                &mut estimate,
                &[elements],
                |_, packet| arrived[packet],
                rescale,
            )
            .unwrap();
        let estimate = values(&estimate);
        sum.iter_mut()
            .zip(&estimate)
            .for_each(|(sum, value)| *sum += value / TRIALS as f64);
        error += distance(&estimate, &exact).powi(2) / energy / TRIALS as f64;
        let count = arrived.iter().filter(|&&arrived| arrived).count();
        expected += match count {
            0 => 1.0,
            count => (PACKETS - count) as f64 / count as f64,
        } / TRIALS as f64;
    }
    Trials {
        bias: distance(&sum, &exact).powi(2) / energy,
        error,
        expected,
    }
}

/// Returns the expected energy that remains of an error with this mean square in the average over
/// all trials.
fn noise(error: f64) -> f64 {
    error / TRIALS as f64
}

fn near(value: f64, expected: f64, share: f64) {
    assert!(
        (value - expected).abs() <= share * expected,
        "{value} for {expected}"
    );
}

#[test]
#[cfg_attr(miri, ignore = "thousands of trials")]
fn independent_losses_leave_the_documented_error() {
    let by_arrived = trials(Rescale::ByArrived, None);
    near(by_arrived.error, by_arrived.expected, 0.02);
    near(by_arrived.error, LOSS / (1.0 - LOSS), 0.06);
    assert!(
        by_arrived.bias < 1.5 * noise(by_arrived.error),
        "{}",
        by_arrived.bias
    );

    let by_share = trials(Rescale::ByShare(ARRIVING), None);
    near(by_share.error, LOSS / (1.0 - LOSS), 0.05);
    assert!(
        by_share.bias < 1.5 * noise(by_share.error),
        "{}",
        by_share.bias
    );

    // The mean estimate is `1 - LOSS` times the tensor, so the bias has the energy `LOSS^2`.
    let never = trials(Rescale::Never, None);
    near(never.error, LOSS, 0.05);
    near(never.bias, LOSS * LOSS, 0.1);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of trials")]
fn bursts_leave_the_same_error_on_average() {
    let by_share = trials(Rescale::ByShare(ARRIVING), Some(8.0));
    near(by_share.error, LOSS / (1.0 - LOSS), 0.1);
    assert!(
        by_share.bias < 12.0 * noise(by_share.error),
        "{}",
        by_share.bias
    );

    let by_arrived = trials(Rescale::ByArrived, Some(8.0));
    near(by_arrived.error, by_arrived.expected, 0.02);
    assert!(by_arrived.bias < 1e-3, "{}", by_arrived.bias);

    let never = trials(Rescale::Never, Some(8.0));
    near(never.error, LOSS, 0.1);
}

/// One packet is lost. Without a stride, the loss removes a whole block. With the largest stride,
/// it removes the same small share of every block.
#[test]
fn a_stride_spreads_a_loss_over_its_group() {
    let errors = |stride| -> Vec<f64> {
        let shape = Interleave::new(64, 64, stride).unwrap();
        let transform = Transform::new(shape);
        let input = tensor::<f32>(4096, 3);
        let mut encoded = vec![0.0; 4096];
        transform.encode(&input, &mut encoded, &[4096]).unwrap();
        // The contents of the missing packet must have no effect.
        encoded[5 * 64..6 * 64].fill(f32::NAN);
        let mut decoded = vec![0.0; 4096];
        transform
            .decode_partial(
                &mut encoded,
                &mut decoded,
                &[4096],
                |_, packet| packet != 5,
                Rescale::ByArrived,
            )
            .unwrap();
        let blocks = values(&input);
        let blocks = blocks.chunks(64).zip(decoded.chunks(64));
        blocks
            .map(|(exact, decoded)| distance(exact, &values(decoded)) / norm(exact))
            .collect()
    };
    for stride in [1, 2, 4, 8, 16, 32, 64] {
        let errors = errors(stride);
        let touched = errors.iter().filter(|&&error| error > 1e-6).count();
        assert_eq!(touched, stride, "{errors:?}");
        let worst = errors.iter().copied().fold(0.0, f64::max);
        // The energy of a number of coefficients of a block varies from block to block.
        assert!(worst <= 3.0 / (stride as f64).sqrt(), "{stride}: {worst}");
    }
}

#[test]
fn without_losses_nothing_is_different() {
    let shape = Interleave::new(128, 32, 8).unwrap();
    let transform = Transform::new(shape);
    let input = tensor::<f16>(5000, 9);
    let mut encoded = vec![f16::ZERO; 5000];
    let ends = [1700, 1700, 5000];
    transform.encode(&input, &mut encoded, &ends).unwrap();
    let (mut whole, mut partial) = (vec![f16::ZERO; 5000], vec![f16::ZERO; 5000]);
    transform.decode(&encoded, &mut whole, &ends).unwrap();
    for rescale in [Rescale::ByArrived, Rescale::ByShare(1.0), Rescale::Never] {
        transform
            .decode_partial(&mut encoded, &mut partial, &ends, |_, _| true, rescale)
            .unwrap();
        assert_eq!(partial, whole);
    }
}

/// Packets are numbered segment by segment, and a group of which nothing arrived becomes zero.
#[test]
fn losses_stay_in_their_segment_and_group() {
    let shape = Interleave::new(16, 16, 4).unwrap();
    let transform = Transform::new(shape);
    let input = tensor::<f32>(400, 13);
    let mut encoded = vec![0.0; 400];
    let ends = [150, 400];
    transform.encode(&input, &mut encoded, &ends).unwrap();
    let mut decoded = vec![0.0; 400];
    // All packets of the second group of the second segment are lost.
    let lost = |segment: usize, packet: usize| segment == 1 && (4..8).contains(&packet);
    transform
        .decode_partial(
            &mut encoded,
            &mut decoded,
            &ends,
            |segment, packet| !lost(segment, packet),
            Rescale::ByArrived,
        )
        .unwrap();
    for (at, (value, exact)) in decoded.iter().zip(&input).enumerate() {
        if (150 + 64..150 + 128).contains(&at) {
            assert_eq!(*value, 0.0, "{at}");
        } else {
            assert!((value - exact).abs() < 1e-5, "{at}");
        }
    }
}

/// Encoded tensors with different missing packets can be added before the inverse transform.
#[test]
fn estimates_can_be_added_before_the_inverse() {
    let shape = Interleave::new(64, 32, 16).unwrap();
    let transform = Transform::new(shape);
    let ends = [700, 2_500];
    let encode = |input: &[f32]| {
        let mut encoded = vec![0.0; input.len()];
        transform.encode(input, &mut encoded, &ends).unwrap();
        encoded
    };
    let lost = [
        |_: usize, packet: usize| packet % 5 == 2,
        |segment, packet| segment == 1 && packet < 7,
    ];
    let (mut expected, mut sum) = (vec![0.0; 2_500], vec![0.0; 2_500]);
    for (seed, lost) in [(21, lost[0]), (22, lost[1])] {
        let mut encoded = encode(&tensor::<f32>(2_500, seed));
        let arrived = |segment, packet| !lost(segment, packet);
        let mut rescaled = encoded.clone();
        transform
            .rescale(&mut rescaled, &ends, arrived, Rescale::ByArrived)
            .unwrap();
        let mut estimate = vec![0.0; 2_500];
        transform
            .decode_partial(
                &mut encoded,
                &mut estimate,
                &ends,
                arrived,
                Rescale::ByArrived,
            )
            .unwrap();
        for at in 0..2_500 {
            expected[at] += estimate[at];
            sum[at] += rescaled[at];
        }
    }
    let mut decoded = vec![0.0; 2_500];
    transform.decode(&sum, &mut decoded, &ends).unwrap();
    for (at, (value, expected)) in decoded.iter().zip(&expected).enumerate() {
        assert!((value - expected).abs() < 1e-4, "{at}: {value}, {expected}");
    }
}
