//! One message that NCCL sends or receives.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use farwrite::{Endpoint, Error, MrSlice, Outcome, RecvHandle, SendHandle, UdpFabric};

/// What `isend` and `irecv` return. Any thread may read it.
pub(crate) struct Request {
    /// The memory.
    pub(crate) slice: MrSlice,
    /// The key of the registered memory, as NCCL has it.
    pub(crate) memory: usize,
    message: OnceLock<Message>,
    /// It will not be posted.
    has_failed: AtomicBool,
}

enum Message {
    Send(SendHandle),
    Receive(RecvHandle),
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The bytes of the message.
    Done(u64),
    /// It has failed because it does not fit the receive of the other end.
    DoesNotFit,
    /// It has failed.
    Failed,
}

impl Request {
    pub(crate) fn new(slice: MrSlice, memory: usize) -> Self {
        Self {
            slice,
            memory,
            message: OnceLock::new(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Notes the message of a send.
    pub(crate) fn set_send(&self, send: SendHandle) {
        // A request is posted once.
        let _ = self.message.set(Message::Send(send));
    }

    /// Notes the message of a receive.
    pub(crate) fn set_receive(&self, receive: RecvHandle) {
        let _ = self.message.set(Message::Receive(receive));
    }

    /// Fails a request that was not posted.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// How it has ended; `None` while it is open.
    pub(crate) fn ending(&self) -> Option<Ending> {
        let Some(message) = self.message.get() else {
            return self
                .has_failed
                .load(Ordering::Acquire)
                .then_some(Ending::Failed);
        };
        let (outcome, bytes, does_not_fit) = match message {
            Message::Send(send) => (
                send.outcome()?,
                self.slice.length(),
                send.refusal().is_some(),
            ),
            Message::Receive(receive) => (
                receive.outcome()?,
                receive.length().unwrap_or(0),
                receive.refusal().is_some(),
            ),
        };
        Some(match outcome {
            Outcome::Whole => Ending::Done(bytes),
            Outcome::Partial | Outcome::Failed if does_not_fit => Ending::DoesNotFit,
            Outcome::Partial | Outcome::Failed => Ending::Failed,
        })
    }

    /// Ends it before the peer does. A send ends a little later, when no packet of it is held any more.
    pub(crate) fn cancel(&self, endpoint: &mut Endpoint<UdpFabric>) -> Result<(), Error> {
        match self.message.get() {
            None => {
                self.fail();
                Ok(())
            }
            Some(_) if self.ending().is_some() => Ok(()),
            Some(Message::Send(send)) => endpoint.cancel_send(send),
            Some(Message::Receive(receive)) => endpoint.complete_recv(receive, Outcome::Failed),
        }
    }
}
