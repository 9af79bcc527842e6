//! A file on its way in, under a temporary name.

use std::fs::File;
use std::io::{self, Write};

use super::MAX_NAME_BYTES;
use super::directory::Directory;

/// Attempts at a random name. One is enough unless somebody guesses 64 bits.
const ATTEMPTS: usize = 4;
/// `.`, `.farwrite-`, 16 hexadecimal digits, `.part`.
const ADDED_BYTES: usize = 1 + 10 + 16 + 5;

/// An open file that is being written.
#[derive(Debug)]
pub(super) struct OpenPart {
    file: File,
    name: Vec<u8>,
    hasher: blake3::Hasher,
    missing_bytes: u64,
}

/// A file that was written whole; its hash is that of the bytes written.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: Vec<u8>,
    pub(super) hash: blake3::Hash,
}

impl OpenPart {
    /// Makes `.NAME.farwrite-RANDOM.part` beside the final name.
    pub(super) fn create(directory: &Directory, name: &[u8], bytes: u64) -> io::Result<Self> {
        let mut attempts = ATTEMPTS;
        loop {
            let name = temporary_name(name, getrandom::u64().map_err(io::Error::other)?);
            match directory.create_new(&name) {
                Ok(file) => {
                    return Ok(Self {
                        file,
                        name,
                        hasher: blake3::Hasher::new(),
                        missing_bytes: bytes,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts > 1 => {
                    attempts -= 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn is_whole(&self) -> bool {
        self.missing_bytes == 0
    }

    /// Writes bytes up to the end of the file; returns how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = usize::try_from(self.missing_bytes).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.missing_bytes -= u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(bytes.len())
    }

    /// Closes the file.
    pub(super) fn close(self) -> Part {
        Part {
            hash: self.hasher.finalize(),
            name: self.name,
        }
    }
}

fn temporary_name(name: &[u8], random: u64) -> Vec<u8> {
    let kept = name.len().min(MAX_NAME_BYTES - ADDED_BYTES);
    let mut temporary = vec![b'.'];
    temporary.extend_from_slice(&name[..kept]);
    temporary.extend_from_slice(format!(".farwrite-{random:016x}.part").as_bytes());
    temporary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_name_fits() {
        let name = temporary_name(b"a", 0xab);
        assert_eq!(name, b".a.farwrite-00000000000000ab.part");
        assert_eq!(temporary_name(&[b'x'; 255], u64::MAX).len(), MAX_NAME_BYTES);
    }
}
