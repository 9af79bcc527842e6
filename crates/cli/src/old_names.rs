//! Options whose names have changed. An old name works until the next release, with a warning.

use std::ffi::OsStr;

/// An option that had another name before.
struct Renamed {
    command: &'static str,
    old: &'static str,
    new: &'static str,
    /// What a user of the old name should know, or nothing.
    note: &'static str,
}

const RENAMED: [Renamed; 2] = [
    Renamed {
        command: "link",
        old: "--mtu",
        new: "--ip-mtu",
        note: ", because --mtu of the other commands is the payload of a packet",
    },
    Renamed {
        command: "lowar",
        old: "--path-mtu",
        new: "--ip-mtu",
        note: "",
    },
];

/// A warning for each old name among the arguments of a command.
pub(crate) fn warnings<A: AsRef<OsStr>>(
    command: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Vec<String> {
    let mut used: Vec<_> = arguments
        .into_iter()
        .filter_map(|argument| {
            let name = argument.as_ref().to_str()?.split('=').next()?;
            RENAMED
                .iter()
                .position(|renamed| renamed.command == command && renamed.old == name)
        })
        .collect();
    used.sort_unstable();
    used.dedup();
    let warning = |at| {
        let Renamed { old, new, note, .. } = RENAMED[at];
        format!(
            "{old} is now called {new}{note}; in this release, both names mean the length of an IP packet"
        )
    };
    used.into_iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_name_is_warned_of_once_and_in_its_command_only() {
        let of_link = warnings("link", ["--mtu", "9000", "--mtu=9000", "--rate", "1Gbit"]);
        let [warning] = &of_link[..] else {
            panic!("{of_link:?}");
        };
        assert!(
            warning.starts_with("--mtu is now called --ip-mtu"),
            "{warning}"
        );
        assert!(warnings("link", ["--ip-mtu", "9000"]).is_empty());
        assert!(warnings("send", ["--mtu", "4096"]).is_empty());
        assert_eq!(warnings("lowar", ["--path-mtu=4200"]).len(), 1);
    }
}
