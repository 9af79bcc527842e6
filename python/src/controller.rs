//! Congestion controllers of Python.

use std::cell::Cell;

use farwrite_experiment::extensions::{
    Acknowledged, Detail, Feedback, Limits, Loss, PathProfile, RateControl, Sent,
};
use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

thread_local! {
    /// The first error of a controller in the run of this thread.
    static ERROR: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Simulates a run on this thread. Returns also the first error of its controllers.
pub(crate) fn with_error<T>(run: impl FnOnce() -> T) -> (T, Option<PyErr>) {
    // A controller can simulate another run.
    let outer = ERROR.take();
    let ran = run();
    (ran, ERROR.replace(outer))
}

/// Whether a controller in the run of this thread has failed, or [`stop`] was called.
pub(crate) fn has_failed() -> bool {
    let error = ERROR.take();
    let failed = error.is_some();
    ERROR.set(error);
    failed
}

/// Stops the run of this thread with an error. If there is an earlier error, that one is kept.
pub(crate) fn stop(error: PyErr) {
    // The drop of a later error can run Python code, so nothing is borrowed here.
    let first = ERROR.take().unwrap_or(error);
    ERROR.set(Some(first));
}

/// An object of Python that sets the rate of a flow. After an error, the flow goes on at the last rate until the run
/// stops.
pub(crate) struct Controller {
    name: String,
    object: Option<Py<PyAny>>,
    detail: Detail,
    limits: Limits,
    timeout_ns: Option<u64>,
}

impl Controller {
    /// Calls a class, or any other callable, with the path of the flow.
    pub(crate) fn new(name: &str, class: &Py<PyAny>, path: &PathProfile) -> Self {
        let mut made = Self {
            name: name.to_owned(),
            object: None,
            detail: Detail::Reports,
            limits: Limits {
                pace_bps: path.rate_bps.max(1),
                window_bytes: u64::MAX,
            },
            timeout_ns: None,
        };
        Python::attach(
            |py| match class.call1(py, (path.rate_bps, path.rtt_ns, path.mtu_bytes)) {
                Ok(object) => {
                    let detail = detail_of(object.bind(py));
                    made.object = Some(object);
                    match detail {
                        Ok(detail) => made.detail = detail,
                        Err(why) => made.refuse(py, &why),
                    }
                    made.read(py);
                }
                Err(error) => made.fail(py, error),
            },
        );
        made
    }

    fn call(&mut self, method: &str, arguments: impl for<'py> PyCallArgs<'py>) {
        Python::attach(|py| {
            let Some(object) = &self.object else {
                return;
            };
            match object.bind(py).call_method1(method, arguments) {
                Ok(_) => self.read(py),
                Err(error) => self.fail(py, error),
            }
        });
    }

    /// Reads the limits and the time of the next timeout.
    fn read(&mut self, py: Python<'_>) {
        let Some(object) = &self.object else {
            return;
        };
        match read(object.bind(py)) {
            Ok((limits, timeout_ns)) => (self.limits, self.timeout_ns) = (limits, timeout_ns),
            Err(why) => self.refuse(py, &why),
        }
    }

    fn refuse(&mut self, py: Python<'_>, why: &str) {
        let error = PyValueError::new_err(format!("controller {}: {why}", self.name));
        self.fail(py, error);
    }

    fn fail(&mut self, py: Python<'_>, error: PyErr) {
        let note = format!("in the controller {} of a flow", self.name);
        // Notes are an addition to the error; without them, it is still the error.
        let _ = error.value(py).call_method1("add_note", (note,));
        stop(error);
        (self.object, self.timeout_ns) = (None, None);
    }
}

/// What a controller reads.
fn detail_of(object: &Bound<'_, PyAny>) -> Result<Detail, String> {
    let value = object.getattr("detail").map_err(|why| why.to_string())?;
    let name: String = value.extract().unwrap_or_default();
    match name.as_str() {
        "reports" => Ok(Detail::Reports),
        "packets" => Ok(Detail::Packets),
        "telemetry" => Ok(Detail::Telemetry),
        _ => Err(format!(
            "detail = {value}: \"reports\", \"packets\" or \"telemetry\""
        )),
    }
}

/// The attributes of a controller.
fn read(object: &Bound<'_, PyAny>) -> Result<(Limits, Option<u64>), String> {
    const OR_NONE: &str = ", or None";
    let number = |name: &str, least: u64, or_none: &str| -> Result<Option<u64>, String> {
        let value = object.getattr(name).map_err(|why| why.to_string())?;
        let read: Option<Option<u64>> = value.extract().ok();
        let valid = read.filter(|read| match read {
            Some(number) => *number >= least,
            None => !or_none.is_empty(),
        });
        valid.ok_or_else(|| {
            format!("{name} = {value}: a whole number from {least} to 2^64 - 1{or_none}")
        })
    };
    let limits = Limits {
        pace_bps: number("pace_bps", 1, "")?.unwrap_or(u64::MAX),
        window_bytes: number("window_bytes", 1, OR_NONE)?.unwrap_or(u64::MAX),
    };
    Ok((limits, number("timeout_ns", 0, OR_NONE)?))
}

impl RateControl for Controller {
    fn on_sent(&mut self, sent: &Sent) {
        self.call("on_sent", (sent.now_ns, sent.bytes));
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        let newest = feedback.newest;
        let departed_ns = newest.and_then(|newest| newest.departed_ns);
        let rtt_ns = departed_ns.map(|at_ns| feedback.now_ns.saturating_sub(at_ns));
        self.call(
            "on_feedback",
            (feedback.now_ns, feedback.received_bytes, rtt_ns),
        );
    }

    fn detail(&self) -> Detail {
        self.detail
    }

    fn on_acknowledged(&mut self, acknowledged: &Acknowledged<'_>) {
        let hops = acknowledged.hops.iter();
        let hops = hops.map(|hop| {
            let (port, at_ns) = (hop.port, hop.at_ns);
            (port, at_ns, hop.queued_bytes, hop.sent_bytes, hop.rate_bps)
        });
        let hops: Vec<_> = hops.collect();
        let (bytes, rtt_ns) = (acknowledged.bytes, acknowledged.rtt_ns);
        self.call(
            "on_acknowledged",
            (
                acknowledged.now_ns,
                bytes,
                rtt_ns,
                acknowledged.marked,
                hops,
            ),
        );
    }

    fn on_timeout(&mut self, now_ns: u64) -> bool {
        if self.timeout_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.call("on_timeout", (now_ns,));
            // Otherwise the run would stand still.
            if self.timeout_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                let why = format!(
                    "controller {}: timeout_ns is {now_ns} or earlier after on_timeout({now_ns})",
                    self.name
                );
                Python::attach(|py| self.fail(py, PyValueError::new_err(why)));
            }
        }
        // Timers of a NIC lose nothing.
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        self.timeout_ns
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn on_notification(&mut self, now_ns: u64) {
        self.call("on_notification", (now_ns,));
    }

    fn on_loss(&mut self, now_ns: u64, loss: Loss) {
        self.call("on_loss", (now_ns, loss == Loss::TimedOut));
    }
}
