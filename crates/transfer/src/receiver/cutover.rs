//! The receiver's part in a cutover to a queue pair with smaller packets (P8.5).

use std::time::Duration;

use farwrite::Outcome;
use farwrite_files::{Cutover, CutoverAccepted, Message};

use super::Reception;
use super::stream::{Posted, Stream};
use crate::cutover::CutoverTerms;
use crate::setup::{decode_info, encode_info};
use crate::{Error, Event, RouteShrunk};

impl Stream {
    /// Ends the queue pair, makes another, posts the unfinished segments to it, and answers the
    /// sender.
    pub(super) fn cut_over(
        &mut self,
        cutover: &Cutover,
        reception: &Reception<'_>,
    ) -> Result<(), Error> {
        let hooks = reception.hooks;
        let theirs = decode_info(&cutover.info)?;
        let is_finished = |posted: &Posted| posted.outcome() == Some(Outcome::Whole);
        let ahead = self.posted.iter().take_while(|one| is_finished(one));
        let terms = CutoverTerms {
            plan: &self.plan,
            shape: self.shape,
            scheme: self.scheme,
            arrived: self.taken_segments + ahead.count() as u64,
        };
        let shape = terms.check(cutover.first_segment, &theirs.config)?;
        let shrunk = RouteShrunk {
            peer: self.routed.peer(),
            mtu: self.shape.mtu,
            carries: shape.mtu,
        };
        hooks.observer.observe(Event::RouteShrunk(shrunk));
        let mut finished: Vec<u64> = (cutover.first_segment..self.taken_segments).collect();
        for (segment, posted) in (self.taken_segments..).zip(&mut self.posted) {
            if posted.outcome() != Some(Outcome::Whole) {
                posted.handle = None;
            } else if segment >= cutover.first_segment {
                finished.push(segment);
            }
        }
        let rtt = Duration::from_nanos(self.stats()?.rtt_ns);
        let scheme = self.scheme.most_parity();
        let options = reception.options(theirs.config, &shape, scheme, rtt);
        let ours = self.stream_qp.replace(&mut self.routed.endpoint, options)?;
        self.shape = shape;
        self.routed.connect(self.stream_qp.reopen(), theirs)?;
        // The receives must be posted before the sender learns about the new queue pair.
        self.post()?;
        let accepted = Message::CutoverAccepted(CutoverAccepted {
            finished,
            info: encode_info(&ours)?,
        });
        reception.outbox.send_or_cancel(accepted, hooks.cancel)
    }
}
