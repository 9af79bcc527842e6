//! Transfers with `--trace`.

use std::path::Path;

use serde_json::Value;

use crate::rig::{Rig, Running, farwrite, free_port};

/// Runs `farwrite trace` on a trace and returns the output.
fn drawn(trace: &Path) -> Value {
    let output = farwrite().args(["--json", "trace"]).arg(trace).output();
    let output = output.expect("the program starts");
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    object["result"]["runs"].clone()
}

#[test]
fn both_ends_trace_the_same_messages() {
    let rig = Rig::new();
    let file = rig.file("file", 9_000_000);
    let [sent, received] = ["sent.jsonl", "received.jsonl"].map(|name| rig.path(name));
    let [of_sender, of_receiver] = [&sent, &received].map(|path| path.to_str().expect("plain"));
    let addr = free_port();
    let options = ["--once", "--trace", of_receiver];
    let receiver = Running::spawn(rig.recv_command(&addr.to_string(), &rig.inbox(), &options));
    let sender = rig.send(addr, &["--trace", of_sender], &[&file]).end();
    assert_eq!((sender.code, receiver.end().code), (Some(0), Some(0)));
    let [sent, received] = [drawn(&sent), drawn(&received)];
    let (sent, received) = (&sent[0], &received[0]);
    assert_eq!(
        (&sent["side"], &received["side"]),
        (&"sender".into(), &"receiver".into())
    );
    assert!(sent["messages"].as_u64() > Some(0));
    assert_eq!(sent["messages"], received["messages"]);
    assert_eq!(received["title"], "transfer");
    assert_eq!(received["sent_chunks"], 0);
}
