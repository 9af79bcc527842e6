//! Which names of a tree are not sent.

use std::borrow::Cow;
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Patterns of names that are not sent, with the meaning of the lines of a `.gitignore` that lies in each path
/// that the user names.
#[derive(Clone, Debug, Default)]
pub struct Filter(Option<Gitignore>);

/// A pattern that is not valid.
#[derive(Debug, thiserror::Error)]
#[error("the pattern {pattern:?} is not valid: {why}")]
pub struct FilterError {
    /// The pattern.
    pub pattern: String,
    /// Why.
    pub why: String,
}

impl Filter {
    /// Patterns in order: of several that match, the last decides.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, FilterError> {
        let mut builder = GitignoreBuilder::new("");
        let refused = |pattern: &str, error: &ignore::Error| FilterError {
            pattern: pattern.to_owned(),
            why: error.to_string(),
        };
        for pattern in patterns {
            let line = from_the_start(pattern);
            let added = builder.add_line(None, &line);
            added.map_err(|error| refused(pattern, &error))?;
        }
        let built = builder.build().map_err(|error| refused("", &error))?;
        Ok(Self((!built.is_empty()).then_some(built)))
    }

    /// Whether all names are sent.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a path below one that the user named is not sent. What lies in a directory that is not sent is
    /// never asked about.
    pub(super) fn excludes(&self, path: &Path, is_directory: bool) -> bool {
        let filter = self.0.as_ref();
        filter.is_some_and(|filter| filter.matched(path, is_directory).is_ignore())
    }
}

/// A pattern that begins with `./` matches nothing in a `.gitignore`. People mean a path from the start, as with `/`.
fn from_the_start(pattern: &str) -> Cow<'_, str> {
    let (not, rest) = pattern
        .strip_prefix('!')
        .map_or(("", pattern), |it| ("!", it));
    match rest.strip_prefix("./") {
        Some(rest) => format!("{not}/{rest}").into(),
        None => pattern.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_gitignore() {
        let filter = Filter::new([
            "*.o",
            "/build/",
            "# comment",
            "",
            "a/**/b",
            "!keep.o",
            "./x",
        ]);
        let filter = filter.expect("valid");
        for (path, is_directory, want) in [
            ("x.o", false, true),
            ("deep/x.o", false, true),
            ("keep.o", false, false),
            ("build", true, true),
            ("build", false, false),
            ("deep/build", true, false),
            ("a/x/y/b", false, true),
            ("b", false, false),
            ("x", false, true),
            ("deep/x", false, false),
        ] {
            assert_eq!(
                filter.excludes(Path::new(path), is_directory),
                want,
                "{path}"
            );
        }
        assert!(Filter::new(["[z-a]",]).is_err());
        assert!(Filter::new(["# only a comment"]).expect("valid").is_empty());
    }
}
