//! Results as rows of a CSV file, from which `make -C lab figures` draws.

use std::cell::RefCell;
use std::path::Path;

const HEAD: &str = "figure,panel,series,x,measure,value,conditions\n";

/// The results of a program, one row for each number.
pub(crate) struct Rows {
    /// Several panels may be open at once.
    text: RefCell<String>,
}

impl Rows {
    pub(crate) fn new() -> Self {
        Self {
            text: RefCell::new(HEAD.into()),
        }
    }

    /// Begins a panel of a figure. `conditions`: how its numbers come about, for a person.
    pub(crate) fn panel(&self, figure: &str, name: &str, conditions: &str) -> Panel<'_> {
        for text in [figure, name, conditions] {
            assert!(!text.contains('"'), "{text}: a quote would end the field");
        }
        Panel {
            rows: self,
            figure: figure.into(),
            name: name.into(),
            conditions: conditions.into(),
        }
    }

    /// Writes the file, if one is named.
    pub(crate) fn write(&self, path: Option<&Path>) {
        let Some(path) = path else { return };
        let written = std::fs::write(path, self.text.borrow().as_bytes());
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// A panel of a figure.
pub(crate) struct Panel<'a> {
    rows: &'a Rows,
    figure: String,
    name: String,
    conditions: String,
}

impl Panel<'_> {
    /// Adds a number of a series. `measure` names the unit of `value`, unless it is a count.
    pub(crate) fn add(&self, series: &str, x: f64, measure: &str, value: f64) {
        let (figure, name, conditions) = (&self.figure, &self.name, &self.conditions);
        let row =
            format!("{figure},\"{name}\",\"{series}\",{x},{measure},{value},\"{conditions}\"\n");
        self.rows.text.borrow_mut().push_str(&row);
    }
}
