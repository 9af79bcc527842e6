//! Estimates of the memory of a plan.

use super::{Plan, PlanError};
use crate::Recording;
use crate::memory::{memory_bytes, recorded_bytes, result_bytes};

/// Estimated upper bounds of the memory that a plan needs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanMemory {
    /// The run that needs the most.
    pub run_bytes: u64,
    /// The outcomes of all runs.
    pub results_bytes: u64,
}

impl Plan {
    /// Estimated upper bounds of the memory that the plan needs.
    ///
    /// # Errors
    /// [`PlanError`], as in [`parts`](Self::parts).
    pub fn memory(&self) -> Result<PlanMemory, PlanError> {
        let mut memory = PlanMemory::default();
        for case in self.settings() {
            let parts = self.parts(&case)?;
            let setup = parts.setup(Recording::default());
            memory.run_bytes = memory.run_bytes.max(memory_bytes(&setup));
            let of_seeds = result_bytes(&setup).saturating_mul(self.seeds.len() as u64);
            memory.results_bytes = memory.results_bytes.saturating_add(of_seeds);
        }
        Ok(memory)
    }

    /// Estimated upper bound of the memory of a [`sweep`](super::sweep) with these arguments, in
    /// bytes: its simultaneous runs, what one of them records, and the outcomes of all.
    ///
    /// # Errors
    /// [`PlanError`], as in [`parts`](Self::parts).
    pub fn sweep_bytes(
        &self,
        threads: usize,
        recorded: Option<(usize, Recording)>,
    ) -> Result<u64, PlanError> {
        let memory = self.memory()?;
        let cases = self.cases();
        let running = memory
            .run_bytes
            .saturating_mul(cases.len().min(threads) as u64);
        let recorded = recorded.and_then(|(run, recording)| Some((cases.get(run)?, recording)));
        let recorded = match recorded {
            Some((case, recording)) => recorded_bytes(&self.parts(case)?.setup(recording)),
            None => 0,
        };
        let parts = [running, memory.results_bytes, recorded];
        Ok(parts.into_iter().fold(0, u64::saturating_add))
    }
}
