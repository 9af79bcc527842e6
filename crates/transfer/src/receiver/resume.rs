//! The receiver's part in continuing over another queue pair (P8.5).

use std::time::Duration;

use farwrite::Outcome;
use farwrite_session::{Message, Resume, Resumed};

use super::receiving;
use super::stream::{Posted, Stream};
use crate::resume::Terms;
use crate::setup::{decode_info, encode_info};
use crate::speaker::Outbox;
use crate::{Error, Event, Host, RouteShrunk};

impl Stream {
    /// Ends the queue pair, makes another, posts the unfinished segments to it, and answers the
    /// sender.
    pub(super) fn resume(
        &mut self,
        resume: &Resume,
        outbox: &Outbox,
        host: &Host<'_>,
    ) -> Result<(), Error> {
        let theirs = decode_info(&resume.info)?;
        let is_finished = |posted: &Posted| posted.outcome() == Some(Outcome::Whole);
        let ahead = self.posted.iter().take_while(|one| is_finished(one));
        let terms = Terms {
            plan: &self.agreed.plan,
            shape: self.shape,
            scheme: self.agreed.scheme,
            arrived: self.taken_segments + ahead.count() as u64,
        };
        let shape = terms.check(resume.first_segment, &theirs.config)?;
        let shrunk = RouteShrunk {
            peer: self.routed.peer(),
            mtu: self.shape.mtu,
            carries: shape.mtu,
        };
        host.observer.observe(Event::RouteShrunk(shrunk));
        let mut finished: Vec<u64> = (resume.first_segment..self.taken_segments).collect();
        for (segment, posted) in (self.taken_segments..).zip(&mut self.posted) {
            if posted.outcome() != Some(Outcome::Whole) {
                posted.handle = None;
            } else if segment >= resume.first_segment {
                finished.push(segment);
            }
        }
        let rtt = Duration::from_nanos(self.stats()?.rtt_ns);
        let scheme = self.agreed.scheme.most_parity();
        let control = self.agreed.control;
        let options = receiving(theirs.config, control, (&shape, scheme), rtt);
        let ours = self.lane.replace(&mut self.routed.endpoint, options)?;
        self.shape = shape;
        self.routed.connect(self.lane.reopen(), theirs)?;
        // The receives must be posted before the sender learns about the new queue pair.
        self.post()?;
        let resumed = Message::Resumed(Resumed {
            finished,
            info: encode_info(&ours)?,
        });
        outbox.send_or_cancel(resumed, host.cancel)
    }
}
