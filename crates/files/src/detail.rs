//! What an entry of a manifest has besides its name, kind, mode and time (P8.3).

use serde::{Deserialize, Serialize};

/// Most bytes of the name of an extended attribute, as on Linux.
const MAX_XATTR_NAME_BYTES: usize = 255;
/// Most bytes of the value of an extended attribute, as on Linux.
pub(super) const MAX_XATTR_BYTES: usize = 64 << 10;
/// Most bytes of names and values of the extended attributes of one entry.
pub(super) const MAX_XATTRS_BYTES: usize = 128 << 10;
/// Most bytes of all extended attributes of a manifest.
pub(super) const MAX_ALL_XATTRS_BYTES: usize = 64 << 20;
/// Memory that an attribute takes besides its name and its value, so that many short ones are bounded too.
const XATTR_MEMORY_BYTES: usize = 128;
/// Most data extents of one file. The rest of the file is one extent then.
pub(super) const MAX_EXTENTS: usize = 8192;
/// Most data extents of a manifest.
pub(super) const MAX_ALL_EXTENTS: usize = 1 << 20;

/// Parts of an entry that most entries do not have. Each part comes at most once for an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// Number of the entry.
    pub entry: u32,
    /// Its owner.
    pub owner: Option<Owner>,
    /// Its extended attributes, in ascending order of their names. Access control lists are among them.
    pub xattrs: Vec<Xattr>,
    /// Of a sparse file: where its data are. The rest consists of zeros and is not in the stream.
    pub data: Option<Vec<Extent>>,
}

/// The numbers of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Number of the user.
    pub user: u32,
    /// Number of the group.
    pub group: u32,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// Its name, such as `user.note`.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// Data of a file between two holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes of the hole before it.
    pub hole_bytes: u64,
    /// Its length.
    pub data_bytes: u64,
}

/// Whether an extended attribute travels: those of users, and access control lists. Others may give rights, or
/// belong to the system.
pub(super) fn travels(name: &[u8]) -> bool {
    name.len() <= MAX_XATTR_NAME_BYTES
        && (name
            .strip_prefix(b"user.")
            .is_some_and(|rest| !rest.is_empty())
            || name == b"system.posix_acl_access"
            || name == b"system.posix_acl_default")
        && !name.contains(&0)
}

/// Why a detail is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetailError {
    /// There is no such entry, or it is a link.
    #[error("it is no file and no directory")]
    Entry,
    /// It has no part.
    #[error("its detail is empty")]
    Empty,
    /// A part came before.
    #[error("its {0} came before")]
    Twice(&'static str),
    /// An extended attribute does not travel, or the names are not in ascending order.
    #[error("its extended attribute {0:?} is not allowed, or not in order")]
    Name(String),
    /// Too many bytes.
    #[error(
        "its extended attributes are too long: at most {MAX_XATTR_BYTES} bytes each, {MAX_XATTRS_BYTES} an \
         entry and {MAX_ALL_XATTRS_BYTES} in all are allowed"
    )]
    Long,
    /// The data extents do not fit.
    #[error(
        "its data do not lie in a sparse file one after the other, or there are too many of them"
    )]
    Extents,
}

/// Checks the extended attributes of one entry. Returns their bytes.
pub(super) fn check_xattrs(xattrs: &[Xattr]) -> Result<usize, DetailError> {
    let mut bytes = 0_usize;
    let mut before: &[u8] = &[];
    for xattr in xattrs {
        if !travels(&xattr.name) || xattr.name.as_slice() <= before {
            let name = String::from_utf8_lossy(&xattr.name).into_owned();
            return Err(DetailError::Name(name));
        }
        before = &xattr.name;
        bytes += xattr.name.len() + xattr.value.len() + XATTR_MEMORY_BYTES;
        if xattr.value.len() > MAX_XATTR_BYTES || bytes > MAX_XATTRS_BYTES {
            return Err(DetailError::Long);
        }
    }
    Ok(bytes)
}

/// Checks that extents lie in a file of this length. Returns the bytes of their data.
pub(super) fn check_extents(extents: &[Extent], length: u64) -> Result<u64, DetailError> {
    let mut end = 0_u64;
    let mut data_bytes = 0;
    if extents.len() > MAX_EXTENTS {
        return Err(DetailError::Extents);
    }
    for (at, extent) in extents.iter().enumerate() {
        let is_next = at == 0 || extent.hole_bytes > 0;
        let start = end.checked_add(extent.hole_bytes);
        let next = start.and_then(|start| start.checked_add(extent.data_bytes));
        end = next
            .filter(|next| *next <= length)
            .ok_or(DetailError::Extents)?;
        if !is_next || extent.data_bytes == 0 {
            return Err(DetailError::Extents);
        }
        data_bytes += extent.data_bytes;
    }
    Ok(data_bytes)
}
