//! Windows compared with a model: for any order of registering, opening, closing and writing, the
//! NIC has the memory, results and counters that a model of a few maps predicts.

use std::collections::BTreeMap;

use farwrite_fabric::contract::{
    Completion, Counters, DropReason, Fabric, Lkey, Region, Rkey, Sge, Window, WindowSet, WriteWr,
};
use proptest::prelude::*;

use crate::two_ends::TwoEnds;

/// Bytes of each region and of each slot. This and the number of slots per set are small, so that
/// random steps often collide or miss.
/// collide and miss.
const REGION: u64 = 64;
const SLOT: u64 = 24;
const SLOTS: u32 = 3;

/// One step. Numbers select among the names given out so far, valid or not.
#[derive(Clone, Debug)]
enum ModelStep {
    Register,
    Deregister(usize),
    CreateSet,
    DestroySet(usize),
    Open {
        set: usize,
        slot: u32,
        region: usize,
        at: u64,
        length: u64,
    },
    Close(usize),
    Write {
        set: usize,
        addr: u64,
        length: u32,
    },
}

fn step() -> impl Strategy<Value = ModelStep> {
    let any_at = || prop_oneof![9 => 0..REGION + 2, 1 => Just(u64::MAX)];
    let pick = || 0..8_usize;
    prop_oneof![
        2 => Just(ModelStep::Register),
        2 => pick().prop_map(ModelStep::Deregister),
        2 => Just(ModelStep::CreateSet),
        1 => pick().prop_map(ModelStep::DestroySet),
        6 => (pick(), 0..=SLOTS, pick(), any_at(), 0..SLOT + 2).prop_map(
            |(set, slot, region, at, length)| ModelStep::Open { set, slot, region, at, length }
        ),
        3 => (0..30_usize).prop_map(ModelStep::Close),
        12 => (pick(), prop_oneof![9 => 0..80_u64, 1 => any::<u64>()], 0..30_u32)
            .prop_map(|(set, addr, length)| ModelStep::Write { set, addr, length }),
    ]
}

/// The bytes of a region at a slot.
#[derive(Clone, Copy)]
struct Opened {
    window: Window,
    lkey: Lkey,
    at: u64,
    length: u64,
}

/// The slots of a set; `None` after it was destroyed.
type Slots = Option<[Option<Opened>; SLOTS as usize]>;

#[derive(Default)]
struct Model {
    regions: BTreeMap<Lkey, Vec<u8>>,
    sets: BTreeMap<WindowSet, Slots>,
    dropped: Counters,
}

impl Model {
    fn opened(&self) -> impl Iterator<Item = &Opened> {
        self.sets.values().flatten().flatten().flatten()
    }

    fn slot(&mut self, set: WindowSet, slot: u32) -> Option<&mut Option<Opened>> {
        self.sets.get_mut(&set)?.as_mut()?.get_mut(slot as usize)
    }

    fn holds(&self, lkey: Lkey, at: u64, length: u64) -> bool {
        self.regions.contains_key(&lkey) && u128::from(at) + u128::from(length) <= REGION.into()
    }

    /// Returns the destination of a write; `Ok(None)` is the null key.
    fn aim(
        &self,
        set: Option<WindowSet>,
        addr: u64,
        length: u64,
    ) -> Result<Option<(Lkey, u64)>, DropReason> {
        let slots = set.and_then(|set| self.sets.get(&set));
        let slots = slots.ok_or(DropReason::UnknownKey)?;
        let slots = slots.as_ref().ok_or(DropReason::RevokedKey)?;
        let slot = usize::try_from(addr / SLOT).unwrap();
        let start = addr % SLOT;
        if slot >= slots.len() || start + length > SLOT {
            return Err(DropReason::OutOfBounds);
        }
        let Some(opened) = slots[slot] else {
            return Ok(None);
        };
        if start + length > opened.length {
            return Err(DropReason::OutOfBounds);
        }
        Ok(Some((opened.lkey, opened.at + start)))
    }

    /// Models a write. Returns the bytes of its completion, if it completes.
    fn write(&mut self, set: Option<WindowSet>, addr: u64, payload: &[u8]) -> Option<u32> {
        let length = payload.len();
        if length > 0 {
            match self.aim(set, addr, length as u64) {
                Err(reason) => {
                    self.dropped.dropped[reason as usize] += 1;
                    return None;
                }
                Ok(None) => self.dropped.dropped[DropReason::NullKey as usize] += 1,
                Ok(Some((lkey, at))) => {
                    let at = usize::try_from(at).unwrap();
                    let region = self.regions.get_mut(&lkey).unwrap();
                    region[at..at + length].copy_from_slice(payload);
                }
            }
        }
        Some(u32::try_from(length).unwrap())
    }
}

/// The NIC and its model.
struct Both {
    ends: TwoEnds,
    source: Lkey,
    model: Model,
    /// All keys that were given out.
    lkeys: Vec<Lkey>,
    sets: Vec<(WindowSet, Rkey)>,
    windows: Vec<Window>,
    /// Grows with every write, so that each write has other bytes.
    salt: u8,
}

impl Both {
    fn new() -> Self {
        let mut ends = TwoEnds::new(1);
        let source = ends.a.register(Region::owned(vec![0; 64])).unwrap();
        Self {
            ends,
            source,
            model: Model::default(),
            lkeys: vec![Lkey(0)],
            sets: Vec::new(),
            windows: Vec::new(),
            salt: 0,
        }
    }

    fn take(&mut self, step: &ModelStep) {
        match *step {
            ModelStep::Register => {
                let zeros = vec![0; usize::try_from(REGION).unwrap()];
                let lkey = self.ends.b.register(Region::owned(zeros.clone())).unwrap();
                assert!(self.model.regions.insert(lkey, zeros).is_none());
                self.lkeys.push(lkey);
            }
            ModelStep::Deregister(i) => {
                let lkey = self.lkeys[i % self.lkeys.len()];
                let free = self.model.opened().all(|opened| opened.lkey != lkey);
                let want = free.then(|| self.model.regions.remove(&lkey)).flatten();
                let got = self.ends.b.deregister(lkey).ok();
                assert_eq!(got.map(|region| region.to_vec()), want);
            }
            ModelStep::CreateSet => self.create_set(),
            ModelStep::DestroySet(i) => self.destroy_set(i),
            ModelStep::Open {
                set,
                slot,
                region,
                at,
                length,
            } => self.open(set, slot, region, at, length),
            ModelStep::Close(i) => self.close(i),
            ModelStep::Write { set, addr, length } => self.write(set, addr, length),
        }
        self.compare();
    }

    fn set(&self, i: usize) -> Option<(WindowSet, Rkey)> {
        self.sets.get(i % self.sets.len().max(1)).copied()
    }

    fn create_set(&mut self) {
        let b = &mut self.ends.b;
        let set = b.create_windows(&[self.ends.qb], SLOTS, SLOT).unwrap();
        // An empty window shows the key of the set.
        let empty = b.register(Region::owned(Vec::new())).unwrap();
        let (window, place) = b.open_window(set, 0, empty, 0, 0).unwrap();
        b.close_window(window).unwrap();
        assert_eq!(b.poll_closed(), Some(window));
        b.deregister(empty).unwrap();
        assert_eq!(place.addr, 0);
        let none = Some([None; SLOTS as usize]);
        assert!(self.model.sets.insert(set, none).is_none());
        self.sets.push((set, place.rkey));
    }

    fn destroy_set(&mut self, i: usize) {
        let Some((set, _)) = self.set(i) else { return };
        let live = self.model.sets.get_mut(&set).and_then(Option::take);
        assert_eq!(self.ends.b.destroy_windows(set).is_ok(), live.is_some());
        for opened in live.into_iter().flatten().flatten() {
            assert_eq!(self.ends.b.poll_closed(), Some(opened.window));
        }
        assert_eq!(self.ends.b.poll_closed(), None);
    }

    fn open(&mut self, set: usize, slot: u32, region: usize, at: u64, length: u64) {
        let Some((set, rkey)) = self.set(set) else {
            return;
        };
        let lkey = self.lkeys[region % self.lkeys.len()];
        let fits = length <= SLOT && self.model.holds(lkey, at, length);
        let place = self.model.slot(set, slot);
        let place = place.filter(|place| fits && place.is_none());
        let got = self.ends.b.open_window(set, slot, lkey, at, length).ok();
        assert_eq!(got.is_some(), place.is_some());
        if let Some((place, (window, remote))) = place.zip(got) {
            assert_eq!((remote.addr, remote.rkey), (u64::from(slot) * SLOT, rkey));
            *place = Some(Opened {
                window,
                lkey,
                at,
                length,
            });
            self.windows.push(window);
        }
    }

    fn close(&mut self, i: usize) {
        let Some(&window) = self.windows.get(i % self.windows.len().max(1)) else {
            return;
        };
        let slots = self.model.sets.values_mut().flatten().flatten();
        let mut open = slots.filter(|slot| slot.is_some_and(|opened| opened.window == window));
        let open = open.next();
        assert_eq!(self.ends.b.close_window(window).is_ok(), open.is_some());
        assert_eq!(self.ends.b.poll_closed(), open.is_some().then_some(window));
        open.into_iter().for_each(|slot| *slot = None);
    }

    fn write(&mut self, set: usize, addr: u64, length: u32) {
        self.salt = self.salt.wrapping_add(1);
        let set = self.set(set);
        let ends = &mut self.ends;
        let payload: Vec<u8> = (self.salt..=u8::MAX)
            .cycle()
            .take(length as usize)
            .collect();
        ends.a.copy_in(self.source, 0, &payload).unwrap();
        let local = [Sge {
            lkey: self.source,
            offset: 0,
            length,
        }];
        let write = WriteWr {
            wr_id: 0,
            signaled: false,
            local: &local,
            remote_addr: addr,
            rkey: set.map_or(Rkey(0), |(_, rkey)| rkey),
            imm: length,
        };
        assert_eq!(ends.a.post_writes(ends.qa, &[write]).unwrap(), 1);
        let want = self.model.write(set.map(|(set, _)| set), addr, &payload);
        let got = ends
            .arrivals()
            .into_iter()
            .map(|completion| match completion {
                Completion::Write { imm, bytes, .. } => (imm, bytes),
                Completion::Send(send) => panic!("{send:?}"),
            });
        let want = want.map(|bytes| (length, bytes));
        assert_eq!(got.collect::<Vec<_>>(), Vec::from_iter(want));
    }

    fn compare(&self) {
        for (&lkey, want) in &self.model.regions {
            let mut got = vec![0; want.len()];
            self.ends.b.copy_out(lkey, 0, &mut got).unwrap();
            assert_eq!(got, *want);
            let is_open = self.model.opened().any(|opened| opened.lkey == lkey);
            assert_eq!(self.ends.b.memory(lkey).is_err(), is_open);
        }
        let counters = self.ends.b.counters();
        assert_eq!(counters.dropped, self.model.dropped.dropped);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn windows_do_as_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let mut both = Both::new();
        for step in &steps {
            both.take(step);
        }
    }
}
