//! Runs cases of the swarm, seed after seed, and counts the events that they meet.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use farwrite_swarm::boxes::{self, BoxPlan};
use farwrite_swarm::collectives::{self, CollectivePlan};
use farwrite_swarm::{
    CoverageTable, NetworkCounts, NetworkPlan, Plan, Violation, check, check_network, explain,
    explain_network,
};

/// One of this number of cases runs twice, and both runs must be equal.
const TWICE: u64 = 16;
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);

/// Runs cases of the fault swarm, until it is stopped or a limit is reached.
#[derive(Parser)]
struct Args {
    /// The first seed, decimal or hexadecimal with 0x; the next seeds follow it.
    #[arg(long, default_value = "0", value_parser = farwrite_swarm::parse_seed)]
    base: u64,
    /// Number of seeds to run; without limit if not given.
    #[arg(long)]
    seeds: Option<u64>,
    /// Time to run, in seconds; without limit if not given.
    #[arg(long)]
    seconds: Option<u64>,
    /// Number of threads; one per core if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Seconds of virtual time after the last fault within which a message must end; a low value
    /// finds messages that recover slowly.
    #[arg(long)]
    patience: Option<u64>,
    /// Run cases in networks of switches instead.
    #[arg(long, conflicts_with = "patience")]
    networks: bool,
    /// Run cases of boxes in the path instead.
    #[arg(long, conflicts_with_all = ["patience", "networks"])]
    boxes: bool,
    /// Run cases of collectives instead.
    #[arg(long, conflicts_with_all = ["patience", "networks", "boxes"])]
    collectives: bool,
    /// Stop at the first broken rule.
    #[arg(long)]
    stop: bool,
    /// Print only the seed and the rule of a failure, without a shrunk plan.
    #[arg(long)]
    brief: bool,
}

/// State that all threads share.
struct Soak {
    args: Args,
    start: Instant,
    next: AtomicU64,
    stopped: AtomicBool,
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Sums {
    cases: u64,
    messages: u64,
    packets: u64,
    faults: u64,
    failures: u64,
    table: CoverageTable,
    counts: NetworkCounts,
    /// Number of cases of boxes, or of collectives, that met each kind of event.
    kinds: BTreeMap<&'static str, u64>,
}

impl Soak {
    /// The next seed; `None` if a limit is reached.
    fn next_seed(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let is_within = self.args.seeds.is_none_or(|seeds| number < seeds);
        let seconds = self.args.seconds.map(Duration::from_secs);
        let in_time = seconds.is_none_or(|limit| self.start.elapsed() < limit);
        let goes_on = is_within && in_time && !self.stopped.load(Ordering::Relaxed);
        goes_on.then(|| self.args.base.wrapping_add(number))
    }

    fn work(&self) {
        while let Some(seed) = self.next_seed() {
            let ran = match (self.args.networks, self.args.boxes) {
                (true, _) => self.run_network(seed),
                (_, true) => self.run_boxes(seed),
                _ if self.args.collectives => self.run_collectives(seed),
                _ => self.run_case(seed),
            };
            let Err((violation, explain)) = ran else {
                continue;
            };
            let mut sums = self.sums();
            sums.failures += 1;
            let cases = sums.cases;
            drop(sums);
            if self.args.stop {
                self.stopped.store(true, Ordering::Relaxed);
            }
            println!("FAILED seed {seed:#018x} after {cases} cases: {violation}");
            if !self.args.brief {
                println!("{}", explain());
            }
        }
    }

    fn run_case(&self, seed: u64) -> Result<(), Failure> {
        let mut plan = Plan::draw(seed);
        if let Some(seconds) = self.args.patience {
            plan.patience_ns = seconds * 1_000_000_000;
        }
        let report = check(&plan, seed.is_multiple_of(TWICE));
        let mut sums = self.sums();
        sums.cases += 1;
        sums.messages += report.messages;
        sums.packets += report.packets;
        sums.faults += report.faults;
        sums.table.add(&report.coverage);
        failure(report.violation, move || explain(seed, &plan))
    }

    fn run_boxes(&self, seed: u64) -> Result<(), Failure> {
        let plan = BoxPlan::draw(seed);
        let report = boxes::check(&plan, seed.is_multiple_of(TWICE));
        let mut sums = self.sums();
        sums.cases += 1;
        for kind in report.met {
            *sums.kinds.entry(kind).or_default() += 1;
        }
        failure(report.violation, move || plan.to_string())
    }

    fn run_collectives(&self, seed: u64) -> Result<(), Failure> {
        let plan = CollectivePlan::draw(seed);
        let report = collectives::check(&plan, seed.is_multiple_of(TWICE));
        let mut sums = self.sums();
        sums.cases += 1;
        sums.messages += plan.steps.len() as u64;
        sums.faults += plan.faults.len() as u64;
        for kind in report.met {
            *sums.kinds.entry(kind).or_default() += 1;
        }
        failure(report.violation, move || plan.to_string())
    }

    fn run_network(&self, seed: u64) -> Result<(), Failure> {
        let plan = NetworkPlan::draw(seed);
        let report = check_network(&plan, seed.is_multiple_of(TWICE));
        let mut sums = self.sums();
        sums.cases += 1;
        sums.messages += plan.flows.len() as u64;
        sums.packets += report.frames;
        sums.faults += plan.changes.len() as u64;
        sums.counts += report.counts;
        failure(report.violation, move || explain_network(seed, &plan))
    }

    fn sums(&self) -> std::sync::MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print_progress(&self) {
        let sums = self.sums();
        let seconds = self.start.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate to read")]
        let rate = sums.cases as f64 / seconds;
        println!(
            "{seconds:.0} s: {} cases ({rate:.0} a second), {} messages, {} packets, {} faults, \
             {} failures",
            sums.cases, sums.messages, sums.packets, sums.faults, sums.failures
        );
    }
}

/// A broken rule, and a function that explains it.
type Failure = (Violation, Box<dyn FnOnce() -> String>);

fn failure(
    violation: Option<Violation>,
    explain: impl FnOnce() -> String + 'static,
) -> Result<(), Failure> {
    violation.map_or(Ok(()), |violation| Err((violation, Box::new(explain))))
}

fn print_kinds(sums: &Sums, kinds: &[&str]) {
    for kind in kinds {
        let count = sums.kinds.get(kind).copied().unwrap_or(0);
        println!("{count:>9}  {kind}");
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or(cores).max(1);
    let soak = Soak {
        args,
        start: Instant::now(),
        next: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        sums: Mutex::new(Sums::default()),
    };
    println!("seeds from {:#x} on, {threads} threads", soak.args.base);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| soak.work())).collect();
        let mut printed = Instant::now();
        while !workers
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            std::thread::sleep(Duration::from_millis(20));
            if printed.elapsed() >= PROGRESS {
                printed = Instant::now();
                soak.print_progress();
            }
        }
    });
    soak.print_progress();
    let sums = soak.sums();
    match (soak.args.networks, soak.args.boxes) {
        (true, _) => print!("{}", sums.counts),
        (_, true) => print_kinds(&sums, &boxes::KINDS),
        _ if soak.args.collectives => print_kinds(&sums, &collectives::KINDS),
        _ => print!("{}", sums.table),
    }
    ExitCode::from(u8::from(sums.failures > 0))
}
