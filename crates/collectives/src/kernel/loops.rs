//! The loops of the vector kernels for floats of 16 bits. They are the same for vectors of all lengths.

/// Defines `reduce` and `divide` of a module for one kind of vectors.
///
/// The module has `BYTES`, the bytes of a vector of halves, the conversions `from_f16`, `f16`, `from_bf16`
/// and `bf16`, and `choose`. This is a macro, because a function with `target_feature` cannot be a method
/// of a trait.
macro_rules! loops {
    (
        $features:literal, $half:ty, $wide:ty,
        add: $add:path, multiply: $multiply:path, divide: $divide:path, repeat: $repeat:path
    ) => {
        /// Reduces whole vectors, and returns the number of their bytes.
        #[target_feature(enable = $features)]
        pub(super) fn reduce(
            format: Format,
            reduction: Reduction,
            target: &mut [u8],
            source: &[u8],
        ) -> usize {
            match format {
                Format::F16 => join(reduction, target, source, |x| from_f16(x), |x| f16(x)),
                Format::Bf16 => join(reduction, target, source, |x| from_bf16(x), |x| bf16(x)),
            }
        }

        /// Divides whole vectors, and returns the number of their bytes.
        #[target_feature(enable = $features)]
        pub(super) fn divide(format: Format, target: &mut [u8], count: f32) -> usize {
            let count = $repeat(count);
            let chunks = target.as_chunks_mut::<BYTES>().0;
            let done = chunks.len() * BYTES;
            for value in chunks {
                let half = bytemuck::cast(*value);
                *value = bytemuck::cast(match format {
                    Format::F16 => f16($divide(from_f16(half), count)),
                    Format::Bf16 => bf16($divide(from_bf16(half), count)),
                });
            }
            done
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn join(
            reduction: Reduction,
            target: &mut [u8],
            source: &[u8],
            widen: impl Fn($half) -> $wide,
            round: impl Fn($wide) -> $half,
        ) -> usize {
            match reduction {
                Reduction::Sum | Reduction::Mean => {
                    fold(target, source, |a, b| round($add(widen(a), widen(b))))
                }
                Reduction::Min => fold(target, source, |a, b| {
                    round(choose::<_CMP_LT_OQ>(widen(a), widen(b)))
                }),
                Reduction::Max => fold(target, source, |a, b| {
                    round(choose::<_CMP_GT_OQ>(widen(a), widen(b)))
                }),
                Reduction::Product => {
                    fold(target, source, |a, b| round($multiply(widen(a), widen(b))))
                }
                // Floats have no such reductions. The plain loops do them all.
                Reduction::And | Reduction::Or | Reduction::Xor => 0,
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn fold(target: &mut [u8], source: &[u8], join: impl Fn($half, $half) -> $half) -> usize {
            let target = target.as_chunks_mut::<BYTES>().0;
            let done = target.len() * BYTES;
            for (a, b) in target.iter_mut().zip(source.as_chunks::<BYTES>().0) {
                *a = bytemuck::cast(join(bytemuck::cast(*a), bytemuck::cast(*b)));
            }
            done
        }
    };
}

pub(super) use loops;
