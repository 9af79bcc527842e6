//! ISA-L's erasure code: the reference for the bytes of parity, here, and for speed, in `lab/bench`.
#![allow(unsafe_code)]

// This crate builds and links the library, but does not declare the functions of its erasure code.
use isal_sys as _;
use std::ffi::c_int;

unsafe extern "C" {
    fn gf_gen_cauchy1_matrix(matrix: *mut u8, rows: c_int, k: c_int);
    fn gf_invert_matrix(matrix: *mut u8, inverse: *mut u8, size: c_int) -> c_int;
    fn ec_init_tables(k: c_int, rows: c_int, matrix: *const u8, tables: *mut u8);
    fn ec_encode_data(
        bytes: c_int,
        k: c_int,
        rows: c_int,
        tables: *const u8,
        data: *const *const u8,
        coding: *const *mut u8,
    );
}

/// A matrix with which ISA-L computes outputs from inputs.
pub struct Product {
    inputs: usize,
    outputs: usize,
    tables: Vec<u8>,
}

impl Product {
    /// Computes parity chunks: `gf_gen_cauchy1_matrix` without its unit matrix.
    ///
    /// # Panics
    ///
    /// If `k + m` is above 255.
    pub fn encoding(k: usize, m: usize) -> Self {
        Self::new(k, &generator(k, m)[k * k..])
    }

    /// Computes the lost data chunks. The inputs are the present data chunks, then the first parity
    /// chunks, one for each lost chunk.
    ///
    /// # Panics
    ///
    /// If `k + m` is above 255, or more than `m` chunks are lost.
    pub fn decoding(k: usize, m: usize, lost: &[usize]) -> Self {
        let generator = generator(k, m);
        let kept = (0..k)
            .filter(|chunk| !lost.contains(chunk))
            .chain(k..k + lost.len());
        let mut kept: Vec<u8> = kept
            .flat_map(|row| generator[row * k..][..k].iter().copied())
            .collect();
        let mut inverse = vec![0; k * k];
        // SAFETY: both are k by k.
        let singular = unsafe { gf_invert_matrix(kept.as_mut_ptr(), inverse.as_mut_ptr(), int(k)) };
        assert_eq!(singular, 0, "every part of a Cauchy matrix has an inverse");
        let rows = lost
            .iter()
            .flat_map(|&row| inverse[row * k..][..k].iter().copied());
        Self::new(k, &rows.collect::<Vec<u8>>())
    }

    fn new(inputs: usize, matrix: &[u8]) -> Self {
        let outputs = matrix.len() / inputs;
        assert_eq!(matrix.len(), inputs * outputs);
        let mut tables = vec![0; 32 * matrix.len()];
        // SAFETY: tables take 32 bytes a factor.
        unsafe {
            let (matrix, tables) = (matrix.as_ptr(), tables.as_mut_ptr());
            ec_init_tables(int(inputs), int(outputs), matrix, tables);
        }
        Self {
            inputs,
            outputs,
            tables,
        }
    }

    /// Processes chunks of equal length in columns of `tile` bytes, with one call per column.
    ///
    /// # Panics
    ///
    /// If the lengths differ, or there are not as many chunks as the matrix has columns and rows.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], tile: usize) {
        assert_eq!((inputs.len(), outputs.len()), (self.inputs, self.outputs));
        let bytes = outputs[0].len();
        assert!(inputs.iter().all(|input| input.len() == bytes));
        assert!(outputs.iter().all(|output| output.len() == bytes));
        for at in (0..bytes).step_by(tile.max(1)) {
            let data: Vec<_> = inputs.iter().map(|input| input[at..].as_ptr()).collect();
            let coding: Vec<_> = outputs
                .iter_mut()
                .map(|output| output[at..].as_mut_ptr())
                .collect();
            let (k, rows, tables) = (int(self.inputs), int(self.outputs), self.tables.as_ptr());
            let tile = int(tile.min(bytes - at));
            // SAFETY: there are as many pointers as the tables were made for, each with `tile`
            // bytes behind it.
            unsafe { ec_encode_data(tile, k, rows, tables, data.as_ptr(), coding.as_ptr()) };
        }
    }
}

fn generator(k: usize, m: usize) -> Vec<u8> {
    assert!(k + m <= 255);
    let mut matrix = vec![0; (k + m) * k];
    // SAFETY: it has k + m rows of k bytes.
    unsafe { gf_gen_cauchy1_matrix(matrix.as_mut_ptr(), int(k + m), int(k)) };
    matrix
}

fn int(value: usize) -> c_int {
    c_int::try_from(value).expect("ISA-L takes lengths below 2 GiB")
}
