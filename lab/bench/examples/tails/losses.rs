//! OptiNIC's Figs. 5 and 6 where packets are lost: `AllReduce` of 20 MB by loss, ACK timeout, PFC and buffer.
//!
//! The paper names neither the loss of its network nor the ACK timeout of its NICs. Here, all cables lose packets,
//! with the same probability, and RoCE has the timeouts 10, 12 and 14 of InfiniBand: 4.096 us, doubled as many times.
//! With 7 retries, the default, some connections would break where switches drop packets of bursts, so all have 255.
//! Network, collectives and timeouts of best effort are those of `optinic`. Warm-ups of endpoints lose packets too.
//!
//! XP is there three times: with a queue pair for each message; with one for each two hosts, where a message ends the
//! one before it (`OptiNIC`, section 3.1.2); and the latter with completion by all bytes (section 3.1).

use std::error::Error;

use farwrite_experiment::CompleteBy;

use crate::measure::{BOUNDED, Subject, Table};
use crate::optinic::{COLLECTIVES, Setting, Times, WARM_UP_NS, WARM_UPS, topology};
use crate::xp::{XP, timeout_ns as xp_timeout_ns};

/// Probabilities that a cable loses a packet. Each packet passes two cables.
const LOSSES: [f64; 6] = [0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2];
/// The loss of the numbers that are compared with the papers', which other programs take too.
pub(crate) const COMPARED: f64 = 1e-3;

/// RoCE: the name in the figure, the protocol, and the ACK timeout of InfiniBand.
const ROCE: [(&str, &str, u32); 6] = [
    ("RoCE, 4 ms", "roce", 10),
    ("RoCE, 16 ms", "roce", 12),
    ("RoCE, 67 ms", "roce", 14),
    ("RoCE, no PFC, 4 ms", "roce-lossy", 10),
    ("RoCE, no PFC, 16 ms", "roce-lossy", 12),
    ("RoCE, no PFC, 67 ms", "roce-lossy", 14),
];

/// Other traffic, and the buffer of the switch.
pub(crate) struct Panel {
    pub(crate) name: &'static str,
    has_bursts: bool,
    buffer_kb: u64,
}

impl Panel {
    /// The network and the bursts of the panel.
    pub(crate) fn of(&self, setting: &Setting) -> Setting {
        Setting {
            buffer_kb: self.buffer_kb,
            senders: if self.has_bursts { setting.senders } else { 0 },
            ..*setting
        }
    }
}

/// The panels. `buffer_kb` is that of the last one.
pub(crate) fn panels(setting: &Setting, small_kb: u64) -> [Panel; 3] {
    let panel = |name, has_bursts, buffer_kb| Panel {
        name,
        has_bursts,
        buffer_kb,
    };
    [
        panel("no other traffic", false, setting.buffer_kb),
        panel("bursts", true, setting.buffer_kb),
        panel("bursts, small buffer", true, small_kb),
    ]
}

/// XP with queue pairs of hosts: the name in the figure, and what completes a message.
pub(crate) const OF_HOSTS: [(&str, CompleteBy); 2] = [
    ("XP, hosts", CompleteBy::LastPacket),
    ("XP, hosts, all bytes", CompleteBy::Bytes),
];

/// RoCE with all timeouts, and the reliable transports whose timeouts follow from the path.
fn reliable() -> Vec<Subject> {
    let roce =
        ROCE.map(|(name, protocol, exponent)| Subject::patient_roce(name, protocol, exponent));
    let others = [
        ("IRN", "irn"),
        ("SRNIC", "srnic"),
        ("Falcon", "falcon"),
        ("UCCL", "uccl"),
    ];
    let others = others.map(|(name, protocol)| Subject::patient(name, protocol, None));
    roce.into_iter().chain(others).collect()
}

pub(crate) fn measure(setting: Setting, small_kb: u64) -> Result<Table, Box<dyn Error>> {
    let (_, steps) = COLLECTIVES[0];
    let tensor = format!("{} MB", setting.tensor_mb);
    let mut table = Table::new(
        format!(
            "{}; a buffer of {small_kb} kB where it is small; each cable loses packets; ACK timeouts of RoCE: 4.2, \
             16.8 and 67.1 ms; timeout of a step of best effort and XP: 1.25 warm-ups and 50 us",
            setting.conditions(&tensor)
        ),
        "OL",
    );
    let [_, _, _, swift, eqds] = BOUNDED;
    let members = [swift, eqds];
    for panel in panels(&setting, small_kb) {
        let own = panel.of(&setting);
        // With the buffer that is not small.
        let buffer_kb = setting.buffer_kb;
        let xp_timeout_ns = xp_timeout_ns(&Setting { buffer_kb, ..own }, steps)?;
        for loss in LOSSES {
            let topology = topology(loss)?;
            // Neither has a fixed rate.
            let warm_ups = members.map(|member| Subject::bounded(member, WARM_UP_NS, 0));
            let runs = (steps, own.runs.min(WARM_UPS));
            let warm = Times::of(&own, &topology, &warm_ups, runs)?;
            let mut subjects = reliable();
            let xp_timeout_ms = xp_timeout_ns as f64 / 1e6;
            table.add(panel.name, XP.0, loss, "timeout_ms", xp_timeout_ms);
            subjects.push(Subject::bounded(XP, xp_timeout_ns, 0));
            subjects
                .extend(OF_HOSTS.map(|(name, by)| Subject::xp_of_hosts(name, by, xp_timeout_ns)));
            for (member, warm) in members.into_iter().zip(warm) {
                let timeout_ns = warm.timeout_ns(steps);
                let timeout_ms = timeout_ns as f64 / 1e6;
                table.add(panel.name, member.0, loss, "timeout_ms", timeout_ms);
                subjects.push(Subject::bounded(member, timeout_ns, 0));
            }
            let times = Times::of(&own, &topology, &subjects, (steps, own.runs))?;
            for (subject, times) in subjects.iter().zip(times) {
                let place = (panel.name, loss);
                times.write(&mut table, place, subject.name);
                times.write_spread(&mut table, place, subject.name);
            }
        }
    }
    Ok(table)
}
