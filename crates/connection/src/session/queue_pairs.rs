//! The queue pairs of a session: which the ends ask for, open and close (P12.6).

use std::time::Duration;

use farwrite::routes::Role;
use farwrite::{QpConfig, QpInfo, QpOptions, QueuePair, Sealing};
use farwrite_keys::Text;

use super::{Session, Shared};
use crate::cutover::GoesOn;
use crate::error::{Ended, Error};
use crate::message::{Malformed, Message, check_name};

/// The most queue pairs that this end asks for and the peer has not answered. Further ones wait here.
const MOST_OPENINGS: usize = 32;
/// The most requests of the peer that wait for this end's program or for a place.
pub(super) const MOST_REQUESTS: usize = 2 * MOST_OPENINGS;
/// Queue pairs that have ended and only answer late packets take no place, up to this many times the places.
const ENDED_PART: usize = 4;

/// A queue pair that both ends have opened.
pub(super) struct OpenPair {
    pub(super) qp: QueuePair,
    pub(super) options: QpOptions,
    /// The MTU with which it was opened.
    pub(super) first_mtu: u32,
    /// What goes on over another queue pair if the path comes to carry only smaller packets.
    pub(super) user: Option<Box<dyn GoesOn>>,
    /// Whether the peer has not answered a cutover.
    pub(super) is_cut: bool,
    pub(super) is_broken: bool,
}

impl OpenPair {
    fn new(qp: QueuePair, options: QpOptions) -> Self {
        Self {
            qp,
            first_mtu: options.sdr.mtu,
            options,
            user: None,
            is_cut: false,
            is_broken: false,
        }
    }
}

/// A queue pair that this end has asked for.
pub(super) struct Opening {
    pub(super) qp: QueuePair,
    pub(super) options: QpOptions,
    /// The peer's answer.
    pub(super) answer: Option<Result<(), Text>>,
}

/// A queue pair that the peer asks for.
pub(super) struct Request {
    pub(super) number: u32,
    name: String,
    theirs: Vec<u8>,
}

impl Session {
    pub(super) fn requested(
        &mut self,
        number: u32,
        name: String,
        theirs: Vec<u8>,
    ) -> Result<(), Ended> {
        let is_theirs = number % 2 != u32::from(self.role == Role::Responder);
        // A peer numbers its queue pairs in ascending order, and numbers none twice (P12.6.2).
        if !is_theirs || u64::from(number) < self.next_theirs {
            return Err(Malformed::new(format!("it numbers a queue pair {number}")).into());
        }
        self.next_theirs = u64::from(number) + 2;
        if self.requests.len() >= MOST_REQUESTS {
            let reason = Text::new(format!(
                "{MOST_REQUESTS} requests for queue pairs wait at it, the most of one connection"
            ));
            self.tell(&Message::Refused { number, reason });
            return Ok(());
        }
        self.requests.push_back(Request {
            number,
            name,
            theirs,
        });
        Ok(())
    }

    pub(super) fn opened(
        &mut self,
        shared: &mut Shared<'_>,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), Ended> {
        let Some(opening) = self.openings.get_mut(&number) else {
            return Ok(());
        };
        if opening.answer.is_some() {
            return Ok(());
        }
        let theirs = QpInfo::decode(bytes).map_err(Malformed::new)?;
        let connected = shared
            .keeper
            .connect(shared.endpoint, self.route, opening.qp, &theirs);
        opening.answer = Some(connected.map_err(Text::new));
        Ok(())
    }

    /// The round trip: as the route has measured it, or else as the handshake took.
    fn rtt(&self, shared: &Shared<'_>) -> Duration {
        // Without a limit, a search that goes on is no failure.
        let found = shared.keeper.found(self.route, Duration::MAX);
        found.ok().flatten().map_or(self.rtt, |found| found.rtt)
    }

    /// The options of a queue pair on this connection: its packets fit the path and are sealed, and its
    /// rate and its wish to omit the ICRC are those of the connection.
    pub(super) fn fitted(&self, shared: &Shared<'_>, mut options: QpOptions) -> QpOptions {
        fit_path(&mut options.sdr, self.mtu);
        options.rate_control = shared.options.rate_control;
        options.sealing = Sealing::Required;
        options.omit_icrc |= shared.options.omit_icrc;
        let rtt = self.rtt(shared);
        if !rtt.is_zero() {
            options.initial_rtt = rtt;
        }
        options
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        self.ended().map_or(Ok(()), |why| Err(why.into()))
    }

    /// Whether [`Session::begin_open`] asks the peer, or fails.
    pub(crate) fn may_open(&self) -> bool {
        self.openings.len() < MOST_OPENINGS || self.ended().is_some()
    }

    /// Asks the peer for a queue pair. Returns its number; `None` while too many requests are unanswered.
    pub(crate) fn begin_open(
        &mut self,
        shared: &mut Shared<'_>,
        name: &str,
        options: QpOptions,
    ) -> Result<Option<u32>, Error> {
        self.check_open()?;
        check_name(name)?;
        if !self.may_open() {
            return Ok(None);
        }
        let options = self.fitted(shared, options);
        let qp = shared.endpoint.create_qp(options.clone())?;
        let queue_pair = encoded(shared, qp)?;
        let number = self.next_number;
        self.next_number = number.wrapping_add(2);
        let opening = Opening {
            qp,
            options,
            answer: None,
        };
        self.openings.insert(number, opening);
        let name = name.to_owned();
        self.tell(&Message::Open {
            number,
            name,
            queue_pair,
        });
        Ok(Some(number))
    }

    /// The result of [`Session::begin_open`], once the peer has answered: the queue pair, or `None` if the path has come
    /// to carry only smaller packets, so that it must be asked for again.
    pub(crate) fn finish_open(
        &mut self,
        number: u32,
        name: &str,
    ) -> Option<Result<Option<QueuePair>, Error>> {
        if let Err(over) = self.check_open() {
            return Some(Err(over));
        }
        let opening = self.openings.get_mut(&number)?;
        match opening.answer.take()? {
            Ok(()) => {
                let Opening { qp, options, .. } = self.openings.remove(&number)?;
                self.pairs.insert(number, OpenPair::new(qp, options));
                // Others may wait for its place. No poll follows this call.
                self.tell_waiters();
                Some(Ok(Some(qp)))
            }
            Err(reason) => {
                // The caller gives it up, which destroys the queue pair.
                opening.answer = Some(Err(reason.clone()));
                if opening.options.sdr.mtu > self.mtu {
                    return Some(Ok(None));
                }
                let name = name.to_owned();
                Some(Err(Error::Refused { name, reason }))
            }
        }
    }

    /// Bytes of the largest message of a queue pair.
    pub(crate) fn largest_message(&self, number: u32) -> Option<u64> {
        Some(self.pairs.get(&number)?.options.sdr.max_message_bytes)
    }

    /// Closes a queue pair, or gives up opening it.
    pub(crate) fn close_pair(&mut self, shared: &mut Shared<'_>, number: u32) {
        self.retired.remove(&number);
        self.has_changed = true;
        let opening = self.openings.remove(&number).map(|opening| opening.qp);
        let open = self.pairs.remove(&number).map(|pair| pair.qp);
        if let Some(qp) = open.or(opening) {
            // It goes with the endpoint if it is broken.
            let _ = shared.endpoint.destroy_qp(qp);
            self.tell(&Message::Close { number });
        }
    }

    /// Says that a queue pair has ended at both ends, and only answers late packets: it takes no place.
    pub(crate) fn retire_pair(&mut self, number: u32) {
        if self.pairs.contains_key(&number) {
            self.retired.insert(number);
            // Others may wait for its place.
            self.tell_waiters();
        }
    }

    /// Whether one more queue pair may be open.
    fn has_place(&self) -> bool {
        let most_retired = ENDED_PART.saturating_mul(self.max_queue_pairs);
        let free = self.retired.len().min(most_retired);
        self.pairs.len() - free < self.max_queue_pairs
    }

    /// Whether [`Session::accept_pair`] has something to do or to report.
    pub(crate) fn is_asked(&self, name: Option<&str>) -> bool {
        let mut requests = self.requests.iter();
        let is_asked = requests.any(|request| name.is_none_or(|name| request.name == name));
        self.ended().is_some() || is_asked && self.has_place()
    }

    /// Opens the first queue pair that the peer asks for by this name (any name, if `None`). Returns
    /// `None` if there is none, or no place for it. A request that does not fit is refused. `options` are for an MTU.
    pub(crate) fn accept_pair(
        &mut self,
        shared: &mut Shared<'_>,
        name: Option<&str>,
        options: impl FnOnce(u32) -> QpOptions,
    ) -> Result<Option<(u32, String, QueuePair)>, Error> {
        self.check_open()?;
        if !self.has_place() {
            return Ok(None);
        }
        let Some(Request {
            number,
            name,
            theirs,
        }) = self.next_request(name)
        else {
            return Ok(None);
        };
        match self.connect_pair(shared, &theirs, options(self.mtu)) {
            Ok((qp, options, queue_pair)) => {
                self.pairs.insert(number, OpenPair::new(qp, options));
                self.tell(&Message::Opened { number, queue_pair });
                Ok(Some((number, name, qp)))
            }
            Err(error) => {
                let reason = Text::new(&error);
                self.tell(&Message::Refused { number, reason });
                Err(error)
            }
        }
    }

    /// Takes the first request by this name. Those from before the path came to carry only smaller packets are refused:
    /// their end does not know it yet.
    fn next_request(&mut self, name: Option<&str>) -> Option<Request> {
        loop {
            let is_named = |request: &Request| name.is_none_or(|name| request.name == name);
            let place = self.requests.iter().position(is_named)?;
            let request = self.requests.remove(place)?;
            let theirs = QpInfo::decode(&request.theirs);
            if !theirs.is_ok_and(|theirs| theirs.config.mtu > self.mtu) {
                return Some(request);
            }
            let (number, reason) = (request.number, too_large(self.mtu));
            self.tell(&Message::Refused { number, reason });
        }
    }

    fn connect_pair(
        &self,
        shared: &mut Shared<'_>,
        theirs: &[u8],
        options: QpOptions,
    ) -> Result<(QueuePair, QpOptions, Vec<u8>), Error> {
        let theirs = QpInfo::decode(theirs).map_err(Malformed::new)?;
        let options = self.fitted(shared, options);
        let qp = shared.endpoint.create_qp(options.clone())?;
        let connected = shared
            .keeper
            .connect(shared.endpoint, self.route, qp, &theirs);
        let info = connected
            .map_err(Error::from)
            .and_then(|()| encoded(shared, qp));
        match info {
            Ok(info) => Ok((qp, options, info)),
            Err(error) => {
                let _ = shared.endpoint.destroy_qp(qp);
                Err(error)
            }
        }
    }
}

/// Why a queue pair is not opened whose packets do not pass any more.
pub(super) fn too_large(mtu: u32) -> Text {
    Text::new(format!(
        "the path has come to carry only packets of {mtu} bytes"
    ))
}

/// Makes the packets of a queue pair fit a path, and its messages as long as such packets can carry.
pub(crate) fn fit_path(sdr: &mut QpConfig, mtu: u32) {
    sdr.mtu = sdr.mtu.min(mtu);
    let packets = 1_u64.checked_shl(sdr.split.offset_bits.into());
    let longest = packets.unwrap_or(u64::MAX).saturating_mul(sdr.mtu.into());
    sdr.max_message_bytes = sdr.max_message_bytes.min(longest);
}

pub(super) fn encoded(shared: &Shared<'_>, qp: QueuePair) -> Result<Vec<u8>, Error> {
    let info = shared.endpoint.qp_info(qp)?;
    Ok(info.encode().map_err(Malformed::new)?)
}
