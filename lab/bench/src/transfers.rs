//! Measures complete transfers over the virtual-time fabric, as in the scenario tests.

use std::time::Duration;

use farwrite::fabric::sim::LinkConfig;
use farwrite::{QpOptions, RateControl, Region, SendOptions};
use farwrite_link::Loss;

use crate::Failure;
use crate::meter::{Meter, Usage};
use crate::sim::SimEnds;
use crate::table;
use farwrite_units::stats::median;

/// Transfers per run.
const TRANSFERS: u32 = 1000;
/// Bytes of one transfer.
const BYTES: usize = 256 * 1024;
/// Loss of each direction.
const LOSS_PACKET: f64 = 0.01;
/// Round trip.
const RTT: Duration = Duration::from_millis(25);
const RATE_BPS: u64 = 10_000_000_000;

/// Runs transfers, and prints transfers per second.
pub(crate) fn run(runs: usize) -> Result<(), Failure> {
    let usages: Vec<_> = (0..runs).map(|_| transfers()).collect::<Result<_, _>>()?;
    let of = |what: &dyn Fn(&Usage) -> f64| format!("{:.0}", median(usages.iter().map(what)));
    let rows = [[
        "256 KiB at 1 % loss".to_owned(),
        of(&|usage| f64::from(TRANSFERS) / usage.wall.as_secs_f64()),
        of(&|usage| f64::from(TRANSFERS) / usage.cpu.as_secs_f64()),
    ]];
    let title = format!(
        "transfers: simulated, each with a network, two endpoints and queue pairs of its own; \
         medians of\n{runs} runs of {TRANSFERS}."
    );
    table::print(&title, ["", "per second", "per core-second"], &rows);
    Ok(())
}

/// Runs transfers one after another, each with its own seed and network. The measurement includes
/// everything: creating network, endpoints and queue pairs, connecting, registering, the transfer
/// until its acknowledgement, comparing the bytes, and tear-down. The two buffers are reused.
fn transfers() -> Result<Usage, Failure> {
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(BYTES).collect();
    let mut source = Region::owned(bytes.clone());
    let mut target = Region::owned(vec![0_u8; BYTES]);
    let meter = Meter::start();
    for seed in 0..TRANSFERS {
        target.fill(0);
        (source, target) = transfer(seed.into(), source, target)?;
        if *target != bytes[..] {
            return Err(format!("transfer {seed} arrived damaged").into());
        }
    }
    Ok(meter.read())
}

/// Sends one buffer to the other, and returns both.
fn transfer(seed: u64, source: Region, target: Region) -> Result<(Region, Region), Failure> {
    let mut ends = SimEnds::new(
        seed,
        LinkConfig {
            delay: RTT / 2,
            rate_bps: Some(RATE_BPS),
            loss: Loss::Iid {
                loss_packet: LOSS_PACKET,
            },
            ..LinkConfig::default()
        },
    )?;
    let [tx_qp, rx_qp] = ends.connect(&QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: RATE_BPS / 10 * 9,
        },
        initial_rtt: RTT,
        ..QpOptions::default()
    })?;
    let target = ends.rx.register_region(target)?;
    ends.rx.post_recv(rx_qp, target.whole())?;
    let source = ends.tx.register_region(source)?;
    let send = ends
        .tx
        .post_send(tx_qp, source.whole(), SendOptions::default())?;
    ends.run_until(Duration::ZERO, || send.outcome().is_some())?;
    Ok((ends.tx.deregister(source)?, ends.rx.deregister(target)?))
}
