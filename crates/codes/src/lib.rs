//! Erasure codes: a receiver rebuilds lost data chunks from parity chunks, without a retransmission
//! (SDR-RDMA, sections 4.1.2 and 5.1.1).
//!
//! A [`Code`] turns a group of up to `k` data chunks into up to `m` parity chunks. [`Kind::Xor`] is
//! simple and repairs one loss among the data chunks that share a parity chunk. [`Kind::Mds`] is
//! Reed-Solomon over GF(2^8) and repairs any `m` losses. Its parity bytes are those of ISA-L's
//! `ec_encode_data` with `gf_gen_cauchy1_matrix`, so storage and network code that uses ISA-L can
//! read them.
//!
//! - [`Code`] and [`Present`] work on chunk counts and chunk indices. A protocol uses them to
//!   decide whether a group can be rebuilt.
//! - [`Codec`] works on the bytes of one group. [`Encoder`] and [`Decoder`] do the same chunk by
//!   chunk, as chunks become ready or arrive.
//! - [`Layout`] cuts a message into groups. A codec can encode or rebuild all groups of a message
//!   on several threads.
//! - [`hadamard`] does not repair losses. It spreads the loss of a packet over many values of a
//!   tensor, for users who accept a small error.
//! - [`Kernel`] selects the instruction set. All kernels produce the same bytes. The scalar kernel
//!   is the readable reference.
//!
//! ```
//! use farwrite_codes::{Code, Codec, Present};
//!
//! let codec = Codec::new("ec-mds:4,2".parse()?);
//! let mut data = *b"four chunks of nine bytes: 35 here";
//! let sent = data;
//! let mut parity = [0; 2 * 9];
//! codec.encode(&data, 9, &mut parity)?;
//!
//! let mut present = Present::all(codec.code(), 4);
//! for lost in [1, 3] {
//!     present.data.remove(lost);
//!     data[lost * 9..][..7].fill(0);
//! }
//! codec.recover(&mut data, &parity, 9, &present)?;
//! assert_eq!(data, sent);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Feature `std` (on by default): the kernel is chosen at run time by the instructions that the
//! machine has, and [`Codec::encode_message`] and [`Codec::recover_message`] exist. Without `std`,
//! a kernel is available only if its instructions are enabled at compile time.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod code;
mod codec;
mod error;
mod gf256;
pub mod hadamard;
mod incremental;
mod kernel;
mod layout;
mod mask;
mod matrix;
#[cfg(feature = "std")]
mod message;
mod repair;
mod strips;

pub use code::{Code, Kind, ParseCodeError, ShapeError};
pub use codec::Codec;
pub use error::CodecError;
pub use incremental::{Decoder, Encoder};
pub use kernel::Kernel;
pub use layout::{Group, Layout};
pub use mask::{ChunkMask, Present};
#[cfg(feature = "std")]
pub use message::MessageError;
pub use repair::Chunk;
