//! The outcomes and the bytes of all flows at the end of a case.

use farwrite::Outcome;
use farwrite_net::Payload;

use super::NetworkWorld;
use crate::networks::nic::{self, BufferOutcome, RequestOutcome};
use crate::networks::plan::{Carrier, FlowPlan};
use crate::networks::{Bytes, NetworkHost};
use crate::violation::{Rule, Violation};

impl NetworkWorld<'_> {
    /// Checks the outcomes of all flows.
    pub(super) fn judge(&mut self) -> Result<(), Violation> {
        for number in 0..self.plan.flows.len() {
            self.judge_flow(number)?;
        }
        Ok(())
    }

    fn judge_flow(&mut self, number: usize) -> Result<(), Violation> {
        match self.plan.flows[number].carrier {
            Carrier::Endpoint(_) => self.judge_endpoints(number),
            _ => self.judge_nics(number),
        }
    }

    fn judge_endpoints(&mut self, number: usize) -> Result<(), Violation> {
        let dst = self.plan.flows[number].dst;
        let outcomes = self.outcomes(number);
        if outcomes != [Some(Outcome::Whole); 2] {
            let what = format!("flow {number} has outcomes {outcomes:?}");
            return Err(self.violation(Rule::Outcome, what));
        }
        let received = match self.network.device(self.hosts[dst]) {
            Some(NetworkHost::Endpoint(host)) => host.program().received(number),
            _ => None,
        };
        let buffer = received.map(|(buffer, _)| buffer.to_vec());
        self.ended.saw("messages of endpoints");
        self.check_bytes((number, 0), buffer)
    }

    fn judge_nics(&mut self, number: usize) -> Result<(), Violation> {
        let FlowPlan { dst, carrier, .. } = self.plan.flows[number];
        let buffers = self.buffers(number)?;
        let outcomes = self.request_outcomes(number)?;
        for (message, (outcome, buffer)) in outcomes.into_iter().zip(buffers).enumerate() {
            let RequestOutcome::Done(read) = outcome else {
                self.ended.saw("requests given up");
                // The message may have arrived although its request failed.
                match buffer {
                    BufferOutcome::Nothing => {}
                    BufferOutcome::Sent(data) => {
                        self.check_bytes((number, message), Some(bytes_of(data)))?;
                    }
                    BufferOutcome::Written => self.check_memory(dst, (number, message))?,
                }
                continue;
            };
            match (carrier, buffer) {
                (Carrier::Read, _) => {
                    self.ended.saw("READs");
                    self.check_bytes((number, message), read.map(bytes_of))?;
                }
                (Carrier::Send, BufferOutcome::Sent(data)) => {
                    self.ended.saw("SENDs");
                    self.check_bytes((number, message), Some(bytes_of(data)))?;
                }
                (Carrier::WriteImmediate, BufferOutcome::Written) => {
                    self.ended.saw("WRITEs with immediate");
                    self.check_memory(dst, (number, message))?;
                }
                (Carrier::Send | Carrier::WriteImmediate, _) => {
                    self.check_bytes((number, message), None)?;
                }
                (Carrier::Write | Carrier::Endpoint(_), _) => {
                    self.ended.saw("WRITEs");
                    self.check_memory(dst, (number, message))?;
                }
            }
        }
        Ok(())
    }

    /// What the receive buffers of a flow have.
    fn buffers(&self, number: usize) -> Result<Vec<BufferOutcome>, Violation> {
        let FlowPlan {
            dst,
            carrier,
            messages,
            bytes,
            ..
        } = self.plan.flows[number];
        if !matches!(carrier, Carrier::Send | Carrier::WriteImmediate) {
            return Ok(vec![BufferOutcome::Nothing; messages]);
        }
        let completions = self.completions(dst, number);
        let buffers = nic::buffers(completions.iter(), (messages, bytes));
        buffers.map_err(|what| self.violation(Rule::Outcome, format!("flow {number}: {what}")))
    }

    /// Checks the memory of a WRITE.
    fn check_memory(&mut self, dst: usize, at: (usize, usize)) -> Result<(), Violation> {
        let memory = self.nic(dst).memory(at.0, at.1).to_vec();
        self.check_bytes(at, Some(memory))
    }

    fn check_bytes(
        &self,
        (number, message): (usize, usize),
        buffer: Option<Vec<u8>>,
    ) -> Result<(), Violation> {
        let bytes = Bytes::new(self.plan, number, message);
        let is_done = format!("message {message} of flow {number} is done");
        let what = match buffer.map(|buffer| bytes.differs_at(&buffer)) {
            Some(None) => return Ok(()),
            Some(Some(at)) => format!("{is_done}, and differs from byte {at} on"),
            None => format!("{is_done}, and its receiver has nothing"),
        };
        Err(self.violation(Rule::Bytes, what))
    }
}

fn bytes_of(payload: Payload) -> Vec<u8> {
    match payload {
        Payload::Bytes(bytes) => bytes.to_vec(),
        Payload::Ghost(_) | Payload::Trimmed(_) => Vec::new(),
    }
}
