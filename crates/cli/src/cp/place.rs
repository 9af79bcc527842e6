//! Where files are: on this machine, or on another one that ssh reaches.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A path on this machine or on another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The other machine: what ssh gets as its destination, such as `user@host`.
    pub(crate) host: Option<OsString>,
    pub(crate) path: OsString,
}

impl Place {
    /// Reads `PATH` or `[USER@]HOST:PATH`. As with scp and rsync, a colon before the first slash makes
    /// the difference; `./a:b` is a path of this machine. An IPv6 address is in brackets.
    pub(crate) fn of(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let bracket = bytes.iter().position(|byte| *byte == b']');
        let is_address = bytes.first() == Some(&b'[') || bytes.windows(2).any(|two| two == b"@[");
        let from = bracket.filter(|_| is_address).unwrap_or(0);
        let colon = bytes[from..].iter().position(|byte| *byte == b':');
        let colon = colon.map(|at| from + at);
        let slash = bytes.iter().position(|byte| *byte == b'/');
        match colon {
            Some(colon) if colon > 0 && slash.is_none_or(|slash| slash > colon) => {
                let host = bytes[..colon].iter().copied();
                // ssh takes an address without its brackets.
                let host = host.filter(|byte| !b"[]".contains(byte)).collect();
                Self {
                    host: Some(OsString::from_vec(host)),
                    path: OsString::from_vec(bytes[colon + 1..].to_vec()),
                }
            }
            _ => Self {
                host: None,
                path: text.into(),
            },
        }
    }
}

/// A path as the other machine takes it. The home directory of the user there is the working directory, so
/// `~/` at the beginning is left out, with all of its slashes.
pub(crate) fn from_home(path: &OsStr) -> OsString {
    let mut bytes = path.as_bytes();
    if let Some(below) = bytes.strip_prefix(b"~/") {
        let slashes = below.iter().take_while(|byte| **byte == b'/').count();
        bytes = &below[slashes..];
    }
    let bytes = if bytes.is_empty() || bytes == b"~" {
        b"."
    } else {
        bytes
    };
    OsString::from_vec(bytes.to_vec())
}

/// What a shell of the other machine would make something else of, and this program does not.
pub(super) fn taken_literally(path: &OsStr) -> Option<&'static str> {
    let bytes = path.as_bytes();
    if bytes.iter().any(|byte| b"*?".contains(byte)) {
        return Some(
            "patterns are not expanded at the other machine; name each path, or a directory",
        );
    }
    let is_home = bytes == b"~" || bytes.starts_with(b"~/");
    let is_user = bytes.starts_with(b"~") && !is_home;
    is_user.then_some("~USER is not expanded at the other machine; write the whole path")
}

/// The name with which a path arrives; `None` for a path whose contents arrive, with any names.
pub(super) fn base_name(path: &OsStr) -> Option<OsString> {
    let mut parts = path.as_bytes().split(|byte| *byte == b'/').rev();
    let name = parts.find(|part| !part.is_empty())?;
    let is_contents = matches!(name, b"." | b".." | b"~");
    (!is_contents).then(|| OsString::from_vec(name.to_vec()))
}

/// A word for a shell on the other machine, which reads it as it is.
pub(crate) fn quoted(word: &OsStr) -> OsString {
    let bytes = word.as_bytes();
    let mut out = vec![b'\''];
    for &byte in bytes {
        match byte {
            // Shells read a backslash within quotes in different ways, and outside of them alike.
            b'\'' => out.extend_from_slice(b"'\\''"),
            b'\\' => out.extend_from_slice(b"'\\\\'"),
            byte => out.push(byte),
        }
    }
    out.push(b'\'');
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_the_first_slash_names_a_host() {
        for (text, host, path) in [
            ("far:in", Some("far"), "in"),
            (
                "me@far.example:/srv/a:b",
                Some("me@far.example"),
                "/srv/a:b",
            ),
            ("far:", Some("far"), ""),
            ("[2001:db8::7]:in", Some("2001:db8::7"), "in"),
            ("me@[::1]:in", Some("me@::1"), "in"),
            ("./far:in", None, "./far:in"),
            ("/a:b", None, "/a:b"),
            ("file", None, "file"),
            (":in", None, ":in"),
        ] {
            let place = Place::of(OsStr::new(text));
            let found = (place.host.as_deref(), place.path);
            assert_eq!(found, (host.map(OsStr::new), path.into()), "{text}");
        }
    }

    #[test]
    fn what_a_shell_would_expand_is_noticed() {
        for path in ["in/*", "a?", "~ann/in", "~ann"] {
            assert!(taken_literally(OsStr::new(path)).is_some(), "{path}");
        }
        for path in ["in", "~", "~/in", "a~b", "in/~ann"] {
            assert_eq!(taken_literally(OsStr::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_shell_reads_any_name_as_it_is() {
        for (word, want) in [
            ("a b", "'a b'"),
            ("it's $HOME", "'it'\\''s $HOME'"),
            ("a\\b", "'a'\\\\'b'"),
            ("~/in", "'~/in'"),
            ("", "''"),
            ("-rf", "'-rf'"),
        ] {
            assert_eq!(quoted(OsStr::new(word)), want);
        }
        let contents = ["", ".", "a/.", "a/..", "/", "~", "~/"];
        for path in contents {
            assert_eq!(base_name(OsStr::new(path)), None, "{path}");
        }
        for path in ["b", "a/b", "a/b/", "/b//", "~/b"] {
            assert_eq!(
                base_name(OsStr::new(path)).as_deref(),
                Some(OsStr::new("b"))
            );
        }
        for (path, want) in [
            ("~/in", "in"),
            ("~//in", "in"),
            ("~///", "."),
            ("~", "."),
            ("", "."),
            ("/~", "/~"),
        ] {
            assert_eq!(from_home(OsStr::new(path)), want);
        }
    }
}
