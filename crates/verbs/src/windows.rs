//! Window sets.
//!
//! Each open window has a key of its own. To close the window, the fabric removes the key. After that,
//! the device places no packet with it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use farwrite_fabric::contract::{
    FabricError, Lkey, MAX_OBJECTS, Object, RemotePlace, Rkey, Table, Window, WindowKeys,
    WindowSet, check_windows,
};

use crate::epochs::{Busy, Epochs};
use crate::keys::{Keys, RemoteKey};
use crate::regions::{HeldRegion, Regions};

/// All window sets of a fabric.
pub(crate) struct Windows {
    keys: Keys,
    epochs: Arc<Epochs>,
    sets: HashMap<u32, Set>,
    closing: VecDeque<Closing>,
    next_set: u32,
    next_serial: u64,
}

struct Set {
    slots: u32,
    slot_bytes: u64,
    open: HashMap<u32, OpenWindow>,
}

struct OpenWindow {
    window: Window,
    /// Dropped before the region.
    key: RemoteKey,
    region: HeldRegion,
}

/// A window that was closed and is not reported yet.
struct Closing {
    window: Window,
    _region: HeldRegion,
    busy: Busy,
}

impl Windows {
    pub(crate) fn new(keys: Keys, epochs: &Arc<Epochs>) -> Self {
        Self {
            keys,
            epochs: Arc::clone(epochs),
            sets: HashMap::new(),
            closing: VecDeque::new(),
            next_set: 0,
            next_serial: 0,
        }
    }

    /// How keys are made.
    pub(crate) fn keys(&self) -> WindowKeys {
        self.keys.kind()
    }

    pub(crate) fn create(&mut self, slots: u32, slot_bytes: u64) -> Result<WindowSet, FabricError> {
        check_windows(slots, slot_bytes)?;
        if self.sets.len() >= MAX_OBJECTS {
            return Err(FabricError::OutOfResources(Table::WindowSet));
        }
        while self.sets.contains_key(&self.next_set) {
            self.next_set = self.next_set.wrapping_add(1);
        }
        let number = self.next_set;
        self.next_set = self.next_set.wrapping_add(1);
        let set = Set {
            slots,
            slot_bytes,
            open: HashMap::new(),
        };
        self.sets.insert(number, set);
        Ok(WindowSet::new(number))
    }

    pub(crate) fn destroy(&mut self, set: WindowSet) -> Result<(), FabricError> {
        let removed = self.sets.remove(&set.number());
        let removed = removed.ok_or(FabricError::UnknownKey(set.number()))?;
        let mut open: Vec<_> = removed.open.into_values().collect();
        open.sort_by_key(|open| open.window.slot());
        open.into_iter().for_each(|open| self.close_window(open));
        Ok(())
    }

    pub(crate) fn open(
        &mut self,
        regions: &mut Regions,
        set: WindowSet,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(Window, RemotePlace), FabricError> {
        let region = regions.hold(lkey)?;
        let sets = self.sets.get_mut(&set.number());
        let found = sets.ok_or(FabricError::UnknownKey(set.number()))?;
        let out_of = |offset, length, limit| FabricError::OutOfBounds {
            offset,
            length,
            limit,
        };
        if slot >= found.slots {
            return Err(out_of(slot.into(), 1, found.slots.into()));
        }
        if length > found.slot_bytes {
            return Err(out_of(0, length, found.slot_bytes));
        }
        if found.open.contains_key(&slot) {
            return Err(FabricError::InUse(Object::Slot));
        }
        let key = self.keys.open(&region, offset, length)?;
        let (rkey, addr) = key.remote();
        let window = Window::new(set, slot, self.next_serial);
        self.next_serial += 1;
        let open = OpenWindow {
            window,
            key,
            region,
        };
        found.open.insert(slot, open);
        let rkey = Rkey(rkey);
        Ok((window, RemotePlace { addr, rkey }))
    }

    pub(crate) fn close(&mut self, window: Window) -> Result<(), FabricError> {
        let number = window.set().number();
        let set = self
            .sets
            .get_mut(&number)
            .ok_or(FabricError::UnknownKey(number))?;
        let slot = window.slot();
        let is_open = set
            .open
            .get(&slot)
            .is_some_and(|open| open.window == window);
        let open = is_open.then(|| set.open.remove(&slot)).flatten();
        let open = open.ok_or(FabricError::UnknownWindow(slot))?;
        self.close_window(open);
        Ok(())
    }

    fn close_window(&mut self, open: OpenWindow) {
        let OpenWindow {
            window,
            key,
            region,
        } = open;
        self.keys.close(key, &region);
        let busy = self.epochs.busy();
        self.closing.push_back(Closing {
            window,
            _region: region,
            busy,
        });
    }

    /// The next closed window that no worker uses any more.
    pub(crate) fn poll_closed(&mut self) -> Option<Window> {
        let first = self.closing.front_mut()?;
        match self.epochs.have_left(&mut first.busy) {
            true => self.closing.pop_front().map(|closing| closing.window),
            false => None,
        }
    }
}
