//! What an endpoint does when it is polled.

use farwrite_fabric::contract::{Completion, Fabric, Qpn};

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
        let more = self.fabric.poll(&mut self.completions)?;
        self.dispatch(now_ns)?;
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        line.extend(self.pairs.keys());
        self.turns.line_up(&mut line);
        for id in &line {
            if let Some(pair) = self.pairs.get_mut(id) {
                pair.poll(&mut self.fabric, &self.known, now_ns)?;
            }
        }
        let next = self.take_turns(&line, now_ns)?;
        self.line = line;
        Ok([next, more.then_some(now_ns)].into_iter().flatten().min())
    }

    /// Lets queue pairs send and encode in turn, a bounded amount. Returns when there is more to do.
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
            let encoded_bytes = pair.encode(&mut self.fabric, now_ns)?;
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

    /// Takes in which packets have left. What has arrived waits for the next poll, and its time.
    pub(super) fn take_departures(&mut self) -> Result<(), Error> {
        self.fabric.poll(&mut self.completions)?;
        let departed = self.completions.extract_if(.., |completion| {
            matches!(completion, Completion::Departed { .. })
        });
        for completion in departed {
            if let Completion::Departed { qpn, wr_id } = completion
                && let Some((id, _)) = self.routes.get(&qpn)
                && let Some(pair) = self.pairs.get_mut(id)
            {
                pair.handle_departed(self.now_ns, qpn, wr_id);
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, now_ns: u64) -> Result<(), Error> {
        // Completions come in runs of one queue pair, so its receives are posted anew in runs.
        let mut run: Option<(Qpn, u32)> = None;
        for completion in self.completions.drain(..) {
            let (qpn, is_receive) = match &completion {
                Completion::Write { qpn, .. } | Completion::Send { qpn, .. } => (*qpn, true),
                Completion::Departed { qpn, .. } => (*qpn, false),
            };
            // A queue pair that was destroyed, or made through the fabric, is no affair of ours.
            let Some(&(id, generation)) = self.routes.get(&qpn) else {
                continue;
            };
            if is_receive {
                match &mut run {
                    Some((last, count)) if *last == qpn => *count += 1,
                    _ => {
                        if let Some((last, count)) = run.replace((qpn, 1)) {
                            self.fabric.post_recv(last, count)?;
                        }
                    }
                }
            }
            let Some(pair) = self.pairs.get_mut(&id) else {
                continue;
            };
            if is_receive {
                pair.count_accepted();
            }
            match (completion, generation) {
                (Completion::Write { imm, bytes, .. }, Some(generation)) => {
                    pair.handle_write(generation, imm, bytes);
                }
                (Completion::Send { payload, .. }, None) => {
                    pair.handle_control_packet(now_ns, &payload);
                }
                (Completion::Departed { wr_id, .. }, _) => {
                    pair.handle_departed(now_ns, qpn, wr_id);
                }
                // A write on the control path, or a SEND on a data path: no peer of ours does that.
                _ => pair.count_stray(),
            }
        }
        if let Some((qpn, count)) = run {
            self.fabric.post_recv(qpn, count)?;
        }
        Ok(())
    }
}
