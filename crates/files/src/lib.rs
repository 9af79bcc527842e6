//! Trees of files: the manifest, reading, safe writing, resuming, and the messages with which two ends
//! transfer them (P8). Nothing here uses a network.
//!
//! The bytes of all files form one stream, in the order of the [`Manifest`]. A queue pair sees no
//! borders between files, so it sends many small files like one large file. The sender reads the stream
//! from a [`Source`], and the receiver writes it to a [`Sink`]. Queue pairs carry the stream. Each
//! [`Message`] beside it carries a part of the manifest, a hash or a verdict.
//!
//! ```
//! use std::sync::Arc;
//! use farwrite_files::{CommitGate, Policy, ScanOptions, Sink, Source};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (from, to) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let tree = from.path().join("tree");
//! # std::fs::create_dir(&tree)?;
//! # std::fs::write(tree.join("a"), "hello")?;
//! let mut source = Source::scan(&[tree], &ScanOptions::default())?;
//! let gate = CommitGate::default();
//! let mut sink = Sink::new(to.path(), Arc::clone(source.manifest()), gate, Policy::default())?;
//! let mut segment = vec![0; 1 << 20];
//! while !source.is_over() {
//!     let read_bytes = source.read(&mut segment);
//!     // The sender's reports first: the sink must know where an abandoned file ends.
//!     while let Some(read) = source.poll_file() {
//!         match read.result {
//!             Ok(hash) => sink.handle_hash(read.index, hash)?,
//!             Err(error) => sink.handle_abandoned(read.index, read.sent_bytes, error)?,
//!         }
//!     }
//!     sink.write(&segment[..read_bytes])?;
//! }
//! assert_eq!(sink.finish()?.verified_files, 1);
//! while let Some(verdict) = sink.poll_verdict() {
//!     assert!(verdict.failure.is_none(), "{:?}", verdict.failure);
//! }
//! # assert_eq!(std::fs::read(to.path().join("tree/a"))?, b"hello");
//! # Ok(())
//! # }
//! ```

mod acl;
mod aliases;
mod attributes;
mod commit_gate;
mod compare;
mod detail;
mod directory;
mod directory_tree;
pub mod due;
mod durable;
mod entry;
mod exchange;
mod extra;
mod file_hash;
mod file_stream;
mod filter;
mod final_name;
mod free_space;
#[doc(hidden)]
pub mod fuzzing;
mod identities;
mod in_use;
mod interrupted;
mod links;
mod listed_files;
mod locked_file;
mod locks;
mod manifest;
mod message;
mod not_sent;
mod open_directories;
mod open_files;
mod part_file;
mod part_name;
mod partial;
mod path_error;
mod path_list;
mod policy;
mod prefix;
mod preview;
mod quota;
mod root;
mod scan;
mod sink;
mod source;
mod sparse;
mod status;
mod stored_stream;
mod sys;
mod xattrs;

pub use attributes::{Attribute, Thing, Warning};
pub use commit_gate::CommitGate;
pub use compare::{Compare, Present};
pub use detail::{Detail, DetailError, Extent, Owner, Xattr};
pub use entry::{
    Entry, EntryRef, Kind, MAX_NAME_BYTES, MAX_TARGET_BYTES, NameError, Time, check_name,
};
pub use exchange::{Offer, detail_messages, manifest_messages, recv_manifest};
pub use extra::Delete;
pub use filter::{Filter, FilterError};
pub use in_use::Wanted;
pub use interrupted::KEPT_DAYS;
pub use listed_files::ReadError;
pub use manifest::{
    EntryError, MAX_DEPTH, MAX_ENTRIES, MAX_NAMES_BYTES, MAX_PATH_BYTES, Manifest, ManifestBuilder,
    ManifestError, Planned,
};
pub use message::{
    Cause, Cutover, CutoverAccepted, FileCause, Hello, Message, MessageError, Missing,
    OfferedSockets, Progress, QpBlob, RouteAddress, RouteKey, TransferPlan,
};
pub use part_name::new_name;
pub use partial::{MAX_PARTIALS, MIN_RESUMED_BYTES, Partial, PeerKey, Run};
pub use path_error::PathError;
pub use path_list::{PathBound, PathList};
pub use policy::Policy;
pub use prefix::{PrefixError, PrefixHashes, PrefixReader};
pub use preview::Preview;
pub use scan::{ScanError, ScanOptions, Special, SpecialKind, Unreadable};
pub use sink::{FileFailure, FileStep, KeptPart, Sink, SinkError, Summary, Verdict};
pub use source::{ComparedPrefix, FileRead, Source};
pub use stored_stream::StoredStream;
