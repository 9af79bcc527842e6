//! A file whose length is not known before its last byte has come: a pipe that a receiver stores (P15.4).

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fsync};
use rustix::io::retry_on_intr;

use super::directory::Directory;
use super::directory_tree::check_reserve;
use super::durable::sync_directory;
use super::free_space::FreeSpaceWatch;
use super::interrupted::remove_leftovers;
use super::locked_file::LockedFile;
use super::part_file::{START_BYTES, create_named};
use super::part_name::PartName;
use super::quota::{NAME_BYTES, Stock};
use super::sink::is_full;
use super::sys::{start_writing, store};
use super::{CommitGate, PathError, Policy, SinkError, check_name};

/// Permissions before the umask of the policy takes some away: a pipe has none.
const MODE: u16 = 0o666;

/// Writes a file under a temporary name, and gives it its name when all bytes have come. An older file of this name stays
/// until then. When this is dropped before, nothing is left.
#[derive(Debug)]
pub struct StoredStream {
    directory: Directory,
    path: PathBuf,
    name: Vec<u8>,
    file: LockedFile,
    /// `None`: the file has its name.
    temporary: Option<PartName>,
    policy: Policy,
    gate: CommitGate,
    /// What the quota leaves for the bytes of the file.
    left_bytes: Option<u64>,
    written_bytes: u64,
    started_bytes: u64,
    room: FreeSpaceWatch,
}

impl StoredStream {
    /// Makes the file in a directory, which must exist. It gets its name unless `gate` is closed.
    ///
    /// # Errors
    /// [`SinkError::Name`], [`SinkError::Open`], [`SinkError::Write`], [`SinkError::Full`], [`SinkError::Quota`],
    /// [`SinkError::QuotaEntries`], [`SinkError::Reserve`], [`SinkError::NoInodes`].
    pub fn create(
        root: &Path,
        name: &[u8],
        policy: Policy,
        gate: CommitGate,
    ) -> Result<Self, SinkError> {
        check_name(name).map_err(SinkError::Name)?;
        let path = root.join(OsStr::from_bytes(name));
        let opened = Directory::open(root);
        let directory = opened.map_err(|error| SinkError::Open(PathError::new(root, error)))?;
        let former = directory.look(name).map_err(|error| failed(&path, error))?;
        if former.is_some_and(|former| former.kind == FileType::Directory) {
            return Err(failed(&path, io::ErrorKind::IsADirectory.into()));
        }
        // Those of receivers that were killed.
        let _ = remove_leftovers(&directory);
        let left_bytes = left_by_quota(root, policy, former.is_none())?;
        check_reserve(&directory, root, policy.reserve_bytes.unwrap_or(0))?;
        let (file, _, temporary) =
            create_named(&directory).map_err(|error| failed(&path, error))?;
        Ok(Self {
            directory,
            path,
            name: name.into(),
            file,
            temporary: Some(temporary),
            policy,
            gate,
            left_bytes,
            written_bytes: 0,
            started_bytes: 0,
            room: FreeSpaceWatch::default(),
        })
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// [`SinkError::Quota`], [`SinkError::Reserve`], [`SinkError::NoInodes`], [`SinkError::Full`], [`SinkError::Write`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        let length = bytes.len() as u64;
        self.written_bytes += length;
        if let Some(left_bytes) = self.left_bytes
            && self.written_bytes > left_bytes
        {
            return Err(SinkError::Quota {
                needed_bytes: self.written_bytes,
                left_bytes,
            });
        }
        if self.room.is_due(length) {
            let root = self.path.parent().unwrap_or(&self.path);
            check_reserve(
                &self.directory,
                root,
                self.policy.reserve_bytes.unwrap_or(0),
            )?;
        }
        let written = (&*self.file).write_all(bytes);
        written.map_err(|error| failed(&self.path, error))?;
        let unstarted_bytes = self.written_bytes - self.started_bytes;
        if self.policy.sync && unstarted_bytes >= START_BYTES {
            start_writing(&self.file, self.started_bytes, unstarted_bytes);
            self.started_bytes = self.written_bytes;
        }
        Ok(())
    }

    /// All bytes have come: gives the file its name. If the policy says so, the file survives a power failure then.
    ///
    /// # Errors
    /// [`SinkError::Stopped`], [`SinkError::Full`], [`SinkError::Write`].
    pub fn commit(mut self) -> Result<(), SinkError> {
        let failed = |error| failed(&self.path, error);
        let mode = Permissions::from_mode(self.policy.mode(MODE).into());
        self.file.set_permissions(mode).map_err(failed)?;
        store(&self.file).map_err(failed)?;
        if self.policy.sync {
            let synced = retry_on_intr(|| fsync(&*self.file));
            synced.map_err(|error| failed(error.into()))?;
        }
        let _pass = self.gate.pass().ok_or(SinkError::Stopped)?;
        if let Some(temporary) = self.temporary {
            let renamed = self.directory.rename(&temporary.bytes(), &self.name);
            renamed.map_err(failed)?;
        }
        self.temporary = None;
        if self.policy.sync {
            sync_directory(&self.directory).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for StoredStream {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary {
            let _ = self.directory.remove(&temporary.bytes());
        }
    }
}

/// The bytes that the quota leaves for a file, which may add a name. Interrupted files of the peer stay, and count.
fn left_by_quota(root: &Path, policy: Policy, is_new: bool) -> Result<Option<u64>, SinkError> {
    if policy.quota_bytes.is_none() && policy.quota_entries.is_none() {
        return Ok(None);
    }
    let stock = Stock::take(root).map_err(SinkError::Open)?;
    let needed = u64::from(is_new);
    if let Some(most) = policy.quota_entries
        && stock.used_entries + needed > most
    {
        return Err(SinkError::QuotaEntries {
            needed,
            left: most.saturating_sub(stock.used_entries),
        });
    }
    let used_bytes = stock.used_bytes + stock.interrupted_bytes() + needed * NAME_BYTES;
    Ok(policy
        .quota_bytes
        .map(|most| most.saturating_sub(used_bytes)))
}

fn failed(path: &Path, source: io::Error) -> SinkError {
    let path = path.into();
    match is_full(&source) {
        true => SinkError::Full { path, source },
        false => SinkError::Write(PathError { path, source }),
    }
}
