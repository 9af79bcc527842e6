//! By which instructions bytes are multiplied and added up.

mod scalar;

use core::fmt;
use core::ops::Range;

use crate::matrix::Matrix;

/// Instructions that this machine has: a value is the proof. All kernels give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(Isa);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Isa {
    Scalar,
}

/// What sums begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With nothing: what is in the output is overwritten.
    Zero,
    /// With what is in the output.
    Output,
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
        [Some(Self::SCALAR)].into_iter().flatten()
    }

    /// A name, for people.
    pub const fn as_str(self) -> &'static str {
        match self.0 {
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
            match self.0 {
                Isa::Scalar => scalar::multiply(matrix, inputs, outputs, &span, start),
            }
        }
    }

    /// Adds up: as [`Self::multiply`] with one output, and all factors 1.
    pub(crate) fn add(self, inputs: &[&[u8]], output: &mut [u8], start: Start) {
        let lengths = || inputs.iter().map(|input| input.len());
        let short = lengths().min().unwrap_or(0).min(output.len());
        let spans: [Range<usize>; 2] = [0..short, short..output.len()];
        for span in spans {
            let inputs = reaching(span.end, inputs);
            match self.0 {
                Isa::Scalar => scalar::add(inputs, output, &span, start),
            }
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
