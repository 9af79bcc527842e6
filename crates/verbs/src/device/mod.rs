//! Safe objects of one RDMA device, over libibverbs.
//!
//! The library is opened when a device is, so a program needs neither headers when it is built nor
//! the library when it runs without devices. Each object holds what it was made from, and destroys
//! itself when it is dropped.
#![allow(unsafe_code)]

mod completion_queue;
#[cfg(test)]
pub(crate) mod fake;
mod ffi;
mod memory;
mod memory_window;
mod queue_pair;
mod requests;

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use farwrite_fabric::contract::FabricError;

pub(crate) use completion_queue::{Armed, CompletionQueue, Completions, Finished, Received};
pub(crate) use ffi::WC_WR_FLUSH_ERR;
pub(crate) use memory::{Access, Memory, ProtectionDomain};
pub(crate) use memory_window::MemoryWindow;
pub(crate) use queue_pair::{Depths, DeviceQp, Peer};
pub(crate) use requests::{Receives, Sends};

/// The library, opened once and never closed.
struct Library {
    functions: ffi::Functions,
    /// Keeps its memory reachable, so that checkers of leaks do not report it.
    _opened: &'static libloading::Library,
}

impl Library {
    fn get() -> Result<&'static Self, FabricError> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        let opened = LIBRARY.get_or_init(|| {
            // SAFETY: the initializers of libibverbs only prepare its own tables.
            let library = unsafe { libloading::Library::new("libibverbs.so.1") };
            let library = library.map_err(|e| e.to_string())?;
            // Never closed, so that its functions stay valid.
            let library: &'static _ = Box::leak(Box::new(library));
            // SAFETY: the name says which library it is, and it is never closed.
            let functions = unsafe { ffi::Functions::of(library) };
            let functions = functions.map_err(|e| e.to_string())?;
            Ok(Self {
                functions,
                _opened: library,
            })
        });
        opened.as_ref().map_err(|reason| FabricError::Io {
            what: "opening libibverbs, which rdma-core contains (Debian: ibverbs-providers)".into(),
            source: io::Error::new(io::ErrorKind::NotFound, reason.as_str()),
        })
    }
}

/// The devices of this machine.
struct DeviceList {
    ibverbs: &'static Library,
    list: *mut *mut ffi::IbvDevice,
    count: usize,
}

impl DeviceList {
    fn get(library: &'static Library) -> Result<Self, FabricError> {
        let mut count = 0;
        // SAFETY: the count is writable.
        let list = unsafe { (library.functions.ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(last_error("listing RDMA devices"));
        }
        Ok(Self {
            ibverbs: library,
            list,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    /// The device with an index below the count.
    fn device(&self, index: usize) -> *mut ffi::IbvDevice {
        assert!(index < self.count);
        // SAFETY: the list has `count` entries.
        unsafe { *self.list.add(index) }
    }

    fn names(&self) -> Vec<String> {
        let devices = (0..self.count).map(|index| self.device(index));
        let names = devices.map(|device| {
            // SAFETY: the device is an entry of the list. Its name ends with a zero.
            unsafe { text((self.ibverbs.functions.ibv_get_device_name)(device)) }
        });
        names.collect()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list is freed once, and its devices are not used after that.
        unsafe { (self.ibverbs.functions.ibv_free_device_list)(self.list) };
    }
}

/// The names of the RDMA devices of this machine. Empty if it has no libibverbs.
#[must_use]
pub fn device_names() -> Vec<String> {
    let list = Library::get().and_then(DeviceList::get);
    list.map_or_else(|_| Vec::new(), |list| list.names())
}

pub(crate) struct Device {
    ibverbs: &'static Library,
    context: *mut ffi::IbvContext,
    name: String,
    /// Why nothing works any more.
    fatal: OnceLock<String>,
    /// The device was removed, or has failed as a whole.
    is_gone: AtomicBool,
    /// A port may be down, or may not exist any more.
    is_port_in_doubt: AtomicBool,
}

// SAFETY: functions of libibverbs can be called for one context from any thread, also at the same
// time (ibv_open_device(3), and rdma-core's Documentation/libibverbs.md).
unsafe impl Send for Device {}
// SAFETY: same as above.
unsafe impl Sync for Device {}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest number of requests of one queue of a queue pair that can be posted.
    pub(crate) queue_depth: u32,
    /// Largest number of scatter entries of one request.
    pub(crate) scatter_entries: u32,
    /// Largest number of completions in one completion queue.
    pub(crate) completions: u32,
    /// Whether the device says that it has memory windows.
    pub(crate) has_memory_windows: bool,
}

/// An address of a port: an entry of its table of GIDs, for RoCE v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortAddress {
    pub(crate) index: u8,
    pub(crate) ip: IpAddr,
}

/// What a port says about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortState {
    pub(crate) is_active: bool,
    pub(crate) is_ethernet: bool,
    /// Largest payload of a packet in bytes.
    pub(crate) mtu: u32,
}

/// Entries of a table of GIDs that are looked at, of all ports of a device.
const MOST_GIDS: usize = 1024;

impl Device {
    /// Opens the device with this name, or the first one.
    pub(crate) fn open(name: Option<&str>) -> Result<Arc<Self>, FabricError> {
        let library = Library::get()?;
        let functions = &library.functions;
        let list = DeviceList::get(library)?;
        let names = list.names();
        let found = names
            .iter()
            .position(|this| name.is_none_or(|name| name == this));
        let Some(index) = found else {
            return Err(FabricError::BadAttribute {
                name: "RDMA device",
                value: name.unwrap_or("any").to_owned(),
                want: match names.is_empty() {
                    true => {
                        "a device of this machine, but it has none (`rdma link` lists them)".into()
                    }
                    false => format!("one of {}", names.join(", ")),
                },
            });
        };
        // SAFETY: the device is an entry of the list.
        let context = unsafe { (functions.ibv_open_device)(list.device(index)) };
        if context.is_null() {
            return Err(last_error(&format!("opening RDMA device {}", names[index])));
        }
        let device = Self {
            ibverbs: library,
            context,
            name: names[index].clone(),
            fatal: OnceLock::new(),
            is_gone: AtomicBool::new(false),
            is_port_in_doubt: AtomicBool::new(false),
        };
        make_nonblocking(device.events())?;
        Ok(Arc::new(device))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limits(&self) -> Result<Limits, FabricError> {
        // SAFETY: zeros are valid integers.
        let mut attr: ffi::DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and the structure is writable.
        let code = unsafe { (self.functions().ibv_query_device)(self.context, &raw mut attr) };
        check(code, || format!("querying RDMA device {}", self.name))?;
        let number = |value: c_int| u32::try_from(value).unwrap_or(0);
        Ok(Limits {
            // Each request needs room for its completion, and memory of the kernel even if it is never
            // posted.
            queue_depth: number(attr.max_qp_wr).min(number(attr.max_cqe)),
            scatter_entries: number(attr.max_sge),
            completions: number(attr.max_cqe),
            has_memory_windows: attr.device_cap_flags & ffi::DEVICE_MEM_WINDOW != 0,
        })
    }

    pub(crate) fn port(&self, port: u8) -> Result<PortState, FabricError> {
        let mut attr = ffi::PortAttr::default();
        // SAFETY: the context is open, and the structure is writable.
        let code = unsafe { (self.functions().ibv_query_port)(self.context, port, &raw mut attr) };
        check(code, || {
            format!("querying port {port} of RDMA device {}", self.name)
        })?;
        Ok(PortState {
            is_active: attr.state == ffi::PORT_ACTIVE,
            is_ethernet: attr.link_layer == ffi::LINK_LAYER_ETHERNET,
            mtu: 128 << attr.active_mtu.min(5),
        })
    }

    /// The addresses under which a port sends RoCE v2 packets.
    pub(crate) fn addresses(&self, port: u8) -> Result<Vec<PortAddress>, FabricError> {
        let mut entries = vec![ffi::GidEntry::default(); MOST_GIDS];
        // SAFETY: the context is open, and the table has room for as many entries as it says.
        let count = unsafe {
            (self.functions()._ibv_query_gid_table)(
                self.context,
                entries.as_mut_ptr(),
                entries.len(),
                0,
                size_of::<ffi::GidEntry>(),
            )
        };
        let count = usize::try_from(count).map_err(|_| {
            let error = i32::try_from(-count).unwrap_or_default();
            let what = format!("reading the addresses of RDMA device {}", self.name);
            failed(what, io::Error::from_raw_os_error(error))
        })?;
        let entries = entries.iter().take(count);
        let of_port = entries.filter(|entry| {
            entry.gid_type == ffi::GID_TYPE_ROCE_V2 && entry.port_num == u32::from(port)
        });
        // An IPv4 address is mapped into IPv6 (IBTA annex A17.4.5.2).
        let addresses = of_port.filter_map(|entry| {
            let ip = Ipv6Addr::from(entry.gid.0).to_canonical();
            let index = u8::try_from(entry.gid_index).ok()?;
            Some(PortAddress { index, ip })
        });
        Ok(addresses.collect())
    }

    /// The descriptor that is readable when the device has an event.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open.
        borrow(unsafe { (*self.context).async_fd }, self)
    }

    /// Something failed or changed that may mean that the port is gone.
    pub(crate) fn doubt_port(&self) {
        self.is_port_in_doubt.store(true, Ordering::Relaxed);
    }

    /// Whether [`Device::check_port`] must be called soon.
    pub(crate) fn is_port_in_doubt(&self) -> bool {
        self.is_port_in_doubt.load(Ordering::Relaxed)
    }

    /// Asks whether a port that may be gone still exists. No event says it: when the network interface of
    /// Soft-RoCE is removed, the kernel reports lost addresses and broken queue pairs alone, and keeps the
    /// device until its programs have closed it.
    pub(crate) fn check_port(&self, port: u8) {
        // Before the query, so that a later doubt is not forgotten.
        if !self.is_port_in_doubt.swap(false, Ordering::Relaxed) {
            return;
        }
        match self.port(port) {
            Ok(state) if state.is_active => {}
            Ok(_) => self.doubt_port(),
            Err(error) => {
                let reason = format!("{error} (was its network interface removed?)");
                let _ = self.fatal.set(reason);
            }
        }
    }

    /// An error if the device has failed.
    pub(crate) fn check_works(&self) -> Result<(), FabricError> {
        match self.fatal.get() {
            None => Ok(()),
            Some(reason) => Err(FabricError::Io {
                what: "the RDMA device has failed".into(),
                source: io::Error::other(reason.clone()),
            }),
        }
    }

    /// Whether an event has said that the whole device has failed.
    fn is_gone(&self) -> bool {
        self.take_events();
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Takes all events of the device, and remembers what they say about it. Returns the numbers of
    /// queue pairs that may be broken.
    pub(crate) fn take_events(&self) -> Vec<u32> {
        let mut broken = Vec::new();
        let mut event = ffi::AsyncEvent::EMPTY;
        // SAFETY: the context is open, and the event is writable. Each event is acknowledged once.
        unsafe {
            while (self.functions().ibv_get_async_event)(self.context, &raw mut event) == 0 {
                if [ffi::EVENT_DEVICE_FATAL, ffi::EVENT_CQ_ERR].contains(&event.event_type) {
                    let name = (self.functions().ibv_event_type_str)(event.event_type);
                    let _ = self.fatal.set(text(name));
                }
                if event.event_type == ffi::EVENT_DEVICE_FATAL {
                    self.is_gone.store(true, Ordering::Relaxed);
                }
                if [ffi::EVENT_PORT_ERR, ffi::EVENT_GID_CHANGE].contains(&event.event_type) {
                    self.doubt_port();
                }
                if let ffi::EVENT_QP_FATAL | ffi::EVENT_QP_REQ_ERR | ffi::EVENT_QP_ACCESS_ERR =
                    event.event_type
                {
                    // It is not destroyed before the event is acknowledged.
                    broken.push((*event.element.cast::<ffi::IbvQp>()).qp_num);
                }
                (self.functions().ibv_ack_async_event)(&raw mut event);
            }
        }
        broken
    }

    fn functions(&self) -> &'static ffi::Functions {
        &self.ibverbs.functions
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: objects of the device hold it, so none is left.
        unsafe { (self.functions().ibv_close_device)(self.context) };
    }
}

fn make_nonblocking(fd: BorrowedFd<'_>) -> Result<(), FabricError> {
    let set = rustix::io::ioctl_fionbio(fd, true);
    set.map_err(|e| FabricError::Io {
        what: format!("making descriptor {} nonblocking", fd.as_raw_fd()),
        source: e.into(),
    })
}

/// Copies a text of the library.
///
/// # Safety
/// `text` must point to bytes that end with a zero.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown".into();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// The error of a function that returns null.
fn last_error(what: &str) -> FabricError {
    failed(what.into(), io::Error::last_os_error())
}

/// The error of a function that returns an error number, or -1 and sets `errno`.
fn check(code: c_int, what: impl FnOnce() -> String) -> Result<(), FabricError> {
    match code {
        0 => Ok(()),
        ..0 => Err(failed(what(), io::Error::last_os_error())),
        code => Err(failed(what(), io::Error::from_raw_os_error(code))),
    }
}

fn failed(mut what: String, source: io::Error) -> FabricError {
    match source.kind() {
        io::ErrorKind::OutOfMemory => {
            what += " (is the limit of locked memory too low? `ulimit -l` shows it)";
        }
        // The library reports a file that it may not open as missing.
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => {
            what += " (may this user open the files in /dev/infiniband?)";
        }
        _ => {}
    }
    FabricError::Io { what, source }
}

/// A pointer that is not null, or the last error.
fn not_null<T>(pointer: *mut T, what: impl FnOnce() -> String) -> Result<*mut T, FabricError> {
    match pointer.is_null() {
        false => Ok(pointer),
        true => Err(last_error(&what())),
    }
}

/// A descriptor of an object that is not closed before the object.
fn borrow<'a>(fd: RawFd, _owner: &'a impl Sized) -> BorrowedFd<'a> {
    // SAFETY: the caller names the owner of the descriptor, and it is borrowed.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
