//! Asks the model itself what the page must show, and prints it as JSON. `tests/explorer` compares.
//!
//! It shares only the model with the WebAssembly of the page.

use std::collections::BTreeMap;

use farwrite_model::{CompletionTime, ModelError, Scheme, Setting, Variant, chunk_loss};
use serde_json::{Value, json};

/// One state of the page.
struct Case {
    distance_km: f64,
    km_per_s: f64,
    rate_gbps: f64,
    loss: f64,
    size_mib: f64,
    group: (u32, u32),
    packets: u32,
    variant: Variant,
    by: &'static str,
}

const USUAL: Case = Case {
    distance_km: 3750.0,
    km_per_s: 300_000.0,
    rate_gbps: 400.0,
    loss: 1e-4,
    size_mib: 128.0,
    group: (32, 8),
    packets: 1,
    variant: Variant::Paper,
    by: "mean",
};

fn cases() -> Vec<Case> {
    vec![
        USUAL,
        Case {
            loss: 1e-5,
            by: "p99.9",
            ..USUAL
        },
        Case {
            distance_km: 120.5,
            rate_gbps: 12.5,
            size_mib: 0.3,
            loss: 0.02,
            by: "p99",
            ..USUAL
        },
        Case {
            variant: Variant::Serial,
            size_mib: 4096.0,
            distance_km: 1000.0,
            km_per_s: 204_000.0,
            ..USUAL
        },
        Case {
            variant: Variant::Serial,
            packets: 16,
            loss: 1e-3,
            group: (20, 5),
            by: "p50",
            ..USUAL
        },
        // An XOR code never has more parity than data. Ten times this loss is not a probability.
        Case {
            group: (4, 6),
            loss: 0.3,
            by: "p99.9",
            ..USUAL
        },
    ]
}

impl Case {
    fn time(&self, scheme: &str, loss: f64, size_mib: f64) -> Result<CompletionTime, ModelError> {
        Setting {
            chunk_bytes: 4096.0 * f64::from(self.packets),
            variant: self.variant,
            ..Setting::new(
                scheme.parse::<Scheme>()?,
                size_mib * 1_048_576.0,
                self.rate_gbps * 1e9,
                2.0 * self.distance_km / self.km_per_s,
                chunk_loss(loss, self.packets)?,
            )
        }
        .completion_time()
    }

    /// The time that the page compares schemes by.
    fn judged(&self, scheme: &str, loss: f64, size_mib: f64) -> Option<f64> {
        let time = self.time(scheme, loss, size_mib).ok()?;
        match self.by {
            "mean" => Some(time.mean()),
            "p50" => time.quantile(0.5).ok(),
            "p99" => time.quantile(0.99).ok(),
            _ => time.quantile(0.999).ok(),
        }
    }

    fn schemes(&self) -> [(&'static str, String); 5] {
        let (k, m) = self.group;
        [
            ("R", "sr-rto".to_owned()),
            ("N", "sr-nack".to_owned()),
            ("G", "gbn".to_owned()),
            ("M", format!("ec-mds:{k},{m}")),
            ("X", format!("ec-xor:{k},{m}")),
        ]
    }

    fn figures(&self, scheme: &str) -> Value {
        let Ok(time) = self.time(scheme, self.loss, self.size_mib) else {
            return Value::Null;
        };
        json!({
            "mean": time.mean(),
            "p50": time.quantile(0.5).ok(),
            "p99": time.quantile(0.99).ok(),
            "p99.9": time.quantile(0.999).ok(),
        })
    }

    fn fragment(&self) -> String {
        let (k, m) = self.group;
        format!(
            "#distance_km={}&rate_gbps={}&loss={}&size_mib={}&k={k}&m={m}&packets={}&signal={}&variant={}&by={}",
            self.distance_km,
            self.rate_gbps,
            self.loss,
            self.size_mib,
            self.packets,
            if self.km_per_s < 300_000.0 {
                "fibre"
            } else {
                "vacuum"
            },
            if self.variant == Variant::Paper {
                "paper"
            } else {
                "serial"
            },
            self.by,
        )
    }

    /// For each scheme: its figures, its time at a tenth, once and ten times the loss, and its time
    /// in each cell of the map, from the largest size to the smallest.
    fn expected(&self) -> Value {
        let each = |of: &dyn Fn(&str) -> Value| -> BTreeMap<&str, Value> {
            let schemes = self.schemes();
            schemes
                .iter()
                .map(|(letter, name)| (*letter, of(name)))
                .collect()
        };
        let losses: Vec<f64> = (0..9).map(|i| 10f64.powi(i - 9)).collect();
        let map: Vec<Vec<_>> = (0..17)
            .map(|row| {
                let size_mib = 2f64.powi(13 - row);
                let cell = |loss: &f64| each(&|name| json!(self.judged(name, *loss, size_mib)));
                losses.iter().map(cell).collect()
            })
            .collect();
        json!({
            "fragment": self.fragment(),
            "figures": each(&|name| self.figures(name)),
            "wrong": each(&|name| {
                let by = |factor| self.judged(name, self.loss * factor, self.size_mib);
                json!([by(0.1), by(1.0), by(10.0)])
            }),
            "map": map,
        })
    }
}

fn main() {
    let expected: Vec<Value> = cases().iter().map(Case::expected).collect();
    println!("{}", json!(expected));
}
