//! `farwrite demo`: compares schemes on one emulated link.

mod args;
mod connected_ends;
mod fill;
mod picture;
mod report;
mod scenario;
mod transfer;

use std::time::Duration;

use farwrite::{Region, SchemeName};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub(crate) use args::DemoArgs;
use connected_ends::Memory;
use report::{Overload, Row};
use scenario::Scenario;
use transfer::{Run, TransferState, transfer};

use crate::console::Console;
use crate::exit::Failure;
use crate::files;
use crate::memory::check_available;
use crate::trace::Tracing;
use farwrite_transfer::Cancel;
use farwrite_units::show::{Percent, Rate, Time, real};

const PICTURE: &str = "farwrite-demo.svg";

pub(crate) fn run(args: &DemoArgs, console: &Console) -> Result<(), Failure> {
    let cancel = crate::interrupt::catch()?;
    let scenario = Scenario::new(args)?;
    let schemes: Vec<SchemeName> = args.scheme.iter().map(|scheme| scheme.0).collect();
    check_memory(&scenario, &schemes)?;
    // Fails now instead of after the work.
    files::make_directory(&args.out)?;
    console.say(report::introduction(&scenario));
    let trace = args.trace.start()?;
    let runs = run_schemes(&scenario, &schemes, &trace, console, &cancel);
    trace.finish(console);
    let runs = runs?;
    let strain = Overload::of(&scenario, &runs);
    console.say(report::results(&scenario, &runs, &strain));
    if let Some(warning) = strain.warning(&scenario) {
        console.warn(warning);
    }
    let path = args.out.join(PICTURE);
    files::write(&path, picture::draw(&scenario, &runs))?;
    console.say(format_args!(
        "\nHow each message filled, as a picture: {}",
        path.display()
    ));
    console.json(&report::json(&scenario, &runs, &strain, &path))
}

fn run_schemes(
    scenario: &Scenario,
    schemes: &[SchemeName],
    trace: &Tracing,
    console: &Console,
    cancel: &Cancel,
) -> Result<Vec<Run>, Failure> {
    let mut memory = prepare(scenario);
    let mut runs = Vec::new();
    for &scheme in schemes {
        trace.begin_run(&scheme.to_string());
        let (run, back) = run_scheme(scenario, scheme, memory, console, cancel)?;
        memory = back;
        runs.push(run);
    }
    Ok(runs)
}

/// Moves the message with one scheme, and shows the progress.
fn run_scheme(
    scenario: &Scenario,
    scheme: SchemeName,
    mut memory: Memory,
    console: &Console,
    cancel: &Cancel,
) -> Result<(Run, Memory), Failure> {
    // Data of an earlier run must not count for this run. Writing also allocates the pages in
    // advance.
    memory.target.fill(0);
    let chunks = scenario.chunks();
    let progress = console.progress(&scheme.to_string(), chunks);
    let show = |state: &TransferState| progress.show(state.arrived_chunks, tell(scenario, state));
    let (run, memory) = transfer(scenario, scheme, memory, cancel, show)?;
    let row = Row::new(scenario, &run);
    let figures = figures(
        row.goodput_bps,
        row.retransmitted_share,
        run.times.completion,
    );
    progress.finish(chunks, format_args!("{figures}  verified"));
    Ok((run, memory))
}

/// The text beside a progress bar while chunks arrive.
fn tell(scenario: &Scenario, state: &TransferState) -> String {
    let bits = real(state.arrived_chunks * scenario.chunk_bytes()) * 8.0;
    let sender = state.sender.sender;
    let retransmitted = real(sender.retransmitted_chunks) / real(sender.sent_chunks.max(1));
    // At the very start, the rate would be a division by almost zero.
    let seconds = state.elapsed.as_secs_f64().max(1e-3);
    figures(bits / seconds, retransmitted, state.elapsed)
}

fn figures(bps: f64, retransmitted_share: f64, elapsed: Duration) -> String {
    let (rate, share) = (
        Rate(bps).to_string(),
        Percent(retransmitted_share).to_string(),
    );
    format!(
        "{rate:>11}  {share:>7} retransmitted  {:>7}",
        Time(elapsed).to_string()
    )
}

/// Allocates random bytes to send, and the same amount of memory to receive them.
fn prepare(scenario: &Scenario) -> Memory {
    let bytes = usize::try_from(scenario.size_bytes).expect("64-bit machine");
    let mut source = vec![0; bytes];
    ChaCha8Rng::seed_from_u64(scenario.seed).fill_bytes(&mut source);
    Memory {
        source: Region::owned(source),
        target: Region::owned(vec![0; bytes]),
    }
}

/// Refuses a transfer that does not fit the memory of this machine.
fn check_memory(scenario: &Scenario, schemes: &[SchemeName]) -> Result<(), Failure> {
    let parity = schemes.iter().map(|scheme| scenario.parity_bytes(*scheme));
    let bytes = scenario.size_bytes + parity.max().unwrap_or(0);
    // The memory of both ends, and the bytes in flight on the link.
    let wanted = 2 * bytes + scenario.bdp_bytes().min(2 * bytes);
    check_available(wanted, "the demo", "take a smaller --size, --rate or --rtt")
}
