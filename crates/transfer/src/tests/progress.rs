//! Progress on paths where one message takes long.

use std::collections::BTreeSet;
use std::time::Duration;

use farwrite_link::LinkConfig;

use super::{adaptive_settings, attempt, pattern};
use crate::{RateControl, SendSettings};

/// The whole file is one message, which takes more than a second.
#[test]
fn progress_is_what_has_arrived_and_not_whole_messages() {
    const BYTES: usize = 150_000;
    let config = LinkConfig {
        delay: Duration::from_millis(100),
        rate_bps: Some(800_000),
        ..LinkConfig::default()
    };
    let settings = SendSettings {
        rate_control: RateControl::default(),
        ..adaptive_settings()
    };
    let crossing = attempt(config, settings, &pattern(BYTES), |_| {});
    let reports = crossing.results.map(|result| result.expect("it arrives"));
    let sent = serde_json::to_value(&reports[0]).expect("JSON");
    assert!(
        sent["segment_bytes"].as_u64() >= Some(BYTES as u64),
        "{sent}"
    );
    for end in ["sending", "receiving"] {
        let all = crossing.progress.iter().filter(|(label, _)| *label == end);
        let all: Vec<_> = all.map(|(_, bytes)| *bytes).collect();
        assert!(all.is_sorted(), "{end}: {all:?}");
        let between: BTreeSet<_> = all
            .iter()
            .filter(|bytes| (1..BYTES as u64).contains(bytes))
            .collect();
        assert!(between.len() >= 3, "{end}: {all:?}");
    }
}
