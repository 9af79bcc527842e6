//! The native module of the Python package `farwrite`: functions on arrays with one number for each
//! point, and the operations of `farwrite.torch` on the memory of tensors.
//!
//! This crate has no logic. Python (`python/farwrite/`) checks and broadcasts arguments. `farwrite-model`
//! has the formulas and their ranges, `farwrite-experiment` the plans and runs of simulations, and
//! `farwrite-collectives` the operations of a group.

mod collective;
#[cfg(target_os = "linux")]
mod communicator;
mod completion;
mod controller;
#[cfg(target_os = "linux")]
mod forked;
#[cfg(target_os = "linux")]
mod group_options;
mod hadamard;
#[cfg(target_os = "linux")]
mod operation;
mod plan;
mod points;
mod probability;
#[cfg(target_os = "linux")]
mod replay;
mod setting;
mod sim;
mod trace;

use pyo3::prelude::*;

/// Native module of the package farwrite, for use by this package only.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::collective::CollectiveTimes;
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::communicator::{CollectiveError, Communicator, Ended, Ticket};
    #[pymodule_export]
    use crate::completion::CompletionTimes;
    #[pymodule_export]
    use crate::hadamard::hadamard;
    #[pymodule_export]
    use crate::plan::Plan;
    #[pymodule_export]
    use crate::points::PointError;
    #[pymodule_export]
    use crate::probability::{chunk_loss, group_failure, losses_in_burst, parity_overhead};
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::replay::replay;
    #[pymodule_export]
    use crate::setting::Settings;
    #[pymodule_export]
    use crate::sim::{SimPlan, plan_text};
    #[pymodule_export]
    use crate::trace::Trace;
}
