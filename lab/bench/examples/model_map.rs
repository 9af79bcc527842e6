//! The map of the paper's Fig. 9: which scheme is fastest, by message size and loss.
//!
//! `cargo run --release -p farwrite-bench --example model_map` prints the ratio of the means of
//! selective repeat and MDS(32,8), and the time to evaluate the mean and p99.9 of four schemes in
//! all 17 x 9 cells.

use std::time::Instant;

use farwrite_model::{ModelError, Scheme, Setting};

const SCHEMES: [&str; 4] = ["sr-rto", "sr-nack", "ec-xor:32,8", "ec-mds:32,8"];

fn main() -> Result<(), ModelError> {
    let sizes: Vec<f64> = (0..17).map(|i| 2f64.powi(17 + i)).collect();
    let losses: Vec<f64> = (0..9).map(|i| 10f64.powi(i - 9)).collect();
    let mut schemes = Vec::new();
    for name in SCHEMES {
        schemes.push(name.parse::<Scheme>()?);
    }
    let begin = Instant::now();
    let mut map = Vec::new();
    for &size in &sizes {
        for &loss in &losses {
            let mut cell = Vec::new();
            for &scheme in &schemes {
                let time = Setting::new(scheme, size, 400e9, 25e-3, loss).completion_time()?;
                cell.push((time.mean(), time.quantile(0.999)?));
            }
            map.push(cell);
        }
    }
    let took = begin.elapsed();
    println!("mean of sr-rto / mean of ec-mds:32,8; 400 Gbit/s, 25 ms");
    print!("{:>10}", "KiB");
    for loss in &losses {
        print!("{loss:>8.0e}");
    }
    println!();
    for (size, row) in sizes.iter().zip(map.chunks(losses.len())).rev() {
        print!("{:>10}", size / 1024.0);
        for cell in row {
            print!("{:>8.2}", cell[0].0 / cell[3].0);
        }
        println!();
    }
    println!(
        "{} means and as many p99.9 in {took:?}",
        map.len() * SCHEMES.len()
    );
    Ok(())
}
