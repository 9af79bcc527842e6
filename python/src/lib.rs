//! The native half of the Python package `farwrite`: arrays in, arrays out, one number a point; and
//! the operations of `farwrite.torch`, on memory of tensors.
//!
//! There is no logic here. Shapes, broadcasting and the checks of what a caller passes are in Python
//! (`python/farwrite/`); formulas and their ranges in `farwrite-model`, plans and runs in
//! `farwrite-experiment`, operations of a group in `farwrite-collectives`.

mod collective;
#[cfg(target_os = "linux")]
mod communicator;
mod completion;
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

/// Native half of farwrite; not for use by itself.
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
