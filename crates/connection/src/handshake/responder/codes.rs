//! What a responder does with its code of one use (P12.3). It keeps nothing of an exchange: an opening has what is
//! needed to compute this end's part again.

use std::sync::Arc;

use farwrite_keys::OneTimeCode;

use super::{Asked, HandshakeId, Reaction, Responder};
use crate::handshake::noise;
use crate::handshake::packet::{self, Cookie, Opening, Pake, Refusal};
use crate::keys::{Peer, handshake_key};

impl Responder {
    /// Answers the initiator's message of the exchange about a code, and keeps nothing.
    pub(super) fn exchange(
        &mut self,
        now_ns: u64,
        id: HandshakeId,
        cookie: &Cookie,
        theirs: &Pake,
    ) -> Reaction {
        Reaction::Answered(match self.code(now_ns, id) {
            Ok(code) => {
                let seed = self.cookies.seed(cookie, id, theirs);
                packet::exchanged(id.0, &code.code().respond(seed).1)
            }
            Err(refusal) => refusal,
        })
    }

    /// Verifies an opening with the code, which is used up by that. This end's part of the exchange is computed
    /// again.
    pub(super) fn open_of_code(
        &mut self,
        now_ns: u64,
        id: HandshakeId,
        hash: [u8; 32],
        (opening, pake): (&Opening<'_>, &Pake),
    ) -> Reaction {
        let code = match self.code(now_ns, id) {
            Ok(code) => code,
            Err(refusal) => return Reaction::Answered(refusal),
        };
        let seed = self.cookies.seed(&opening.cookie, id, pake);
        let (exchange, ours) = code.code().respond(seed);
        // A message that no code gives tests no guess.
        let Ok(key) = exchange.finish(pake) else {
            return Reaction::Ignored;
        };
        let prologue = [opening.prologue, &ours].concat();
        // From here on, nobody can try this code again.
        code.use_up();
        match noise::open_of_code(&handshake_key(&key), &prologue, opening.noise) {
            Ok(state) => self.ask(Asked {
                id,
                peer: Peer::CODE,
                opening: hash,
                state,
            }),
            Err(_) => {
                self.counts.wrong_codes += 1;
                let answer = packet::refusal(id.0, Refusal::Keys);
                self.tried = Some((hash, answer.clone()));
                Reaction::Answered(answer)
            }
        }
    }

    /// The code, if there is one that nobody has used, and this end may compute with it now; or else the answer.
    fn code(&mut self, now_ns: u64, id: HandshakeId) -> Result<Arc<OneTimeCode>, Vec<u8>> {
        let why = match self.keys.code.clone() {
            Some(code) if !code.is_used() => {
                let refusal = self.over_budget(now_ns, id);
                return refusal.map_or(Ok(code), Err);
            }
            Some(_) => Refusal::CodeUsed,
            None => Refusal::Pattern,
        };
        self.counts.other_keys += 1;
        Err(packet::refusal(id.0, why))
    }
}
