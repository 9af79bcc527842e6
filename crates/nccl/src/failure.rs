//! Why a call of NCCL fails.

use crate::abi::{self, Code};

/// A code for NCCL, and a warning for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// What was wrong, and what to do. Empty if it was said before.
    pub(crate) text: String,
}

impl Failure {
    fn new(code: Code, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }

    /// An argument of a call cannot be right.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(abi::INVALID_ARGUMENT, text)
    }

    /// The environment asks for something that does not exist.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(abi::INVALID_USAGE, text)
    }

    /// This machine refuses something.
    pub(crate) fn system(text: impl Into<String>) -> Self {
        Self::new(abi::SYSTEM_ERROR, text)
    }

    /// The peer is gone, or refuses something.
    pub(crate) fn remote(text: impl Into<String>) -> Self {
        Self::new(abi::REMOTE_ERROR, text)
    }

    /// The plugin has a defect.
    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self::new(abi::INTERNAL_ERROR, text)
    }
}
