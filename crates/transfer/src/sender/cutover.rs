//! The sender's part in a cutover: it continues over a queue pair with smaller packets (P8.5).

use std::time::Duration;

use farwrite::{Outcome, RateControl, Sealing};
use farwrite_files::{Cutover, CutoverAccepted, Message};

use super::stream::{InFlight, SchemePicker, SegmentState, Stream};
use crate::cutover::{MAX_CUTOVERS, arrived_indices};
use crate::liveness::LifeSigns;
use crate::setup::{decode_info, encode_info};
use crate::shape::{Shape, options};
use crate::{Error, ErrorKind, Event, RouteShrunk, SchemeSetting, TransferHooks};

/// How often the stream has changed to another queue pair, and what the next change needs.
pub(super) struct CutoverState {
    pub(super) scheme: SchemeSetting,
    pub(super) rate_control: RateControl,
    pub(super) sealing: Sealing,
    pub(super) times: u32,
}

impl CutoverState {
    /// The shape to continue with, if that is possible.
    fn next_shape(&self, shape: Shape, carries: u32) -> Option<Shape> {
        if self.times >= MAX_CUTOVERS {
            return None;
        }
        shape.with_mtu(carries, self.scheme.most_parity())
    }
}

impl Stream {
    /// Asks the receiver to continue over another queue pair if the path no longer carries packets
    /// of this size.
    pub(super) fn watch_size(
        &mut self,
        signs: &LifeSigns,
        hooks: &TransferHooks<'_>,
    ) -> Result<(), Error> {
        let waits = signs.slow_disk().is_some() || self.in_flight.is_empty();
        let waits = waits || self.stream_qp.open().is_none();
        let mtu = self.shape.mtu;
        match self.routed.watch_size(signs.all_moved(), waits, mtu) {
            Some(shrunk) => self.cut_over(shrunk, hooks),
            None => Ok(()),
        }
    }

    /// Ends the queue pair, and asks the receiver to continue with smaller packets.
    fn cut_over(&mut self, shrunk: RouteShrunk, hooks: &TransferHooks<'_>) -> Result<(), Error> {
        let Some(shape) = self.cutover.next_shape(self.shape, shrunk.carries) else {
            return Err(shrunk.into());
        };
        hooks.observer.observe(Event::RouteShrunk(shrunk));
        self.cutover.times += 1;
        for segment in &mut self.in_flight {
            let state = &mut segment.state;
            if matches!(state, SegmentState::Posted(handle) if handle.outcome() == Some(Outcome::Whole))
            {
                *state = SegmentState::Arrived;
            } else if !matches!(state, SegmentState::Arrived) {
                *state = SegmentState::Cut;
            }
        }
        self.shape = shape;
        self.is_narrow = self.routed.is_narrow();
        let peer = self.peer_stats()?;
        let rate_control = match self.cutover.rate_control {
            RateControl::Adaptive { max_bps, start } => RateControl::Adaptive {
                max_bps,
                start: peer.learned.or(start),
            },
            other => other,
        };
        let rtt = Duration::from_nanos(peer.rtt_ns);
        let options = options(shape.config(), rate_control, self.cutover.sealing, rtt);
        let ours = self.stream_qp.replace(&mut self.routed.endpoint, options)?;
        let cutover = Message::Cutover(Cutover {
            first_segment: self.settled_segments,
            info: encode_info(&ours)?,
        });
        self.outbox.send_or_cancel(cutover, hooks.cancel)
    }

    pub(super) fn finish_cutover(&mut self, accepted: &CutoverAccepted) -> Result<(), Error> {
        if self.stream_qp.open().is_some() {
            let what = "the receiver goes on over another queue pair, and was not asked to";
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let first_segment = self.settled_segments;
        for index in arrived_indices(&accepted.finished, first_segment, self.in_flight.len())? {
            self.in_flight[index].state = SegmentState::Arrived;
        }
        if let SchemePicker::Auto(auto) = &mut self.picker {
            let is_cut = |segment: &&InFlight| matches!(segment.state, SegmentState::Cut);
            let again = self.in_flight.iter().filter(is_cut).count();
            auto.handle_cutover(self.shape, again as u64);
        }
        let theirs = decode_info(&accepted.info)?;
        self.routed.connect(self.stream_qp.reopen(), theirs)
    }
}
