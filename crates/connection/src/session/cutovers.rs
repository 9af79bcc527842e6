//! The path comes to carry only smaller packets: what can go on does so over other queue pairs (P12.9).

use std::sync::Arc;

use farwrite::routes::{Role, RouteError, RouteShrunk};
use farwrite::{MAX_MTU, QpInfo};
use farwrite_keys::Text;

use super::queue_pairs::{encoded, fit_path, too_large};
use super::{SESSION_MTU, Session, Shared};
use crate::cutover::{EndedMessages, GoesOn};
use crate::error::Ended;
use crate::message::{Malformed, Message};

/// What an end says of the queue pair with which it goes on, and of the one that has ended.
type Cutover<'a> = (&'a [u8], &'a EndedMessages);

/// The most cutovers that wait for an answer, and the most messages of the session that wait for the peer when one more
/// begins.
const MOST_AT_ONCE: usize = 256;

impl Session {
    /// `user` goes on over another queue pair if the path comes to carry only smaller packets.
    pub(crate) fn set_user(&mut self, number: u32, user: Box<dyn GoesOn>) {
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.user = Some(user);
        }
    }

    /// Whether there are smaller packets with which both ends would go on.
    pub(super) fn can_go_on(&self) -> bool {
        self.peer_goes_on && self.mtu > SESSION_MTU
    }

    /// This end has found that packets of the present MTU do not pass any more. If the session queue pair itself cannot
    /// go on, or the peer has a version that does not go on, the connection ends at its time limit.
    pub(super) fn shrink(&mut self, shared: &mut Shared<'_>, shrunk: &RouteShrunk) {
        if !self.can_go_on() || shrunk.carries < SESSION_MTU || shrunk.carries >= self.mtu {
            return;
        }
        self.stuck.shrunk = None;
        let mtu = shrunk.carries;
        self.tell(&Message::Smaller { mtu });
        self.use_smaller(shared, mtu);
    }

    /// The peer has found that the path carries only packets of `mtu`.
    pub(super) fn hear_smaller(&mut self, shared: &mut Shared<'_>, mtu: u32) -> Result<(), Ended> {
        check_mtu(mtu, MAX_MTU)?;
        if mtu < self.mtu {
            self.use_smaller(shared, mtu);
        }
        Ok(())
    }

    /// The responder waits for the cutovers of the initiator.
    fn use_smaller(&mut self, shared: &mut Shared<'_>, mtu: u32) {
        self.mtu = mtu;
        self.has_changed = true;
        self.refuse_openings();
        self.begin_cutovers(shared);
    }

    /// What this end opens with packets that do not pass must be opened again.
    fn refuse_openings(&mut self) {
        let mtu = self.mtu;
        let openings = self.openings.iter_mut();
        let ended = openings.filter(|(_, opening)| opening.options.sdr.mtu > mtu);
        let mut refused = Vec::new();
        for (&number, opening) in ended {
            let reason = too_large(mtu);
            opening.answer = Some(Err(reason.clone()));
            refused.push(Message::Refused { number, reason });
        }
        refused.iter().for_each(|message| self.tell(message));
    }

    /// The queue pairs whose packets do not pass, and which wait for nothing.
    fn too_large(&self) -> impl Iterator<Item = u32> {
        let mtu = self.mtu;
        let pairs = self
            .pairs
            .iter()
            .filter(move |(_, pair)| pair.options.sdr.mtu > mtu && !pair.is_cut && !pair.is_broken);
        pairs.map(|(number, _)| *number)
    }

    /// Refuses what cannot go on, and as the initiator, begins the cutovers of what can. Of many queue pairs, the rest
    /// waits for later calls. Returns whether any have not waited.
    pub(super) fn begin_cutovers(&mut self, shared: &mut Shared<'_>) -> bool {
        let is_cut = self.pairs.values().filter(|pair| pair.is_cut).count();
        let room = MOST_AT_ONCE.saturating_sub(is_cut.max(self.queue.unsent()));
        let is_initiator = self.role == Role::Initiator;
        let is_due = |number: &u32| is_initiator || self.pairs[number].user.is_none();
        let mut due: Vec<u32> = self.too_large().filter(is_due).collect();
        self.is_behind = due.len() > room;
        due.truncate(room);
        for &number in &due {
            match self.cut(shared, number, self.mtu) {
                Some((queue_pair, ended)) => {
                    let cutover = Message::Cutover {
                        number,
                        queue_pair,
                        ended,
                    };
                    self.tell_cutover(shared, number, &cutover);
                }
                None => self.refuse_pair(shared, number),
            }
        }
        !due.is_empty()
    }

    /// Where very many messages are open, what has ended takes more than one message of the session.
    fn tell_cutover(&mut self, shared: &mut Shared<'_>, number: u32, message: &Message) {
        match message.is_too_long() {
            true => self.refuse_pair(shared, number),
            false => self.tell(message),
        }
    }

    /// Replaces a queue pair. Returns what the peer must know; `None` if that has failed.
    fn cut(
        &mut self,
        shared: &mut Shared<'_>,
        number: u32,
        mtu: u32,
    ) -> Option<(Vec<u8>, EndedMessages)> {
        let pair = self.pairs.get_mut(&number)?;
        let user = pair.user.as_mut()?;
        fit_path(&mut pair.options.sdr, mtu);
        let (qp, ended) = user.cut(shared.endpoint, &pair.options).ok()?;
        (pair.qp, pair.is_cut) = (qp, true);
        Some((encoded(shared, qp).ok()?, ended))
    }

    /// The initiator goes on over another queue pair, and so does this end.
    pub(super) fn follow_cutover(
        &mut self,
        shared: &mut Shared<'_>,
        number: u32,
        (info, ended): Cutover<'_>,
    ) -> Result<(), Ended> {
        if self.role == Role::Initiator {
            return Err(Malformed::new("the responder begins a cutover").into());
        }
        let Some(pair) = self.pairs.get(&number) else {
            self.tell(&Message::Refused {
                number,
                reason: Text::new("it is not open"),
            });
            return Ok(());
        };
        if pair.is_broken {
            return Ok(());
        }
        let theirs = QpInfo::decode(info).map_err(Malformed::new)?;
        let mtu = theirs.config.mtu;
        check_mtu(mtu, pair.options.sdr.mtu - 1)?;
        let Some((queue_pair, ours)) = self.cut(shared, number, mtu) else {
            self.refuse_pair(shared, number);
            return Ok(());
        };
        if self.go_on(shared, number, (&theirs, ended)) {
            let accepted = Message::CutoverAccepted {
                number,
                queue_pair,
                ended: ours,
            };
            self.tell_cutover(shared, number, &accepted);
        }
        Ok(())
    }

    /// The responder goes on with the queue pair of a cutover of this end.
    pub(super) fn finish_cutover(
        &mut self,
        shared: &mut Shared<'_>,
        number: u32,
        (info, ended): Cutover<'_>,
    ) -> Result<(), Ended> {
        let pair = self.pairs.get(&number);
        if self.role == Role::Responder || !pair.is_some_and(|pair| pair.is_cut) {
            return Ok(());
        }
        let theirs = QpInfo::decode(info).map_err(Malformed::new)?;
        self.go_on(shared, number, (&theirs, ended));
        // The path may carry even less by now.
        self.begin_cutovers(shared);
        Ok(())
    }

    /// Connects the new queue pair, and goes on over it. Returns whether that has succeeded.
    fn go_on(
        &mut self,
        shared: &mut Shared<'_>,
        number: u32,
        (theirs, ended): (&QpInfo, &EndedMessages),
    ) -> bool {
        let Some(pair) = self.pairs.get_mut(&number) else {
            return false;
        };
        pair.is_cut = false;
        let qp = pair.qp;
        let connected = shared
            .keeper
            .connect(shared.endpoint, self.route, qp, theirs);
        let user = pair.user.as_mut();
        let go_on = |user: &mut Box<dyn GoesOn>| user.go_on(shared.endpoint, ended);
        let has_gone_on = connected.is_ok() && user.is_none_or(go_on);
        match has_gone_on {
            true => shared.endpoint.waker_of(qp).wake(),
            false => self.refuse_pair(shared, number),
        }
        has_gone_on
    }

    /// The peer does not go on with a queue pair, before or after a cutover.
    pub(super) fn hear_refusal(&mut self, shared: &mut Shared<'_>, number: u32) {
        // A peer also withdraws its request for a queue pair by a refusal.
        self.requests.retain(|request| request.number != number);
        let mtu = self.mtu;
        let pair = self.pairs.get(&number);
        if pair.is_some_and(|pair| pair.first_mtu > mtu) {
            self.break_pair(shared, number);
        }
    }

    /// This end does not go on with a queue pair whose packets do not pass.
    fn refuse_pair(&mut self, shared: &mut Shared<'_>, number: u32) {
        let Some(why) = self.break_pair(shared, number) else {
            return;
        };
        let reason = Text::new(why);
        self.tell(&Message::Refused { number, reason });
    }

    /// Breaks a queue pair whose packets do not pass, so that its users learn it. Returns the reason; `None` if it is
    /// broken already.
    fn break_pair(&mut self, shared: &mut Shared<'_>, number: u32) -> Option<Arc<farwrite::Error>> {
        let peer = shared.keeper.peer(self.route)?;
        let pair = self.pairs.get_mut(&number)?;
        if std::mem::replace(&mut pair.is_broken, true) {
            return None;
        }
        pair.is_cut = false;
        let why = || {
            farwrite::Error::from(RouteError::Shrunk(RouteShrunk {
                peer,
                mtu: pair.first_mtu,
                carries: self.mtu,
            }))
        };
        // This fails for a queue pair that is broken already.
        let _ = shared.endpoint.break_qp(pair.qp, why());
        let reason = Arc::new(why());
        if let Some(mut user) = pair.user.take() {
            user.give_up(shared.endpoint, Arc::clone(&reason));
        }
        Some(reason)
    }
}

pub(super) fn check_mtu(mtu: u32, most: u32) -> Result<(), Malformed> {
    let is_fit = (SESSION_MTU..=most).contains(&mtu) && mtu.is_multiple_of(4);
    let why = || {
        Malformed::new(format!(
            "packets of {mtu} bytes, want {SESSION_MTU} to {most}"
        ))
    };
    is_fit.then_some(()).ok_or_else(why)
}
