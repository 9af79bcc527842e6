//! Go-Back-N in a local network and over a long path.

use std::time::Duration;

use crate::case::Case;
use crate::rows::Rows;
use crate::{LONG, Options, iid};

/// The settings of the paper, and the round trip of each.
const SETTINGS: [(&str, Duration); 2] = [
    ("LAN", Duration::from_micros(10)),
    ("WAN", Duration::from_millis(40)),
];
/// Up to where the paper sees goodput fall in the local network.
const LOSSES: [f64; 9] = [0.0, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2];

/// L3.
pub(crate) fn of_all(options: &Options, rows: &Rows) {
    for (name, rtt) in SETTINGS {
        let case = Case {
            rtt,
            ..options.case()
        };
        let conditions = case.goodput_conditions(LONG);
        let panel = rows.panel("L3", name, &conditions);
        println!("{name}, Go-Back-N, goodput in Gbit/s, {}", case.runs());
        let columns = options.connections.iter();
        let columns: String = columns.map(|count| format!(" {count:>8}")).collect();
        println!("{:>8}{columns} connections", "loss");
        for loss in LOSSES {
            print!("{loss:>8.0e}");
            for &connections in &options.connections {
                let case = Case {
                    loss: iid(loss),
                    connections,
                    ..case
                };
                let goodput = case.goodput(&|_| None);
                let series = format!("connections: {connections}");
                goodput.add_to(&panel, &series, loss, case.runs);
                print!(" {:>8.3}", goodput.mean);
            }
            println!();
        }
    }
    println!("paper: 9.21 over the WAN without losses, 2.92 at 1e-5, nearly 0 above 1e-3; in the");
    println!("       LAN it falls beyond 5e-3; 32 connections have no more than 16");
}
