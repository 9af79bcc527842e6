//! The operations of the disk. They do the same as in its backing directory, except for traits and
//! faults.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo, OpenFlags, RenameFlags, TimeOrNow};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType as BackingType, Mode, OFlags, Stat, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, chmodat, mkdirat, openat, renameat_with, statat, unlinkat, utimensat,
};

use crate::faults::{Faults, Operation};
use crate::inodes::{Inodes, path_of, through};

/// The start of 1980, in seconds since 1970.
const FIRST_COARSE: i64 = 315_532_800;

/// What the disk is like for as long as it is mounted.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// `a` and `A` are one name, as on FAT
    #[arg(long)]
    ignore_case: bool,
    /// Each name that is looked up has an inode number of its own, as on exFAT through FUSE
    #[arg(long)]
    unstable_inodes: bool,
    /// Times have whole pairs of seconds and begin in 1980, as on FAT
    #[arg(long)]
    coarse_times: bool,
    /// `rename` has no flags, as on many network file systems
    #[arg(long)]
    plain_rename: bool,
    /// `flock` fails
    #[arg(long)]
    pub(crate) no_locks: bool,
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) traits: Traits,
    faults: Arc<Faults>,
    pub(crate) inodes: Inodes,
    pub(crate) files: Handles<File>,
    pub(crate) listings: Handles<Vec<Item>>,
}

/// The files and directories that the kernel has open, by the number that it got.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    last: AtomicU64,
    open: Mutex<HashMap<u64, Arc<T>>>,
}

/// An item of a directory.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) ino: u64,
    pub(crate) kind: FileType,
    pub(crate) name: OsString,
}

impl<T> Handles<T> {
    fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            open: Mutex::default(),
        }
    }

    pub(crate) fn insert(&self, value: T) -> FileHandle {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(handle, Arc::new(value));
        FileHandle(handle)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Result<Arc<T>, Errno> {
        self.lock().get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    pub(crate) fn remove(&self, handle: FileHandle) {
        self.lock().remove(&handle.0);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    pub(crate) fn new(directory: &Path, traits: Traits, faults: Arc<Faults>) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, directory, flags, Mode::empty())?;
        Ok(Self {
            traits,
            faults,
            inodes: Inodes::new(root),
            files: Handles::new(),
            listings: Handles::new(),
        })
    }

    /// The directory, and the name of this item in it as the backing file system spells it.
    fn place(&self, parent: INodeNo, name: &OsStr) -> Result<(Arc<OwnedFd>, OsString), Errno> {
        let directory = self.inodes.get(parent)?;
        let exact = statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if exact || !self.traits.ignore_case {
            return Ok((directory, name.into()));
        }
        let items = list(&directory)?;
        let same = items
            .into_iter()
            .find(|item| item.name.eq_ignore_ascii_case(name));
        let name = same.map_or(name.into(), |item| item.name);
        Ok((directory, name))
    }

    /// Hands an item to the kernel.
    pub(crate) fn enter(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let (directory, spelled) = self.place(parent, name)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&*directory, spelled, flags, Mode::empty()).map_err(io::Error::from)?;
        let mut attr = attr_of(&fd)?;
        if self.traits.unstable_inodes {
            let mut hasher = DefaultHasher::new();
            (parent.0, name).hash(&mut hasher);
            // Not the number of the root.
            attr.ino = INodeNo(hasher.finish() | 1 << 63);
        }
        self.inodes.remember(attr.ino.0, fd);
        Ok(attr)
    }

    pub(crate) fn attr(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let attr = attr_of(&*self.inodes.get(ino)?)?;
        Ok(FileAttr { ino, ..attr })
    }

    /// Applies the fault of an operation on an item of a directory.
    fn meet(&self, operation: Operation, directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        self.faults
            .meet(operation, 0, &path_of(directory).join(name))
    }

    pub(crate) fn set_mode(&self, ino: INodeNo, mode: u32) -> Result<(), Errno> {
        let fd = self.inodes.get(ino)?;
        self.faults.meet(Operation::Chmod, 0, &path_of(&*fd))?;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        Ok(chmodat(CWD, through(&*fd), mode, AtFlags::empty()).map_err(io::Error::from)?)
    }

    pub(crate) fn set_times(
        &self,
        ino: INodeNo,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
    ) -> Result<(), Errno> {
        let fd = self.inodes.get(ino)?;
        self.faults.meet(Operation::Utimens, 0, &path_of(&*fd))?;
        let mut times = Timestamps {
            last_access: timespec(accessed),
            last_modification: timespec(modified),
        };
        let modified = &mut times.last_modification;
        if self.traits.coarse_times && !matches!(modified.tv_nsec, UTIME_NOW | UTIME_OMIT) {
            modified.tv_sec = (modified.tv_sec & !1).max(FIRST_COARSE);
            modified.tv_nsec = 0;
        }
        Ok(utimensat(CWD, through(&*fd), &times, AtFlags::empty()).map_err(io::Error::from)?)
    }

    pub(crate) fn set_length(&self, ino: INodeNo, bytes: u64) -> Result<(), Errno> {
        let fd = self.inodes.get(ino)?;
        let file = File::options().write(true).open(through(&*fd))?;
        Ok(file.set_len(bytes)?)
    }

    pub(crate) fn open_file(&self, ino: INodeNo, flags: OpenFlags) -> Result<FileHandle, Errno> {
        let fd = self.inodes.get(ino)?;
        let flags = open_flags(flags.0) - OFlags::NOFOLLOW;
        let file = openat(CWD, through(&*fd), flags, Mode::empty()).map_err(io::Error::from)?;
        Ok(self.files.insert(file.into()))
    }

    pub(crate) fn create_file(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle), Errno> {
        let (directory, spelled) = self.place(parent, name)?;
        let flags = open_flags(flags) | OFlags::CREATE;
        let mode = Mode::from_raw_mode(mode);
        let file = openat(&*directory, &spelled, flags, mode).map_err(io::Error::from)?;
        let handle = self.files.insert(file.into());
        Ok((self.enter(parent, name)?, handle))
    }

    pub(crate) fn make_directory(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        let (directory, spelled) = self.place(parent, name)?;
        self.meet(Operation::Mkdir, &directory, &spelled)?;
        let mode = Mode::from_raw_mode(mode);
        mkdirat(&*directory, &spelled, mode).map_err(io::Error::from)?;
        self.enter(parent, name)
    }

    pub(crate) fn remove(
        &self,
        parent: INodeNo,
        name: &OsStr,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        let (directory, name) = self.place(parent, name)?;
        Ok(unlinkat(&*directory, name, flags).map_err(io::Error::from)?)
    }

    pub(crate) fn move_item(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if self.traits.plain_rename && !flags.is_empty() {
            return Err(Errno::EINVAL);
        }
        let (old, old_name) = self.place(from.0, from.1)?;
        let (new, new_name) = self.place(to.0, to.1)?;
        self.meet(Operation::Rename, &new, &new_name)?;
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let renamed = renameat_with(&*old, old_name, &*new, new_name, flags);
        Ok(renamed.map_err(io::Error::from)?)
    }

    pub(crate) fn read_file(
        &self,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
    ) -> Result<Vec<u8>, Errno> {
        let file = self.files.get(handle)?;
        let bytes = usize::try_from(bytes).map_err(|_| Errno::EINVAL)?;
        self.faults.meet(Operation::Read, bytes, &path_of(&*file))?;
        let mut buffer = vec![0; bytes];
        let read = file.read_at(&mut buffer, offset)?;
        buffer.truncate(read);
        Ok(buffer)
    }

    pub(crate) fn write_file(
        &self,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u32, Errno> {
        let file = self.files.get(handle)?;
        self.faults
            .meet(Operation::Write, bytes.len(), &path_of(&*file))?;
        file.write_all_at(bytes, offset)?;
        u32::try_from(bytes.len()).map_err(|_| Errno::EINVAL)
    }

    pub(crate) fn sync_file(&self, handle: FileHandle) -> Result<(), Errno> {
        let file = self.files.get(handle)?;
        self.faults.meet(Operation::Fsync, 0, &path_of(&*file))
    }

    pub(crate) fn sync_directory(&self, ino: INodeNo) -> Result<(), Errno> {
        let fd = self.inodes.get(ino)?;
        // Distinguishes a directory from its files.
        self.faults
            .meet(Operation::Fsync, 0, &path_of(&*fd).join("directory"))
    }

    pub(crate) fn flush_file(&self, handle: FileHandle) -> Result<(), Errno> {
        let file = self.files.get(handle)?;
        self.faults.meet(Operation::Flush, 0, &path_of(&*file))
    }
}

/// Returns the items of a directory, without `.` and `..`.
pub(crate) fn list(directory: &OwnedFd) -> Result<Vec<Item>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(directory, ".", flags, Mode::empty()).map_err(io::Error::from)?;
    let mut items = Vec::new();
    for item in Dir::new(open).map_err(io::Error::from)? {
        let item = item.map_err(io::Error::from)?;
        let name = OsStr::from_bytes(item.file_name().to_bytes());
        if name != "." && name != ".." {
            items.push(Item {
                ino: item.ino(),
                kind: kind(item.file_type()),
                name: name.into(),
            });
        }
    }
    Ok(items)
}

/// Returns the flags with which the kernel opened a file: access, creation and truncation.
fn open_flags(flags: i32) -> OFlags {
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    let known = OFlags::RWMODE | OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC | OFlags::NOFOLLOW;
    (flags & known) | OFlags::CLOEXEC
}

fn attr_of(fd: &OwnedFd) -> Result<FileAttr, Errno> {
    let stat: Stat = statat(fd, "", AtFlags::EMPTY_PATH).map_err(io::Error::from)?;
    Ok(FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: system_time(stat.st_atime),
        mtime: system_time(stat.st_mtime) + Duration::from_nanos(stat.st_mtime_nsec),
        ctime: system_time(stat.st_ctime),
        crtime: UNIX_EPOCH,
        kind: kind(BackingType::from_raw_mode(stat.st_mode)),
        perm: u16::try_from(stat.st_mode & 0o7777).map_err(|_| Errno::EIO)?,
        nlink: u32::try_from(stat.st_nlink).map_err(|_| Errno::EIO)?,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

/// Tests use only files, directories and links.
fn kind(kind: BackingType) -> FileType {
    match kind {
        BackingType::Directory => FileType::Directory,
        BackingType::Symlink => FileType::Symlink,
        _ => FileType::RegularFile,
    }
}

fn system_time(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.max(0).cast_unsigned())
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let time = match time {
        Some(TimeOrNow::SpecificTime(time)) => time,
        special => {
            let tv_nsec = if special.is_some() {
                UTIME_NOW
            } else {
                UTIME_OMIT
            };
            return Timespec { tv_sec: 0, tv_nsec };
        }
    };
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timespec {
        tv_sec: since.as_secs().cast_signed(),
        tv_nsec: since.subsec_nanos().into(),
    }
}
