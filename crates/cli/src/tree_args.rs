//! Which files of a tree `send` and `cp` send, and what of them.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use farwrite_files::{Compare, Delete, Filter, ScanOptions, Source, Special};

use crate::exit::{Exit, Failure, OrExit};

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// Leave out pipes, sockets and devices in trees without a failure. They are never sent; without
    /// this option, each counts as a file that failed (exit code 6)
    #[arg(long)]
    skip_special: bool,
    /// Do not send files and directories below PATH whose names match, with the meaning of a line in a
    /// .gitignore in PATH: `*.o` at any depth, `/build/` a directory directly in PATH, `a/**/b`
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Send what matches in spite of --exclude and --exclude-from; but not below a directory that is excluded
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// File with patterns of --exclude, one on each line; a line that begins with `!` includes
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Compare the bytes of files (BLAKE3) with those that the receiver has, instead of length and time. Both
    /// ends read these files
    #[arg(long, conflicts_with = "ignore_times")]
    checksum: bool,
    /// Send all files, also those that the receiver has with the same length and time
    #[arg(long)]
    ignore_times: bool,
    /// Send extended attributes of users (user.*) and access control lists too
    #[arg(long, short = 'X')]
    xattrs: bool,
    /// Send the numbers of the users and groups that own files. The receiver must run as root. With `farwrite
    /// send`, it also needs `recv --owner`
    #[arg(long)]
    owner: bool,
    /// After everything has arrived, remove at the receiver what is not at the sender, in directories that are
    /// sent. With `farwrite send`, the receiver needs `recv --allow-delete`. With `farwrite cp`, it removes files
    /// without further options. Refused if something cannot be listed or sent
    #[arg(long, conflicts_with_all = ["exclude", "include", "exclude_from"])]
    delete: bool,
    /// With --delete: if more than this number of files and directories would be removed, remove none
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u32>,
    /// List what would be sent, and change nothing. Without --delete, no receiver is asked, except by `cp` from
    /// another machine. With --delete, also list what the receiver would remove, and leave out the files that it has
    /// with the same length and time
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl TreeArgs {
    /// An option of these that the user has given, if there is one.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let lists = [
            ("--exclude", !self.exclude.is_empty()),
            ("--include", !self.include.is_empty()),
            ("--exclude-from", !self.exclude_from.is_empty()),
        ];
        let lists = lists.into_iter().filter(|(_, is_given)| *is_given);
        self.flags().chain(lists.map(|(name, _)| name)).next()
    }

    /// The options without a value that the user has given.
    fn flags(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            ("--skip-special", self.skip_special),
            ("--checksum", self.checksum),
            ("--ignore-times", self.ignore_times),
            ("--xattrs", self.xattrs),
            ("--owner", self.owner),
            ("--delete", self.delete),
            ("--dry-run", self.dry_run),
        ];
        let given = flags.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(name, _)| name)
    }

    /// How to list the tree.
    pub(crate) fn options(&self) -> Result<ScanOptions, Failure> {
        Ok(ScanOptions {
            special: if self.skip_special {
                Special::Skip
            } else {
                Special::Report
            },
            xattrs: self.xattrs,
            owners: self.owner,
            filter: self.filter()?,
        })
    }

    /// Whether the files are only listed, and no receiver is asked.
    pub(crate) fn lists_only(&self) -> bool {
        self.dry_run && !self.delete
    }

    /// What the receiver has to remove.
    pub(crate) fn delete(&self, source: &Source) -> Result<Option<Delete>, Failure> {
        if !self.delete {
            return Ok(None);
        }
        let what = "--delete: something here cannot be listed or sent, and would be lost at the receiver; run \
                    with --dry-run and without --delete to see what";
        let order = source.delete(self.max_delete);
        order
            .map(Some)
            .ok_or_else(|| Failure::new(Exit::Files, what))
    }

    /// How to find files that the receiver has already.
    pub(crate) fn compare(&self) -> Compare {
        match (self.ignore_times, self.checksum) {
            (true, _) => Compare::Nothing,
            (false, true) => Compare::Hash,
            (false, false) => Compare::Time,
        }
    }

    /// The same options for a sender on another machine, which does not have the files of
    /// --exclude-from.
    pub(crate) fn words_of_sender(&self) -> Result<Vec<OsString>, Failure> {
        let mut words: Vec<String> = self.flags().map(str::to_owned).collect();
        words.extend(self.max_delete.map(|most| format!("--max-delete={most}")));
        // An empty line and a comment are no patterns, and a line with `!` means the same to --exclude.
        let lines = self.lines()?;
        let lines = lines
            .iter()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let excluded = lines.chain(&self.exclude);
        words.extend(excluded.map(|pattern| format!("--exclude={pattern}")));
        words.extend(self.include.iter().map(|it| format!("--include={it}")));
        Ok(words.into_iter().map(OsString::from).collect())
    }

    /// The options that a receiver needs for what the user wants.
    pub(crate) fn words_of_receiver(&self) -> Vec<OsString> {
        let flags = [("--owner", self.owner), ("--allow-delete", self.delete)];
        let flags = flags.iter().filter(|(_, is_given)| *is_given);
        flags.map(|(name, _)| name.into()).collect()
    }

    /// The lines of the files of --exclude-from.
    fn lines(&self) -> Result<Vec<String>, Failure> {
        let mut lines = Vec::new();
        for file in &self.exclude_from {
            let what = format!("--exclude-from {}", file.display());
            let text = fs::read_to_string(file).or_exit(Exit::Files, what)?;
            lines.extend(text.lines().map(str::to_owned));
        }
        Ok(lines)
    }

    /// The last pattern that matches decides, so those that include come last.
    fn filter(&self) -> Result<Filter, Failure> {
        let mut patterns = self.lines()?;
        // In a file, a line that begins with `#` is a comment. A pattern of --exclude is never a comment, so its
        // `#` is escaped.
        patterns.extend(
            self.exclude
                .iter()
                .map(|pattern| match pattern.starts_with('#') {
                    true => format!("\\{pattern}"),
                    false => pattern.clone(),
                }),
        );
        patterns.extend(self.include.iter().map(|pattern| format!("!{pattern}")));
        Filter::new(patterns.iter().map(String::as_str))
            .or_exit(Exit::Usage, "--exclude and --include")
    }
}
