//! The device of a host: how the network drives the program and its ports.

use farwrite_net::{Device, Frame, Output, Ports};

use super::NetPorts;

/// The program that runs on a host: usually an endpoint and its traffic.
pub trait Program {
    /// Does the program's pending work. Returns the latest time of the next call; `None`: when a
    /// packet arrives. `now_ns` is the time of the network.
    fn poll(&mut self, now_ns: u64) -> Option<u64>;
}

/// A host of a network: its ports, and the program that uses their fabric.
pub struct NetHost<P> {
    ports: NetPorts,
    program: P,
    /// Time at which the program asked to be polled.
    program_ns: Option<u64>,
    /// Whether packets have arrived since the last poll of the program.
    arrived: bool,
    /// Earliest time at which the program is polled for arrived packets.
    rested_ns: u64,
}

impl<P: Program> NetHost<P> {
    /// A host whose program is polled as soon as the network runs.
    pub fn new(ports: NetPorts, program: P) -> Self {
        Self {
            ports,
            program,
            program_ns: Some(0),
            arrived: false,
            rested_ns: 0,
        }
    }

    /// The program.
    pub fn program(&self) -> &P {
        &self.program
    }

    /// The program, for giving it something to do. It is polled as soon as the network runs, if the
    /// caller reached the host through [`Network::device_mut`](farwrite_net::Network::device_mut).
    pub fn program_mut(&mut self) -> &mut P {
        self.program_ns = Some(0);
        &mut self.program
    }

    fn is_due(&self, now_ns: u64) -> bool {
        let for_packets = self.arrived && now_ns >= self.rested_ns;
        for_packets || self.program_ns.is_some_and(|due_ns| now_ns >= due_ns)
    }
}

impl<P: Program> Device for NetHost<P> {
    fn handle(&mut self, now_ns: u64, _port: usize, frame: Frame) {
        self.arrived |= self.ports.state.borrow_mut().arrive(now_ns, frame);
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        if self.is_due(now_ns) {
            let interval = self.ports.state.borrow().options.poll_interval;
            let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
            self.arrived = false;
            self.rested_ns = now_ns.saturating_add(interval_ns);
            // Without this minimum, a program that asks for the current time would stop the
            // clock.
            let next_ns = self.program.poll(now_ns);
            self.program_ns = next_ns.map(|next_ns| next_ns.max(now_ns + 1));
        }
        let mut state = self.ports.state.borrow_mut();
        if !state.has_frames() || !ports.ready(0, state.options.priority) {
            return None;
        }
        let frame = state.pop()?;
        Some(Output::Send { port: 0, frame })
    }

    fn next_ns(&self) -> Option<u64> {
        let for_packets = self.arrived.then_some(self.rested_ns);
        self.program_ns.into_iter().chain(for_packets).min()
    }
}
