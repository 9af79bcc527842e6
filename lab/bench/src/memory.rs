//! Measures the memory of an idle queue pair after use, beside what a NIC keeps of a queue pair of XP.

use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

use farwrite::fabric::sim::LinkConfig;
use farwrite::{
    Endpoint, Error, Fabric, MemoryRegion, Outcome, QpOptions, QueuePair, SendHandle, SendOptions,
};

use farwrite_rc::xp::{Context, DcqcnContext};

use crate::Failure;
use crate::counting::count;
use crate::rows::Rows;
use crate::sim::SimEnds;
use crate::table;

/// Queue pairs at each end.
const QUEUE_PAIRS: usize = 1_000;
/// Bytes of a message: one packet.
const MESSAGE_BYTES: usize = 4096;
/// Time between polls. Each poll polls every queue pair.
const GRAIN: Duration = Duration::from_millis(1);

/// Creates queue pairs, uses all slots of each once in both directions, and prints the memory that
/// they keep. Writes it to `csv` too, with the bytes of XP, for claim OT4.
pub(crate) fn run(csv: Option<&Path>) -> Result<(), Failure> {
    let options = QpOptions::default();
    let mut ends = Ends::new()?;
    // Allocate first what the ends need independent of the number of queue pairs.
    ends.use_all_slots(&options)?;
    let resident = resident_bytes()?;
    let (used, allocated) = count(|| -> Result<(), Failure> {
        for _ in 0..QUEUE_PAIRS {
            ends.use_all_slots(&options)?;
        }
        ends.sim
            .rest(Duration::from_secs(1), Duration::from_secs(60))
    });
    used?;
    let resident = resident_bytes()?.saturating_sub(resident);
    // Both ends are in this process.
    let each = |bytes: usize| bytes / (2 * QUEUE_PAIRS);
    let allocated = each(usize::try_from(allocated).unwrap_or(0));
    let rows = [
        ["allocated".to_owned(), kib(allocated), "1024".to_owned()],
        ["resident".to_owned(), kib(each(resident)), "8".to_owned()],
    ];
    let title = format!(
        "memory: of an idle queue pair with its part of the fabric, KiB, as the mean of \
         {QUEUE_PAIRS} at each end.\nOne channel, {} slots of {} MiB with parity; all slots were \
         used once in both directions, no message is\nopen and no handle is left.",
        options.sdr.slots,
        options.sdr.max_message_bytes >> 20,
    );
    table::print(&title, ["", "KiB", "goal"], &rows);
    write_rows(allocated, csv);
    Ok(())
}

/// Writes the bytes of a queue pair of an endpoint, and those of XP in the memory of a NIC.
fn write_rows(endpoint_bytes: usize, csv: Option<&Path>) {
    let rows = Rows::new();
    let conditions = format!(
        "queue pairs of an endpoint: idle, with default options, after use of all slots, the mean of {QUEUE_PAIRS} \
         at each end"
    );
    let panel = rows.panel("OT4", "state", &conditions);
    for (series, bytes) in [
        ("XP", size_of::<Context>()),
        ("XP, transport", Context::TRANSPORT_BYTES),
        ("XP, DCQCN", size_of::<DcqcnContext>()),
        ("endpoint", endpoint_bytes),
    ] {
        panel.add(series, 0.0, "bytes", bytes as f64);
    }
    rows.write(csv);
}

fn kib(bytes: usize) -> String {
    format!("{:.1}", bytes as f64 / 1024.0)
}

/// Resident memory of this process.
fn resident_bytes() -> Result<usize, Failure> {
    let status = read_to_string("/proc/self/status")?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .ok_or("no resident memory in /proc/self/status")?;
    Ok(resident.parse::<usize>()? << 10)
}

/// Two endpoints, each with memory for sending and receiving.
struct Ends {
    sim: SimEnds,
    tx_memory: MemoryRegion,
    rx_memory: MemoryRegion,
}

impl Ends {
    fn new() -> Result<Self, Failure> {
        let link = LinkConfig {
            delay: Duration::from_micros(500),
            ..LinkConfig::default()
        };
        let mut sim = SimEnds::new(1, link)?;
        Ok(Self {
            tx_memory: sim.tx.register(vec![1; MESSAGE_BYTES])?,
            rx_memory: sim.rx.register(vec![2; MESSAGE_BYTES])?,
            sim,
        })
    }

    /// Connects a queue pair, and sends one message per slot in both directions.
    fn use_all_slots(&mut self, options: &QpOptions) -> Result<(), Failure> {
        let [tx_qp, rx_qp] = self.sim.connect(options)?;
        let mut sends = Vec::new();
        for _ in 0..options.sdr.slots {
            self.sim.tx.post_recv(tx_qp, self.tx_memory.whole())?;
            self.sim.rx.post_recv(rx_qp, self.rx_memory.whole())?;
            sends.push(send(&mut self.sim.tx, tx_qp, self.tx_memory)?);
            sends.push(send(&mut self.sim.rx, rx_qp, self.rx_memory)?);
        }
        self.sim.run_until(GRAIN, || {
            sends.retain(|send| send.outcome() != Some(Outcome::Whole));
            sends.is_empty()
        })
    }
}

fn send<F: Fabric>(
    endpoint: &mut Endpoint<F>,
    qp: QueuePair,
    memory: MemoryRegion,
) -> Result<SendHandle, Error> {
    endpoint.post_send(qp, memory.whole(), SendOptions::default())
}
