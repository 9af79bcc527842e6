//! Pictures (SVG).

use std::fmt::{self, Display, Write as _};

/// The colour of secondary text and of thin lines.
pub(crate) const GREY: &str = "#57606a";
pub(crate) const LINE: &str = "#8c959f";

/// A picture that is being written. `writeln!` adds lines to it.
pub(crate) struct Svg(String);

/// A length in pixels, with one decimal.
pub(crate) struct Px(pub(crate) f64);

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.0)
    }
}

impl Svg {
    /// Begins a picture of this size, in pixels.
    pub(crate) fn begin((width, height): (u32, u32), title: &str) -> Self {
        let mut svg = Self(String::new());
        writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13" fill="#1f2328">
<title>{title}</title>
<rect width="{width}" height="{height}" fill="#ffffff"/>"##
        );
        svg
    }

    /// Ends the picture.
    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    /// What `writeln!` calls.
    pub(crate) fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("strings take all");
    }

    /// Writes a group with its origin at this place.
    pub(crate) fn group(&mut self, class: &str, (x, y): (u32, u32), fill: impl FnOnce(&mut Self)) {
        writeln!(
            self,
            r#"<g class="{class}" transform="translate({x} {y})">"#
        );
        fill(self);
        writeln!(self, "</g>");
    }

    /// Fills the place of a plot.
    pub(crate) fn background(&mut self, width: u32, height: u32, colour: &str) {
        writeln!(
            self,
            r#"<rect width="{width}" height="{height}" fill="{colour}"/>"#
        );
    }

    /// Writes small grey text. `anchor` says which part of it is at the place: `middle` or `end`.
    pub(crate) fn label(
        &mut self,
        anchor: &str,
        x: impl Display,
        y: impl Display,
        text: impl Display,
    ) {
        writeln!(
            self,
            r##"<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="12" fill="{GREY}">{text}</text>"##
        );
    }

    /// Writes what an axis shows, with its middle at this place.
    pub(crate) fn axis_label(&mut self, x: u32, y: u32, text: &str) {
        writeln!(
            self,
            r#"<text x="{x}" y="{y}" text-anchor="middle" fill="{GREY}">{text}</text>"#
        );
    }

    /// Writes an entry of a legend: a colour, and its meaning. Returns the place of the next one.
    pub(crate) fn legend_entry(&mut self, x: u32, colour: &str, meaning: &str) -> u32 {
        writeln!(
            self,
            r#"<rect x="{x}" y="1" width="14" height="14" fill="{colour}" stroke="{LINE}" stroke-width="0.5"/><text x="{}" y="12">{meaning}</text>"#,
            x + 20
        );
        x + 44 + 13 * u32::try_from(meaning.len()).unwrap_or(0) / 2
    }
}

/// Escapes characters that SVG would read as markup.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
