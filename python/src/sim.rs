//! Plans of `farwrite sim`, and their runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use farwrite_experiment::other_simulators::{compare_flows, completion_times};
use farwrite_experiment::plan::{self, Case, CaseOutcome, run_case_while};
use farwrite_experiment::{EndedBy, Extensions, Recording};
use farwrite_net::FrameDrop;
use farwrite_units::input::read_text;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::controller::{self, Controller};
use crate::points::SIGNALS_EVERY;

/// The names of topology, workload, switch and transport; the loss; the seed.
type Key = (String, String, String, String, Option<f64>, u64);
/// Of a flow: source, destination, bytes; start and completion time in nanoseconds; ideal time in
/// nanoseconds and slowdown; packets, repeated packets, timeouts, missing bytes; goodput in bits a second if it has no
/// end; whether statistics count it; how it ended, and what ended it with XP (otherwise empty).
type Row = (
    usize,
    usize,
    u64,
    [Option<u64>; 2],
    [Option<f64>; 2],
    [u64; 4],
    Option<f64>,
    bool,
    [&'static str; 2],
);
/// The bytes in the queues of switch ports over time: the start of the first flow and the interval of
/// samples, in nanoseconds; for each sample, the bytes in the longest queue and in all queues.
type Queues = (u64, u64, Vec<(u64, u64)>);
/// The results of a run: counts by name, a row for each flow, and the queues.
type Ran = (Vec<(&'static str, u64)>, Vec<Row>, Queues);

/// Of a flow in two simulators: its index, the line of the other simulator's file; source, destination,
/// bytes; planned start, start in the file, our and their completion time in nanoseconds; which simulator has
/// a time.
type ComparedRow = (
    [Option<usize>; 2],
    usize,
    usize,
    Option<u64>,
    [Option<f64>; 4],
    &'static str,
);

/// The text of a file.
fn text_of(path: &Path, most_bytes: u64) -> io::Result<String> {
    let text = read_text(path, most_bytes);
    text.map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", path.display())))
}

/// The text of a plan.
#[pyfunction]
pub(crate) fn plan_text(path: PathBuf) -> PyResult<String> {
    Ok(text_of(&path, plan::MOST_BYTES)?)
}

/// A plan whose parts have been checked.
#[pyclass(frozen, module = "farwrite._native")]
pub(crate) struct SimPlan {
    plan: plan::Plan,
    cases: Vec<Case>,
    files: BTreeMap<String, String>,
    is_stopped: AtomicBool,
}

#[pymethods]
impl SimPlan {
    /// Reads the text of a plan. A file that the plan names is in `files`, or else in `directory`.
    /// `controllers` has classes by the names that the plan gives them.
    #[new]
    fn new(
        text: &str,
        files: BTreeMap<String, String>,
        directory: PathBuf,
        controllers: BTreeMap<String, Py<PyAny>>,
    ) -> PyResult<Self> {
        let extensions = extensions(controllers);
        let files = RefCell::new(files);
        let read_file = |name: &str| {
            if let Some(content) = files.borrow().get(name) {
                return Ok(content.clone());
            }
            let path = directory.join(name);
            let content = text_of(&path, plan::MOST_FILE_BYTES).map_err(|why| why.to_string())?;
            files.borrow_mut().insert(name.to_owned(), content.clone());
            Ok(content)
        };
        let plan = plan::Plan::read_with(text, &read_file, &extensions);
        let plan = plan.map_err(|why| PyValueError::new_err(why.to_string()))?;
        Ok(Self {
            cases: plan.cases(),
            plan,
            files: files.into_inner(),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// The content of all files that the plan names.
    fn files(&self) -> BTreeMap<String, String> {
        self.files.clone()
    }

    fn notes(&self) -> Vec<String> {
        self.plan.notes().to_vec()
    }

    /// Estimated upper bounds of the bytes of memory of one run, and of the outcomes of all runs.
    fn memory_bytes(&self) -> PyResult<(u64, u64)> {
        let memory = self.plan.memory();
        let memory = memory.map_err(|why| PyValueError::new_err(why.to_string()))?;
        Ok((memory.run_bytes, memory.results_bytes))
    }

    /// The number of runs of the plan.
    fn count(&self) -> usize {
        self.cases.len()
    }

    /// The settings and the seed of a run.
    fn key(&self, number: i64) -> PyResult<Key> {
        let case = self.case(number)?;
        let names = self.plan.names(case);
        let names = [
            names.topology,
            names.workload,
            names.switch,
            names.transport,
        ];
        let [topology, workload, switch, transport] = names.map(str::to_owned);
        Ok((topology, workload, switch, transport, case.loss, case.seed))
    }

    /// Stops the runs in progress, which then fail.
    fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
    }

    /// Simulates a run, without the interpreter's lock.
    fn run(&self, py: Python<'_>, number: i64) -> PyResult<Ran> {
        let ran = self.ran(py, *self.case(number)?)?;
        outcome_of(&ran).map_err(PyRuntimeError::new_err)
    }

    /// Simulates a run, and compares its completion times with those in a file of another simulator.
    fn compare(&self, py: Python<'_>, number: i64, file: &str) -> PyResult<Vec<ComparedRow>> {
        let text = text_of(Path::new(file), plan::MOST_FILE_BYTES)?;
        let case = *self.case(number)?;
        let parts = self.plan.parts(&case);
        let parts = parts.map_err(|why| PyValueError::new_err(why.to_string()))?;
        let theirs = completion_times(file, &text, &parts.host_of);
        let theirs = theirs.map_err(|why| PyValueError::new_err(why.to_string()))?;
        let ran = self.ran(py, case)?;
        let outcome = ran.outcome.map_err(PyRuntimeError::new_err)?;
        let flows = compare_flows(
            case.number,
            &ran.flows,
            self.plan.flow_ids(&case),
            &outcome,
            &theirs,
        );
        let rows = flows.into_iter().map(|flow| {
            (
                [flow.flow, flow.line],
                flow.src,
                flow.dst,
                flow.bytes,
                [
                    flow.planned_us,
                    flow.their_start_us,
                    flow.ours_us,
                    flow.theirs_us,
                ]
                // Both simulators count whole nanoseconds.
                .map(|time| time.map(|us| (us * 1e3).round())),
                flow.found.name(),
            )
        });
        Ok(rows.collect())
    }
}

impl SimPlan {
    /// Simulates a run until its end, or until a controller fails, [`Self::stop`] is called, or a signal such as Ctrl-C
    /// comes.
    fn ran(&self, py: Python<'_>, case: Case) -> PyResult<CaseOutcome> {
        let mut looked = Instant::now();
        let goes_on = || {
            if looked.elapsed() >= SIGNALS_EVERY {
                looked = Instant::now();
                if self.is_stopped.load(Relaxed) {
                    controller::stop(PyRuntimeError::new_err("the run was stopped"));
                } else if let Err(error) = Python::attach(|py| py.check_signals()) {
                    controller::stop(error);
                }
            }
            !controller::has_failed()
        };
        let run = || run_case_while(&self.plan, case, Recording::default(), goes_on);
        let (ran, error) = py.detach(|| controller::with_error(run));
        error.map_or_else(|| Ok(ran.expect("only an error stops a run")), Err)
    }

    fn case(&self, number: i64) -> PyResult<&Case> {
        let case = usize::try_from(number)
            .ok()
            .and_then(|at| self.cases.get(at));
        case.ok_or_else(|| {
            let last = self.cases.len() - 1;
            PyIndexError::new_err(format!("run {number}: the plan has runs 0 to {last}"))
        })
    }
}

/// The controllers of Python.
fn extensions(controllers: BTreeMap<String, Py<PyAny>>) -> Extensions {
    let mut extensions = Extensions::new();
    for (name, class) in controllers {
        let own = name.clone();
        extensions = extensions.controller(&name, move |path| Controller::new(&own, &class, path));
    }
    extensions
}

fn outcome_of(ran: &CaseOutcome) -> Result<Ran, String> {
    let outcome = ran.outcome.as_ref().map_err(String::clone)?;
    let totals = &outcome.totals;
    let counts = vec![
        ("flows", outcome.flows.len() as u64),
        ("done", outcome.done() as u64),
        ("failed", outcome.failed() as u64),
        ("last_done_ns", outcome.last_done_ns().unwrap_or(0)),
        ("packets", outcome.packets()),
        ("repeated", outcome.repeated()),
        ("timeouts", outcome.timeouts()),
        ("missing_bytes", outcome.missing_bytes()),
        ("dropped_buffer", totals.dropped_for(FrameDrop::Buffer)),
        ("dropped_headroom", totals.dropped_for(FrameDrop::Headroom)),
        ("dropped_cable", totals.dropped_for(FrameDrop::Cable)),
        (
            "dropped_cable_down",
            totals.dropped_for(FrameDrop::CableDown),
        ),
        ("dropped_no_route", totals.dropped_for(FrameDrop::NoRoute)),
        ("marked", totals.marked),
        ("trimmed", totals.trimmed),
        ("pfc_frames", totals.pauses_sent),
        ("pfc_stopped_ns", totals.stopped_ns),
        ("path_changes", totals.path_changes),
        ("box_repairs", outcome.boxes.repairs),
        ("box_recovered", outcome.boxes.recovered),
        ("box_given_up", outcome.boxes.given_up),
        ("box_peak_held", outcome.boxes.peak_held),
        ("queue_peak_bytes", totals.peak_queued_bytes),
        ("packet_hops", totals.transmitted),
        ("events", outcome.events),
        ("trace", outcome.trace_hash),
    ];
    let pairs = ran.flows.iter().zip(&outcome.flows);
    let rows = pairs.map(|(flow, of)| {
        (
            flow.src,
            flow.dst,
            flow.bytes,
            [of.start_ns, of.time_ns()],
            [of.ideal_ns, of.slowdown()],
            [of.packets, of.repeated, of.timeouts, of.missing_bytes],
            of.endless_goodput_bps(outcome.end_ns),
            of.is_measured,
            [of.end.name(), of.ended_by.map_or("", EndedBy::name)],
        )
    });
    let depths = &outcome.depths;
    let samples = depths.samples.iter();
    let samples = samples.map(|depth| (depth.deepest, depth.total)).collect();
    let queues = (depths.start_ns, depths.interval_ns, samples);
    Ok((counts, rows.collect(), queues))
}
