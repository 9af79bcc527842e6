//! The completion time of a reliable write, as an exact distribution.
//!
//! A [`Setting`] describes scheme, message, path and loss. Its
//! [`completion_time`](Setting::completion_time) is a distribution with mean, quantiles and cdf,
//! which takes microseconds to milliseconds to evaluate. A sampler simulates the protocol for
//! comparison. `docs/model.md` derives every formula, states its precision, and maps its symbols to
//! the names here.
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
//! This crate uses no clock, no system randomness, no threads and no I/O, so it also runs in a
//! browser.

mod attempts;
mod blocks;
mod bursts;
mod channel;
mod collective;
mod completion;
mod error;
mod excess;
mod group;
mod lattice;
mod loss;
pub mod plan;
mod recovery;
mod rounds;
mod sample;
mod scheme;
mod setting;
mod shipped;
mod spectrum;
mod stages;
mod terms;

pub use collective::{Collective, CollectiveTime};
pub use completion::CompletionTime;
pub use error::{ModelError, Unsupported, Wanted};
pub use farwrite_codes::Kind;
pub use group::group_failure;
pub use loss::{Loss, chunk_loss, losses_in_burst};
pub use scheme::Scheme;
pub use setting::{Compute, Setting, Variant};
pub use stages::StageSum;
