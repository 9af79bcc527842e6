//! The choices in a transfer, and their reasons.

use std::collections::{BTreeMap, VecDeque};

use farwrite::SchemeName;
use serde::Serialize;

/// The number of changes that a report lists: the last ones.
const LISTED: usize = 32;

/// A change of the scheme.
#[derive(Clone, Debug, Serialize)]
struct Change {
    /// From this message on, counted from 0.
    message: u64,
    scheme: String,
    reason: String,
}

/// The choices in a transfer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Choices {
    /// Messages by scheme.
    messages: BTreeMap<String, u64>,
    /// How often another scheme was chosen.
    changes: u64,
    /// The reason of the last choice, from the last time that a measurement had moved.
    reason: String,
    /// The last changes; the first choice counts as one.
    last_changes: VecDeque<Change>,
}

impl Choices {
    /// Records that this scheme was chosen from message `message` on, for the last reason given.
    pub(crate) fn note(&mut self, message: u64, chosen: SchemeName, instead_of_another: bool) {
        self.changes += u64::from(instead_of_another);
        if self.last_changes.len() == LISTED {
            self.last_changes.pop_front();
        }
        self.last_changes.push_back(Change {
            message,
            scheme: chosen.to_string(),
            reason: self.reason.clone(),
        });
    }

    /// Sets the reason of the current choice.
    pub(crate) fn explain(&mut self, reason: String) {
        self.reason = reason;
    }

    /// Counts a sent message.
    pub(crate) fn handle_sent(&mut self, scheme: SchemeName) {
        *self.messages.entry(scheme.to_string()).or_default() += 1;
    }

    /// The choices and the last reason, in a few words.
    pub fn line(&self) -> String {
        let parts = self.messages.iter();
        let parts: Vec<_> = parts
            .map(|(scheme, messages)| format!("{scheme} for {messages}"))
            .collect();
        if parts.is_empty() {
            return "auto had nothing to choose for".to_owned();
        }
        format!(
            "auto took {} messages ({})",
            parts.join(" and "),
            self.reason
        )
    }
}
