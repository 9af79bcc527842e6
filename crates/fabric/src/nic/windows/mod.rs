//! Windows that peers write through, and how they close.
//!
//! An open window is published at its slot as a pointer. Workers load it without a lock, and only
//! while they are in a batch ([`Batch`]). Closing takes the pointer away at once. The window itself
//! is freed later, when every worker has left the batch that it was in at that moment: then no
//! worker has the pointer any more. This is epoch-based reclamation, and its unsafe code is in this
//! folder. The slots of a set come in pages, which are published and freed the same way.

mod epochs;
mod slots;

pub(super) use epochs::{Batch, Closings, Epochs, Worker};
pub(super) use slots::{Placed, Slots};
