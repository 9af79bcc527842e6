//! The instructions that multiply and add bytes.
//!
//! [`scalar`] says what is computed. The others do the same in vectors over whole lines of 64 bytes,
//! column by column: all inputs are read once and in step, sums stay in registers. What makes the
//! difference is memory, not multiplication, so inputs are asked for ahead of time, and large
//! outputs are written past the caches.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod blocks;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pass;
mod scalar;

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::matrix::Matrix;

/// Bytes that vector kernels take at a time: a cache line.
pub(crate) const LINE: usize = 64;
/// From this number of bytes of inputs and outputs on, outputs are written past the caches: more than
/// what a core's own cache holds, so that they would not be found there anyway.
pub(crate) const STREAM_BYTES: usize = 1 << 20;

/// Instructions that this machine has: a value is the proof. All kernels give the same bytes.
///
/// ```
/// use farwrite_codes::Kernel;
///
/// let names: Vec<_> = Kernel::available().map(Kernel::as_str).collect();
/// assert!(names.ends_with(&["scalar"]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(pub(crate) Isa);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
    Scalar,
}

/// The initial value of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Zero: the contents of the output are overwritten.
    Zero,
    /// The contents of the output.
    Output,
}

/// How sums are written to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through the caches.
    Cached,
    /// Past them. Outputs lie at multiples of a line.
    Streamed,
}

/// A product for a vector kernel: in each column of `span`, which is whole lines, output `row`
/// becomes `start` plus the sum of the inputs times the factors of that row of the matrix. Inputs
/// and outputs reach to the end of the span at least.
struct Product<'a, 'i, 'o> {
    matrix: &'a Matrix,
    inputs: &'a [&'i [u8]],
    outputs: &'a mut [&'o mut [u8]],
    span: Range<usize>,
    start: Start,
    stores: Stores,
}

impl Kernel {
    /// Plain loops over tables, which every machine has.
    pub const SCALAR: Self = Self(Isa::Scalar);

    /// The fastest of this machine.
    pub fn best() -> Self {
        Self::available().next().unwrap_or(Self::SCALAR)
    }

    /// All of this machine, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        [
            #[cfg(target_arch = "x86_64")]
            avx512::supported().then_some(Self(Isa::Avx512)),
            #[cfg(target_arch = "x86_64")]
            avx2::supported().then_some(Self(Isa::Avx2)),
            #[cfg(target_arch = "aarch64")]
            Some(Self(Isa::Neon)),
            Some(Self::SCALAR),
        ]
        .into_iter()
        .flatten()
    }

    /// A name, for people.
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512-gfni",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "neon",
            Isa::Scalar => "scalar",
        }
    }

    /// Multiplies: output `row` becomes `start` plus the sum of all inputs, input `i` times the
    /// factor `(row, i)`. Inputs and outputs have one length, but for the last input or the last
    /// output, which can be shorter: what an input lacks is zero, what an output lacks is left out.
    pub(crate) fn multiply(
        self,
        matrix: &Matrix,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        start: Start,
    ) {
        let lengths = || inputs.iter().map(|input| input.len());
        let lengths = || lengths().chain(outputs.iter().map(|output| output.len()));
        let (short, long) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        for span in [0..short, short..long] {
            let inputs = reaching(span.end, inputs);
            let rows = outputs.iter().take_while(|output| output.len() >= span.end);
            let rows = rows.count();
            let outputs = &mut outputs[..rows];
            if span.is_empty() || outputs.is_empty() {
                continue;
            }
            if self == Self::SCALAR || inputs.is_empty() {
                scalar::multiply(matrix, inputs, outputs, &span, start);
            } else {
                self.multiply_lines(matrix, inputs, outputs, span, start);
            }
        }
    }

    /// Multiplies the whole lines of a span as they lie, what is before and after by way of lines
    /// elsewhere.
    fn multiply_lines(
        self,
        matrix: &Matrix,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        span: Range<usize>,
        start: Start,
    ) {
        let bytes = (inputs.len() + outputs.len()).saturating_mul(span.len());
        let addresses = outputs.iter().map(|output| output.as_ptr().addr());
        let lines = Lines::new(span, bytes, addresses, start);
        let stores = lines.stores;
        for edge in [lines.before, lines.after] {
            if edge.is_empty() {
                continue;
            }
            let mut copies: Vec<[u8; LINE]> = Vec::with_capacity(inputs.len() + outputs.len());
            for bytes in inputs
                .iter()
                .copied()
                .chain(outputs.iter().map(|output| &**output))
            {
                let mut line = [0; LINE];
                line[..edge.len()].copy_from_slice(&bytes[edge.clone()]);
                copies.push(line);
            }
            let (from, to) = copies.split_at_mut(inputs.len());
            let from: Vec<&[u8]> = from.iter().map(|line| &line[..]).collect();
            let mut to: Vec<&mut [u8]> = to.iter_mut().map(|line| &mut line[..]).collect();
            self.run(&mut Product {
                matrix,
                inputs: &from,
                outputs: &mut to,
                span: 0..LINE,
                start,
                stores: Stores::Cached,
            });
            for (line, output) in to.iter().zip(outputs.iter_mut()) {
                output[edge.clone()].copy_from_slice(&line[..edge.len()]);
            }
        }
        self.run(&mut Product {
            matrix,
            inputs,
            outputs,
            span: lines.whole,
            start,
            stores,
        });
    }

    #[allow(unsafe_code)]
    fn run(self, product: &mut Product<'_, '_, '_>) {
        match self.0 {
            // SAFETY: a value of this kind is only made where `supported` says yes.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { avx512::multiply(product) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::multiply(product) },
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::multiply(product),
            Isa::Scalar => scalar::multiply(
                product.matrix,
                product.inputs,
                product.outputs,
                &product.span,
                product.start,
            ),
        }
    }

    /// Adds up: as [`Self::multiply`] with one output, and all factors 1.
    pub(crate) fn add(self, inputs: &[&[u8]], output: &mut [u8], start: Start) {
        let lengths = || inputs.iter().map(|input| input.len());
        let short = lengths().min().unwrap_or(0).min(output.len());
        let spans: [Range<usize>; 2] = [0..short, short..output.len()];
        for span in spans {
            let inputs = reaching(span.end, inputs);
            let bytes = (inputs.len() + 1).saturating_mul(span.len());
            let lines = Lines::new(span, bytes, [output.as_ptr().addr()].into_iter(), start);
            for edge in [lines.before, lines.after] {
                scalar::add(inputs, output, &edge, start);
            }
            self.add_lines(inputs, output, lines.whole, start, lines.stores);
        }
    }

    #[allow(unsafe_code)]
    fn add_lines(
        self,
        inputs: &[&[u8]],
        output: &mut [u8],
        span: Range<usize>,
        start: Start,
        stores: Stores,
    ) {
        match self.0 {
            // SAFETY: a value of these kinds is only made where AVX2 is.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx2 => unsafe { avx2::add(inputs, output, span, start, stores) },
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::add(inputs, output, span, start, stores),
            Isa::Scalar => scalar::add(inputs, output, &span, start),
        }
    }
}

/// A span cut into whole lines, and what is before and after them.
struct Lines {
    before: Range<usize>,
    whole: Range<usize>,
    after: Range<usize>,
    stores: Stores,
}

impl Lines {
    /// Lines begin where the outputs, at these addresses, can be streamed to, if that many bytes are
    /// worth it and the outputs lie alike.
    fn new(
        span: Range<usize>,
        bytes: usize,
        mut addresses: impl Iterator<Item = usize>,
        start: Start,
    ) -> Self {
        let first = addresses.next().unwrap_or(0);
        let alike = addresses.all(|address| address % LINE == first % LINE);
        let can = cfg!(target_arch = "x86_64") && start == Start::Zero;
        let stream = can && alike && bytes >= STREAM_BYTES;
        let (stores, skip) = match stream {
            true => (
                Stores::Streamed,
                first.wrapping_add(span.start).wrapping_neg() % LINE,
            ),
            false => (Stores::Cached, 0),
        };
        let begin = span.end.min(span.start + skip);
        let end = begin + (span.end - begin) / LINE * LINE;
        Self {
            before: span.start..begin,
            whole: begin..end,
            after: end..span.end,
            stores,
        }
    }
}

/// The inputs that are at least `bytes` long, which only the last may not be.
fn reaching<'a, 'b>(bytes: usize, inputs: &'a [&'b [u8]]) -> &'a [&'b [u8]] {
    match inputs.split_last() {
        Some((last, others)) if last.len() < bytes => others,
        _ => inputs,
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
