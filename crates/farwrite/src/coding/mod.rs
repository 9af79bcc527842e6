//! The arithmetic of parity: in the polls of an endpoint's owner, or on threads beside it.
//!
//! A queue pair hands out a [`Task`] and gets a [`Coded`], at once or in a later poll. A task only
//! reads the memory of messages. Its owner writes what it computed, if the message is still open.

mod coder;
mod line;
mod queue;
#[cfg(all(test, not(loom)))]
mod tests;
mod threads;

use std::collections::{BTreeSet, VecDeque};

use farwrite_codes::{Group, Layout, Present};
use farwrite_fabric::contract::{FabricError, RegionReader, Waker};
use farwrite_schemes::scheme::{Job, Work};

use coder::Coder;
use line::Line;
pub use threads::CodingThreads;
use threads::Threads;

use crate::handle::QueuePair;

/// Maximum number of tasks for each thread that the owner has not taken back. Enough for a thread to
/// work until the next poll.
const TASKS_A_THREAD: usize = 4;
/// Bytes of tasks that the owner has not taken back. From this number on, no further task is handed out.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of results after which a poll takes no more of them. The limit keeps the wait of arrivals
/// short.
const TAKE_BYTES_A_POLL: usize = 1 << 20;
/// Maximum number of buffers kept for later results.
const MAX_SPARE: usize = 16;
/// Maximum length of a buffer that is kept.
const MAX_SPARE_BYTES: usize = 1 << 20;

/// A group to code.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) about: TaskInfo,
    pub(crate) data: Source,
    /// The parity of the group, and what is present, if data are missing. Otherwise the parity is to
    /// be computed.
    pub(crate) rebuild: Option<(Source, Present)>,
}

#[derive(Clone, Debug)]
pub(crate) struct TaskInfo {
    pub(crate) pair: QueuePair,
    pub(crate) job: Job,
    pub(crate) layout: Layout,
    pub(crate) group: Group,
}

/// Where bytes of a group are: a region, and the offset of the first byte.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) region: RegionReader,
    pub(crate) offset: u64,
}

#[derive(Debug)]
pub(crate) struct Coded {
    pub(crate) about: TaskInfo,
    /// The data chunks that were rebuilt, by their index in the group.
    pub(crate) rebuilt: Vec<usize>,
    /// The parity of the group, or the chunks that were rebuilt, each with all bytes of a chunk.
    pub(crate) output: Vec<u8>,
}

#[derive(Debug, Default)]
enum CodedBy {
    /// The owner, when it hands out a task.
    #[default]
    Here,
    Threads(Threads),
    /// The owner, but the results come later, as if other cores computed them.
    Later {
        delay_ns: u64,
        /// Results and when they are due.
        done: VecDeque<(u64, Coded)>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Coding {
    place: CodedBy,
    /// Results that threads have handed over and the owner has not taken.
    ready: VecDeque<Coded>,
    /// Tasks that the owner has not taken back, and the bytes of their results.
    tasks: usize,
    bytes: usize,
    /// The queue pairs of the tasks that threads have not handed over, one entry for each task.
    at_threads: Vec<QueuePair>,
    /// Queue pairs that found no room, and wait for it in this order.
    line: Line,
    /// Queue pairs that have left the line, and have handed out no task since then. Room is kept for one
    /// task of each until the next poll.
    granted: BTreeSet<u32>,
    spare: Vec<Vec<u8>>,
    /// Codes what the owner codes itself.
    coder: Coder,
}

impl Coding {
    /// Moves coding to threads; 0 moves it back. `owner` wakes the owner.
    ///
    /// # Errors
    /// [`FabricError::Io`] when an earlier thread has failed.
    pub(crate) fn start_threads(&mut self, count: usize, owner: &Waker) -> Result<(), FabricError> {
        let place = match count {
            0 => CodedBy::Here,
            count => CodedBy::Threads(Threads::new(count, owner)),
        };
        self.replace(place)
    }

    /// Lets results come `delay_ns` after their tasks. This replaces threads in virtual time.
    ///
    /// # Errors
    /// [`FabricError::Io`] when a thread has failed.
    pub(crate) fn delay(&mut self, delay_ns: u64) -> Result<(), FabricError> {
        self.replace(CodedBy::Later {
            delay_ns,
            done: VecDeque::new(),
        })
    }

    fn replace(&mut self, place: CodedBy) -> Result<(), FabricError> {
        let settled = self.settle();
        if let CodedBy::Later { done, .. } = std::mem::replace(&mut self.place, place) {
            self.ready.extend(done.into_iter().map(|(_, coded)| coded));
        }
        settled
    }

    /// How many cores code at the same time.
    pub(crate) fn cores(&self) -> usize {
        match &self.place {
            CodedBy::Threads(threads) => threads.count,
            CodedBy::Here | CodedBy::Later { .. } => 1,
        }
    }

    /// Whether tasks are done by the owner, at once.
    pub(crate) fn is_here(&self) -> bool {
        matches!(self.place, CodedBy::Here)
    }

    /// Whether the queue pair may hand out another task. If not, it is granted one later.
    pub(crate) fn has_room(&mut self, pair: u32) -> bool {
        if self.is_here() {
            return true;
        }
        // Without this order, one queue pair could take all the room again and again.
        let is_its_turn =
            self.granted.contains(&pair) || self.granted.is_empty() && self.line.is_empty();
        let has_room = is_its_turn && self.room() > 0;
        if !has_room {
            self.line.join(pair);
        }
        has_room
    }

    /// How many more tasks may be handed out to threads.
    fn room(&self) -> usize {
        let most = match &self.place {
            CodedBy::Here => return usize::MAX,
            CodedBy::Threads(threads) => threads.count * TASKS_A_THREAD,
            CodedBy::Later { .. } => TASKS_A_THREAD,
        };
        match self.bytes < MOST_BYTES {
            true => most.saturating_sub(self.tasks),
            false => 0,
        }
    }

    /// Gives the free room to queue pairs that wait for it, and returns them. The caller lets
    /// them hand out tasks before the next call.
    pub(crate) fn grant(&mut self) -> impl Iterator<Item = u32> {
        let room = self.room();
        self.granted = self.line.leave(room).collect();
        self.granted.iter().copied()
    }

    /// Whether queue pairs wait although there is room: then [`Coding::grant`] must be called again.
    pub(crate) fn has_grants(&self) -> bool {
        !self.line.is_empty() && self.room() > 0
    }

    pub(crate) fn code_at_once(&mut self, task: Task) -> Coded {
        let output = self.spare.pop().unwrap_or_default();
        self.coder.code(task, output)
    }

    /// Returns the result if it exists at once.
    pub(crate) fn code(&mut self, now_ns: u64, task: Task) -> Option<Coded> {
        let output = self.spare.pop().unwrap_or_default();
        let bytes = task.output_bytes();
        self.granted.remove(&task.about.pair.index);
        // Without any thread, coding goes on here.
        if let CodedBy::Threads(threads) = &mut self.place
            && !threads.start()
        {
            self.place = CodedBy::Here;
        }
        match &mut self.place {
            CodedBy::Here => return Some(self.coder.code(task, output)),
            CodedBy::Threads(threads) => {
                self.at_threads.push(task.about.pair);
                threads.push(task, output);
            }
            CodedBy::Later { delay_ns, done } => {
                let coded = self.coder.code(task, output);
                done.push_back((now_ns.saturating_add(*delay_ns), coded));
            }
        }
        self.tasks += 1;
        self.bytes += bytes;
        None
    }

    /// Appends results that exist to `out`, up to a limit. Returns when to ask again.
    ///
    /// # Errors
    /// [`FabricError::Io`] when a thread has failed.
    pub(crate) fn take(
        &mut self,
        now_ns: u64,
        out: &mut Vec<Coded>,
    ) -> Result<Option<u64>, FabricError> {
        match &mut self.place {
            CodedBy::Here => {}
            CodedBy::Threads(threads) => {
                for result in threads.take() {
                    self.note_result(result)?;
                }
            }
            CodedBy::Later { done, .. } => {
                while done.front().is_some_and(|(due_ns, _)| *due_ns <= now_ns) {
                    self.ready.extend(done.pop_front().map(|(_, coded)| coded));
                }
            }
        }
        let mut taken = 0;
        while taken < TAKE_BYTES_A_POLL
            && let Some(coded) = self.ready.pop_front()
        {
            let bytes = coded.about.output_bytes(coded.rebuilt.len());
            taken += bytes;
            self.bytes -= bytes;
            self.tasks -= 1;
            out.push(coded);
        }
        Ok(match &self.place {
            _ if !self.ready.is_empty() => Some(now_ns),
            CodedBy::Later { done, .. } => done.front().map(|(due_ns, _)| *due_ns),
            _ => None,
        })
    }

    /// Takes back the buffer of a result. Peers choose how long results are, so long ones are not kept.
    pub(crate) fn recycle(&mut self, output: Vec<u8>) {
        if self.spare.len() < MAX_SPARE && output.capacity() <= MAX_SPARE_BYTES {
            self.spare.push(output);
        }
    }

    /// Waits until no task reads memory. The results stay for the next [`Coding::take`]. The wait ends when
    /// each thread has done its tasks: at most [`TASKS_A_THREAD`] for each. A task waits for nothing.
    ///
    /// # Errors
    /// [`FabricError::Io`] when a thread has failed.
    fn settle(&mut self) -> Result<(), FabricError> {
        while self.wait_for_one()? {}
        Ok(())
    }

    /// Waits for the result of one task, which stays for the next [`Coding::take`]. Returns false if threads
    /// have none.
    ///
    /// # Errors
    /// [`FabricError::Io`] when a thread has failed.
    pub(crate) fn wait_for_one(&mut self) -> Result<bool, FabricError> {
        let CodedBy::Threads(threads) = &self.place else {
            return Ok(false);
        };
        if self.at_threads.is_empty() {
            return Ok(false);
        }
        let result = threads.wait();
        self.note_result(result)?;
        Ok(true)
    }

    /// Waits until no task of a queue pair reads memory. Tasks that no thread has
    /// begun are dropped, so this waits at most for one task of each thread.
    ///
    /// # Errors
    /// [`FabricError::Io`] when a thread has failed.
    pub(crate) fn forget(&mut self, pair: QueuePair) -> Result<(), FabricError> {
        if let CodedBy::Threads(threads) = &self.place {
            for task in threads.withdraw(|task| task.about.pair == pair) {
                self.tasks -= 1;
                self.bytes -= task.output_bytes();
                self.leave_threads(pair);
            }
        }
        while self.at_threads.contains(&pair) {
            self.wait_for_one()?;
        }
        Ok(())
    }

    /// Keeps a result that a thread has handed over. If a thread has failed, the owner codes from now on, and
    /// all tasks and results that it has not taken back are lost.
    fn note_result(&mut self, result: Result<Coded, FabricError>) -> Result<(), FabricError> {
        match result {
            Ok(coded) => {
                self.leave_threads(coded.about.pair);
                self.ready.push_back(coded);
                Ok(())
            }
            Err(error) => {
                *self = Self::default();
                Err(error)
            }
        }
    }

    /// Notes that a task of a queue pair is not at the threads any more.
    fn leave_threads(&mut self, pair: QueuePair) {
        if let Some(at) = self.at_threads.iter().position(|other| *other == pair) {
            self.at_threads.swap_remove(at);
        }
    }
}

impl Task {
    fn output_bytes(&self) -> usize {
        let missing = self.rebuild.as_ref().map_or(0, |(_, present)| {
            present.data.missing(self.about.group.data_chunks).len()
        });
        self.about.output_bytes(missing)
    }
}

impl TaskInfo {
    /// Returns the length of the result: the parity, or a number of chunks that are rebuilt.
    fn output_bytes(&self, rebuilt: usize) -> usize {
        match self.job.work {
            Work::Encode => self.group.parity.len(),
            Work::Rebuild => rebuilt * self.layout.chunk_bytes(),
        }
    }
}
