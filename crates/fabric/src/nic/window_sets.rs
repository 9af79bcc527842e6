//! Window sets at the control object.

use std::sync::Arc;

use super::numbers::{ByNumber, Numbers};
use super::windows::{Closings, Epochs, Slots};
use crate::contract::{
    FabricError, MAX_OBJECTS, Registered, RemotePlace, Rkey, Table, Window, WindowSet,
    check_windows,
};

/// The root key of a set is its number.
pub(super) struct WindowSets {
    table: ByNumber<Arc<Slots>>,
    closings: Closings,
    next_serial: u64,
}

impl WindowSets {
    pub(super) fn new(epochs: Arc<Epochs>) -> Self {
        Self {
            table: ByNumber::default(),
            closings: Closings::new(epochs),
            next_serial: 0,
        }
    }

    /// Creates a set that is bound to the queue pairs with the serials `of`.
    pub(super) fn create(
        &mut self,
        numbers: &mut Numbers,
        of: Box<[u64]>,
        slots: u32,
        slot_bytes: u64,
    ) -> Result<(WindowSet, Arc<Slots>), FabricError> {
        check_windows(slots, slot_bytes)?;
        if self.table.len() >= MAX_OBJECTS {
            return Err(FabricError::OutOfResources(Table::WindowSet));
        }
        let key = numbers.key(&self.table);
        let slots = Arc::new(Slots::new(of, slots, slot_bytes));
        self.table.insert(key, Arc::clone(&slots));
        Ok((WindowSet(key), slots))
    }

    pub(super) fn destroy(&mut self, set: WindowSet) -> Result<(), FabricError> {
        let slots = self.table.remove(&set.0);
        let slots = slots.ok_or(FabricError::UnknownKey(set.0))?;
        self.closings.extend(slots.close_all());
        Ok(())
    }

    pub(super) fn open(
        &mut self,
        set: WindowSet,
        slot: u32,
        region: &Arc<Registered>,
        offset: u64,
        length: u64,
    ) -> Result<(Window, RemotePlace), FabricError> {
        let serial = self.next_serial;
        let window = Window { set, slot, serial };
        let addr = self.slots(set)?.open(window, region, offset, length)?;
        self.next_serial += 1;
        let rkey = Rkey(set.0);
        Ok((window, RemotePlace { addr, rkey }))
    }

    pub(super) fn close(&mut self, window: Window) -> Result<(), FabricError> {
        let closed = self.slots(window.set)?.close(window);
        let closed = closed.ok_or(FabricError::UnknownWindow(window.slot))?;
        self.closings.extend(std::iter::once(closed));
        Ok(())
    }

    pub(super) fn poll_closed(&mut self) -> Option<Window> {
        self.closings.poll()
    }

    fn slots(&self, set: WindowSet) -> Result<&Arc<Slots>, FabricError> {
        let slots = self.table.get(&set.0);
        slots.ok_or(FabricError::UnknownKey(set.0))
    }
}
