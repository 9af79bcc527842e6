//! A queue pair that binds memory windows.
//!
//! It is connected to itself and has a completion queue of its own, so a bind is done when its
//! completion has been polled. That needs neither a peer nor a worker.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use farwrite_fabric::contract::FabricError;

use crate::buffers::Buffers;
use crate::device::{
    Access, CompletionQueue, Completions, Depths, DeviceQp, Finished, Memory, MemoryWindow, Peer,
    PortAddress, ProtectionDomain, Received, Receives, Sends,
};

/// Longer than a device takes for a request to itself.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of the window of a trial, and of a write.
const TRIAL: u32 = 8;

/// Opens and closes memory windows.
pub(crate) struct Binder {
    qp: DeviceQp,
    queue: Arc<CompletionQueue>,
    completions: Completions,
    domain: Arc<ProtectionDomain>,
    /// Windows that are not bound and have had some of their keys.
    free: Vec<MemoryWindow>,
    resets: u64,
}

impl Binder {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        address: PortAddress,
        port: u8,
    ) -> Result<Self, FabricError> {
        let queue = CompletionQueue::new(domain.device(), 16)?;
        let depths = Depths {
            send: 4,
            receive: 4,
            send_entries: 1,
            inline_bytes: 0,
        };
        let qp = DeviceQp::new(domain, &queue, &queue, depths)?;
        let resets = qp.prepare_to_bind(port)?;
        qp.connect(&Peer {
            ip: address.ip,
            qpn: qp.number(),
            port,
            address_index: address.index,
            path_mtu: 256,
            first_psn: 0,
        })?;
        Ok(Self {
            qp,
            queue,
            completions: Completions::new(1),
            domain: Arc::clone(domain),
            free: vec![MemoryWindow::new(domain)?],
            resets,
        })
    }

    /// Opens a window onto a part of a registration, at least one byte. It has a key that it had not before. (After a
    /// window has had all of its keys, the device may give them to another one, as it does with registrations.)
    pub(crate) fn open(
        &mut self,
        memory: &Memory,
        offset: u64,
        length: u64,
    ) -> Result<MemoryWindow, FabricError> {
        let mut window = match self.free.pop() {
            Some(window) => window,
            None => MemoryWindow::new(&self.domain)?,
        };
        self.bind(&mut window, memory, offset, length)?;
        Ok(window)
    }

    /// Closes a window. After that, the device places no packet with its key. After an error, the window is
    /// closed too, because it is destroyed.
    pub(crate) fn close(
        &mut self,
        mut window: MemoryWindow,
        memory: &Memory,
    ) -> Result<(), FabricError> {
        self.bind(&mut window, memory, 0, 0)?;
        if !window.has_had_all_keys() {
            self.free.push(window);
        }
        Ok(())
    }

    fn bind(
        &mut self,
        window: &mut MemoryWindow,
        memory: &Memory,
        offset: u64,
        length: u64,
    ) -> Result<(), FabricError> {
        let posted = self.qp.post_bind(window, memory, offset, length);
        let finished = posted.and_then(|()| self.next());
        let result = finished.and_then(|finished| match finished.result {
            Ok(_) => Ok(()),
            Err(status) => Err(failed(format!("the device reported status {status}"))),
        });
        result.inspect_err(|_| {
            // A request that was slow is not done later.
            let _ = self.qp.reset();
        })
    }

    /// The next completion.
    fn next(&mut self) -> Result<Finished, FabricError> {
        let start = Instant::now();
        let mut next = None;
        while next.is_none() {
            self.queue
                .poll(&mut self.completions, |finished| next = Some(finished))?;
            if next.is_none() && start.elapsed() > PATIENCE {
                return Err(failed(format!("nothing came within {PATIENCE:?}")));
            }
        }
        next.ok_or_else(|| failed("nothing came".into()))
    }

    /// Whether the device keeps packets within the bounds of windows, found by a write beyond them.
    /// Soft-RoCE of Linux 6.1 checks the bounds of the registration alone.
    pub(crate) fn keeps_bounds(mut self) -> Result<bool, FabricError> {
        // The window, and what lies beyond it.
        let target = Buffers::new(&self.domain, 2, TRIAL, Access::Bind)?;
        let source = Buffers::new(&self.domain, 1, TRIAL, Access::Receive)?;
        source.write(0, &[1; TRIAL as usize])?;
        let (addr, length, local_key) = source.place(0);
        let mut receives = Receives::default();
        // A write takes a request, and leaves its bytes alone.
        (0..3).for_each(|id| receives.push(id, addr, length, local_key));
        self.qp.post_receives(self.resets, &mut receives).1?;
        let window = self.open(target.memory(), 0, TRIAL.into())?;
        let first = target.memory().remote().1;
        let write = |binder: &Self, remote_addr| {
            let mut sends = Sends::default();
            sends.write(0, remote_addr, window.key(), 0);
            sends.add(addr, length, local_key);
            // SAFETY: the request is not inline.
            unsafe { binder.qp.post_sends(&mut sends) }
        };
        write(&self, first)?;
        if !self.receives()? {
            return Err(failed("a write to the device itself was refused".into()));
        }
        write(&self, first + u64::from(TRIAL))?;
        // This arrives after it, or the device has broken the queue pair.
        write(&self, first)?;
        self.receives()?;
        Ok(target.read(1, TRIAL)? == [0; TRIAL as usize])
    }

    /// Waits until a write arrives, or the device has broken the queue pair. Returns whether one arrived.
    fn receives(&mut self) -> Result<bool, FabricError> {
        let finished = self.next()?;
        Ok(matches!(finished.result, Ok(Received::Write { .. })))
    }
}

fn failed(why: String) -> FabricError {
    FabricError::Io {
        what: "binding a memory window".into(),
        source: std::io::Error::other(why),
    }
}
