//! Files with one key.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use zeroize::Zeroizing;

use crate::KeyError;

/// A key file is one line. A longer file is a different file, given by mistake.
const MAX_FILE_BYTES: usize = 1024;
/// Permission bits for everyone except the owner.
const OTHERS: u32 = 0o077;
/// The bit that shows the mask of an access control list.
const GROUP_READ: u32 = 0o040;

/// The permission bits that a key file must not have. A file in the directory of credentials, which
/// systemd makes for one service, has an access control list for its user. Its group bits then show the
/// mask of the list.
fn others(path: &Path, credentials: Option<&Path>) -> u32 {
    let directory = credentials.filter(|directory| directory.is_absolute());
    let is_credential = directory.is_some() && path.parent() == directory;
    if is_credential {
        OTHERS & !GROUP_READ
    } else {
        OTHERS
    }
}

/// As [`Psk::load`](crate::Psk::load).
pub(crate) fn load<K>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<K, KeyError>,
) -> Result<K, KeyError> {
    let io = |source| KeyError::Read {
        path: path.into(),
        source,
    };
    let mut file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    let mode = metadata.mode() & 0o777;
    let credentials = env::var_os("CREDENTIALS_DIRECTORY");
    let is_exposed = mode & others(path, credentials.as_deref().map(Path::new)) != 0;
    if is_exposed && !metadata.is_file() {
        let what = format!("it is open to others (mode {mode:04o}), and it is no regular file");
        return Err(io(std::io::Error::new(ErrorKind::InvalidInput, what)));
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE_BYTES));
    (&mut file)
        .take(MAX_FILE_BYTES as u64)
        .read_to_string(&mut text)
        .map_err(io)?;
    let key = parse(&text).map_err(|error| KeyError::InFile {
        path: path.into(),
        error: Box::new(error),
    })?;
    // Only now: other permissions do not make a key of another kind, such as a public key, the right one.
    match is_exposed {
        true => Err(KeyError::Exposed {
            path: path.into(),
            mode,
        }),
        false => Ok(key),
    }
}

/// As [`Psk::save`](crate::Psk::save).
pub(crate) fn save(path: &Path, mut line: Zeroizing<String>) -> Result<(), KeyError> {
    let io = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AlreadyExists => KeyError::Exists(path.into()),
        _ => KeyError::Write {
            path: path.into(),
            source,
        },
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(io)?;
    line.push('\n');
    let written = file
        .write_all(line.as_bytes())
        .and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Half a key is useless. If even this fails, the first error is more informative.
        let _ = std::fs::remove_file(path);
        return Err(io(error));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_may_have_an_access_control_list() {
        let [file, dir, other] = ["/run/credentials/a/key", "/run/credentials/a", "/run"];
        let bits = |credentials| others(Path::new(file), credentials);
        // systemd 254 and later: 0440.
        assert_eq!(0o440 & bits(Some(Path::new(dir))), 0);
        for mode in [0o404, 0o420, 0o410] {
            assert_ne!(mode & bits(Some(Path::new(dir))), 0, "{mode:o}");
        }
        for elsewhere in [None, Some(Path::new(other))] {
            assert_ne!(0o440 & bits(elsewhere), 0, "{elsewhere:?}");
        }
        assert_ne!(0o440 & others(Path::new("key"), Some(Path::new(""))), 0);
    }
}
