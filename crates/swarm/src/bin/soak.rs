//! Runs cases of the swarm, seed after seed, and counts the events that they meet.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use farwrite_swarm::boxes::BoxPlan;
use farwrite_swarm::collectives::CollectivePlan;
use farwrite_swarm::{Case, CoverageTable, NetworkPlan, Plan};

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

struct Sums {
    messages: u64,
    packets: u64,
    faults: u64,
    failures: u64,
    table: CoverageTable,
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

    /// Runs cases until a limit is reached. `change` changes their plans.
    fn work<C: Case>(&self, change: impl Fn(&mut C)) {
        while let Some(seed) = self.next_seed() {
            let mut case = C::draw(seed);
            change(&mut case);
            let report = case.check(seed.is_multiple_of(TWICE));
            let mut sums = self.sums();
            sums.messages += report.messages;
            sums.packets += report.packets;
            sums.faults += report.faults;
            sums.table.add(&report.coverage);
            let Some(violation) = report.violation else {
                continue;
            };
            sums.failures += 1;
            let cases = sums.table.cases();
            drop(sums);
            if self.args.stop {
                self.stopped.store(true, Ordering::Relaxed);
            }
            println!("FAILED seed {seed:#018x} after {cases} cases: {violation}");
            if !self.args.brief {
                println!("{}", case.explain(seed));
            }
        }
    }

    fn sums(&self) -> std::sync::MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print_progress(&self) {
        let sums = self.sums();
        let seconds = self.start.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate to read")]
        let rate = sums.table.cases() as f64 / seconds;
        println!(
            "{seconds:.0} s: {} cases ({rate:.0} a second), {} messages, {} packets, {} faults, \
             {} failures",
            sums.table.cases(),
            sums.messages,
            sums.packets,
            sums.faults,
            sums.failures
        );
    }
}

/// Runs cases of a kind on all threads, and prints progress. Returns whether all kept the rules.
fn run<C: Case>(args: Args, change: impl Fn(&mut C) + Sync) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or(cores).max(1);
    let sums = Sums {
        messages: 0,
        packets: 0,
        faults: 0,
        failures: 0,
        table: CoverageTable::of::<C>(),
    };
    let soak = Soak {
        args,
        start: Instant::now(),
        next: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        sums: Mutex::new(sums),
    };
    println!("seeds from {:#x} on, {threads} threads", soak.args.base);
    std::thread::scope(|scope| {
        let work = || soak.work(&change);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
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
    print!("{}", sums.table);
    sums.failures == 0
}

fn main() -> ExitCode {
    let args = Args::parse();
    let patience_ns = args.patience.map(|seconds| seconds * 1_000_000_000);
    let is_good = match (args.networks, args.boxes, args.collectives) {
        (true, ..) => run(args, |_: &mut NetworkPlan| {}),
        (_, true, _) => run(args, |_: &mut BoxPlan| {}),
        (.., true) => run(args, |_: &mut CollectivePlan| {}),
        _ => run(args, |plan: &mut Plan| {
            plan.patience_ns = patience_ns.unwrap_or(plan.patience_ns);
        }),
    };
    ExitCode::from(u8::from(!is_good))
}
