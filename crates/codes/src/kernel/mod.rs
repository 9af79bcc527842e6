//! Kernels that multiply and add bytes in GF(2^8), one for each instruction set.
//!
//! [`scalar`] defines what all kernels compute. A vector kernel works on whole cache lines of 64
//! bytes, and computes a block of outputs at a time. For each line of the outputs it loads the same
//! line of every input once, and keeps the sums in registers. Memory bandwidth limits the speed,
//! not multiplication. So the x86 kernels prefetch the inputs, and they write large outputs with
//! streaming stores, which bypass the caches.

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

/// Bytes that a vector kernel processes per step and input: one cache line.
pub(crate) const LINE: usize = 64;
/// When inputs and outputs have at least this many bytes together, outputs bypass the caches. They
/// are larger than the cache of one core, so a later read would miss that cache anyway.
pub(crate) const STREAM_BYTES: usize = 1 << 20;

/// The instruction set of a codec. A value proves that this machine has the instructions. All
/// kernels produce the same bytes.
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

/// The initial value of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Zero: the sums overwrite the output.
    Zero,
    /// The contents of the output: the sums are added to it.
    Output,
}

/// How a kernel writes sums to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    /// With normal stores, through the caches.
    Cached,
    /// With streaming stores, which bypass the caches. The span of each output begins at a multiple
    /// of [`LINE`].
    Streamed,
}

/// A matrix product for a vector kernel. In each byte column of `span`, output `row` becomes
/// `start` plus the sum over `i` of `matrix(row, i) * inputs[i]`. The length of `span` is a
/// multiple of [`LINE`]. All inputs and outputs reach at least to the end of the span.
struct Product<'a, 'i, 'o> {
    matrix: &'a Matrix,
    inputs: &'a [&'i [u8]],
    outputs: &'a mut [&'o mut [u8]],
    span: Range<usize>,
    start: Start,
    stores: Stores,
}

impl Kernel {
    /// Plain loops over tables. Every machine has this kernel.
    pub const SCALAR: Self = Self(Isa::Scalar);

    /// Returns the fastest kernel of this machine.
    pub fn best() -> Self {
        Self::available().next().unwrap_or(Self::SCALAR)
    }

    /// Returns all kernels of this machine, the fastest first.
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

    /// Returns a readable name.
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

    /// Multiplies a matrix by the inputs: output `row` becomes `start` plus the sum over `i` of
    /// `matrix(row, i) * inputs[i]`. All inputs and outputs have the same length, except that the
    /// last input or the last output can be shorter. A short input counts as padded with zeros. A
    /// short output receives only the bytes that it has room for.
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
        // All inputs and outputs reach to the end of the first span. Only the long ones reach to
        // the end of the second.
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

    /// Multiplies the whole lines of a span in place. The bytes before and after them are copied to
    /// full lines in a buffer and multiplied there.
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
            // SAFETY: a value of this variant exists only if `supported` returned true.
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

    /// Adds the inputs: like [`Self::multiply`] with one output and all factors 1.
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
            // SAFETY: values of these variants exist only on machines with AVX2.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx2 => unsafe { avx2::add(inputs, output, span, start, stores) },
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::add(inputs, output, span, start, stores),
            Isa::Scalar => scalar::add(inputs, output, &span, start),
        }
    }
}

/// A span split into whole lines and the bytes before and after them.
struct Lines {
    before: Range<usize>,
    whole: Range<usize>,
    after: Range<usize>,
    stores: Stores,
}

impl Lines {
    /// Splits a span. Streaming stores are selected if all of this holds: the target is x86,
    /// `start` is zero, `bytes` is at least [`STREAM_BYTES`], and all output addresses have the
    /// same offset within a line. The whole lines then begin where the outputs are aligned to a
    /// line; otherwise they begin at the start of the span.
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

/// Returns the inputs that have at least `bytes` bytes. Only the last input can be shorter.
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
