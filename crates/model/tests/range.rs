//! The whole range of arguments: no overflow, no NaN, correct order of results; and errors outside
//! the range.

use std::time::Instant;

use farwrite_model::{Compute, Loss, ModelError, Scheme, Setting, Variant, chunk_loss};
use proptest::prelude::*;

const VARIANTS: [Variant; 3] = [Variant::Paper, Variant::Serial, Variant::Protocol];
const SCHEMES: [&str; 7] = [
    "sr-rto",
    "sr-nack",
    "gbn",
    "ec-mds:32,8",
    "ec-xor:32,8",
    "ec-mds:1,1",
    "ec-mds:200,55",
];

fn parsed(scheme: &str) -> Scheme {
    scheme.parse().unwrap()
}

/// Mean and quantiles are finite, in order, and within their bounds.
fn check(setting: &Setting) {
    let time = setting.completion_time().unwrap();
    let (mean, bounds) = (time.mean(), time.mean_bounds());
    assert!(mean.is_finite(), "{setting:?}");
    let close = 1e-9 * mean;
    assert!(
        bounds.0 <= mean + close && mean <= bounds.1 + close,
        "{mean} {bounds:?} {setting:?}"
    );
    let exact = matches!(setting.loss, Loss::Iid { .. });
    // With bursts, few draws have more than 0.02. The largest of some thousands is 0.04.
    let width = if exact { 1e-3 } else { 5e-2 };
    assert!(
        bounds.1 - bounds.0 <= width * mean,
        "{bounds:?} {setting:?}"
    );
    let mut before = time.lossless_s() * (1.0 - 1e-12);
    for q in [0.0, 1e-6, 0.5, 0.99, 0.999, 1.0 - 1e-6, 1.0 - 1e-9] {
        let t = time.quantile(q).unwrap();
        assert!(
            t.is_finite() && t >= before,
            "{q}: {t} after {before}, {setting:?}"
        );
        before = t * (1.0 - 1e-12);
        let cdf = time.cdf(t).unwrap();
        assert!(cdf >= q - 1e-12, "cdf({t}) = {cdf} < {q}, {setting:?}");
        let (low, high) = time.quantile_bounds(q).unwrap();
        assert!(
            low <= t * (1.0 + 1e-9) && t <= high * (1.0 + 1e-9),
            "{low} {t} {high} {setting:?}"
        );
        let (low, high) = time.cdf_bounds(t).unwrap();
        assert!(
            low - 1e-9 <= cdf && cdf <= high + 1e-9,
            "{low} {cdf} {high} {setting:?}"
        );
        assert!((time.survival(t).unwrap() + cdf - 1.0).abs() < 1e-15);
    }
    assert!(
        mean >= time.quantile(0.0).unwrap() * (1.0 - 1e-12),
        "{setting:?}"
    );
    assert_eq!(time.cdf(0.0), Ok(0.0));
    assert_eq!(time.cdf(f64::NEG_INFINITY), Ok(0.0));
    assert_eq!(time.cdf(f64::INFINITY), Ok(1.0));
    assert!(time.cdf(f64::NAN).is_err());
    for q in [-0.1, 1.0, 1.5, f64::NAN] {
        assert!(time.quantile(q).is_err());
    }
}

#[test]
fn a_byte_to_a_tebibyte_at_any_loss() {
    let mut slowest = (0.0, String::new());
    for variant in VARIANTS {
        for scheme in SCHEMES {
            for message_bytes in [1.0, 4096.0, 1e6, 2f64.powi(30), 2f64.powi(40)] {
                for loss in [0.0, 1e-12, 1e-6, 1e-3, 0.03, 0.5] {
                    let mut setting =
                        Setting::new(parsed(scheme), message_bytes, 400e9, 25e-3, loss);
                    setting.variant = variant;
                    let begin = Instant::now();
                    check(&setting);
                    let took = begin.elapsed().as_secs_f64();
                    if took > slowest.0 {
                        slowest = (took, format!("{setting:?}"));
                    }
                }
            }
        }
    }
    println!("slowest: {} s, {}", slowest.0, slowest.1);
}

/// Long groups always fail at this loss, so that the first reports ask for chunks of all groups.
#[test]
fn groups_that_always_fail_are_repaired() {
    for scheme in [
        "ec-xor:128,1",
        "ec-mds:128,1",
        "ec-xor:128,3",
        "ec-mds:128,32",
        "ec-xor:254,1",
        "ec-mds:1,254",
    ] {
        for (loss_chunk, packets_per_chunk) in [(0.3, 1), (0.5, 1), (0.99, 16)] {
            let mut setting = protocol(scheme, 1e6, 3e5, 0.0);
            setting.loss = Loss::Iid {
                loss_chunk,
                packets_per_chunk,
            };
            check(&setting);
        }
    }
}

fn protocol(scheme: &str, chunks: f64, rtt_slots: f64, loss: f64) -> Setting {
    let rtt_s = rtt_slots * 4096.0 * 8.0 / 400e9;
    let mut setting = Setting::new(parsed(scheme), chunks * 4096.0, 400e9, rtt_s, loss);
    setting.variant = Variant::Protocol;
    setting
}

#[test]
fn without_loss_the_protocol_takes_the_papers_time() {
    for scheme in SCHEMES {
        for chunks in [6400.0, 1_280_000.0] {
            let ours = protocol(scheme, chunks, 3e5, 0.0);
            let mut paper = ours.clone();
            paper.variant = Variant::Paper;
            let [ours, paper] = [ours, paper].map(|setting| setting.completion_time().unwrap());
            assert!((ours.mean() / paper.mean() - 1.0).abs() < 1e-12, "{scheme}");
            assert!((ours.quantile(0.999).unwrap() / paper.mean() - 1.0).abs() < 1e-9);
        }
    }
}

#[test]
fn what_the_protocol_variant_cannot_do_is_refused() {
    let refused = |setting: &Setting, want: &str| {
        let error = setting.completion_time().unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    };
    refused(&protocol("sr-nack", 10.0, 100.0, 0.6), "at most 0.5");
    let mut bursts = protocol("sr-nack", 10.0, 100.0, 0.0);
    bursts.loss = Loss::Markov {
        p_good_to_bad: 0.01,
        p_bad_to_good: 0.3,
        loss_good: 0.0,
        loss_bad: 0.8,
        packets_per_chunk: 1,
    };
    refused(&bursts, "independent losses");
    let [wide, widest] = ["ec-mds:200,56", "ec-mds:200,55"];
    refused(&protocol(wide, 10.0, 100.0, 0.1), "at most 255");
    assert!(protocol(widest, 10.0, 100.0, 0.1).completion_time().is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_setting_has_sane_answers(
        scheme in prop::sample::select(&SCHEMES[..]),
        message_log in 0.0..30.0f64,
        bandwidth_log in 3.0..13.0f64,
        rtt_log in -7.0..1.0f64,
        loss_log in -15.0..-0.3f64,
        chunk_log in 6.0..17.0f64,
        rto_rtts in prop::option::of(1.0..8.0f64),
        beta in 0.0..3.0f64,
        variant in prop::sample::select(&VARIANTS[..]),
        coding in prop::option::of(6.0..13.0f64),
    ) {
        let setting = Setting {
            scheme: parsed(scheme),
            message_bytes: message_log.exp2().floor(),
            bandwidth_bps: 10f64.powf(bandwidth_log),
            rtt_s: 10f64.powf(rtt_log),
            loss: Loss::iid(10f64.powf(loss_log)),
            chunk_bytes: chunk_log.exp2().floor(),
            rto_rtts,
            beta,
            variant,
            compute: Compute {
                encode_bps: coding.filter(|_| variant != Variant::Paper).map(|log| 10f64.powf(log)),
                decode_bps: coding.filter(|_| variant != Variant::Paper).map(|log| 3.0 * 10f64.powf(log)),
            },
        };
        check(&setting);
    }

    #[test]
    fn the_protocol_has_sane_answers(
        scheme in prop::sample::select(&SCHEMES[..]),
        chunks_log in 0.0..24.0f64,
        rtt_log in -2.0..6.0f64,
        loss_log in -15.0..-0.31f64,
        packets in prop::sample::select(&[1, 2, 16, 1000][..]),
    ) {
        let loss_chunk = chunk_loss(10f64.powf(loss_log), packets).unwrap().min(0.99);
        let mut setting = protocol(scheme, chunks_log.exp2().floor(), 10f64.powf(rtt_log), 0.0);
        setting.loss = Loss::Iid { loss_chunk, packets_per_chunk: packets };
        check(&setting);
    }

    /// Erasure coding of whole groups, with a message shorter than the round trip: the protocol
    /// gives a group up earlier, and repeats fewer chunks in shorter periods. Only messages whose
    /// offer or end is lost are later.
    #[test]
    fn coded_repairs_in_rounds_are_faster_than_in_the_paper(
        scheme in prop::sample::select(&["ec-mds:32,8", "ec-xor:32,8", "ec-mds:5,2"][..]),
        groups in 1u32..500,
        rtt_slots in 25_000.0..1e6f64,
        loss_log in -9.0..-1.0f64,
        q in 0.0..0.9999f64,
    ) {
        let Scheme::Ec { k, .. } = parsed(scheme) else { unreachable!() };
        let chunks = f64::from(groups * k);
        let setting = protocol(scheme, chunks, rtt_slots, 10f64.powf(loss_log));
        let [paper, ours] = [Variant::Paper, Variant::Protocol].map(|variant| {
            Setting { variant, ..setting.clone() }.completion_time().unwrap()
        });
        let late_s = setting.rtt_s / 32.0;
        let Loss::Iid { loss_chunk, .. } = setting.loss else { unreachable!() };
        let later = 2.0 * loss_chunk * late_s;
        prop_assert!(ours.mean() <= (paper.mean() + later) * (1.0 + 1e-12));
        let slowest = paper.quantile(q).unwrap() + late_s;
        prop_assert!(ours.quantile(q).unwrap() <= slowest * (1.0 + 1e-9));
    }

    /// Reports that wait for later chunks, and that can be lost, are slower than those of the paper.
    #[test]
    fn reports_of_the_protocol_are_slower_than_in_the_paper(
        chunks in 1.0..1e6f64,
        rtt_slots in 8.0..1e6f64,
        loss_log in -9.0..-0.4f64,
        q in 0.0..0.9999f64,
    ) {
        let setting = protocol("sr-nack", chunks.floor(), rtt_slots, 10f64.powf(loss_log));
        let ours = setting.completion_time().unwrap();
        let paper = Setting { variant: Variant::Paper, ..setting }.completion_time().unwrap();
        prop_assert!(ours.mean() >= paper.mean() * (1.0 - 1e-12));
        prop_assert!(ours.quantile(q).unwrap() >= paper.quantile(q).unwrap() * (1.0 - 1e-9));
    }

    /// Repeated chunks only delay other chunks, and Go-Back-N delays them more.
    #[test]
    fn schemes_and_variants_are_in_order(
        chunks in 1.0..1e6f64,
        rtt_slots in 1.0..1e5f64,
        loss_log in -9.0..-0.4f64,
        q in 0.0..0.9999f64,
    ) {
        let slot_s = 4096.0 * 8.0 / 400e9;
        let rtt_slots = rtt_slots.ceil();
        let mut setting = Setting::new(Scheme::SrNack, chunks.floor() * 4096.0, 400e9,
            rtt_slots * slot_s, 10f64.powf(loss_log));
        let paper = setting.completion_time().unwrap();
        setting.variant = Variant::Serial;
        let serial = setting.completion_time().unwrap();
        setting.scheme = Scheme::GoBackN;
        let back = setting.completion_time().unwrap();
        for (less, more) in [(&paper, &serial), (&serial, &back)] {
            prop_assert!(less.mean() <= more.mean() * (1.0 + 1e-9));
            prop_assert!(less.quantile(q).unwrap() <= more.quantile(q).unwrap() * (1.0 + 1e-6));
        }
        // If all chunks are sent before the first timeout, the paper's formula is exact, except
        // that we round the timeout up to a whole slot.
        if chunks.floor() <= rtt_slots {
            prop_assert!((paper.mean() / serial.mean() - 1.0).abs() < 1e-6 + 1.0 / rtt_slots);
        }
    }
}

proptest! {
    // Fewer cases, because matrices are slower than formulas.
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// Under Markov loss: the same properties, or an error with advice.
    #[test]
    fn bursts_have_sane_answers_too(
        scheme in prop::sample::select(&SCHEMES[..]),
        message_log in 0.0..25.0f64,
        rtt_log in -6.0..0.0f64,
        good_log in -6.0..0.0f64,
        bad_log in -3.0..0.0f64,
        loss_good_log in -12.0..-1.0f64,
        loss_bad in 0.0..1.0f64,
        packets_per_chunk in 1..20u32,
        serial in any::<bool>(),
    ) {
        let mut setting = Setting::new(parsed(scheme), message_log.exp2().floor(), 100e9,
            10f64.powf(rtt_log), 0.0);
        setting.loss = Loss::Markov {
            p_good_to_bad: 10f64.powf(good_log),
            p_bad_to_good: 10f64.powf(bad_log),
            loss_good: 10f64.powf(loss_good_log),
            loss_bad,
            packets_per_chunk,
        };
        setting.variant = if serial { Variant::Serial } else { Variant::Paper };
        match setting.completion_time() {
            Ok(_) => check(&setting),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.contains("take") || text.contains("loss_chunk"), "{text}");
            }
        }
    }
}

#[test]
fn bad_arguments_are_named_with_unit_and_value() {
    let good = Setting::new(Scheme::SrRto, 1e6, 400e9, 25e-3, 1e-5);
    assert!(good.completion_time().is_ok());
    type Put = fn(&mut Setting, f64);
    let set: [(&str, &str, Put); 6] = [
        ("message_bytes", "bytes", |s, x| s.message_bytes = x),
        ("bandwidth_bps", "bit/s", |s, x| s.bandwidth_bps = x),
        ("rtt_s", "s", |s, x| s.rtt_s = x),
        ("chunk_bytes", "bytes", |s, x| s.chunk_bytes = x),
        ("rto_rtts", "round trips", |s, x| s.rto_rtts = Some(x)),
        ("loss_chunk", "as a probability", |s, x| {
            s.loss = Loss::iid(x);
        }),
    ];
    for (name, unit_name, put) in set {
        for bad in [-1.0, 0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            if name == "loss_chunk" && bad == 0.0 {
                continue;
            }
            let mut setting = good.clone();
            put(&mut setting, bad);
            match setting.completion_time().unwrap_err() {
                ModelError::Argument {
                    argument,
                    unit,
                    value,
                    ..
                } => {
                    assert_eq!((argument, unit), (name, unit_name));
                    assert!(value == bad || value.is_nan() && bad.is_nan());
                }
                other => panic!("{other}"),
            }
        }
    }
    let mut setting = good.clone();
    setting.rtt_s = -0.025;
    let error = setting.completion_time().unwrap_err().to_string();
    assert_eq!(error, "rtt_s = -0.025 s: must be finite and above zero");
    setting = good.clone();
    setting.compute.encode_bps = Some(1e9);
    assert!(setting.completion_time().is_err());
    setting = good.clone();
    setting.beta = f64::NAN;
    assert!(setting.completion_time().is_err());
    setting = good;
    setting.message_bytes = 1e18;
    assert!(setting.completion_time().is_err());
}
