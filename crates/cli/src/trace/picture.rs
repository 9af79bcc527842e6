//! Draws time against chunks as a picture (SVG), with a panel for each transfer.

use std::collections::BTreeMap;

use farwrite_units::show::{real, whole};

use super::read::{Kind, Mark, Message, Number, Run, Side};
use super::waits::shown;
use crate::axis::{Axis, FOOTER, LEFT, PLOT_WIDTH, WIDTH};
use crate::svg::{GREY, LINE, Svg, escaped};

/// The maximum number of panels in a picture.
pub(super) const MOST_PANELS: usize = 8;

/// The measures of the picture, in pixels.
const PLOT_HEIGHT: u32 = 260;
const TOP: u32 = 56;
const TITLE: u32 = 44;
/// The rows of a panel: each is half a pixel high.
const ROWS: usize = PLOT_HEIGHT as usize * 2;

/// How each kind is drawn, in this order: its label, its colour, and the least width and height of a mark, in pixels.
/// The colours also differ in lightness.
const KINDS: [(Kind, &str, &str, u32); 5] = [
    (Kind::New, "sent", "#6baed6", 1),
    (Kind::Parity, "parity", "#41ab5d", 1),
    // A repeat often leaves as soon as its NACK has arrived. The NACK remains visible around it.
    (Kind::Nack, "reported as missing", "#8b1a1a", 5),
    (Kind::Repeat, "sent again", "#fd8d3c", 3),
    (Kind::Arrived, "arrived (a line)", "#1f2328", 1),
];

/// Draws the first transfers.
pub(super) fn draw(runs: &[Run]) -> String {
    let runs = &runs[..runs.len().min(MOST_PANELS)];
    let panels = u32::try_from(runs.len()).unwrap_or(0);
    let panel_height = TITLE + PLOT_HEIGHT + FOOTER;
    let size = (WIDTH, TOP + panels * panel_height);
    let mut svg = Svg::begin(size, "Chunks over time");
    svg.group("legend", (LEFT, 19), |svg| {
        let mut x = 0;
        for (_, label, colour, _) in KINDS {
            x = svg.legend_entry(x, colour, label);
        }
    });
    for (number, run) in (0..).zip(runs) {
        let top = TOP + number * panel_height + TITLE;
        svg.group("run", (LEFT, top), |svg| Panel::new(run).write(svg));
    }
    svg.finish()
}

/// One transfer, from the view of one end.
struct Panel<'a> {
    run: &'a Run,
    /// The place of the first chunk of each message.
    places: BTreeMap<Number, (f64, &'a Message)>,
    chunks: f64,
    axis: Axis,
}

impl<'a> Panel<'a> {
    fn new(run: &'a Run) -> Self {
        let side = run.side();
        let mut places = BTreeMap::new();
        let mut chunks = 0.0;
        for (of, message) in run.messages.iter().filter(|(of, _)| of.side == side) {
            places.insert(*of, (chunks, message));
            chunks += f64::from(message.chunks);
        }
        let span_s = ((run.end_ms - run.start_ms) * 1e-3 * 1.02).max(1e-9);
        Self {
            run,
            places,
            chunks: chunks.max(1.0),
            axis: Axis { span_s },
        }
    }

    fn write(&self, svg: &mut Svg) {
        let time = shown(self.run.end_ms - self.run.start_ms);
        let title = self.run.title.as_deref().map(escaped);
        let side = match self.run.side() {
            Side::Sender => "at the sender",
            Side::Receiver => "at the receiver",
        };
        let title = title.map_or_else(|| side.to_owned(), |title| format!("{title}, {side}"));
        writeln!(
            svg,
            r#"<text y="-12" font-weight="600">{title}: {time}</text>"#
        );
        svg.background(PLOT_WIDTH, PLOT_HEIGHT, "#f6f8fa");
        svg.label("end", -8, 10, self.chunks);
        svg.label("end", -8, PLOT_HEIGHT, 0);
        let middle = PLOT_HEIGHT / 2;
        writeln!(
            svg,
            r#"<text transform="translate(-56 {middle}) rotate(-90)" text-anchor="middle" fill="{GREY}">chunks</text>"#
        );
        for (kind, _, colour, pixels) in KINDS {
            match kind {
                Kind::Arrived => self.write_arrived(svg, colour),
                _ => self.write_marks(svg, kind, colour, pixels),
            }
        }
        self.axis.write_ticks(svg, PLOT_HEIGHT, Some("time"));
        writeln!(
            svg,
            r#"<path d="M0 {PLOT_HEIGHT}h{PLOT_WIDTH}" stroke="{LINE}"/>"#
        );
    }

    /// Writes the marks of one kind. Marks that meet in a column of pixels are joined, because a
    /// trace has far more marks than a picture has pixels.
    fn write_marks(&self, svg: &mut Svg, kind: Kind, colour: &str, pixels: u32) {
        let mut columns: BTreeMap<u32, [bool; ROWS]> = BTreeMap::new();
        for mark in self.run.marks(kind) {
            let Some(rows) = self.rows(mark) else {
                continue;
            };
            let column = columns.entry(self.column(mark.ms)).or_insert([false; ROWS]);
            column[rows].fill(true);
        }
        let mut path = String::new();
        for (x, column) in &columns {
            let mut rows = column.chunk_by(|a, b| a == b).scan(0, |from, run| {
                let first = *from;
                *from += run.len();
                Some((first, run.len(), run[0]))
            });
            for (first, length, _) in rows.by_ref().filter(|(_, _, is_set)| *is_set) {
                let height = half(length).max(f64::from(pixels));
                let y = half(first) + half(length) / 2.0 - height / 2.0;
                path += &format!("M{x} {y}v{height}");
            }
        }
        if path.is_empty() {
            return;
        }
        let name = format!("{kind:?}").to_lowercase();
        writeln!(
            svg,
            r#"<path class="{name}" transform="translate(0.5 0)" d="{path}" stroke="{colour}" stroke-width="{pixels}"/>"#
        );
    }

    /// Writes the number of chunks that have arrived, as a line.
    fn write_arrived(&self, svg: &mut Svg, colour: &str) {
        let mut arrived: BTreeMap<Number, u32> = BTreeMap::new();
        let mut sum = 0.0;
        let mut columns: BTreeMap<u32, f64> = BTreeMap::new();
        for mark in self.run.marks(Kind::Arrived) {
            let known = arrived.entry(mark.of).or_default();
            let new = mark.chunks.end.max(*known);
            sum += f64::from(new - *known);
            *known = new;
            columns.insert(self.column(mark.ms), sum);
        }
        let mut path = format!("M0 {PLOT_HEIGHT}");
        for (x, chunks) in columns {
            let y = f64::from(PLOT_HEIGHT) * (1.0 - (chunks / self.chunks).min(1.0));
            path += &format!("H{x}V{y:.1}");
        }
        writeln!(
            svg,
            r#"<path class="arrived" d="{path}" fill="none" stroke="{colour}"/>"#
        );
    }

    fn column(&self, ms: f64) -> u32 {
        let share = (ms - self.run.start_ms) * 1e-3 / self.axis.span_s;
        pixel(share * f64::from(PLOT_WIDTH), PLOT_WIDTH - 1)
    }

    /// The rows of a mark, from the top; at least one. Parity is spread over the data of its
    /// message.
    fn rows(&self, mark: &Mark) -> Option<std::ops::Range<usize>> {
        let (place, message) = self.places.get(&mark.of)?;
        let scale = match mark.kind {
            Kind::Parity => f64::from(message.chunks) / f64::from(message.parity_chunks.max(1)),
            _ => 1.0,
        };
        let row = |chunk: u32| {
            let above = 1.0 - (place + f64::from(chunk) * scale) / self.chunks;
            pixel(
                above * real(ROWS as u64),
                u32::try_from(ROWS - 1).unwrap_or(0),
            ) as usize
        };
        Some(row(mark.chunks.end)..row(mark.chunks.start) + 1)
    }
}

/// The pixel at a position, at most the last one.
fn pixel(place: f64, last: u32) -> u32 {
    u32::try_from(whole(place)).map_or(last, |pixel| pixel.min(last))
}

/// A number of half pixels.
fn half(rows: usize) -> f64 {
    real(rows as u64) / 2.0
}
