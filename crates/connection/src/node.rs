//! The endpoint of a listener or of a connection, on a thread of its own.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use farwrite::fabric::contract::{Fabric, FabricError};
use farwrite::fabric::threads::lock;
use farwrite::{
    CodingThreads, Endpoint, ProgressThread, RealTime, ReservedPort, TaskState, UdpConfig,
    UdpFabric, Waiters,
};

use crate::driver::Driver;
use crate::error::Error;

/// Errors of Linux that have no [`ErrorKind`].
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;
/// How long the last messages may take when a node is dropped.
const LINGER_NS: u64 = 3_500_000_000;

/// A thread with an endpoint, and its connections.
pub(crate) struct Node {
    pub(crate) thread: ProgressThread<UdpFabric>,
    driver: Arc<Mutex<Driver>>,
    /// Threads that wait for a connection, or for the end of all.
    waiters: Arc<Waiters>,
    pub(crate) local: SocketAddr,
}

/// The driver, as the endpoint's thread runs it.
struct DriverTask(Arc<Mutex<Driver>>);

impl Drop for DriverTask {
    fn drop(&mut self) {
        // The thread has ended: those who wait learn it now.
        lock(&self.0).wake_all();
    }
}

impl Node {
    pub(crate) fn start(mut endpoint: Endpoint<UdpFabric>, driver: Driver) -> Result<Self, Error> {
        if !driver.options.reports_events {
            endpoint.mute_events();
        }
        // Route packets show which sizes pass, even if the reason is this machine's interface.
        endpoint.fabric().lose_too_large();
        let local = endpoint.fabric().local_addr(0);
        let waiters = Arc::clone(&driver.waiters);
        let driver = Arc::new(Mutex::new(driver));
        let thread = endpoint.start_thread()?;
        let task = DriverTask(Arc::clone(&driver));
        let adder = thread.task_adder();
        thread.add_task(move |endpoint| {
            let DriverTask(driver) = &task;
            let mut polled = lock(driver);
            let state = polled.poll(endpoint);
            for (key, qp) in polled.take_new() {
                let driver = Arc::clone(driver);
                let run = move |endpoint: &mut _| lock(&driver).poll_session(endpoint, key, qp);
                adder.add_task_of(qp, run);
            }
            state
        })?;
        Ok(Self {
            thread,
            driver,
            waiters,
            local,
        })
    }

    pub(crate) fn driver(&self) -> MutexGuard<'_, Driver> {
        lock(&self.driver)
    }

    /// Waits until `ready` returns something of the driver, at most for `at_most`.
    pub(crate) fn wait<R>(
        &self,
        at_most: Duration,
        ready: impl Fn(&mut Driver) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        let ready = || ready(&mut self.driver());
        Ok(self.thread.wait_with(&self.waiters, at_most, ready)?)
    }

    /// Waits until no connection has anything left to do, at most for `at_most`.
    pub(crate) fn wait_idle(&self, at_most: Duration) {
        let _ = self.wait(at_most, |driver| driver.is_idle().then_some(()));
    }

    /// Runs `call` on the endpoint's thread.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Driver, &mut Endpoint<UdpFabric>) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let driver = Arc::clone(&self.driver);
        let call = move |endpoint: &mut Endpoint<UdpFabric>| call(&mut lock(&driver), endpoint);
        Ok(self.thread.call(call)?)
    }

    /// As [`Node::call`], and waits for nothing, so it may be called on the endpoint's thread.
    pub(crate) fn tell(
        &self,
        call: impl FnOnce(&mut Driver, &mut Endpoint<UdpFabric>) + Send + 'static,
    ) {
        let driver = Arc::clone(&self.driver);
        self.thread
            .post(move |endpoint| call(&mut lock(&driver), endpoint));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.thread.is_own_thread() {
            let driver = Arc::clone(&self.driver);
            let mut until_ns = None;
            return self.thread.end_after(move |endpoint| {
                let now_ns = endpoint.fabric().now_ns();
                let until_ns = *until_ns.get_or_insert(now_ns.saturating_add(LINGER_NS));
                match lock(&driver).is_idle() || now_ns >= until_ns {
                    true => TaskState::Done,
                    false => TaskState::Until(until_ns),
                }
            });
        }
        self.wait_idle(Duration::from_nanos(LINGER_NS));
    }
}

/// Binds an endpoint for [`connect`](crate::connect): at any address of both families, if this machine
/// has both.
pub(crate) fn bind_any() -> Result<Endpoint<UdpFabric>, Error> {
    let any = [
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
    ];
    bind(any[0], None).or_else(|_| bind(any[1], None))
}

/// Binds an endpoint, beside a port that this process holds if there is one.
pub(crate) fn bind(
    addr: SocketAddr,
    held: Option<&ReservedPort>,
) -> Result<Endpoint<UdpFabric>, Error> {
    let config = UdpConfig::new(addr);
    let bound = match held {
        Some(held) => Endpoint::over_udp_beside(&config, held),
        None => Endpoint::over_udp(&config),
    };
    let coding = bound.and_then(|mut endpoint| {
        endpoint.code_on(CodingThreads::Auto)?;
        Ok(endpoint)
    });
    coding.map_err(|error| of_port(addr, error))
}

/// Holds a UDP port for listeners ([`Listener::bind_beside`](crate::Listener::bind_beside)), as
/// [`ReservedPort::bind`] does. The error also says what to do.
///
/// # Errors
/// [`Error::Bind`].
pub fn reserve_port(addr: SocketAddr) -> Result<ReservedPort, Error> {
    let held = ReservedPort::bind(addr).map_err(FabricError::from);
    held.map_err(|error| of_port(addr, error.into()))
}

/// Why a port at `addr` was not opened: binding itself has failed, or something else that a port needs.
fn of_port(addr: SocketAddr, error: farwrite::Error) -> Error {
    let farwrite::Error::Fabric(FabricError::Io { what, source }) = error else {
        return error.into();
    };
    let is_address = what.starts_with("binding");
    let hint = match (source.kind(), source.raw_os_error()) {
        (_, Some(EMFILE)) => {
            "this process has too many open files: close some, or raise the limit (ulimit -n)"
        }
        (_, Some(ENFILE)) => "this machine has too many open files: end some programs",
        (ErrorKind::OutOfMemory, _) | (_, Some(ENOBUFS)) => "this machine has too little memory",
        (ErrorKind::AddrInUse, _) => "end the program that has it, or choose another port",
        (ErrorKind::AddrNotAvailable, _) => "no interface of this machine has the address",
        (ErrorKind::PermissionDenied, _) if is_address && (1..1024).contains(&addr.port()) => {
            "choose a port from 1024 on"
        }
        (ErrorKind::PermissionDenied, _) => {
            "a sandbox or a filter of system calls forbids it: allow it for this program"
        }
        _ if is_address => "choose another address",
        _ => "this system lacks what sockets of Farwrite need",
    };
    let why = match is_address {
        true => source.to_string(),
        false => format!("{what}: {source}"),
    };
    Error::Bind { addr, why, hint }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::{fs, io};

    use super::*;
    use crate::{ConnectionOptions, Keys, Listener, connect};

    /// How often a thread of an endpoint of this process has slept so far.
    fn sleeps() -> u64 {
        let threads = fs::read_dir("/proc/self/task").expect("threads");
        let read = |entry: std::io::Result<fs::DirEntry>| {
            let folder = entry.expect("an entry").path();
            let name = fs::read_to_string(folder.join("comm")).ok()?;
            let status = fs::read_to_string(folder.join("status")).ok()?;
            let count = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            (name.trim() == "farwrite").then(|| count.trim().parse::<u64>().expect("a number"))
        };
        threads.filter_map(read).sum()
    }

    #[test]
    fn a_port_that_cannot_be_opened_has_the_hint_for_its_reason() {
        let hint = |port, what: &str, errno| {
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let source = io::Error::from_raw_os_error(errno);
            let what = what.into();
            of_port(addr, FabricError::Io { what, source }.into()).to_string()
        };
        const BINDING: &str = "binding UDP 127.0.0.1:80";
        const EVENT: &str = "making an event counter to wake threads by";
        const EPERM: i32 = 1;
        const EACCES: i32 = 13;
        assert!(hint(80, BINDING, EMFILE).contains("ulimit -n"));
        assert!(hint(80, EVENT, EMFILE).contains("ulimit -n"));
        assert!(hint(80, BINDING, EACCES).ends_with("choose a port from 1024 on"));
        assert!(hint(4792, BINDING, EACCES).contains("filter of system calls"));
        let text = hint(80, EVENT, EPERM);
        assert!(
            text.contains(EVENT) && text.contains("filter of system calls"),
            "{text}"
        );
        assert!(hint(80, BINDING, 98).contains("end the program that has it"));
    }

    #[test]
    fn idle_ends_sleep() {
        const SECOND: Duration = Duration::from_secs(1);
        let keys = Keys::of_psk(&farwrite_keys::Psk::generate().expect("randomness"));
        let options = ConnectionOptions::default();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Listener::bind(any, &keys, &options).expect("a port");
        let at = listener.local_addr().to_string();
        let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
        for _ in 0..2 {
            ours.push(connect(&at, &keys, "", &options).expect("connected"));
            theirs.push(
                listener
                    .accept(20 * SECOND)
                    .expect("no failure")
                    .expect("in time"),
            );
        }
        // Finding the largest packets goes on for a moment.
        let quiet = (0..300).any(|_| {
            let before = sleeps();
            sleep(SECOND / 5);
            // Threads of other tests come and go.
            sleeps() == before
        });
        assert!(quiet, "three threads have slept {} times", sleeps());
    }
}
