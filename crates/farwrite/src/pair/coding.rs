//! Encoding and rebuilding of groups, as schemes request it.

use farwrite_codes::{Group, Layout, Present};
use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, Lkey};
use farwrite_schemes::scheme::{Job, Work};
use farwrite_sdr::Received;
use farwrite_wire::control::MessageId;

use super::Pair;
use super::parity::SPARE_BYTES;
use crate::coding::{Coded, Coding, Source, Task, TaskInfo};
use crate::error::Error;
use crate::registry::{Registry, TableArrivals};

/// Maximum number of data bytes that the owner encodes in one poll, unless a single group is larger.
/// This is about the amount that one poll sends.
const ENCODE_BYTES_A_POLL: usize = 512 * 1024;

fn present(received: &Received, job: &Job, layout: &Layout, group: &Group) -> Present {
    let code = layout.code();
    let arrived = |message: MessageId, first: usize, count: usize| {
        let chunk = |i: &usize| has_arrived(received, message, first + i);
        (0..count).filter(chunk).collect()
    };
    let index = job.group as usize;
    let data = MessageId::new(job.message);
    Present {
        data: arrived(data, index * code.k(), group.data_chunks),
        parity: arrived(data.parity(), index * code.m(), group.parity_chunks),
    }
}

fn has_arrived(received: &Received, message: MessageId, chunk: usize) -> bool {
    let chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
    received.word(message, chunk / 64) >> (chunk % 64) & 1 == 1
}

/// The bytes of a region from an offset on; `None` for a ghost, which has none.
fn source<F: Fabric>(
    fabric: &Adapter<F>,
    lkey: Lkey,
    offset: u64,
) -> Result<Option<Source>, FabricError> {
    if fabric.region(lkey)?.is_ghost() {
        return Ok(None);
    }
    let region = fabric.reader(lkey)?;
    Ok(Some(Source { region, offset }))
}

impl Pair {
    /// Hands out groups that schemes want encoded, up to a limit. Returns the number of data bytes
    /// that were encoded at once.
    pub(crate) fn encode<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        coding: &mut Coding,
        now_ns: u64,
    ) -> Result<u64, Error> {
        let view = self.sender_view(now_ns);
        let mut bytes = 0;
        for index in 0..self.halves.senders.len() {
            while bytes < ENCODE_BYTES_A_POLL
                && coding.has_room(self.name.index)
                && let Some(job) = self.halves.senders.at(index).poll_job()
            {
                let Some((about, data)) = self.encode_task(fabric, &job)? else {
                    self.halves.senders.at(index).handle_job(&view, &job);
                    continue;
                };
                if coding.is_here() {
                    bytes += about.group.data.len();
                }
                let Some(data) = data else {
                    self.halves.senders.at(index).handle_job(&view, &job);
                    continue;
                };
                let rebuild = None;
                let task = Task {
                    about,
                    data,
                    rebuild,
                };
                if let Some(coded) = coding.code(now_ns, task) {
                    self.handle_coded(fabric, &coded, now_ns)?;
                    coding.recycle(coded.output);
                }
            }
        }
        self.parity_memory.trim(fabric, SPARE_BYTES)?;
        Ok(bytes as u64)
    }

    /// Returns a group to encode, and its data unless it is a ghost. Returns `None` if the message
    /// has ended or has no parity.
    fn encode_task<F: Fabric>(
        &self,
        fabric: &Adapter<F>,
        job: &Job,
    ) -> Result<Option<(TaskInfo, Option<Source>)>, Error> {
        let send = self.send.open.get(&job.message);
        let Some((data, parity)) = send.and_then(|s| s.source.zip(s.parity)) else {
            return Ok(None);
        };
        let Some(group) = parity.layout.group(job.group as usize) else {
            return Ok(None);
        };
        debug_assert_eq!(job.work, Work::Encode);
        let start = data.offset + group.data.start as u64;
        let data = source(fabric, data.region.lkey, start)?;
        Ok(Some((self.task(job, parity.layout, group), data)))
    }

    fn task(&self, job: &Job, layout: Layout, group: Group) -> TaskInfo {
        TaskInfo {
            pair: self.name,
            job: *job,
            layout,
            group,
        }
    }

    /// Hands out the groups that schemes want rebuilt.
    pub(super) fn rebuild<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        known: &Registry,
        coding: &mut Coding,
        now_ns: u64,
    ) -> Result<(), Error> {
        let view = self.receiver_view(now_ns);
        for index in 0..self.halves.receivers.len() {
            // A message that may end as partial ends in this poll, with all that can be rebuilt (P5.9.5).
            let is_urgent = known.is_bounded(self.halves.receivers.tag(index));
            while is_urgent || coding.has_room(self.name.index) {
                let arrivals = TableArrivals(self.sdr.received());
                let Some(job) = self.halves.receivers.at(index).poll_job(&arrivals) else {
                    break;
                };
                match self.rebuild_task(fabric, &job)? {
                    None => {
                        let arrivals = TableArrivals(self.sdr.received());
                        let receiver = self.halves.receivers.at(index);
                        receiver.handle_job(&view, &job, &arrivals);
                    }
                    Some(task) => {
                        let coded = match is_urgent {
                            true => Some(coding.code_at_once(task)),
                            false => coding.code(now_ns, task),
                        };
                        if let Some(coded) = coded {
                            self.handle_coded(fabric, &coded, now_ns)?;
                            coding.recycle(coded.output);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the task of a group to rebuild. Returns `None` if there is nothing to compute. The
    /// missing chunks of a ghost count as rebuilt at once.
    fn rebuild_task<F: Fabric>(
        &mut self,
        fabric: &Adapter<F>,
        job: &Job,
    ) -> Result<Option<Task>, Error> {
        let Some(recv) = self.recv.open.get(&job.message) else {
            return Ok(None);
        };
        let Some((layout, region)) = recv.layout.zip(recv.region) else {
            return Ok(None);
        };
        let Some(group) = layout.group(job.group as usize) else {
            return Ok(None);
        };
        debug_assert_eq!(job.work, Work::Rebuild);
        let present = present(self.sdr.received(), job, &layout, &group);
        // Too many chunks are missing, although the scheme requested a rebuild.
        if !layout.code().recoverable(group.data_chunks, &present) {
            return Ok(None);
        }
        let target = recv.target;
        let start = target.offset + group.data.start as u64;
        let data = source(fabric, target.region.lkey, start)?;
        let parity = source(fabric, region.scratch.lkey, group.parity.start as u64)?;
        let about = self.task(job, layout, group);
        let Some((data, parity)) = data.zip(parity) else {
            let missing = present.data.missing(about.group.data_chunks);
            self.note_rebuilt(&about, missing.iter());
            return Ok(None);
        };
        Ok(Some(Task {
            about,
            data,
            rebuild: Some((parity, present)),
        }))
    }

    /// Takes back a group that was coded. If its message has ended meanwhile, nobody needs it.
    pub(crate) fn handle_coded<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        coded: &Coded,
        now_ns: u64,
    ) -> Result<(), Error> {
        self.events.set_now(now_ns);
        match coded.about.job.work {
            Work::Encode => self.handle_encoded(fabric, coded, now_ns),
            Work::Rebuild => self.handle_rebuilt(fabric, coded, now_ns),
        }
    }

    fn handle_encoded<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        coded: &Coded,
        now_ns: u64,
    ) -> Result<(), Error> {
        let TaskInfo { job, group, .. } = &coded.about;
        let view = self.sender_view(now_ns);
        let send = self.send.open.get(&job.message);
        let Some((send, parity)) = send.and_then(|send| Some((send, send.parity?))) else {
            return Ok(());
        };
        let start = group.parity.start as u64;
        fabric.copy_in(parity.scratch.lkey, start, &coded.output)?;
        if let Some(sender) = self.halves.senders.get(send.scheme) {
            sender.handle_job(&view, job);
        }
        Ok(())
    }

    fn handle_rebuilt<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        coded: &Coded,
        now_ns: u64,
    ) -> Result<(), Error> {
        let TaskInfo {
            job, layout, group, ..
        } = &coded.about;
        let view = self.receiver_view(now_ns);
        let Some(recv) = self.recv.open.get(&job.message) else {
            return Ok(());
        };
        let (target, scheme) = (recv.target, recv.scheme());
        let received = self.sdr.received();
        // Chunks that arrived meanwhile stay as they are.
        let first = job.group as usize * layout.code().k();
        let message = MessageId::new(job.message);
        let lacks = |chunk: usize| !has_arrived(received, message, first + chunk);
        let chunk_bytes = layout.chunk_bytes();
        let chunks = coded.rebuilt.iter().copied();
        let chunks = chunks.zip(coded.output.chunks_exact(chunk_bytes));
        let chunks: Vec<_> = chunks.filter(|(chunk, _)| lacks(*chunk)).collect();
        for (chunk, bytes) in &chunks {
            let start = chunk * chunk_bytes;
            // The last chunk of the message can be short.
            let bytes = &bytes[..chunk_bytes.min(group.data.len() - start)];
            let offset = target.offset + (group.data.start + start) as u64;
            fabric.copy_in(target.region.lkey, offset, bytes)?;
        }
        self.note_rebuilt(&coded.about, chunks.iter().map(|(chunk, _)| *chunk));
        let arrivals = TableArrivals(self.sdr.received());
        if let Some(scheme) = scheme
            && let Some(receiver) = self.halves.receivers.get(scheme)
        {
            receiver.handle_job(&view, job, &arrivals);
        }
        Ok(())
    }

    /// Counts chunks of a group, by their index in it, as arrived.
    fn note_rebuilt(&mut self, about: &TaskInfo, chunks: impl Iterator<Item = usize>) {
        let message = about.job.message;
        let first = about.job.group as usize * about.layout.code().k();
        let recv = self.recv.open.get(&message);
        let scheme = recv.and_then(|recv| recv.scheme());
        let mut count = 0;
        for chunk in chunks {
            let chunk = u32::try_from(first + chunk).unwrap_or(u32::MAX);
            self.sdr.received().handle_rebuilt(message, chunk);
            if let Some(meter) = scheme.and_then(|tag| self.recv.losses.meter(tag)) {
                meter.handle_rebuilt(message, chunk);
            }
            count += 1;
        }
        self.rebuilt_chunks += count as u64;
        if count > 0 {
            self.events.recv_rebuilt(message, count);
        }
    }
}
