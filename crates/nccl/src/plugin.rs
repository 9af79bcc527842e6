//! What NCCL calls, without its pointers.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use farwrite::fabric::threads;

use crate::abi::HANDLE_BYTES;
use crate::comm::{Comm, Direction};
use crate::connecting::Attempt;
use crate::devices::{self, Device};
use crate::failure::Failure;
use crate::handle::{self, Handle};
use crate::logger;
use crate::ports::Ports;
use crate::request::{Ending, Request};
use crate::settings::Settings;
use crate::table::{Table, next_number};

/// How long [`Plugin::finalize`] waits for connections that end.
const FAREWELL: Duration = Duration::from_secs(4);

/// What `listenComm` names.
struct Listening {
    ports: Arc<Ports>,
    number: u64,
}

/// What a request names.
struct Started {
    comm_number: usize,
    comm: Arc<Comm>,
    request: Arc<Request>,
}

/// The plugin of a process.
pub(crate) struct Plugin {
    settings: Settings,
    devices: Vec<Device>,
    /// Open ports, by device.
    ports: Vec<Mutex<Option<Arc<Ports>>>>,
    listeners: Table<Listening>,
    attempts: Table<Attempt>,
    comms: Table<Comm>,
    requests: Table<Started>,
    /// How often `init` was called more than `finalize`.
    users: Mutex<usize>,
    /// Connections that tell their peers that they have ended.
    leaving: Mutex<usize>,
    has_left: Condvar,
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();
static INIT: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plugin of this process, after [`init`].
pub(crate) fn plugin() -> Result<&'static Plugin, Failure> {
    let plugin = PLUGIN.get();
    plugin.ok_or_else(|| Failure::argument("NCCL has not called init"))
}

/// Begins, or begins once more: NCCL calls it for each communicator. Returns a number for the context.
pub(crate) fn init() -> Result<usize, Failure> {
    let _one_at_a_time = lock(&INIT);
    let plugin = match PLUGIN.get() {
        Some(plugin) => plugin,
        None => {
            let plugin = Plugin::new()?;
            PLUGIN.get_or_init(|| plugin)
        }
    };
    *lock(&plugin.users) += 1;
    Ok(next_number())
}

impl Plugin {
    fn new() -> Result<Self, Failure> {
        let settings = Settings::of_environment()?;
        let devices = devices::find(&settings)?;
        let names: Vec<_> = devices
            .iter()
            .map(|device| format!("{} {}", device.name.to_string_lossy(), device.address.ip()))
            .collect();
        settings.check_devices(&names)?;
        logger::info(&format!(
            "version {}, scheme {}, using {}",
            env!("CARGO_PKG_VERSION"),
            settings.scheme,
            names.join(", ")
        ));
        Ok(Self {
            ports: devices.iter().map(|_| Mutex::new(None)).collect(),
            settings,
            devices,
            listeners: Table::new("listener"),
            attempts: Table::new("attempt"),
            comms: Table::new("connection"),
            requests: Table::new("request"),
            users: Mutex::new(0),
            leaving: Mutex::new(0),
            has_left: Condvar::new(),
        })
    }

    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub(crate) fn device(&self, number: usize) -> Result<&Device, Failure> {
        self.devices.get(number).ok_or_else(|| {
            Failure::argument(format!("device {number}: there are {}", self.devices.len()))
        })
    }

    /// Microseconds of one way, for NCCL.
    pub(crate) fn latency_us(&self) -> f32 {
        self.settings.rtt.as_secs_f32() * 1e6 / 2.0
    }

    /// The ports of a device, opened when they are needed first.
    fn ports(&self, device: usize) -> Result<Arc<Ports>, Failure> {
        let of_device = self.device(device)?;
        let mut place = lock(&self.ports[device]);
        if let Some(ports) = &*place {
            return Ok(Arc::clone(ports));
        }
        let ports = Arc::new(Ports::open(of_device, &self.settings, device)?);
        *place = Some(Arc::clone(&ports));
        Ok(ports)
    }

    /// Makes a handle for peers. Returns the number of the listener.
    pub(crate) fn listen(&self, device: usize) -> Result<(usize, [u8; HANDLE_BYTES]), Failure> {
        let ports = self.ports(device)?;
        let number = next_number() as u64;
        let handle = ports.listen(number)?.encode();
        let listening = Arc::new(Listening { ports, number });
        Ok((self.listeners.add(listening), handle))
    }

    /// The next connection of a listener; `None` if there is none yet.
    pub(crate) fn accept(&self, listener: usize) -> Result<Option<usize>, Failure> {
        let listening = self.listeners.get(listener)?;
        let comm = listening.ports.accept(listening.number)?;
        Ok(comm.map(|comm| self.comms.add(Arc::new(comm))))
    }

    pub(crate) fn close_listen(&self, listener: usize) -> Result<(), Failure> {
        let listening = self.listeners.remove(listener)?;
        listening.ports.stop_listening(listening.number);
        Ok(())
    }

    /// Connects to a handle, in which it notes the attempt; `None` while it is under way.
    pub(crate) fn connect(
        &self,
        device: usize,
        bytes: &mut [u8; HANDLE_BYTES],
    ) -> Result<Option<usize>, Failure> {
        let handle = Handle::decode(bytes)
            .map_err(|why| Failure::argument(format!("the handle of a peer is wrong: {why}")))?;
        let number = usize::try_from(handle::attempt(bytes)).unwrap_or(0);
        // The peer has written these bytes, too.
        let attempt = self.attempts.get(number).ok();
        let Some(attempt) = attempt.filter(|attempt| attempt.is_for(&handle)) else {
            let ports = self.ports(device)?;
            let attempt = Attempt::start(ports, handle)?;
            handle::set_attempt(bytes, self.attempts.add(attempt) as u64);
            return Ok(None);
        };
        let Some(connected) = attempt.take() else {
            return Ok(None);
        };
        self.attempts.remove(number)?;
        handle::set_attempt(bytes, 0);
        Ok(Some(self.comms.add(Arc::new(connected?))))
    }

    pub(crate) fn comm(&self, number: usize) -> Result<Arc<Comm>, Failure> {
        self.comms.get(number)
    }

    /// Starts a message. Returns the number of its request; `None` if NCCL must ask again.
    pub(crate) fn start(
        &self,
        comm_number: usize,
        direction: Direction,
        (base, bytes, memory): (usize, usize, usize),
    ) -> Result<Option<usize>, Failure> {
        let comm = self.comms.get(comm_number)?;
        if comm.direction != direction {
            return Err(Failure::argument("the connection goes the other way"));
        }
        let Some(request) = comm.start(base, bytes, memory)? else {
            return Ok(None);
        };
        let started = Started {
            comm_number,
            comm,
            request,
        };
        Ok(Some(self.requests.add(Arc::new(started))))
    }

    /// The bytes of a request that is done; `None` while it is not.
    pub(crate) fn test(&self, number: usize) -> Result<Option<u64>, Failure> {
        let started = self.requests.get(number)?;
        let Some(ending) = started.request.ending() else {
            // NCCL calls this in a loop. With few cores, the threads of endpoints need this one.
            std::thread::yield_now();
            return Ok(None);
        };
        self.requests.remove(number)?;
        match ending {
            Ending::Done(bytes) => Ok(Some(bytes)),
            Ending::DoesNotFit => {
                let text = "a message is longer than the receive of its peer".to_owned();
                Err(started.comm.fail(text))
            }
            Ending::Failed => Err(started.comm.failure()),
        }
    }

    /// Ends a connection. Its open requests are forgotten. If `waits`, the peer knows it when this returns.
    pub(crate) fn close(&'static self, number: usize, waits: bool) -> Result<(), Failure> {
        let comm = self.comms.remove(number)?;
        self.requests.keep(|started| started.comm_number != number);
        let closed = comm.close();
        if waits {
            comm.leave();
            return closed;
        }
        *lock(&self.leaving) += 1;
        let leave = move || {
            comm.leave();
            drop(comm);
            *lock(&self.leaving) -= 1;
            self.has_left.notify_all();
        };
        if threads::spawn("nccl-close", leave).is_err() {
            *lock(&self.leaving) -= 1;
        }
        closed
    }

    /// Ends a context. After the last one, the ports are closed.
    pub(crate) fn finalize(&self) {
        {
            let _one_at_a_time = lock(&INIT);
            let mut users = lock(&self.users);
            *users = users.saturating_sub(1);
            if *users > 0 {
                return;
            }
        }
        let leaving = lock(&self.leaving);
        let waited = self
            .has_left
            .wait_timeout_while(leaving, FAREWELL, |count| *count > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let _one_at_a_time = lock(&INIT);
        if *lock(&self.users) > 0 {
            // A context that began meanwhile uses the ports.
            return;
        }
        for place in &self.ports {
            if let Some(ports) = lock(place).take() {
                ports.close();
            }
        }
        self.attempts.keep(|_| false);
    }
}
