//! Binds the messages of [`Communicator::meet`](crate::Communicator::meet) to one meeting of one
//! group.
//!
//! Each message begins with a digest: of the context of the group in the first round, and in later
//! rounds of the last digest and of the messages of all ranks. Each rank finds its own message among
//! them, and messages contain new random keys. So a message of another job, group, attempt or round
//! is refused, even if it was sealed with the same key: at the latest in the round that follows.

use crate::error::CollectiveError;

const DIGEST_BYTES: usize = blake3::OUT_LEN;
/// Derives the first digest.
const PURPOSE: &str = "farwrite group meeting 1";

/// What the messages of the next round begin with.
#[derive(Debug)]
pub(crate) struct Binding {
    rank: usize,
    digest: [u8; DIGEST_BYTES],
    /// The last message of this rank.
    said: Option<Vec<u8>>,
}

impl Binding {
    /// Begins a meeting of `rank`. All ranks have the same `context`.
    pub(crate) fn new(rank: usize, context: &[u8]) -> Self {
        Self {
            rank,
            digest: blake3::derive_key(PURPOSE, context),
            said: None,
        }
    }

    /// Binds the next message of this rank.
    pub(crate) fn bind(&mut self, message: &[u8]) -> Vec<u8> {
        let bound = [&self.digest, message].concat();
        self.said = Some(bound.clone());
        bound
    }

    /// Takes the messages of all ranks in the last round, in order, and returns what they bind.
    ///
    /// # Errors
    /// [`CollectiveError::Info`] names the rank whose message belongs elsewhere.
    pub(crate) fn open(&mut self, bound: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        let mut digest = blake3::Hasher::new_keyed(&self.digest);
        let mut messages = Vec::new();
        for (rank, bytes) in bound.iter().enumerate() {
            let own = rank == self.rank;
            let message = bytes.strip_prefix(&self.digest[..]);
            let is_ours = !own || self.said.as_ref() == Some(bytes);
            let Some(message) = message.filter(|_| is_ours) else {
                let problem = match own {
                    true => {
                        "the messages hold another one of this rank than its last: pass the messages \
                         of one round in the order of ranks"
                    }
                    false => "its message belongs to another job, group, attempt or round",
                };
                return Err(CollectiveError::Info {
                    rank,
                    problem: problem.into(),
                });
            };
            digest.update(&(bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
            messages.push(message.to_vec());
        }
        if !bound.is_empty() {
            self.digest = digest.finalize().into();
        }
        Ok(messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks that have each said something in the first round.
    fn pair(context: &[u8], said: [&[u8]; 2]) -> ([Binding; 2], [Vec<u8>; 2]) {
        let mut bindings = [0, 1].map(|rank| Binding::new(rank, context));
        let [first, second] = &mut bindings;
        let messages = [first.bind(said[0]), second.bind(said[1])];
        (bindings, messages)
    }

    fn refused(binding: &mut Binding, messages: &[Vec<u8>]) -> String {
        let opened = binding.open(messages);
        opened.expect_err("a foreign message").to_string()
    }

    #[test]
    fn the_messages_of_one_meeting_open() {
        let (mut bindings, mut messages) = pair(b"job", [b"a", b""]);
        for round in 0..3_u8 {
            let plain: Vec<_> = bindings.iter_mut().map(|b| b.open(&messages)).collect();
            assert_eq!(plain[0].as_ref().unwrap(), plain[1].as_ref().unwrap());
            assert_ne!(messages[0], messages[1]);
            let [first, second] = &mut bindings;
            messages = [first.bind(&[round]), second.bind(&[round, round])];
        }
    }

    #[test]
    fn messages_of_another_job_group_attempt_or_round_are_refused() {
        let (mut ours, messages) = pair(b"job 1, group 1", [b"a", b"b"]);
        let (_, other) = pair(b"job 1, group 2", [b"a", b"b"]);
        let foreign = "belongs to another job, group, attempt or round";
        assert!(refused(&mut ours[0], &[messages[0].clone(), other[1].clone()]).contains(foreign));

        // Rank 1 of an earlier attempt is taken for that of this one. Rank 1 itself sees its own
        // message, so its next one has another digest.
        let (_, earlier) = pair(b"job 1, group 1", [b"a", b"earlier"]);
        ours[0]
            .open(&[messages[0].clone(), earlier[1].clone()])
            .unwrap();
        let [first, second] = &mut ours;
        let replaced = [messages[0].clone(), earlier[1].clone()];
        assert!(refused(second, &replaced).contains("another one of this rank"));
        second.open(&messages).unwrap();
        let next = [first.bind(b"c"), second.bind(b"d")];
        assert!(refused(first, &next).contains(foreign));
        assert!(refused(second, &next).contains(foreign));
        // A message of an earlier round.
        assert!(refused(second, &messages).contains(foreign));
    }
}
