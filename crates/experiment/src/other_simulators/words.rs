//! Splitting files into lines and words.

use std::str::FromStr;

/// An error in an input file, and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct InputError {
    /// The name of the file.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// The fault, the value, and what is accepted.
    pub what: String,
}

/// A line with at least one word that is not a comment.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    file: &'a str,
    pub(super) number: usize,
    pub(super) words: Vec<&'a str>,
}

/// The text without the byte order mark that some editors put before it.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The lines of a file that have words, without comments (a line that begins with `#`).
pub(super) fn lines<'a>(file: &'a str, text: &'a str) -> Vec<Line<'a>> {
    let text = without_mark(text);
    let lines = (1..).zip(text.lines()).map(|(number, line)| Line {
        file,
        number,
        words: line.split_whitespace().collect(),
    });
    lines
        .filter(|line| {
            line.words
                .first()
                .is_some_and(|word| !word.starts_with('#'))
        })
        .collect()
}

/// An error at the end of a file that is too short.
pub(super) fn at_end(file: &str, text: &str, what: impl Into<String>) -> InputError {
    InputError {
        file: file.to_owned(),
        line: text.lines().count().max(1),
        what: what.into(),
    }
}

impl Line<'_> {
    pub(super) fn error(&self, what: impl Into<String>) -> InputError {
        InputError {
            file: self.file.to_owned(),
            line: self.number,
            what: what.into(),
        }
    }

    /// Stores the value of a line that a file has once.
    pub(super) fn store<T>(&self, place: &mut Option<T>, value: T) -> Result<(), InputError> {
        match place.replace(value) {
            None => Ok(()),
            Some(_) => {
                let key = self.words[0];
                Err(self.error(format!("the line {key} N is there twice: keep one")))
            }
        }
    }

    /// Parses the word with this index as a number. `name` and `want` are for the error.
    pub(super) fn number<T: FromStr>(
        &self,
        at: usize,
        name: &str,
        want: &str,
    ) -> Result<T, InputError> {
        let Some(word) = self.words.get(at) else {
            return Err(self.error(format!("{name} is missing: {want}")));
        };
        let value = word.parse();
        value.map_err(|_| self.error(format!("{name} is {word:?}: {want}")))
    }
}
