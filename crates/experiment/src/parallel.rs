//! The same work for many inputs, on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `run` with each of `inputs`, on as many threads as the machine has cores. Returns the results in the
/// order of the inputs.
///
/// # Panics
///
/// If `run` panics.
pub fn parallel_map<I: Sync, T: Send>(inputs: &[I], run: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(input) = inputs.get(number) else {
                return results;
            };
            results.push((number, run(input)));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut results = Vec::with_capacity(inputs.len());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..cores.min(inputs.len()))
            .map(|_| scope.spawn(work))
            .collect();
        for thread in threads {
            results.extend(thread.join().expect("`run` does not panic"));
        }
    });
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_inputs() {
        let inputs: Vec<u64> = (0..1000).collect();
        // Later inputs are done sooner.
        let squares = parallel_map(&inputs, |input| {
            std::hint::black_box((0..(1000 - input) * 50).sum::<u64>());
            input * input
        });
        let expected: Vec<_> = inputs.iter().map(|input| input * input).collect();
        assert_eq!(squares, expected);
        assert_eq!(parallel_map(&[], |_: &u64| 0), [0; 0]);
    }
}
