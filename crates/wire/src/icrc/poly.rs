//! Arithmetic on CRC-32 values: polynomials over GF(2) modulo the CRC's, bit-reflected.
//!
//! Bit 31 is the coefficient of x^0, and bit 0 is that of x^31, as in the CRC register. Feeding `n`
//! zero bytes to a register multiplies it by x^(8n). When bytes change, the difference in the CRC
//! is the difference in the register times x^(8n), for the `n` bytes after them. x has an inverse
//! modulo the polynomial, so this also works backward.

/// The polynomial of CRC-32 (IEEE 802.3), reflected, without x^32.
const POLYNOMIAL: u32 = 0xEDB8_8320;
const ONE: u32 = 1 << 31;

/// Returns a CRC difference after `bytes` more bytes.
pub(super) fn shift(difference: u32, bytes: u16) -> u32 {
    let [high, low] = bytes.to_be_bytes();
    let power = multiply(
        FORWARD.low[usize::from(low)],
        FORWARD.high[usize::from(high)],
    );
    multiply(difference, power)
}

/// Reverses [`shift`].
pub(super) fn unshift(difference: u32, bytes: u16) -> u32 {
    let [high, low] = bytes.to_be_bytes();
    let power = multiply(
        BACKWARD.low[usize::from(low)],
        BACKWARD.high[usize::from(high)],
    );
    multiply(difference, power)
}

/// Powers of some x^8 or x^-8: `low[i]` is the i-th, `high[i]` the (256 i)-th.
struct Powers {
    low: [u32; 256],
    high: [u32; 256],
}

static FORWARD: Powers = powers(repeat8(ONE, true));
static BACKWARD: Powers = powers(repeat8(ONE, false));

const fn powers(base: u32) -> Powers {
    let low = geometric(base);
    let high = geometric(multiply(low[255], base));
    Powers { low, high }
}

const fn geometric(base: u32) -> [u32; 256] {
    let mut series = [ONE; 256];
    let mut i = 1;
    while i < 256 {
        series[i] = multiply(series[i - 1], base);
        i += 1;
    }
    series
}

/// The part of the CRC for a 16-bit number at a fixed position, for each value of each of its two
/// bytes.
pub(super) struct Field([[u32; 256]; 2]);

impl Field {
    /// A number sent with its most significant byte first, `bytes_after` bytes before the end.
    pub(super) const fn new(bytes_after: usize) -> Self {
        // The register shifts a byte in at its low end and multiplies by x^8.
        let high = Self::byte(bytes_after + 2);
        let low = Self::byte(bytes_after + 1);
        Self([high, low])
    }

    const fn byte(times_x8: usize) -> [u32; 256] {
        let power = geometric(repeat8(ONE, true))[times_x8];
        let mut table = [0; 256];
        let mut value: u32 = 0;
        while value < 256 {
            table[value as usize] = multiply(value, power);
            value += 1;
        }
        table
    }

    /// Returns the part of the CRC for the number.
    pub(super) fn of(&self, number: u16) -> u32 {
        let [high, low] = number.to_be_bytes();
        self.0[0][usize::from(high)] ^ self.0[1][usize::from(low)]
    }
}

const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        // All ones or none: a branch here would be mispredicted half the time.
        product ^= b & (a >> bit & 1).wrapping_neg();
        b = times_x(b);
    }
    product
}

const fn times_x(value: u32) -> u32 {
    value >> 1 ^ POLYNOMIAL & (value & 1).wrapping_neg()
}

const fn over_x(value: u32) -> u32 {
    let wraps = value >> 31;
    (value ^ POLYNOMIAL & wraps.wrapping_neg()) << 1 | wraps
}

const fn repeat8(mut value: u32, times: bool) -> u32 {
    let mut i = 0;
    while i < 8 {
        value = if times { times_x(value) } else { over_x(value) };
        i += 1;
    }
    value
}
