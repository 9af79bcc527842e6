//! What was chosen in a transfer, and why.

use std::collections::{BTreeMap, VecDeque};

use farwrite::SchemeName;
use serde::Serialize;

/// Changes that a report lists, the last ones.
const LISTED: usize = 32;

/// A change of the scheme.
#[derive(Clone, Debug, Serialize)]
struct Change {
    /// From this message on, counted from 0.
    message: u64,
    scheme: String,
    reason: String,
}

/// What was chosen in a transfer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Choices {
    /// Messages by scheme.
    messages: BTreeMap<String, u64>,
    /// How often another scheme was chosen.
    changes: u64,
    /// Why the last choice is what it is, as of the last time that something had moved.
    reason: String,
    /// The last of these, the first choice being one too.
    last_changes: VecDeque<Change>,
}

impl Choices {
    /// From message `message` on this scheme was chosen, for the reason that was given last.
    pub(super) fn note(&mut self, message: u64, chosen: SchemeName, instead_of_another: bool) {
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

    /// Why the choice is what it is.
    pub(super) fn explain(&mut self, reason: String) {
        self.reason = reason;
    }

    /// A message was sent.
    pub(super) fn handle_sent(&mut self, scheme: SchemeName) {
        *self.messages.entry(scheme.to_string()).or_default() += 1;
    }

    /// What was chosen, and why at last, in a few words.
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
