//! Keys against a model: any order of registering, exposing, binding, revoking and writing leaves
//! the memory, the answers and the counters that a few maps say.

use std::collections::BTreeMap;

use farwrite_fabric::contract::{
    Completion, Counters, DropReason, Fabric, Lkey, Rkey, Sge, WriteWr,
};
use proptest::prelude::*;

use crate::two_ends::TwoEnds;

/// Bytes of every region, of every slot, and slots of every root key: small, so that draws collide
/// and miss.
const REGION: u64 = 64;
const SLOT: u64 = 24;
const SLOTS: u32 = 3;

/// One step. Numbers pick among the keys given out so far, live or dead.
#[derive(Clone, Debug)]
enum Step {
    Register,
    Deregister(usize),
    Expose(usize, u64, u64),
    CreateRoot,
    Bind(usize, u32, usize, u64, u64),
    Unbind(usize, u32),
    Revoke(usize),
    PostRecv(u32),
    Write { key: usize, addr: u64, length: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..REGION + 2, prop_oneof![0..REGION + 2, Just(u64::MAX)]);
    let key = || 0..8_usize;
    prop_oneof![
        2 => Just(Step::Register),
        2 => key().prop_map(Step::Deregister),
        3 => (key(), place()).prop_map(|(lkey, (at, length))| Step::Expose(lkey, at, length)),
        1 => Just(Step::CreateRoot),
        4 => (key(), 0..=SLOTS, key(), place(), 0..SLOT + 2).prop_map(
            |(root, slot, lkey, (at, _), length)| Step::Bind(root, slot, lkey, at, length)
        ),
        2 => (key(), 0..=SLOTS).prop_map(|(root, slot)| Step::Unbind(root, slot)),
        2 => key().prop_map(Step::Revoke),
        2 => (0..4_u32).prop_map(Step::PostRecv),
        12 => (key(), prop_oneof![9 => 0..80_u64, 1 => any::<u64>()], 0..30_u32)
            .prop_map(|(key, addr, length)| Step::Write { key, addr, length }),
    ]
}

#[derive(Clone, Copy)]
struct Window {
    lkey: Lkey,
    at: u64,
    length: u64,
}

#[derive(Clone)]
enum Key {
    Plain(Window),
    Root([Option<Window>; SLOTS as usize]),
    Revoked,
}

#[derive(Default)]
struct Model {
    regions: BTreeMap<Lkey, Vec<u8>>,
    keys: BTreeMap<Rkey, Key>,
    receives: u32,
    dropped: Counters,
}

impl Model {
    fn windows(&self) -> impl Iterator<Item = Window> {
        self.keys.values().flat_map(|key| match key {
            Key::Plain(window) => vec![*window],
            Key::Root(slots) => slots.iter().flatten().copied().collect(),
            Key::Revoked => vec![],
        })
    }

    fn slot(&mut self, root: Rkey, slot: u32) -> Option<&mut Option<Window>> {
        match self.keys.get_mut(&root) {
            Some(Key::Root(slots)) => slots.get_mut(slot as usize),
            _ => None,
        }
    }

    fn holds(&self, lkey: Lkey, at: u64, length: u64) -> bool {
        self.regions.contains_key(&lkey) && u128::from(at) + u128::from(length) <= REGION.into()
    }

    /// Where a write goes: `Ok(None)` is the null key.
    fn aim(&self, rkey: Rkey, addr: u64, length: u64) -> Result<Option<Window>, DropReason> {
        let (window, start) = match self.keys.get(&rkey) {
            None => return Err(DropReason::UnknownKey),
            Some(Key::Revoked) => return Err(DropReason::RevokedKey),
            Some(Key::Plain(window)) => (Some(*window), addr),
            Some(Key::Root(slots)) => {
                let slot = usize::try_from(addr / SLOT).unwrap();
                let fits = slot < slots.len() && addr % SLOT + length <= SLOT;
                if !fits {
                    return Err(DropReason::OutOfBounds);
                }
                (slots[slot], addr % SLOT)
            }
        };
        let Some(Window {
            lkey,
            at,
            length: limit,
        }) = window
        else {
            return Ok(None);
        };
        if u128::from(start) + u128::from(length) > limit.into() {
            return Err(DropReason::OutOfBounds);
        }
        let at = at + start;
        Ok(Some(Window { lkey, at, length }))
    }

    /// What a write does; the completion's bytes, if it completes.
    fn write(&mut self, rkey: Rkey, addr: u64, payload: &[u8]) -> Option<u32> {
        let length = payload.len();
        let aim = match (self.receives, length) {
            (0, _) => Err(DropReason::NoReceive),
            (_, 0) => Ok(Some(None)),
            _ => self.aim(rkey, addr, length as u64).map(Some),
        };
        match aim {
            Err(reason) => {
                self.dropped.dropped[reason as usize] += 1;
                return None;
            }
            Ok(Some(None)) if length > 0 => {
                self.dropped.dropped[DropReason::NullKey as usize] += 1;
            }
            Ok(Some(Some(window))) => {
                let at = usize::try_from(window.at).unwrap();
                let region = self.regions.get_mut(&window.lkey).unwrap();
                region[at..at + length].copy_from_slice(payload);
            }
            Ok(_) => {}
        }
        self.receives -= 1;
        Some(u32::try_from(length).unwrap())
    }
}

/// The NIC and the model, side by side.
struct Both {
    ends: TwoEnds,
    source: Lkey,
    model: Model,
    /// All that were given out.
    lkeys: Vec<Lkey>,
    rkeys: Vec<Rkey>,
    /// Rises with every write, so that each leaves other bytes.
    salt: u8,
}

impl Both {
    fn new() -> Self {
        let mut ends = TwoEnds::new(1);
        let source = ends.a.register(Box::new(vec![0; 64])).unwrap();
        Self {
            ends,
            source,
            model: Model::default(),
            lkeys: vec![Lkey(0)],
            rkeys: vec![Rkey(0)],
            salt: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        let lkey = |i: usize| self.lkeys[i % self.lkeys.len()];
        let rkey = |i: usize| self.rkeys[i % self.rkeys.len()];
        let (b, model) = (&mut self.ends.b, &mut self.model);
        match *step {
            Step::Register => {
                let zeros = vec![0; usize::try_from(REGION).unwrap()];
                let lkey = b.register(Box::new(zeros.clone())).unwrap();
                assert!(model.regions.insert(lkey, zeros).is_none());
                self.lkeys.push(lkey);
            }
            Step::Deregister(i) => {
                let lkey = lkey(i);
                let free = model.windows().all(|window| window.lkey != lkey);
                let want = free.then(|| model.regions.remove(&lkey)).flatten();
                let got = b.deregister(lkey).ok();
                assert_eq!(got.map(|buffer| (*buffer).as_ref().to_vec()), want);
            }
            Step::Expose(i, at, length) => {
                let lkey = lkey(i);
                let got = b.expose(lkey, at, length);
                assert_eq!(got.is_ok(), model.holds(lkey, at, length));
                if let Ok(rkey) = got {
                    let window = Window { lkey, at, length };
                    assert!(model.keys.insert(rkey, Key::Plain(window)).is_none());
                    self.rkeys.push(rkey);
                }
            }
            Step::CreateRoot => {
                let rkey = b.create_root_key(SLOTS, SLOT).unwrap();
                let unbound = Key::Root([None; SLOTS as usize]);
                assert!(model.keys.insert(rkey, unbound).is_none());
                self.rkeys.push(rkey);
            }
            Step::Bind(root, slot, i, at, length) => {
                let (root, lkey) = (rkey(root), lkey(i));
                let fits = length <= SLOT && model.holds(lkey, at, length);
                let place = model.slot(root, slot);
                let place = place.filter(|place| fits && place.is_none());
                assert_eq!(
                    b.bind(root, slot, lkey, at, length).is_ok(),
                    place.is_some()
                );
                if let Some(place) = place {
                    *place = Some(Window { lkey, at, length });
                }
            }
            Step::Unbind(root, slot) => {
                let root = rkey(root);
                let place = model.slot(root, slot);
                assert_eq!(b.unbind(root, slot).is_ok(), place.is_some());
                place.into_iter().for_each(|place| *place = None);
            }
            Step::Revoke(i) => {
                let rkey = rkey(i);
                let live = model.keys.get_mut(&rkey);
                let live = live.filter(|key| !matches!(key, Key::Revoked));
                assert_eq!(b.revoke(rkey).is_ok(), live.is_some());
                live.into_iter().for_each(|key| *key = Key::Revoked);
            }
            Step::PostRecv(count) => {
                b.post_recv(self.ends.qb, count).unwrap();
                model.receives += count;
            }
            Step::Write { key, addr, length } => {
                let rkey = rkey(key);
                self.write(rkey, addr, length);
            }
        }
        self.compare();
    }

    fn write(&mut self, rkey: Rkey, addr: u64, length: u32) {
        self.salt = self.salt.wrapping_add(1);
        let ends = &mut self.ends;
        let source = ends.a.memory_mut(self.source).unwrap();
        (self.salt..=u8::MAX)
            .cycle()
            .zip(&mut *source)
            .for_each(|(byte, place)| *place = byte);
        let payload = source[..length as usize].to_vec();
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
            rkey,
            imm: length,
        };
        assert_eq!(ends.a.post_writes(ends.qa, &[write]).unwrap(), 1);
        let want = self.model.write(rkey, addr, &payload);
        let want = want.map(|bytes| Completion::Write {
            qpn: ends.qb,
            imm: length,
            bytes,
        });
        assert_eq!(ends.arrivals(), Vec::from_iter(want));
    }

    fn compare(&self) {
        for (&lkey, want) in &self.model.regions {
            assert_eq!(self.ends.b.memory(lkey).unwrap(), want);
        }
        let counters = self.ends.b.counters();
        assert_eq!(counters.dropped, self.model.dropped.dropped);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn keys_do_as_the_model(steps in prop::collection::vec(step(), 1..80)) {
        let mut both = Both::new();
        for step in &steps {
            both.take(step);
        }
    }
}
