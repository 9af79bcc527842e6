//! A host whose packets are captured.

use farwrite_net::{Device, Frame, Output, Ports};

use super::HostOrBox;
use crate::Capture;

/// A host, and the packets that it has sent and received.
pub(crate) struct CapturedHost {
    pub(super) host: HostOrBox,
    pub(super) capture: Capture,
}

impl Device for CapturedHost {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        self.capture.add(now_ns, &frame);
        self.host.handle(now_ns, port, frame);
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        let output = self.host.poll(now_ns, ports);
        if let Some(Output::Send { frame, .. }) = &output {
            self.capture.add(now_ns, frame);
        }
        output
    }

    fn next_ns(&self) -> Option<u64> {
        self.host.next_ns()
    }
}
