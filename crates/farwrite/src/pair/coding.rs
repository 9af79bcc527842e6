//! Encoding and rebuilding of groups, as schemes request it.

use farwrite_codes::{Code, Codec, Group, Layout, Present};
use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError, Lkey};
use farwrite_schemes::scheme::{Job, Work};
use farwrite_sdr::Received;
use farwrite_wire::control::MessageId;

use super::Pair;
use super::parity::SPARE_BYTES;
use crate::error::Error;
use crate::registry::TableArrivals;

/// Maximum number of data bytes encoded in one poll, unless a single group is larger. This is about
/// the amount that one poll sends.
const ENCODE_BYTES_A_POLL: usize = 512 * 1024;

/// Maximum number of codecs kept. Peers choose codes, for their messages and for their reads.
const MAX_CODECS: usize = 32;

/// What the coding of groups needs: codecs, and memory that no peer can write to. All queue pairs
/// of an endpoint share one coder.
#[derive(Default)]
pub(crate) struct Coder {
    /// At most [`MAX_CODECS`], the latest used last.
    codecs: Vec<Codec>,
    data: Vec<u8>,
    parity: Vec<u8>,
}

impl Coder {
    /// Rebuilds the missing chunks of a group. The function codes a copy of the group, because
    /// packets may arrive in the memory of the message meanwhile. It then copies the missing chunks
    /// back. `places` are the region and offset of the message, and those of its parity.
    fn rebuild<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        layout: &Layout,
        group: &Group,
        present: &Present,
        places: [(Lkey, u64); 2],
    ) -> Result<(), FabricError> {
        let [data, parity] = places;
        self.data.resize(group.data.len(), 0);
        self.parity.resize(group.parity.len(), 0);
        let start = data.1 + group.data.start as u64;
        fabric.copy_out(data.0, start, &mut self.data)?;
        let parity_start = parity.1 + group.parity.start as u64;
        fabric.copy_out(parity.0, parity_start, &mut self.parity)?;
        let chunk_bytes = layout.chunk_bytes();
        codec(&mut self.codecs, layout.code())
            .recover(&mut self.data, &self.parity, chunk_bytes, present)
            .expect("the layout fits the code, and enough is present");
        let chunks = self.data.chunks(chunk_bytes).enumerate();
        for (index, chunk) in chunks.filter(|(index, _)| !present.data.contains(*index)) {
            let offset = (index * chunk_bytes) as u64;
            fabric.copy_in(data.0, start + offset, chunk)?;
        }
        Ok(())
    }
}

/// Returns the codec of a code. If there are too many, the one that was not used for the longest
/// time is freed.
fn codec(codecs: &mut Vec<Codec>, code: Code) -> &Codec {
    let known = codecs.iter().position(|codec| codec.code() == code);
    let codec = match known {
        Some(index) => codecs.remove(index),
        None => {
            if codecs.len() >= MAX_CODECS {
                codecs.remove(0);
            }
            Codec::new(code)
        }
    };
    codecs.push(codec);
    &codecs[codecs.len() - 1]
}

/// Returns which chunks of a group have arrived.
fn present(received: &Received, job: &Job, layout: &Layout, group: &Group) -> Present {
    let code = layout.code();
    let arrived = |message: MessageId, first: usize, count: usize| {
        let chunk = |i: &usize| {
            let chunk = u32::try_from(first + i).unwrap_or(u32::MAX);
            received.word(message, chunk / 64) >> (chunk % 64) & 1 == 1
        };
        (0..count).filter(chunk).collect()
    };
    let index = job.group as usize;
    let data = MessageId::new(job.message);
    Present {
        data: arrived(data, index * code.k(), group.data_chunks),
        parity: arrived(data.parity(), index * code.m(), group.parity_chunks),
    }
}

impl Pair {
    /// Encodes groups that schemes want encoded, up to a limit. Returns the number of data bytes
    /// encoded.
    pub(crate) fn encode<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        coder: &mut Coder,
        now_ns: u64,
    ) -> Result<u64, Error> {
        let view = self.sender_view(now_ns);
        let mut bytes = 0;
        for index in 0..self.halves.sender_count() {
            while bytes < ENCODE_BYTES_A_POLL
                && let Some(job) = self.halves.sender_at(index).poll_job()
            {
                bytes += self.encode_group(fabric, coder, &job)?;
                self.halves.sender_at(index).handle_job(&view, &job);
            }
        }
        self.parity_memory.trim(fabric, SPARE_BYTES)?;
        Ok(bytes as u64)
    }

    /// Encodes one group. Returns the number of data bytes that it read.
    fn encode_group<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        coder: &mut Coder,
        job: &Job,
    ) -> Result<usize, Error> {
        let send = self.send.open.get(&job.message);
        let Some((source, parity)) = send.and_then(|s| s.source().zip(s.parity())) else {
            return Ok(0);
        };
        let Some(group) = parity.layout.group(job.group as usize) else {
            return Ok(0);
        };
        debug_assert_eq!(job.work, Work::Encode);
        let lkey = source.region.lkey;
        let offset = source.offset + group.data.start as u64;
        if fabric.region(lkey)?.is_ghost() {
            return Ok(group.data.len());
        }
        let Coder {
            codecs,
            data,
            parity: encoded,
        } = coder;
        let data = match fabric.memory(lkey) {
            Ok(memory) => {
                let start = usize::try_from(offset).expect("a region is in memory");
                &memory[start..start + group.data.len()]
            }
            // A peer may write into the region.
            Err(FabricError::InUse(_)) => {
                data.resize(group.data.len(), 0);
                fabric.copy_out(lkey, offset, data)?;
                &data[..]
            }
            Err(error) => return Err(error.into()),
        };
        encoded.resize(group.parity.len(), 0);
        codec(codecs, parity.layout.code())
            .encode(data, parity.layout.chunk_bytes(), encoded)
            .expect("the layout fits the code");
        let start = group.parity.start as u64;
        fabric.copy_in(parity.scratch().lkey, start, encoded)?;
        Ok(group.data.len())
    }

    /// Rebuilds the groups that schemes want rebuilt.
    pub(super) fn rebuild<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        coder: &mut Coder,
        now_ns: u64,
    ) -> Result<(), Error> {
        let view = self.receiver_view(now_ns);
        for index in 0..self.halves.receiver_count() {
            loop {
                let arrivals = TableArrivals(self.sdr.received());
                let Some(job) = self.halves.receiver_at(index).poll_job(&arrivals) else {
                    break;
                };
                self.rebuild_group(fabric, coder, &job)?;
                let arrivals = TableArrivals(self.sdr.received());
                let receiver = self.halves.receiver_at(index);
                receiver.handle_job(&view, &job, &arrivals);
            }
        }
        Ok(())
    }

    fn rebuild_group<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        coder: &mut Coder,
        job: &Job,
    ) -> Result<(), Error> {
        let Some(recv) = self.recv.open.get(&job.message) else {
            return Ok(());
        };
        let Some((layout, region)) = recv.layout.zip(recv.region) else {
            return Ok(());
        };
        let Some(group) = layout.group(job.group as usize) else {
            return Ok(());
        };
        debug_assert_eq!(job.work, Work::Rebuild);
        let received = self.sdr.received();
        let present = present(received, job, &layout, &group);
        // Too many chunks are missing, although the scheme requested a rebuild.
        if !layout.code().recoverable(group.data_chunks, &present) {
            return Ok(());
        }
        let missing = present.data.missing(group.data_chunks);
        let target = recv.target();
        if !fabric.region(target.region.lkey)?.is_ghost() {
            coder.rebuild(
                fabric,
                &layout,
                &group,
                &present,
                [
                    (target.region.lkey, target.offset),
                    (region.scratch.lkey, 0),
                ],
            )?;
        }
        let first = job.group as usize * layout.code().k();
        for chunk in missing.iter() {
            let chunk = u32::try_from(first + chunk).unwrap_or(u32::MAX);
            received.handle_rebuilt(job.message, chunk);
            if let Some(meter) = recv.scheme().and_then(|tag| self.recv.losses.meter(tag)) {
                meter.handle_rebuilt(job.message, chunk);
            }
        }
        self.rebuilt_chunks += missing.len() as u64;
        self.events.recv_rebuilt(job.message, missing.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farwrite_codes::Kind;

    use super::*;

    #[test]
    fn codecs_of_codes_that_are_not_used_are_freed() {
        let code = |m| Code::new(Kind::Mds, 2, m).expect("a shape");
        let mut codecs = Vec::new();
        for m in 1..200 {
            // The first code stays in use.
            assert_eq!(codec(&mut codecs, code(1)).code(), code(1));
            assert_eq!(codec(&mut codecs, code(m)).code(), code(m));
            assert!(codecs.len() <= MAX_CODECS);
        }
        let kept = |m| codecs.iter().any(|codec| codec.code() == code(m));
        assert_eq!([1, 199, 2].map(kept), [true, true, false]);
    }
}
