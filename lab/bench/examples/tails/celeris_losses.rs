//! Celeris Fig. 2 where packets are lost: the rounds of `celeris` with the ACK timeouts and the loss of `losses`.
//!
//! Celeris says that `RoCE`'s tail comes from retransmissions, and names no loss. Here all cables lose packets, with
//! the same probability. The deadline of XP is the median of `RoCE`'s steps plus one standard deviation, so each ACK
//! timeout has a deadline and a panel of its own. All are NICs, which need no round before the measured one.

use std::error::Error;

use farwrite_experiment::CompleteBy;

use crate::celeris::{Setting, Steps, topology};
use crate::losses::COMPARED;
use crate::measure::{Subject, Table};

/// Panels: the ACK timeout of `RoCE`, and its exponent.
const PANELS: [(&str, u32); 3] = [
    ("ACK timeout 4 ms", 10),
    ("ACK timeout 16 ms", 12),
    ("ACK timeout 67 ms", 14),
];
const XP: [(&str, CompleteBy); 2] = [
    ("XP, all bytes", CompleteBy::Bytes),
    ("XP, last packet", CompleteBy::LastPacket),
];

pub(crate) fn measure(setting: &Setting) -> Result<Table, Box<dyn Error>> {
    let mut table = Table::new(
        format!(
            "{}; each cable loses packets; ACK timeouts of RoCE: 4.2, 16.8 and 67.1 ms",
            setting.conditions()
        ),
        "C2",
    );
    let topology = topology(COMPARED)?;
    let roce = PANELS.map(|(_, exponent)| Subject::patient_roce("RoCE", "roce", exponent));
    let of_roce = Steps::of(setting, &topology, &roce, false)?;
    for ((panel, _), reliable) in PANELS.into_iter().zip(of_roce) {
        let place = (panel, COMPARED);
        let deadline_ns = reliable.deadline_ns();
        reliable.write(&mut table, place, "RoCE");
        let subjects = XP.map(|(name, by)| Subject::xp_of_hosts(name, by, deadline_ns));
        let bounded = Steps::of(setting, &topology, &subjects, false)?;
        for ((name, _), steps) in XP.into_iter().zip(&bounded) {
            table.add(
                panel,
                name,
                COMPARED,
                "deadline_ms",
                deadline_ns as f64 / 1e6,
            );
            steps.write(&mut table, place, name);
        }
    }
    Ok(table)
}
