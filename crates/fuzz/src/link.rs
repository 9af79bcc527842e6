//! Targets of the link crate.

use std::sync::Arc;

use farwrite_link::{DeliveryTrace, Serialiser};

/// A trace of opportunities to deliver. What was read delivers bytes in order, each not before it
/// was accepted.
pub fn trace(data: &[u8]) {
    let trace = match DeliveryTrace::parse(&String::from_utf8_lossy(data)) {
        Ok(trace) => trace,
        Err(why) => {
            let why = why.to_string();
            assert!(!why.is_empty() && !why.contains('\n'), "{why}");
            return;
        }
    };
    assert!(trace.mean_bps() > 0);
    let mut serialiser = Serialiser::traced(Arc::new(trace));
    let mut last_ns = 0;
    for (now_ns, bytes) in [
        (0, 1),
        (0, 3000),
        (7, 0),
        (9_000_000_000, 1500),
        (1 << 62, 9),
    ] {
        assert!(serialiser.backlog_bytes(now_ns) <= 3001);
        let out_ns = serialiser.accept(now_ns, bytes);
        assert!(out_ns >= now_ns && out_ns >= last_ns, "{out_ns}");
        last_ns = out_ns;
        assert_eq!(serialiser.backlog_bytes(last_ns), 0);
    }
}
