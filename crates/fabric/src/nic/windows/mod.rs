//! Windows for the writes of peers, and how they close.
//!
//! An open window is published at its slot as a pointer. Workers load the pointer without a lock,
//! and only while they are in a batch ([`Batch`]). Closing removes the pointer at once. The window
//! itself is freed later, when every worker has left the batch that it was in at that time: then no
//! worker has the pointer any more. This is epoch-based reclamation. All its unsafe code is in this
//! folder. The slots of a set are grouped in pages, which are published and freed in the same way.

mod epochs;
mod slots;

pub(super) use epochs::{Batch, Closings, Epochs, Worker};
pub(super) use slots::{Placed, Slots};
