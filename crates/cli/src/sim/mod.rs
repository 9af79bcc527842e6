//! `farwrite sim`: simulates flows in networks in virtual time.

mod args;
mod compare;
mod completion;
mod picture;
mod quick;
mod report;
mod series;
mod series_picture;
mod settings;
mod show;
mod tables;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use farwrite_experiment::plan::{self, CaseOutcome, CaseParts, Plan, sweep};
use farwrite_experiment::{Extensions, FlowOutcome, Outcome, Recording, Series};
use farwrite_units::input::read_text;
use farwrite_units::show::{Count, Time};

use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::memory::check_available;
pub(crate) use args::SimArgs;
use compare::Peer;
use report::Report;
use settings::with_absolute_files;

/// Runs a plan, or the plan that the options describe.
pub(crate) fn run(
    args: &SimArgs,
    console: &Console,
    extensions: &Extensions,
) -> Result<(), Failure> {
    let (text, directory) = plan_text(args)?;
    let files = RefCell::new(BTreeSet::new());
    let read_file = |name: &str| {
        files.borrow_mut().insert(name.to_owned());
        let path = directory.join(name);
        let text = read_text(&path, plan::MOST_FILE_BYTES);
        text.map_err(|why| format!("{}: {why}", path.display()))
    };
    let plan = Plan::read_with(&text, &read_file, extensions);
    let plan = plan.map_err(|why| refused(args, &text, &why.to_string()))?;
    for note in plan.notes() {
        console.warn(note);
    }
    let cases = plan.cases().len();
    if args.picture >= cases {
        let line = format!(
            "--picture {}: the plan has runs 0 to {}",
            args.picture,
            cases - 1
        );
        return Err(Failure::new(Exit::Usage, line));
    }
    if let Some(host) = args.capture {
        check_captured(&plan, args.picture, host)?;
    }
    let peer = args.compare.as_ref().map(|path| Peer::read(path, &plan));
    let peer = peer.transpose()?;
    if let Some(warning) = peer.as_ref().and_then(|peer| peer.warning.as_ref()) {
        console.warn(warning);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let recording = Recording {
        ports: true,
        series: args.series,
        host: args.capture,
    };
    let recorded = (args.picture, recording);
    let memory = plan.sweep_bytes(threads, Some(recorded));
    let memory = memory.or_exit(Exit::Usage, "the plan")?;
    let help = "take fewer --threads, seeds or flows, or a smaller topology";
    check_available(memory, "the simulation", help)?;
    check_out(&args.out)?;
    fs::create_dir_all(&args.out).or_exit(Exit::Files, args.out.display())?;
    let text = with_absolute_files(&text, &directory, &files.borrow());
    let (outcomes, failure) = run_all(&plan, threads, recorded, console)?;
    if let (Some(failure), true) = (&failure, outcomes.is_empty()) {
        return Err(Failure::new(failure.exit, failure));
    }
    let report = Report::new(&plan, &text, &outcomes, peer.as_ref());
    write_results(args, &plan, &text, &outcomes, &report)?;
    warn_of(&plan, &outcomes, console);
    console.say(show::text(&report, &args.out));
    match failure {
        None => console.json(&report),
        Some(failure) => {
            let (done, out) = (outcomes.len(), args.out.display());
            let line = format!("{failure}; results of {done} of {cases} runs are in {out}");
            Err(Failure::new(failure.exit, line))
        }
    }
}

/// Warns of flows that failed, and of packets and events that files leave out.
fn warn_of(plan: &Plan, cases: &[CaseOutcome], console: &Console) {
    let outcomes = || cases.iter().filter_map(|case| case.outcome.as_ref().ok());
    let failed: usize = outcomes().map(Outcome::failed).sum();
    if failed > 0 {
        console.warn(format!(
            "{} failed; the column end of flows.csv names them",
            Count(failed as u64, "flow")
        ));
    }
    warn_of_deadlocks(plan, cases, console);
    warn_of_slow_tails(plan, cases, console);
    let captures = outcomes().filter_map(|outcome| outcome.capture.as_ref());
    for capture in captures.filter(|capture| capture.left_out() > 0) {
        let (kept, rest) = (capture.packets(), capture.left_out());
        console.warn(format!(
            "capture.pcap has the first {kept} packets; {rest} followed"
        ));
    }
    let series = outcomes().filter_map(|outcome| outcome.series.as_ref());
    for series in series.filter(|series| series.more_events > 0) {
        let (kept, rest) = (series.events.len(), series.more_events);
        console.warn(format!(
            "events.csv has the first {kept} events; {rest} followed"
        ));
    }
}

/// Warns of flows that IRN's rules repair one packet in each timeout.
fn warn_of_slow_tails(plan: &Plan, cases: &[CaseOutcome], console: &Console) {
    /// More timeouts than the losses of repeats alone explain.
    const MANY: u64 = 10;
    let is_slow = |flow: &&FlowOutcome| flow.timeouts >= MANY;
    let slow = cases.iter().filter_map(|case| {
        let flows = &case.outcome.as_ref().ok()?.flows;
        let slow = flows.iter().filter(is_slow).count() as u64;
        let parts = (slow > 0).then(|| plan.parts(&case.case).ok()).flatten()?;
        let transport = parts.transport;
        transport
            .repairs_tails_slowly()
            .then(|| (slow, transport.protocol()))
    });
    let slow: Vec<_> = slow.collect();
    let count = slow.iter().map(|(count, _)| count).sum();
    let Some((_, protocol)) = slow.first() else {
        return;
    };
    console.warn(format!(
        "{} of {protocol} had {MANY} timeouts or more: by the rules of IRN's paper, each of them repeats one packet \
         of a lost tail. irn = {{ ns3_timeout = true }} repeats all, as the RDMA trees of ns-3 do",
        Count(count, "flow")
    ));
}

/// Names the ports that PFC has stopped in a circle, in the first such run.
fn warn_of_deadlocks(plan: &Plan, cases: &[CaseOutcome], console: &Console) {
    let stopped = |at: &CaseOutcome| at.outcome.as_ref().is_ok_and(|of| !of.deadlock.is_empty());
    let mut found = cases.iter().filter(|at| stopped(at));
    let Some(first) = found.next() else {
        return;
    };
    let (Ok(outcome), Ok(parts)) = (&first.outcome, plan.parts(&first.case)) else {
        return;
    };
    let links = series::Links::of(&parts.topology);
    let stopped = outcome.deadlock.iter();
    let ports = stopped.filter_map(|&(node, port)| Some(links.get(node, port)?.names.join(" to ")));
    console.warn(format!(
        "{} ended in a deadlock: switches have stopped each other by PFC, in run {} at the ports {}",
        Count(1 + found.count() as u64, "run"),
        first.case.number,
        ports.collect::<Vec<_>>().join(", ")
    ));
}

/// Writes the results of all outcomes. Files of an earlier command that these outcomes do not have
/// are removed.
fn write_results(
    args: &SimArgs,
    plan: &Plan,
    text: &str,
    outcomes: &[CaseOutcome],
    report: &Report,
) -> Result<(), Failure> {
    let out = Results(&args.out);
    let json = serde_json::to_string_pretty(report).or_exit(Exit::Other, "writing JSON")?;
    // It is written first: `check_out` accepts plan.toml only beside results.json.
    out.text("results.json", Some(&json))?;
    out.text("plan.toml", Some(text))?;
    out.text("runs.csv", Some(&tables::runs(report)))?;
    out.text("sizes.csv", Some(&tables::sizes(report)))?;
    out.file("flows.csv", Some(outcomes), tables::write_flows)?;
    out.file("queues.csv", Some(outcomes), tables::write_queues)?;
    let picture = completion::draw(report, outcomes);
    out.text("completion.svg", picture.as_deref())?;
    let drawn = outcomes.iter().find(|at| at.case.number == args.picture);
    let picture = drawn.and_then(|case| picture::draw(plan, case));
    out.text("timeline.svg", picture.as_deref())?;
    let parts = drawn.map(|case| plan.parts(&case.case)).transpose();
    let parts = parts.or_exit(Exit::Usage, "the plan")?;
    let drawn_parts = drawn.zip(parts.as_ref());
    out.file("fct.txt", drawn_parts, |file, (case, parts)| {
        tables::write_fct(file, case, &parts.host_of)
    })?;
    let recorded = drawn_parts.and_then(|(case, parts)| {
        let outcome = case.outcome.as_ref().ok()?;
        Some((outcome, outcome.series.as_ref()?, parts))
    });
    write_series(&out, recorded)?;
    out.text("refused.toml", None)?;
    let capture = drawn.and_then(|case| case.outcome.as_ref().ok()?.capture.as_ref());
    out.file("capture.pcap", capture, |file, capture| {
        file.write_all(capture.file())
    })?;
    let comparison = report.comparison.as_ref();
    out.file("compare.csv", comparison, tables::write_compared)
}

/// Writes the series of a run, or removes those of an earlier command.
fn write_series(
    out: &Results<'_>,
    recorded: Option<(&Outcome, &Series, &CaseParts)>,
) -> Result<(), Failure> {
    out.file("links.csv", recorded, |file, (outcome, series, parts)| {
        series::write_links(file, &outcome.depths, series, &parts.topology)
    })?;
    out.file("rates.csv", recorded, |file, (outcome, series, parts)| {
        series::write_rates(file, &outcome.depths, series, parts.transport.mtu())
    })?;
    out.file("events.csv", recorded, |file, (_, series, parts)| {
        series::write_events(file, series, &parts.topology)
    })?;
    let picture = recorded.and_then(|(outcome, series, parts)| {
        let mtu = parts.transport.mtu();
        series_picture::draw(&outcome.depths, series, &parts.topology, mtu)
    });
    out.text("series.svg", picture.as_deref())
}

/// The refusal of a plan. The plan of options is written first, so that it can be changed.
fn refused(args: &SimArgs, text: &str, why: &str) -> Failure {
    let path = args.out.join("refused.toml");
    let is_written = args.plan.is_none()
        && fs::create_dir_all(&args.out).is_ok()
        && fs::write(&path, text).is_ok();
    let hint = match is_written {
        true => format!("; the plan of these options is in {}", path.display()),
        false => String::new(),
    };
    Failure::new(Exit::Usage, format!("the plan: {why}{hint}"))
}

/// Refuses a directory whose plan was not written by this program: the results would replace it.
fn check_out(out: &Path) -> Result<(), Failure> {
    if out.exists() && !out.is_dir() {
        let line = format!("--out {}: it is not a directory", out.display());
        return Err(Failure::new(Exit::Usage, line));
    }
    if out.join("plan.toml").exists() && !out.join("results.json").exists() {
        let line = format!(
            "--out {}: the results would replace plan.toml, which is not one of earlier results; \
             choose another directory",
            out.display()
        );
        return Err(Failure::new(Exit::Usage, line));
    }
    Ok(())
}

/// Checks before any run that the host to capture exists.
fn check_captured(plan: &Plan, run: usize, host: usize) -> Result<(), Failure> {
    let parts = plan.parts(&plan.cases()[run]);
    let hosts = parts
        .or_exit(Exit::Usage, "the plan")?
        .topology
        .hosts()
        .count();
    if host < hosts {
        return Ok(());
    }
    let line = format!("--capture {host}: run {run} has hosts 0 to {}", hosts - 1);
    Err(Failure::new(Exit::Usage, line))
}

/// The text of the plan, and the directory of the files that it names.
fn plan_text(args: &SimArgs) -> Result<(String, PathBuf), Failure> {
    if let Some(path) = &args.plan {
        let text = read_text(path, plan::MOST_BYTES).or_exit(Exit::Files, path.display())?;
        let directory = path.parent().map_or_else(PathBuf::new, Path::to_owned);
        return Ok((text, directory));
    }
    Ok((quick::plan_text(args), PathBuf::new()))
}

/// Runs all cases. Returns the outcomes of the runs that ended, and why others did not.
fn run_all(
    plan: &Plan,
    threads: usize,
    recorded: (usize, Recording),
    console: &Console,
) -> Result<(Vec<CaseOutcome>, Option<Failure>), Failure> {
    let cancel = crate::interrupt::catch()?;
    let total = plan.cases().len();
    let progress = console.progress("simulating", 1000 * total as u64);
    let mut done = 0;
    let mut outcomes = sweep(plan, threads, Some(recorded), |at| {
        done += u64::from(at.ended.is_some());
        let (ended, flows) = (at.ended_flows, at.flows);
        let time = Time(Duration::from_nanos(at.virtual_ns));
        progress.show(
            at.done_thousandths(),
            format_args!(
                "{done} of {total} runs; {ended} of {flows} flows ended in {time} of virtual time"
            ),
        );
        !cancel.is_set()
    });
    progress.finish(1000 * done, format_args!("{done} of {total} runs"));
    let wrong = outcomes.iter().find_map(|case| {
        let why = case.outcome.as_ref().err()?;
        let (run, seed) = (case.case.number, case.case.seed);
        let line = format!("run {run} with seed {seed}: {why}");
        Some(Failure::new(Exit::Usage, line))
    });
    let is_whole = outcomes.len() == total;
    let interrupted = || Failure::new(Exit::Interrupted, "interrupted");
    outcomes.retain(|case| case.outcome.is_ok());
    Ok((outcomes, wrong.or_else(|| (!is_whole).then(interrupted))))
}

/// The directory of results.
struct Results<'a>(&'a Path);

impl Results<'_> {
    /// Writes a file if there is content for it, and otherwise removes the file of an earlier command.
    fn file<T>(
        &self,
        name: &str,
        content: Option<T>,
        fill: impl FnOnce(&mut BufWriter<fs::File>, T) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let path = self.0.join(name);
        let ended = match content {
            Some(content) => fs::File::create(&path).and_then(|file| {
                let mut file = BufWriter::new(file);
                fill(&mut file, content)?;
                file.flush()
            }),
            None => match fs::remove_file(&path) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            },
        };
        ended.or_exit(Exit::Files, path.display())
    }

    /// As [`Results::file`], for a text.
    fn text(&self, name: &str, text: Option<&str>) -> Result<(), Failure> {
        self.file(name, text, |file, text| file.write_all(text.as_bytes()))
    }
}
