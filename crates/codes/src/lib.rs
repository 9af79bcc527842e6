//! Erasure codes: parity chunks from which lost data chunks are rebuilt without asking for them
//! again (SDR-RDMA, sections 4.1.2 and 5.1.1).
//!
//! A [`Code`] turns a group of up to `k` data chunks into up to `m` parity chunks. [`Kind::Xor`] is
//! cheap to think about and repairs one loss among the chunks that share a parity chunk;
//! [`Kind::Mds`] is Reed-Solomon over GF(2^8) and repairs any `m` losses. Its parity bytes are those
//! of ISA-L's `ec_encode_data` with `gf_gen_cauchy1_matrix`, so they can be exchanged with storage
//! and network code that uses ISA-L.
//!
//! - [`Code`] and [`Present`] are arithmetic on numbers of chunks: what a protocol needs in order to
//!   know whether a group can be rebuilt.
//! - [`Codec`] works on bytes, a group at a time; [`Encoder`] and [`Decoder`] do the same chunk by
//!   chunk, as they become ready or arrive.
//! - [`Layout`] cuts a message into groups, and a codec codes all of them, on several threads.
//! - [`hadamard`] repairs nothing: it spreads the loss of a packet over many values of a tensor, for
//!   users who can do with a little error.
//! - [`Kernel`] says by which instructions. All of them give the same bytes; the scalar one is there
//!   to be read.
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
//! Feature `std` (on by default): the kernel is chosen by what the machine can do, and
//! [`Codec::encode_message`] and [`Codec::recover_message`] exist. Without it only instructions are
//! used that the compiler was told of.
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

pub use code::{Code, Kind, ParseCodeError, ShapeError};
pub use codec::Codec;
pub use error::CodecError;
pub use incremental::{Decoder, Encoder};
pub use kernel::Kernel;
pub use layout::{Group, Layout};
pub use mask::{ChunkMask, Present};
#[cfg(feature = "std")]
pub use message::MessageError;
