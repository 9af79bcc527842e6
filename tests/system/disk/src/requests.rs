//! Passes the requests of the kernel to the disk.

use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::AtFlags;

use crate::disk::{Disk, list};

/// The kernel must not cache names and attributes, so that it asks each time.
const NOT_AT_ALL: Duration = Duration::ZERO;

impl Filesystem for Disk {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The kernel then asks the disk for each lock, and gets no answer that grants it. Without
        // this capability it keeps the locks itself.
        if self.traits.no_locks {
            let refused = config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
            refused.map_err(|flags| io::Error::other(format!("the kernel lacks {flags:?}")))?;
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.enter(parent, name) {
            Ok(attr) => reply.entry(&NOT_AT_ALL, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.inodes.forget(ino, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Ok(attr) => reply.attr(&NOT_AT_ALL, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed_macos: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || {
            if let Some(mode) = mode {
                self.set_mode(ino, mode)?;
            }
            if let Some(bytes) = size {
                self.set_length(ino, bytes)?;
            }
            if accessed.is_some() || modified.is_some() {
                self.set_times(ino, accessed, modified)?;
            }
            self.attr(ino)
        };
        match set() {
            Ok(attr) => reply.attr(&NOT_AT_ALL, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        match self.make_directory(parent, name, mode) {
            Ok(attr) => reply.entry(&NOT_AT_ALL, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.remove(parent, name, AtFlags::empty()), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.remove(parent, name, AtFlags::REMOVEDIR), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer(
            self.move_item((parent, name), (new_parent, new_name), flags),
            reply,
        );
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(ino, flags) {
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_file(parent, name, mode, flags) {
            Ok((attr, handle)) => {
                let direct = FopenFlags::FOPEN_DIRECT_IO;
                reply.created(&NOT_AT_ALL, &attr, Generation(0), handle, direct);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_file(handle, offset, bytes) {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_file(handle, offset, data) {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        answer(self.flush_file(handle), reply);
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer(self.sync_file(handle), reply);
    }

    fn fsyncdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer(self.sync_directory(ino), reply);
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.files.remove(handle);
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.inodes.get(ino).and_then(|directory| list(&directory)) {
            Ok(items) => reply.opened(self.listings.insert(items), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let items = match self.listings.get(handle) {
            Ok(items) => items,
            Err(errno) => return reply.error(errno),
        };
        // The offset of an item is that of the one after it.
        for (item, next) in items
            .iter()
            .zip(1..)
            .skip_while(|(_, next)| *next <= offset)
        {
            if reply.add(INodeNo(item.ino), next, item.kind, &item.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.remove(handle);
        reply.ok();
    }
}

fn answer(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}
