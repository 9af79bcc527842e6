//! Makes files and directories durable: what was synced survives a power failure.

use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::fs::fsync;
use rustix::io::{Errno, retry_on_intr};

use super::directory::Directory;

/// Files that are synced together, at most.
pub(super) const BATCH: usize = 256;
/// Threads that sync at the same time. A file system with a journal makes all changes durable that
/// wait at the same time, in one write. So 64 files at a time take little longer than one.
const THREADS: usize = 64;

/// Syncs files. The results are in the order of the files. An error means that the file may not
/// have the bytes that were written to it; a second try could hide that, so there is none.
pub(super) fn sync_all<T: AsFd + Sync>(files: &[T]) -> Vec<Result<(), Errno>> {
    let results: Vec<OnceLock<_>> = files.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((file, result)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            files.get(at).zip(results.get(at))
        } {
            // An interrupted call has not looked at the result of the writing.
            let _ = result.set(retry_on_intr(|| fsync(file)));
        }
    };
    thread::scope(|scope| {
        for _ in 1..THREADS.min(files.len()) {
            let thread = thread::Builder::new().name("sync".into());
            if thread.spawn_scoped(scope, work).is_err() {
                // This thread does the work alone.
                break;
            }
        }
        work();
    });
    let results = results.into_iter().map(OnceLock::into_inner);
    results
        .map(|result| result.unwrap_or(Err(Errno::IO)))
        .collect()
}

/// Directories that wait to be synced. A directory holds the names of its files, so a new name
/// is durable when its directory is.
#[derive(Debug, Default)]
pub(super) struct Directories<K> {
    waiting: Vec<(K, Directory)>,
}

impl<K: Copy + Eq> Directories<K> {
    pub(super) fn new() -> Self {
        Self {
            waiting: Vec::new(),
        }
    }

    /// Adds a directory under a key, unless it is the last one that was added. Returns whether it is time to sync.
    pub(super) fn add(&mut self, key: K, directory: &Directory) -> io::Result<bool> {
        if self.waiting.last().is_none_or(|(last, _)| *last != key) {
            self.waiting.push((key, directory.another()?));
        }
        Ok(self.waiting.len() >= BATCH)
    }

    /// Returns the failures.
    pub(super) fn sync(&mut self) -> Vec<(K, io::Error)> {
        let (keys, directories): (Vec<_>, Vec<_>) = self.waiting.drain(..).unzip();
        let results = keys.into_iter().zip(sync_all(&directories));
        results
            .filter_map(|(key, result)| Some((key, result.err()?)))
            .filter(|(_, errno)| !has_no_such_call(*errno))
            .map(|(key, errno)| (key, errno.into()))
            .collect()
    }
}

pub(super) fn sync_directory(directory: &Directory) -> io::Result<()> {
    match retry_on_intr(|| fsync(directory)) {
        Err(errno) if !has_no_such_call(errno) => Err(errno.into()),
        _ => Ok(()),
    }
}

/// Syncs the directories around one, up to the root of its file system, since the user may have made one
/// of them just before. It stops at a directory that this process may not read.
pub(super) fn sync_around(directory: &Directory) -> io::Result<()> {
    let mut inner = directory.another()?;
    let mut id = inner.status()?.id;
    while let Ok(outer) = inner.enter(b"..") {
        let outer_id = outer.status()?.id;
        if outer_id == id || !outer_id.is_beside(id) {
            break;
        }
        sync_directory(&outer)?;
        (inner, id) = (outer, outer_id);
    }
    Ok(())
}

/// Returns whether a file system answers so because it cannot sync directories, as SMB. It then
/// decides itself when names are durable.
fn has_no_such_call(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL | Errno::BADF | Errno::NOSYS | Errno::OPNOTSUPP
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A character device cannot be synced, so it gives an error that belongs to it alone.
    #[test]
    fn each_file_has_its_own_result() {
        let place = tempfile::tempdir().expect("place");
        let open = |at: usize| {
            if at % 7 == 3 {
                return File::open("/dev/null").expect("device");
            }
            File::create(place.path().join(at.to_string())).expect("file")
        };
        let files: Vec<_> = (0..200).map(open).collect();
        let results = sync_all(&files);
        assert_eq!(results.len(), 200);
        for (at, result) in results.into_iter().enumerate() {
            assert_eq!(result.is_err(), at % 7 == 3, "{at}: {result:?}");
        }
        assert!(sync_all::<File>(&[]).is_empty());
    }
}
