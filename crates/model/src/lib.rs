//! How long a reliable write takes: the whole distribution, exactly.
//!
//! A [`Setting`] says what is asked: scheme, message, path, loss. Its
//! [`completion_time`](Setting::completion_time) is a distribution with mean, quantiles and cdf, evaluated in
//! microseconds to milliseconds, and a sampler beside it that acts the protocol out.
//! `docs/model.md` derives every formula, says how exact each is, and maps its symbols to the names here.
//!
//! ```
//! use farwrite_model::{Scheme, Setting};
//!
//! // 128 MiB at 400 Gbit/s over 3750 km, one chunk of 4 KiB in ten thousand lost.
//! let repeat = Setting::new(Scheme::SrRto, 134_217_728.0, 400e9, 25e-3, 1e-4).completion_time()?;
//! let coded = Setting { scheme: "ec-mds:32,8".parse()?, ..Setting::new(Scheme::SrRto, 134_217_728.0, 400e9, 25e-3, 1e-4) };
//! let coded = coded.completion_time()?;
//! assert!(repeat.mean() > 3.0 * coded.mean());
//! assert!(repeat.quantile(0.999)? > 3.0 * coded.quantile(0.999)?);
//! # Ok::<(), farwrite_model::ModelError>(())
//! ```
//!
//! Nothing here reads a clock, draws from the system's randomness, starts a thread or does I/O, so all of it
//! runs in a browser too.

mod bursts;
mod collective;
mod completion;
mod error;
mod excess;
mod group;
mod lattice;
mod loss;
pub mod plan;
mod recovery;
mod sample;
mod scheme;
mod setting;
mod spectrum;
mod stages;
mod terms;

pub use collective::{Collective, CollectiveTime};
pub use completion::CompletionTime;
pub use error::ModelError;
pub use group::group_failure;
pub use loss::{Loss, chunk_loss};
pub use scheme::{Code, Scheme};
pub use setting::{Compute, Setting, Variant};
pub use stages::StageSum;
