//! Reads of a queue pair (P3.13): requests of this end, and answers to requests of the peer.

use std::collections::BTreeMap;

use farwrite_codes::Layout;
use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, Lkey};
use farwrite_sdr::{ReadSpec, SdrError};
use farwrite_wire::control::{Outcome, ReadRefusal, SchemeTag};

use super::Pair;
use crate::critical::CriticalRanges;
use crate::error::Error;
use crate::handle::RecvHandle;
use crate::memory::MrSlice;
use crate::options::{RecvOptions, SendOptions};
use crate::reads::{ExposedRegion, ReadOptions, ReadRefused};
use crate::registry::Registry;

/// What a direction of a queue pair carries. The first use decides. Messages and answers cannot be
/// mixed: both are numbered in their order, and the two ends would not agree on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Carries {
    #[default]
    Nothing,
    Messages,
    Answers,
}

impl Carries {
    /// What a message is, by whether it answers a read.
    pub(super) fn of(answers_read: bool) -> Self {
        match answers_read {
            true => Self::Answers,
            false => Self::Messages,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Messages => "messages",
            Self::Answers => "answers to reads",
        }
    }
}

#[derive(Default)]
pub(super) struct Reads {
    pub(super) sends: Carries,
    pub(super) receives: Carries,
    exposed: BTreeMap<u64, MrSlice>,
    /// Number of the region that is exposed next.
    next_region: u64,
}

impl Reads {
    pub(super) fn exposes(&self, lkey: Lkey) -> bool {
        let mut exposed = self.exposed.values();
        exposed.any(|slice| slice.region.lkey == lkey)
    }

    fn find(&self, read: &ReadSpec) -> Result<MrSlice, ReadRefusal> {
        let slice = self.exposed.get(&read.region);
        let slice = slice.ok_or(ReadRefusal::UnknownRegion)?;
        slice
            .part(read.offset, read.length)
            .ok_or(ReadRefusal::OutOfRange)
    }
}

impl Pair {
    pub(super) fn check_sends(&self, wanted: Carries) -> Result<(), Error> {
        self.check_switch(self.options.sends, "sends")?;
        self.check_direction(self.reads.sends, wanted)
    }

    pub(super) fn check_receives(&self, wanted: Carries) -> Result<(), Error> {
        self.check_switch(self.options.receives, "receives")?;
        self.check_direction(self.reads.receives, wanted)
    }

    fn check_switch(&self, is_on: bool, switch: &'static str) -> Result<(), Error> {
        match is_on {
            true => Ok(()),
            false => Err(Error::SwitchedOff {
                queue_pair: self.name.serial,
                switch,
            }),
        }
    }

    /// Checks that a direction which carries `carried` may carry `wanted`.
    fn check_direction(&self, carried: Carries, wanted: Carries) -> Result<(), Error> {
        if carried == wanted || carried == Carries::Nothing {
            return Ok(());
        }
        Err(Error::Direction {
            queue_pair: self.name.serial,
            carried: carried.name(),
            wanted: wanted.name(),
        })
    }

    /// Lets the peer read a slice.
    pub(crate) fn expose(&mut self, slice: MrSlice) -> Result<ExposedRegion, Error> {
        Self::check_bounds(&slice)?;
        self.check_sends(Carries::Answers)?;
        let region = self.reads.next_region;
        self.reads.sends = Carries::Answers;
        self.reads.next_region += 1;
        self.reads.exposed.insert(region, slice);
        Ok(ExposedRegion(region))
    }

    /// Ends the exposure of a region, and the answers that send bytes of it.
    pub(crate) fn conceal(&mut self, region: ExposedRegion) -> Result<(), Error> {
        if self.reads.exposed.remove(&region.0).is_none() {
            return Err(Error::NotExposed(region));
        }
        let sends = self.send.open.iter();
        let answers = sends.filter(|(_, send)| send.region == Some(region.0));
        let answers: Vec<u64> = answers.map(|(&message, _)| message).collect();
        for message in answers {
            self.stop_send(message, Outcome::Failed);
        }
        Ok(())
    }

    /// Posts a receive, and requests its message.
    pub(crate) fn post_read<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        target: MrSlice,
        (region, offset): (ExposedRegion, u64),
        options: ReadOptions,
    ) -> Result<RecvHandle, Error> {
        let ReadOptions {
            scheme,
            deadline_ns,
        } = options;
        if scheme == SchemeTag::NONE {
            return Err(Error::UnknownScheme(scheme.id));
        }
        let connected = self.connected.as_ref();
        let connected = connected.ok_or(Error::NotConnected(self.name.serial))?;
        if !connected.answers_reads {
            return Err(Error::NoReads(self.name.serial));
        }
        let recv_options = RecvOptions {
            scheme: Some(scheme),
            exact_length: true,
            immediate: false,
            deadline_ns,
            accept_partial: true,
        };
        let mut terms = self.terms(known, &recv_options)?;
        terms.answers_read = true;
        // The peer, whose queue pair has the same shape, could not send it.
        if let Some(layout) = self.layout(known, scheme, target.length) {
            if !self.geometry().config().parity {
                return Err(SdrError::ParityOff.into());
            }
            self.check_length(layout.parity_bytes() as u64)?;
        }
        let recv = self.open_recv(fabric, known, target, terms, deadline_ns)?;
        let spec = ReadSpec {
            region: region.0,
            offset,
            length: target.length,
            scheme,
            deadline_ns,
        };
        let requested = self.sdr.request_read(recv.message, spec);
        requested.map_err(|error| self.sdr_error(error))?;
        if let Some(open) = self.recv.open.get_mut(&recv.message) {
            open.read = Some(spec);
        }
        Ok(recv)
    }

    pub(super) fn handle_read_refused<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        message: u64,
        reason: ReadRefusal,
    ) -> Result<(), Error> {
        if let Some(recv) = self.recv.open.get(&message)
            && let Some(read) = recv.read
        {
            recv.shared.refuse_read(ReadRefused {
                region: ExposedRegion(read.region),
                offset: read.offset,
                length: read.length,
                reason,
            });
        }
        self.complete_recv(fabric, message, Outcome::Failed)
    }

    /// Returns whether the messages of this end answer reads.
    pub(super) fn answers_reads(&self) -> bool {
        self.reads.sends == Carries::Answers
    }

    /// Returns whether this end may answer requests of the peer.
    pub(super) fn may_answer(&self) -> bool {
        self.reads.sends != Carries::Messages
    }

    /// Answers the next reads that the peer requests, as long as not too many are being answered.
    /// Returns whether there were any.
    pub(super) fn answer_reads(&mut self, known: &Registry) -> Result<bool, Error> {
        let mut any = false;
        let most = self.options.max_answers.max(1) as usize;
        while self.may_answer()
            && self.send.open.len() + self.send.leaving.len() < most
            && let Some(read) = self.sdr.next_read().copied()
        {
            match self.answer(&read, known) {
                Ok(()) => any = true,
                Err(Error::Retry { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(any)
    }

    /// Sends the bytes of the next read, or refuses to.
    fn answer(&mut self, read: &ReadSpec, known: &Registry) -> Result<(), Error> {
        // The peer has posted its receives for answers: no message could follow.
        self.reads.sends = Carries::Answers;
        let refusal = match self.reads.find(read) {
            Err(refusal) => refusal,
            Ok(source) if self.may_answer_by(read, known) => {
                let options = SendOptions {
                    scheme: read.scheme,
                    immediate: None,
                    first_chunk: 0,
                    deadline_ns: read.deadline_ns.map(|at_ns| self.reader_deadline_ns(at_ns)),
                    critical: CriticalRanges::NONE,
                };
                match self.send_message(source, options, known, true) {
                    Ok(answer) => {
                        if let Some(send) = self.send.open.get_mut(&answer.message) {
                            send.region = Some(read.region);
                        }
                        return Ok(());
                    }
                    Err(error @ Error::Retry { .. }) => return Err(error),
                    Err(_) => ReadRefusal::Scheme,
                }
            }
            Ok(_) => ReadRefusal::Scheme,
        };
        let refused = self.sdr.refuse_read(refusal);
        refused.map_err(|error| self.sdr_error(error))?;
        Ok(())
    }

    /// Returns whether this end answers a read by the scheme that the peer has chosen. The number of
    /// schemes on a queue pair must be bounded, and so must the work of coding.
    fn may_answer_by(&self, read: &ReadSpec, known: &Registry) -> bool {
        let scheme = read.scheme;
        let most_percent = u64::from(self.options.max_answer_parity_percent);
        let is_cheap = |layout: Layout| {
            let (k, m) = (layout.code().k() as u64, layout.code().m() as u64);
            m * 100 <= k * most_percent
        };
        let layout = self.layout(known, scheme, read.length);
        scheme != SchemeTag::NONE
            && self.halves.senders.have_room_for(scheme)
            && layout.is_none_or(is_cheap)
    }

    /// Returns when the reader ends a read, by the clock of this end. `arrived_ns` is the arrival
    /// of the request, plus the time that remained when it left. Half of the round trip has passed
    /// in between. Without a measurement, nothing is known about that (P3.13).
    fn reader_deadline_ns(&self, arrived_ns: u64) -> u64 {
        match self.round_trip.is_measured() {
            true => arrived_ns.saturating_sub(self.round_trip.smoothed_ns / 2),
            false => arrived_ns,
        }
    }
}
