//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), which ISA-L and
//! most storage codes use.
//!
//! A byte is a polynomial over GF(2): bit `i` is the coefficient of x^i. Addition and subtraction
//! are both XOR. Multiplication is a product of polynomials modulo 0x11D. It is linear in each
//! factor: `a * (b ^ c)` is `a * b ^ a * c`. All tables are computed at compile time.

const POLYNOMIAL: u16 = 0x11D;

/// Table of products: `MUL[a][b]` is `a * b`.
pub(crate) static MUL: [[u8; 256]; 256] = products();

/// Table of inverses: `INV[a]` is `1 / a`. 0 has no inverse; its entry is 0.
static INV: [u8; 256] = inverses();

/// Products of one factor `a` with every low nibble and with every high nibble of a byte.
///
/// A byte `b` is the sum of its two nibbles, `(b & 15) ^ (b & 0xF0)`, and multiplication
/// distributes over it: `a * b = low[b & 15] ^ high[b >> 4]`. Each table has 16 entries, so a byte
/// shuffle (`pshufb` on x86, `tbl` on Arm) can look up all bytes of a vector at once.
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    pub(crate) low: [u8; 16],
    pub(crate) high: [u8; 16],
}

pub(crate) static NIBBLES: [Nibbles; 256] = nibbles();

const fn nibbles() -> [Nibbles; 256] {
    let none = Nibbles {
        low: [0; 16],
        high: [0; 16],
    };
    let mut table = [none; 256];
    let mut a = 0;
    while a < 256 {
        let mut half = 0;
        while half < 16 {
            table[a].low[half] = MUL[a][half];
            table[a].high[half] = MUL[a][half << 4];
            half += 1;
        }
        a += 1;
    }
    table
}

/// Returns `1 / a`, or 0 for 0.
pub(crate) fn inv(a: u8) -> u8 {
    INV[usize::from(a)]
}

pub(crate) fn mul(a: u8, b: u8) -> u8 {
    MUL[usize::from(a)][usize::from(b)]
}

/// Returns `a * x`: shifts left by one, then subtracts the polynomial if bit 8 is set.
#[expect(clippy::cast_possible_truncation, reason = "reduced to 8 bits")]
const fn times_x(a: u8) -> u8 {
    let wide = (a as u16) << 1;
    (if wide > 0xFF { wide ^ POLYNOMIAL } else { wide }) as u8
}

#[expect(clippy::cast_possible_truncation, reason = "a is below 256")]
const fn products() -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut a = 0;
    while a < 256 {
        // `power` is `a * x^i` when `bit` is `2^i`. The products of `bit..2 * bit` are those of
        // `0..bit` plus `power`, because `bit + b` is `bit ^ b` for `b < bit`.
        let (mut bit, mut power) = (1, a as u8);
        while bit < 256 {
            let mut b = 0;
            while b < bit {
                table[a][bit + b] = table[a][b] ^ power;
                b += 1;
            }
            power = times_x(power);
            bit <<= 1;
        }
        a += 1;
    }
    table
}

#[expect(clippy::cast_possible_truncation, reason = "b is below 256")]
const fn inverses() -> [u8; 256] {
    let mut table = [0; 256];
    let mut a = 1;
    while a < 256 {
        let mut b = 1;
        while MUL[a][b] != 1 {
            b += 1;
        }
        table[a] = b as u8;
        a += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplies as in a textbook: shifts and adds, then reduces modulo the polynomial.
    fn textbook(a: u8, b: u8) -> u8 {
        let mut wide = (0..8).fold(0_u16, |sum, bit| {
            sum ^ ((u16::from(a) << bit) * (u16::from(b) >> bit & 1))
        });
        for bit in (8..16).rev() {
            if wide >> bit & 1 == 1 {
                wide ^= POLYNOMIAL << (bit - 8);
            }
        }
        u8::try_from(wide).unwrap()
    }

    #[test]
    fn products_are_those_of_the_textbook() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), textbook(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_number_but_zero_has_an_inverse() {
        assert_eq!(inv(0), 0);
        for a in 1..=255 {
            assert_eq!(mul(a, inv(a)), 1, "{a}");
        }
    }
}
