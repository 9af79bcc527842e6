//! The records of operations that do not wait for the records of other ranks.
//!
//! Such an operation ends at its deadline. Its record is sent when its first phase ends, and the
//! records of other ranks are collected while later operations run. They change only the timeouts
//! of later operations. So a rank that is late, or that has died, delays no other rank, until the
//! timeout of an operation has passed without its record, or until [`MOST_OPEN`] operations lack
//! it.

use std::collections::VecDeque;

use farwrite_deadline::{Proposal, TimeoutKey};

use super::record::{Record, Stage};
use crate::error::CollectiveError;
use crate::mismatch::{self, Mismatch};
use crate::segment::{Descriptor, Header};

/// The maximum number of operations that have ended at this rank and lack records.
pub(crate) const MOST_OPEN: usize = 1024;
/// The maximum number of records of one rank for operations that have not started here: two for
/// each operation. A rank sends the first one when the operation can make progress, and a rank that
/// has ended more than [`MOST_OPEN`] operations has ended the group.
const MOST_EARLY: usize = 4 * MOST_OPEN;

/// The operations whose records are not complete, and the records that came early.
#[derive(Debug)]
pub(crate) struct OpenRecords {
    /// By number.
    open: VecDeque<OpenOperation>,
    /// By rank: records of operations that have not started here. Those of one operation are in order.
    early: Vec<Vec<Record>>,
}

/// An operation that lacks records.
#[derive(Debug)]
pub(crate) struct OpenOperation {
    pub(crate) number: u64,
    pub(crate) descriptor: Descriptor,
    /// Which timeout learns from the operation, and its size in bytes.
    pub(crate) key: TimeoutKey,
    pub(crate) bytes: u64,
    pub(crate) started_ns: u64,
    pub(crate) timeout_ns: u64,
    /// Whether the operation has ended at this rank.
    has_ended: bool,
    /// By rank: its record, if it has come, and the proposal in it, if there is one.
    proposals: Vec<Option<Option<Proposal>>>,
}

impl OpenOperation {
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.started_ns.saturating_add(self.timeout_ns)
    }

    /// The first rank whose record is missing.
    pub(crate) fn lacks(&self) -> Option<usize> {
        self.lacks_other_than(usize::MAX)
    }

    /// The first rank other than `rank` whose record is missing.
    pub(crate) fn lacks_other_than(&self, rank: usize) -> Option<usize> {
        let mut others = (0..self.proposals.len()).filter(|&other| other != rank);
        others.find(|&other| self.proposals[other].is_none())
    }
}

impl OpenRecords {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            open: VecDeque::new(),
            early: vec![Vec::new(); ranks],
        }
    }

    /// Begins to collect the records of an operation that starts at the first of the two times and
    /// may take as long as the second.
    pub(crate) fn open(
        &mut self,
        number: u64,
        descriptor: Descriptor,
        (key, bytes): (TimeoutKey, u64),
        [started_ns, timeout_ns]: [u64; 2],
    ) {
        self.open.push_back(OpenOperation {
            number,
            descriptor,
            key,
            bytes,
            started_ns,
            timeout_ns,
            has_ended: false,
            proposals: vec![None; self.early.len()],
        });
    }

    /// Forgets all operations.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.early.iter_mut().for_each(Vec::clear);
    }

    /// Forgets the operations from this number on.
    pub(crate) fn forget_from(&mut self, number: u64) {
        self.open.retain(|open| open.number < number);
    }

    /// Keeps a record of a rank until its operation has started here.
    ///
    /// # Errors
    /// [`CollectiveError::Connection`] if the rank is too far ahead.
    pub(crate) fn add(&mut self, rank: usize, record: Record) -> Result<(), CollectiveError> {
        if self.early[rank].len() >= MOST_EARLY {
            let problem = format!("it is {MOST_EARLY} records ahead");
            return Err(CollectiveError::Connection { rank, problem });
        }
        self.early[rank].push(record);
        Ok(())
    }

    /// Processes the records of operations that have started here: those before `started`. Returns
    /// whether there were any.
    ///
    /// A rank that has several operations in progress sends that a later one has started before it
    /// sends that an earlier one has ended. So records wait only for their own operation.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`] if the rank runs a different operation.
    pub(crate) fn process(&mut self, started: u64) -> Result<bool, CollectiveError> {
        let mut processed = false;
        for rank in 0..self.early.len() {
            let ready = self.early[rank].extract_if(.., |record| record.number < started);
            let ready: Vec<_> = ready.collect();
            for record in &ready {
                self.note(rank, record)?;
            }
            processed |= !ready.is_empty();
        }
        Ok(processed)
    }

    /// Notes the record of a rank, which can be this rank.
    ///
    /// # Errors
    /// As [`OpenRecords::process`].
    pub(crate) fn note(&mut self, rank: usize, record: &Record) -> Result<(), CollectiveError> {
        let Some(place) = self.place(record.number) else {
            let (theirs, ours) = ("bounded".into(), "exact, or over".into());
            return Err(CollectiveError::Mismatch {
                operation: record.number,
                rank,
                argument: "delivery",
                theirs,
                ours,
            });
        };
        self.compare(rank, &record.header())?;
        if let Stage::Ended(proposal) = record.stage {
            self.open[place].proposals[rank] = Some(proposal);
        }
        Ok(())
    }

    /// Compares the header of what a rank sent with the operation of that number, if it is open.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`].
    pub(crate) fn compare(&self, rank: usize, header: &Header) -> Result<(), CollectiveError> {
        let Some(place) = self.place(header.number) else {
            return Ok(());
        };
        let expected = Header {
            descriptor: self.open[place].descriptor,
            ..*header
        };
        match mismatch::find(header, &expected, 0, 0) {
            None => Ok(()),
            Some(Mismatch {
                argument,
                theirs,
                ours,
            }) => Err(CollectiveError::Mismatch {
                operation: header.number,
                rank,
                argument,
                theirs,
                ours,
            }),
        }
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.open
            .binary_search_by_key(&number, |open| open.number)
            .ok()
    }

    /// Notes that an operation has ended at this rank.
    pub(crate) fn note_ended(&mut self, number: u64) {
        if let Some(place) = self.place(number) {
            self.open[place].has_ended = true;
        }
    }

    /// The operation with this number, if it lacks records.
    pub(crate) fn get(&self, number: u64) -> Option<&OpenOperation> {
        Some(&self.open[self.place(number)?])
    }

    /// Removes the first operation if all of its records have come. Returns what it was, and the
    /// proposals of all ranks that have one. Ranks report the ends of operations in order, so the first one
    /// is complete first.
    pub(crate) fn take_complete(&mut self) -> Option<(TimeoutKey, u64, Vec<Proposal>)> {
        self.open.front().filter(|open| open.lacks().is_none())?;
        let open = self.open.pop_front()?;
        let proposals = open.proposals.into_iter().flatten().flatten();
        Some((open.key, open.bytes, proposals.collect()))
    }

    /// The operations that have ended at this rank and lack records, in order.
    pub(crate) fn ended(&self) -> impl Iterator<Item = &OpenOperation> {
        self.open.iter().filter(|open| open.has_ended)
    }

    /// The number of the last operation that lacks records.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.open.back().map(|open| open.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_deadline::{Collective, Cost, RepairChoice};

    const KEY: (Collective, u64) = (Collective::ReduceScatter, 1 << 20);

    fn descriptor(bytes: u64) -> Descriptor {
        Descriptor {
            bytes,
            root: 0,
            operation: 2,
            element: 1,
            reduction: 1,
            algorithm: 2,
            is_bounded: true,
        }
    }

    fn record(number: u64, cost: u64) -> Record {
        Record {
            number,
            descriptor: descriptor(KEY.1),
            stage: Stage::Ended(Some(Proposal {
                cost: Cost(cost),
                path_loss_ppm: 0,
                repair_choice: RepairChoice::Wait,
                rtt_ns: None,
            })),
        }
    }

    fn two_open() -> OpenRecords {
        let mut records = OpenRecords::new(2);
        let key = TimeoutKey::new(KEY.0, KEY.1, 0);
        for number in [4, 6] {
            records.open(number, descriptor(KEY.1), (key, KEY.1), [10 * number, 100]);
        }
        records
    }

    #[test]
    fn operations_are_complete_in_order_with_the_records_of_all_ranks() {
        let mut records = two_open();
        records.note(0, &record(4, 1)).unwrap();
        records.note(0, &record(6, 2)).unwrap();
        let started = Record {
            stage: Stage::Started,
            ..record(4, 0)
        };
        records.note(1, &started).unwrap();
        assert_eq!(records.take_complete(), None);
        assert_eq!(records.get(6).unwrap().lacks(), Some(1));
        for number in [4, 6, 7] {
            records.add(1, record(number, 3)).unwrap();
        }
        // Operation 7 has not started here.
        assert!(records.process(7).unwrap());
        assert!(!records.process(7).unwrap());
        let costs = |(_, _, proposals): (_, _, Vec<Proposal>)| -> Vec<u64> {
            proposals.iter().map(|proposal| proposal.cost.0).collect()
        };
        assert_eq!(records.take_complete().map(costs), Some(vec![1, 3]));
        assert_eq!(records.take_complete().map(costs), Some(vec![2, 3]));
        assert_eq!(records.newest(), None);
    }

    #[test]
    fn the_record_of_a_later_operation_does_not_delay_an_earlier_one() {
        let mut records = two_open();
        let later = Record {
            stage: Stage::Started,
            ..record(7, 0)
        };
        // The other rank has started operation 7 before operation 4 ended there.
        for early in [later, record(4, 3)] {
            records.add(1, early).unwrap();
        }
        records.note(0, &record(4, 1)).unwrap();
        assert!(records.process(7).unwrap());
        assert!(records.take_complete().is_some());
        assert_eq!(records.early[1].len(), 1);
    }

    #[test]
    fn a_rank_that_runs_another_operation_is_named() {
        let mut records = two_open();
        let other = Record {
            descriptor: descriptor(5),
            ..record(6, 1)
        };
        let error = records.note(1, &other).unwrap_err().to_string();
        assert!(
            error.contains("operation 6: rank 1 has bytes = 5"),
            "{error}"
        );
        let error = records.note(1, &record(5, 1)).unwrap_err().to_string();
        assert!(error.contains("rank 1 has delivery = bounded"), "{error}");
    }

    #[test]
    fn a_rank_that_is_far_ahead_is_named() {
        let mut records = two_open();
        let error = (0..).find_map(|number| records.add(1, record(number, 1)).err());
        let error = error.unwrap().to_string();
        assert!(
            error.contains("rank 1") && error.contains("ahead"),
            "{error}"
        );
        assert_eq!(records.early[1].len(), MOST_EARLY);
    }
}
