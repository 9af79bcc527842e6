//! Go-Back-N with what is known of the paper's NIC: a slow restart, and other timeouts.

use std::time::Duration;

use crate::case::{Case, Restart, spaced};
use crate::rows::Rows;
use crate::{LONG, Options, iid};

/// Windows after a retransmission, in packets; 0: the whole window.
const WINDOWS: [u32; 4] = [0, 1024, 4096, 16_384];
/// Timeouts are 4.096 us times a power of two (IBTA, "Local ACK Timeout"): 67 ms is the default of perftest,
/// with which the paper has measured. The first one of an adaptive retransmission is not known.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 14);
const FIRST: Duration = Duration::from_nanos(4096 << 12);
/// Those of the paper's ratios are 1e-5 and 1e-4.
const LOSSES: [f64; 3] = [0.0, 1e-5, 1e-4];

/// L9, with NICs that may be like the paper's.
pub(crate) fn of_all(options: &Options, rows: &Rows) {
    for rtt in options.rtts() {
        of_path(options, rtt, rows);
    }
}

fn of_path(options: &Options, rtt: Duration, rows: &Rows) {
    let case = Case {
        rtt,
        ..options.case()
    };
    let name = format!("{}, NICs", spaced(rtt));
    let panel = rows.panel("L9", &name, &case.goodput_conditions(LONG));
    println!(
        "round trip {rtt:?}, Go-Back-N, goodput in Gbit/s, {}",
        case.runs()
    );
    let head = LOSSES.map(|loss| format!(" {loss:>8.0e}")).concat();
    println!("{:>34}{head}", "");
    for (timeout, restart) in timeouts() {
        for window in WINDOWS {
            let slow_restart_packets = (window > 0).then_some(window);
            let restart = Restart {
                slow_restart_packets,
                ..restart
            };
            let from = slow_restart_packets.map_or("the window".into(), |from| from.to_string());
            let series = format!("timeout {timeout}, restart from {from}");
            print!("{series:>34}");
            for loss in LOSSES {
                let case = Case {
                    restart,
                    loss: iid(loss),
                    ..case
                };
                let goodput = case.goodput(&|_| None);
                goodput.add_to(&panel, &series, loss, case.runs);
                print!(" {:>8.3}", goodput.mean);
            }
            println!();
        }
    }
}

/// The timeouts, with a name for each.
fn timeouts() -> [(String, Restart); 3] {
    let fixed = |ack_timeout| Restart {
        ack_timeout,
        ..Restart::default()
    };
    let ms = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
    let adaptive = Restart {
        first_timeout: Some(FIRST),
        ..fixed(Some(TIMEOUT))
    };
    [
        ("4 round trips".into(), fixed(None)),
        (ms(TIMEOUT), fixed(Some(TIMEOUT))),
        (format!("{} to {}", ms(FIRST), ms(TIMEOUT)), adaptive),
    ]
}
