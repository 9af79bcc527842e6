//! Go-Back-N in a local network and over a long path.

use std::time::Duration;

use crate::case::{Case, Restart, spaced};
use crate::rows::Rows;
use crate::{LONG, Options, iid};

const LAN: Duration = Duration::from_micros(10);
/// The settings of the paper, with the round trip and the ACK timeout of each.
const SETTINGS: [(&str, Duration, Option<Duration>); 3] = [
    ("LAN", LAN, None),
    ("LAN, short timeout", LAN, Some(Duration::from_micros(100))),
    ("WAN", Duration::from_millis(40), None),
];
/// Up to where the paper sees goodput fall in the local network.
const LOSSES: [f64; 9] = [0.0, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2];

/// L3.
pub(crate) fn of_all(options: &Options, rows: &Rows) {
    for (name, rtt, ack_timeout) in SETTINGS {
        let restart = Restart {
            ack_timeout,
            ..Restart::default()
        };
        let case = Case {
            rtt,
            restart,
            ..options.case()
        };
        let timeout = ack_timeout.map(|of| format!(", ACK timeout of {}", spaced(of)));
        let conditions = case.goodput_conditions(LONG) + &timeout.unwrap_or_default();
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
