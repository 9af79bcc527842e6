//! Compares the exact distribution with the sampler, which simulates the protocol and shares no
//! loss formula with it.
//!
//! `make model-check` draws a million times for each setting; `cargo test` draws less often. Of
//! about 360 settings, one is beyond three standard errors by chance. Such a setting is drawn again
//! with another seed, and must not be beyond the limit twice.

use farwrite_model::{Compute, Loss, Setting, Variant, chunk_loss};

const BANDWIDTH_BPS: f64 = 400e9;
const CHUNK_BYTES: f64 = 4096.0;
const SLOT_S: f64 = CHUNK_BYTES * 8.0 / BANDWIDTH_BPS;

fn setting(scheme: &str, chunks: f64, rtt_slots: f64, loss: Loss, variant: Variant) -> Setting {
    let scheme = scheme.parse().unwrap();
    let bytes = chunks * CHUNK_BYTES;
    let mut setting = Setting::new(scheme, bytes, BANDWIDTH_BPS, rtt_slots * SLOT_S, 0.0);
    setting.loss = loss;
    setting.variant = variant;
    setting
}

/// Few chunks and short round trips: timeouts shorter than, similar to, and longer than a message.
fn small() -> Vec<Setting> {
    let mut grid = Vec::new();
    for variant in [Variant::Paper, Variant::Serial] {
        for scheme in [
            "sr-rto",
            "sr-nack",
            "gbn",
            "ec-mds:32,8",
            "ec-xor:32,8",
            "ec-mds:5,2",
        ] {
            for chunks in [1.0, 13.0, 100.0, 300.0] {
                for loss_chunk in [1e-3, 1e-2, 0.1, 0.4] {
                    let loss = Loss::iid(loss_chunk);
                    grid.push(setting(scheme, chunks, 9.7, loss, variant));
                }
            }
        }
    }
    grid
}

/// Returns the cells of the paper's Fig. 9 in which a message loses 0.01 to 100 chunks.
fn long_haul() -> Vec<Setting> {
    let mut grid = Vec::new();
    for scheme in ["sr-rto", "sr-nack", "ec-mds:32,8", "ec-xor:32,8"] {
        for size in [17, 20, 23, 27, 30, 33] {
            for loss in [-7, -6, -5, -4, -3, -2] {
                let chunks = 2f64.powi(size - 12);
                let loss_chunk = 10f64.powi(loss);
                if (0.01..100.0).contains(&(chunks * loss_chunk)) {
                    let loss = Loss::iid(loss_chunk);
                    grid.push(setting(
                        scheme,
                        chunks,
                        25e-3 / SLOT_S,
                        loss,
                        Variant::Paper,
                    ));
                }
            }
        }
    }
    grid
}

/// Losses in bursts, with round trips much longer than a burst.
fn bursts() -> Vec<Setting> {
    let chain =
        |p_good_to_bad, p_bad_to_good, loss_good, loss_bad, packets_per_chunk| Loss::Markov {
            p_good_to_bad,
            p_bad_to_good,
            loss_good,
            loss_bad,
            packets_per_chunk,
        };
    let chains = [
        chain(0.01, 0.3, 0.0, 0.8, 1),
        chain(0.05, 0.5, 0.01, 0.6, 1),
        chain(0.002, 0.2, 1e-4, 0.3, 4),
    ];
    let mut grid = Vec::new();
    for variant in [Variant::Paper, Variant::Serial] {
        for scheme in ["sr-nack", "gbn", "ec-mds:16,4", "ec-xor:16,4"] {
            for chunks in [3.0, 60.0, 250.0] {
                // Here the model's rounds overlap in time, which the model neglects (docs/model.md
                // 6.3).
                if variant == Variant::Paper && scheme == "sr-nack" && chunks > 80.0 {
                    continue;
                }
                for loss in chains {
                    grid.push(setting(scheme, chunks, 79.6, loss, variant));
                }
            }
        }
    }
    grid
}

/// Codes that take time, with an encoder slower than the path and one faster.
fn coding() -> Vec<Setting> {
    let variants = [Variant::Serial, Variant::Protocol];
    variants.into_iter().flat_map(coding_in).collect()
}

fn coding_in(variant: Variant) -> Vec<Setting> {
    let mut grid = Vec::new();
    for scheme in ["ec-mds:16,4", "ec-xor:8,4"] {
        for chunks in [5.0, 90.0] {
            for loss_chunk in [1e-2, 0.1, 0.3] {
                for encode_bps in [200e9, 800e9] {
                    let loss = Loss::iid(loss_chunk);
                    let mut coded = setting(scheme, chunks, 9.7, loss, variant);
                    coded.compute = Compute {
                        encode_bps: Some(encode_bps),
                        decode_bps: Some(600e9),
                    };
                    grid.push(coded);
                }
            }
        }
    }
    grid
}

/// Receivers that ask for what they miss: messages of one and of several blocks, short last groups,
/// and round trips shorter and longer than a message.
fn rounds() -> Vec<Setting> {
    let mut grid = Vec::new();
    for scheme in ["sr-nack", "ec-mds:5,2", "ec-xor:8,4", "ec-xor:32,8"] {
        for chunks in [1.0, 13.0, 100.0, 700.0] {
            for rtt_slots in [9.7, 400.0] {
                for loss_chunk in [1e-3, 1e-2, 0.1, 0.3] {
                    let loss = Loss::iid(loss_chunk);
                    grid.push(setting(scheme, chunks, rtt_slots, loss, Variant::Protocol));
                }
            }
        }
    }
    grid.append(&mut chunks_of_many_packets());
    grid
}

/// Messages shorter than a timeout, where a repeated chunk lacks few packets.
fn chunks_of_many_packets() -> Vec<Setting> {
    let mut grid = Vec::new();
    for scheme in ["sr-rto", "sr-nack", "ec-mds:5,2", "ec-xor:8,4"] {
        for chunks in [1.0, 13.0, 300.0] {
            for (loss_packet, packets) in [(1e-3, 64), (2e-2, 16), (0.3, 3)] {
                let loss = in_packets(loss_packet, packets);
                grid.push(setting(scheme, chunks, 400.0, loss, Variant::Protocol));
            }
        }
    }
    grid
}

fn in_packets(loss_packet: f64, packets_per_chunk: u32) -> Loss {
    Loss::Iid {
        loss_chunk: chunk_loss(loss_packet, packets_per_chunk).unwrap(),
        packets_per_chunk,
    }
}

/// Deviations of the exact values from a sample, in standard errors: of the mean, and of the cdf at
/// the worst of several points.
fn deviations(setting: &Setting, draws: usize, seed: u64) -> (f64, f64) {
    let exact = setting.completion_time().unwrap();
    let mut sample = exact.sample(draws, seed);
    sample.sort_unstable_by(f64::total_cmp);
    let n = draws as f64;
    let mean = sample.iter().sum::<f64>() / n;
    let variance = sample.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // A few late draws are not enough to estimate the spread; the cdf accounts for them.
    // A lost end delays by so little that it says nothing of the spread that repairs cause.
    let little_s = match setting.variant {
        Variant::Protocol => setting.rtt_s / 16.0,
        _ => 0.0,
    };
    let late = draws - sample.partition_point(|&t| t <= sample[0] + little_s);
    let of_mean = if late < 30 {
        0.0
    } else {
        (exact.mean() - mean).abs() / (variance / n).sqrt()
    };
    let mut of_cdf = 0.0f64;
    for q in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999] {
        let t = exact.quantile(q).unwrap();
        let want = exact.cdf(t).unwrap();
        assert!(want >= q, "{q}: {want}");
        // Counts with an expected value below ten are not normally distributed.
        if n * (1.0 - want) >= 10.0 {
            let got = sample.partition_point(|&s| s <= t * (1.0 + 1e-12)) as f64 / n;
            of_cdf = of_cdf.max((got - want).abs() / (want * (1.0 - want) / n).sqrt());
        }
    }
    (of_mean, of_cdf)
}

fn check(grid: &[Setting], draws: usize) {
    let (mut beyond, mut squares, mut counted) = (0, 0.0, 0);
    for (number, setting) in grid.iter().enumerate() {
        let seed = number as u64;
        let mut found = deviations(setting, draws, seed);
        if found.0 > 0.0 {
            squares += found.0 * found.0;
            counted += 1;
        }
        if found.0 > 3.0 || found.1 > 4.5 {
            beyond += 1;
            println!("seed {seed}: {found:?} standard errors of mean and cdf, {setting:?}");
            found = deviations(setting, draws, seed + (1 << 32));
            println!("again: {found:?}");
        }
        assert!(
            found.0 <= 3.0 && found.1 <= 4.5,
            "{setting:?}: {found:?} twice"
        );
    }
    let root = (squares / f64::from(counted)).sqrt();
    println!(
        "{} settings, {draws} draws each: {beyond} beyond at first; \
        root mean square of the means' deviations {root:.3} standard errors",
        grid.len()
    );
    // Four standard deviations of a root mean square of this number of draws.
    let slack = 4.0 / f64::sqrt(2.0 * f64::from(counted));
    assert!((root - 1.0).abs() < slack, "{root}");
    assert!(beyond <= 4, "{beyond}");
}

#[test]
fn small_messages() {
    check(&small(), 4000);
}

#[test]
fn codes_that_take_time() {
    check(&coding(), 4000);
}

#[test]
fn repairs_in_rounds() {
    check(&rounds(), 4000);
}

/// With chunks of many packets, what a chunk misses depends on how often it was sent. The model takes the share of a long
/// message for Go-back-N, and for selective repeat where repetitions come between new chunks (docs/model.md section 5.3).
#[test]
fn long_messages_of_many_packets() {
    for scheme in ["sr-rto", "gbn"] {
        for chunks in [150.0, 1000.0] {
            for loss_packet in [1e-3, 2e-2] {
                let loss = in_packets(loss_packet, 16);
                let setting = setting(scheme, chunks, 19.7, loss, Variant::Protocol);
                let exact = setting.completion_time().unwrap();
                let times = exact.sample(4000, 1);
                let mean = times.iter().sum::<f64>() / times.len() as f64;
                let apart = exact.mean() / mean - 1.0;
                assert!(apart.abs() < 0.02, "{setting:?}: {apart}");
            }
        }
    }
}

#[test]
fn long_haul_messages() {
    check(&long_haul(), 4000);
}

#[test]
fn bursts_of_losses() {
    check(&bursts(), 4000);
}

/// Draws that `make model-check` makes for a setting.
const MANY: usize = 1_000_000;
/// Draws for messages of more than 300 chunks, since the time of a draw grows with the message.
const MANY_LONG: usize = 250_000;

#[test]
#[ignore = "minutes; run by make model-check"]
fn a_million_draws() {
    check(&small(), MANY);
}

#[test]
#[ignore = "a minute; run by make model-check"]
fn a_million_draws_of_the_long_haul_and_of_codes() {
    check(&long_haul(), MANY);
    check(&coding(), MANY);
}

#[test]
#[ignore = "minutes; run by make model-check"]
fn a_million_draws_of_rounds() {
    let is_long = |setting: &Setting| setting.message_bytes > 300.0 * CHUNK_BYTES;
    let (long, short): (Vec<_>, Vec<_>) = rounds().into_iter().partition(is_long);
    check(&short, MANY);
    check(&long, MANY_LONG);
}

#[test]
#[ignore = "minutes; run by make model-check"]
fn a_million_draws_of_bursts() {
    check(&bursts(), MANY);
}
