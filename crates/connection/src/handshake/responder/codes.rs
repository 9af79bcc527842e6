//! What a responder does with its code of one use (P12.3). It keeps nothing of an exchange: an opening has what is
//! needed to compute this end's part again.

use std::sync::Arc;

use farwrite_keys::OneTimeCode;

use super::{Asked, HandshakeId, Reaction, Responder};
use crate::handshake::noise::{self, Opened};
use crate::handshake::packet::{self, Cookie, Pake, Refusal};
use crate::keys::handshake_key;

/// An opening of pattern 2.
pub(super) struct OfCode<'a> {
    pub(super) cookie: Cookie,
    pub(super) pake: &'a Pake,
    /// What the initiator has sent of the prologue.
    pub(super) prologue: &'a [u8],
    pub(super) noise: &'a [u8],
}

impl Responder {
    /// Answers the initiator's message of the exchange about a code, and keeps nothing.
    pub(super) fn exchange(
        &mut self,
        now_ns: u64,
        id: HandshakeId,
        cookie: &Cookie,
        theirs: &Pake,
    ) -> Reaction {
        let code = match self.code() {
            Ok(code) => code,
            Err(why) => return self.refuse_code(id, why),
        };
        if let Some(refused) = self.over_budget(now_ns, id) {
            return refused;
        }
        let seed = self.cookies.seed(cookie, id, theirs);
        let (_, ours) = code.code().respond(seed);
        Reaction::Answered(packet::exchanged(id.0, &ours))
    }

    /// Verifies an opening with the code, which is used up by that. This end's part of the exchange is computed
    /// again.
    pub(super) fn open_of_code(
        &mut self,
        now_ns: u64,
        id: HandshakeId,
        opening: [u8; 32],
        of_code: &OfCode<'_>,
    ) -> Reaction {
        let code = match self.code() {
            Ok(code) => code,
            Err(why) => return self.refuse_code(id, why),
        };
        if let Some(refused) = self.over_budget(now_ns, id) {
            return refused;
        }
        let seed = self.cookies.seed(&of_code.cookie, id, of_code.pake);
        let (exchange, ours) = code.code().respond(seed);
        // A message that no code gives tests no guess.
        let Ok(key) = exchange.finish(of_code.pake) else {
            return Reaction::Ignored;
        };
        let prologue = [of_code.prologue, &ours].concat();
        // From here on, nobody can try this code again.
        code.use_up();
        match noise::open_of_code(&handshake_key(&key), &prologue, of_code.noise) {
            Ok(Opened {
                state,
                peer: Ok(peer),
            }) => self.ask(Asked {
                id,
                peer,
                opening,
                state,
            }),
            _ => {
                self.counts.wrong_codes += 1;
                let answer = packet::refusal(id.0, Refusal::Keys);
                self.tried = Some((opening, answer.clone()));
                Reaction::Answered(answer)
            }
        }
    }

    /// The code, if there is one that nobody has used.
    fn code(&self) -> Result<Arc<OneTimeCode>, Refusal> {
        match &self.keys.code {
            Some(code) if code.is_used() => Err(Refusal::CodeUsed),
            Some(code) => Ok(Arc::clone(code)),
            None => Err(Refusal::Pattern),
        }
    }

    fn refuse_code(&mut self, id: HandshakeId, why: Refusal) -> Reaction {
        self.counts.other_keys += 1;
        Reaction::Answered(packet::refusal(id.0, why))
    }
}
