//! Paths of a dry run in bounded memory (P8.9).

use super::{MAX_ENTRIES, MAX_NAMES_BYTES, MAX_PATH_BYTES};

/// Counts the paths of a dry run. Both ends keep the limits that a manifest has: at most [`MAX_ENTRIES`] paths, each
/// of at most [`MAX_PATH_BYTES`], and [`MAX_NAMES_BYTES`] of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathBound {
    paths: u32,
    bytes: u64,
}

impl PathBound {
    /// Counts one more path. Returns whether it keeps the limits. If it does not, it does not count. A directory's
    /// path ends with `/`, which the limits do not include.
    pub fn admits(&mut self, path: &[u8]) -> bool {
        let name = path.strip_suffix(b"/").unwrap_or(path);
        let name_bytes = u64::try_from(name.len()).unwrap_or(u64::MAX);
        let is_path =
            !name.is_empty() && name_bytes <= u64::from(MAX_PATH_BYTES) && !path.contains(&0);
        let bytes = self.bytes.saturating_add(name_bytes);
        let fits = is_path && self.paths < MAX_ENTRIES && bytes <= MAX_NAMES_BYTES;
        if fits {
            self.paths += 1;
            self.bytes = bytes;
        }
        fits
    }
}

/// Paths below the receiver's directory, in the order in which they came. Those of directories end with `/`. Show
/// them escaped: they come from a peer, and may hold control characters.
///
/// A path takes two bytes of memory at most in addition to its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathList {
    bound: PathBound,
    /// Each path is followed by a zero, which no path has.
    bytes: Vec<u8>,
}

impl PathList {
    /// Adds a path, if it keeps the limits of [`PathBound`]. Returns whether it does.
    pub fn push(&mut self, path: &[u8]) -> bool {
        let fits = self.bound.admits(path);
        if fits {
            self.bytes.extend_from_slice(path);
            self.bytes.push(0);
        }
        fits
    }

    /// The paths.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let ended = self.bytes.split_inclusive(|byte| *byte == 0);
        ended.map(|path| path.strip_suffix(&[0]).unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_paths_that_keep_the_limits() {
        let mut list = PathList::default();
        assert_eq!(list.iter().count(), 0);
        for wrong in [&b""[..], b"/", b"a\0b"] {
            assert!(!list.push(wrong), "{wrong:?}");
        }
        let longest = vec![b'x'; MAX_PATH_BYTES as usize];
        assert!(list.push(b"a") && list.push(b"b/") && list.push(&longest));
        assert!(!list.push(&[&longest[..], b"x"].concat()));
        let paths: Vec<_> = list.iter().collect();
        assert_eq!(paths, [b"a", &b"b/"[..], &longest]);
    }

    #[test]
    fn a_bound_limits_the_sum_of_all() {
        let mut bound = PathBound::default();
        let path = vec![b'x'; 4095];
        let fit = (0..).take_while(|_| bound.admits(&path)).count() as u64;
        assert_eq!(fit, MAX_NAMES_BYTES / 4095);
        let mut bound = PathBound::default();
        let fit = (0..).take_while(|_| bound.admits(b"x")).count();
        assert_eq!(fit, MAX_ENTRIES as usize);
    }
}
