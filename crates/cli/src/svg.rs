//! Functions that the pictures (SVG) of the program share.

use std::fmt::{self, Write as _};

/// The colour of secondary text and of thin lines.
pub(crate) const GREY: &str = "#57606a";
pub(crate) const LINE: &str = "#8c959f";

/// Escapes characters that SVG would read as markup.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Begins a picture of this size, in pixels; `</svg>` ends it.
pub(crate) fn begin(svg: &mut String, (width, height): (u32, u32), title: &str) -> fmt::Result {
    writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13" fill="#1f2328">
<title>{title}</title>
<rect width="{width}" height="{height}" fill="#ffffff"/>"##
    )
}
