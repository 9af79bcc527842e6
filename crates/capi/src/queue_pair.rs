//! A queue pair of a C program.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farwrite::schemes::scheme::SchemeTag;
use farwrite::{MrSlice, QpConfig, QueuePair, RecvHandle, SendHandle, SendOptions};

use crate::context::Context;
use crate::failure::Failure;
use crate::info;
use crate::messages::{Receive, Send};
use crate::sdr::sdr_qp_attr;
use crate::shape::QpShape;
use crate::table;

/// What `sdr_qp` names.
pub(crate) struct Pair {
    pub(crate) context: Arc<Context>,
    pub(crate) qp: QueuePair,
    pub(crate) shape: QpShape,
    messages: Mutex<Messages>,
}

/// The handles of messages of a queue pair.
#[derive(Default)]
struct Messages {
    is_over: bool,
    receives: HashSet<u64>,
    /// Oldest first.
    sends: VecDeque<u64>,
    /// Receives whose bits the program may still read, by message.
    kept: HashMap<u64, RecvHandle>,
}

impl Pair {
    pub(crate) fn new(context: &Arc<Context>, attr: &sdr_qp_attr) -> Result<Self, Failure> {
        let shape = QpShape::new(attr, context)?;
        let options = shape.options.clone();
        let qp = context.call(move |endpoint| endpoint.create_qp(options))??;
        context.begin_use();
        Ok(Self {
            context: Arc::clone(context),
            qp,
            shape,
            messages: Mutex::default(),
        })
    }

    pub(crate) fn config(&self) -> &QpConfig {
        &self.shape.options.sdr
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        u64::from(self.config().mtu) * u64::from(self.config().packets_per_chunk)
    }

    pub(crate) fn info(&self) -> Result<Vec<u8>, Failure> {
        let qp = self.qp;
        let info = self.context.call(move |endpoint| endpoint.qp_info(qp))??;
        info::encode(&info, self.context.psk.as_ref())
    }

    pub(crate) fn connect(&self, blob: &[u8]) -> Result<(), Failure> {
        let peer = info::decode(blob, self.context.psk.as_ref())?;
        let qp = self.qp;
        let connected = self
            .context
            .call(move |endpoint| endpoint.connect_qp(qp, &peer))?;
        Ok(connected?)
    }

    /// Memory of a message, as the program names it.
    pub(crate) fn slice(&self, key: u32, address: u64, length: u32) -> Result<MrSlice, Failure> {
        let mapped = self.context.region(key)?;
        mapped.slice(address, length.into())
    }

    pub(crate) fn post_recv(&self, target: MrSlice) -> Result<RecvHandle, Failure> {
        let qp = self.qp;
        let posted = self
            .context
            .call(move |endpoint| endpoint.post_recv(qp, target))?;
        Ok(posted?)
    }

    /// Sends all bytes of `source`, to the peer's buffer from chunk `first_chunk` on.
    pub(crate) fn post_send(
        &self,
        source: MrSlice,
        first_chunk: u32,
        immediate: Option<u32>,
    ) -> Result<SendHandle, Failure> {
        let qp = self.qp;
        let options = SendOptions {
            scheme: SchemeTag::NONE,
            immediate,
            first_chunk,
            ..SendOptions::default()
        };
        let posted = self
            .context
            .call(move |endpoint| endpoint.post_send(qp, source, options))?;
        Ok(posted?)
    }

    pub(crate) fn start_stream(&self, immediate: Option<u32>) -> Result<SendHandle, Failure> {
        let qp = self.qp;
        let started = self
            .context
            .call(move |endpoint| endpoint.start_stream(qp, immediate))?;
        Ok(started?)
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a new receive into the table.
    pub(crate) fn name_receive(&self, receive: Receive) -> Result<u64, Failure> {
        self.name(receive, |messages, handle| {
            messages.receives.insert(handle);
        })
    }

    /// Puts a new send into the table. Programs need not poll: a handle stays for twice as many messages
    /// as can be in flight, and longer while its send is not over.
    pub(crate) fn name_send(&self, send: Send) -> Result<u64, Failure> {
        let handle = self.name(send, |messages, handle| messages.sends.push_back(handle))?;
        let most = 2 * self.config().slots as usize;
        let oldest = {
            let messages = self.messages();
            let oldest = messages.sends.front().copied();
            oldest.filter(|_| messages.sends.len() > most)
        };
        if let Some(oldest) = oldest
            && table::find::<Send>(oldest).is_ok_and(|send| send.is_over())
        {
            self.messages().sends.retain(|&send| send != oldest);
            let _ = table::remove::<Send>(oldest);
        }
        Ok(handle)
    }

    fn name<T: table::Named>(
        &self,
        message: T,
        note: impl FnOnce(&mut Messages, u64),
    ) -> Result<u64, Failure> {
        let handle = table::insert(Arc::new(message))?;
        let mut messages = self.messages();
        if messages.is_over {
            drop(messages);
            let _ = table::remove::<T>(handle);
            return Err(Failure::new("the queue pair was destroyed during the call"));
        }
        note(&mut messages, handle);
        Ok(handle)
    }

    /// Keeps the bits of a receive. Returns the number to give them back by.
    pub(crate) fn keep_bits(&self, receive: RecvHandle) -> u64 {
        let message = receive.message();
        self.messages().kept.insert(message, receive);
        message
    }

    /// Lets the queue pair use the memory of the bits again.
    pub(crate) fn give_bits_back(&self, message: u64) {
        self.messages().kept.remove(&message);
    }

    /// Forgets a receive that was completed.
    pub(crate) fn forget_receive(&self, handle: u64) {
        self.messages().receives.remove(&handle);
    }

    /// Destroys the queue pair and all of its messages.
    pub(crate) fn destroy(&self) -> Result<(), Failure> {
        let messages = {
            let mut messages = self.messages();
            messages.is_over = true;
            std::mem::take(&mut *messages)
        };
        let qp = self.qp;
        let destroyed = self.context.end(move |endpoint| endpoint.destroy_qp(qp));
        for handle in messages.receives {
            let _ = table::remove::<Receive>(handle);
        }
        for handle in messages.sends {
            let _ = table::remove::<Send>(handle);
        }
        self.context.end_use();
        Ok(destroyed.unwrap_or(Ok(()))?)
    }
}
