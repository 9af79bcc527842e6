//! Writes into remote memory over long, fast, lossy links.
