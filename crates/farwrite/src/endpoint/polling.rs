//! What an endpoint does when it is polled.

use farwrite_fabric::contract::{Completion, Fabric, Sender};

use super::Endpoint;
use crate::error::Error;
use crate::handle::QueuePair;

impl<F: Fabric> Endpoint<F> {
    /// Takes in what has arrived, and sends what may be sent at `now_ns`, which must not run
    /// backward. Returns when to call again at the latest, if nothing arrives before; `None` when
    /// only an arrival can bring more to do.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric is broken for good.
    pub fn poll(&mut self, now_ns: u64) -> Result<Option<u64>, Error> {
        self.now_ns = now_ns;
        self.take_departures()?;
        let polled = self.fabric.poll(&mut self.completions);
        // Also where a port is broken: the others may have received.
        self.dispatch(now_ns);
        self.fabric.end_batch();
        let more = polled?;
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        line.extend(self.pairs.keys());
        self.turns.line_up(&mut line);
        for id in &line {
            if let Some(pair) = self.pairs.get_mut(id) {
                pair.poll(&mut self.fabric, &self.known, &mut self.coder, now_ns)?;
            }
        }
        let next = self.take_turns(&line, now_ns)?;
        self.line = line;
        Ok([next, more.then_some(now_ns)].into_iter().flatten().min())
    }

    /// Lets queue pairs send and encode in turn, a bounded amount. Returns when there is more to
    /// do.
    fn take_turns(&mut self, line: &[QueuePair], now_ns: u64) -> Result<Option<u64>, Error> {
        let mut next = None;
        let mut waiting = None;
        for &id in line {
            if !self.turns.may_begin() {
                waiting = Some(id);
                next = Some(now_ns);
                break;
            }
            let Some(pair) = self.pairs.get_mut(&id) else {
                continue;
            };
            let turn = pair.take_turn(&mut self.fabric, now_ns)?;
            // While the pace or the fabric holds packets back, there is time to encode.
            let encoded_bytes = pair.encode(&mut self.fabric, &mut self.coder, now_ns)?;
            let wanted = match encoded_bytes {
                0 => pair.next_ns(now_ns, turn.halt),
                _ => Some(now_ns),
            };
            next = [next, wanted].into_iter().flatten().min();
            self.turns.note(id, &turn, encoded_bytes);
        }
        self.turns.end(waiting);
        Ok(next)
    }

    /// Takes in which packets have left.
    pub(super) fn take_departures(&mut self) -> Result<(), Error> {
        self.fabric.poll_departed(&mut self.departed)?;
        for departed in self.departed.drain(..) {
            if let Some((id, _)) = self.routes.get(&departed.qpn)
                && let Some(pair) = self.pairs.get_mut(id)
            {
                pair.handle_departed(self.now_ns, departed.qpn, departed.wr_id);
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, now_ns: u64) {
        for completion in self.completions.drain(..) {
            // A queue pair that was destroyed, or made through the fabric, is no affair of ours.
            let Some(&(id, generation)) = self.routes.get(&completion.qpn()) else {
                continue;
            };
            let Some(pair) = self.pairs.get_mut(&id) else {
                continue;
            };
            match (completion, generation) {
                (Completion::Write { imm, bytes, .. }, Some(generation)) => {
                    pair.count_accepted();
                    pair.handle_write(generation, imm, bytes);
                }
                (Completion::Send(send), None) => match send.from {
                    Sender::Validated => {
                        pair.count_accepted();
                        pair.handle_control_packet(now_ns, &send.payload);
                    }
                    // Nothing lets a peer prove a new address yet.
                    Sender::Unvalidated(_) => pair.refuse_control(),
                },
                // A write on the control path: no peer of ours does that. Data queue pairs take no
                // SEND.
                (Completion::Write { .. }, None) | (Completion::Send(_), Some(_)) => {
                    pair.count_accepted();
                    pair.count_stray();
                }
            }
        }
    }
}
