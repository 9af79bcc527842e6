//! Codes groups, one after the other.

use farwrite_codes::{Chunk, Code, Codec};

use super::{Coded, Source, Task};

/// Maximum number of codecs kept. Peers choose codes, for their messages and for their reads.
const MAX_CODECS: usize = 32;

/// Codecs, and memory for copies of what is coded: packets may arrive in the memory of a message at
/// any time. Each thread that codes has one.
#[derive(Debug, Default)]
pub(super) struct Coder {
    /// At most [`MAX_CODECS`], the latest used last.
    codecs: Vec<Codec>,
    buffer: Vec<u8>,
}

impl Coder {
    /// Codes a group into `output`, whose contents do not matter.
    pub(super) fn code(&mut self, task: Task, mut output: Vec<u8>) -> Coded {
        let Task {
            about,
            data,
            rebuild,
        } = task;
        let codec = codec(&mut self.codecs, about.layout.code());
        let (data_bytes, chunk_bytes) = (about.group.data.len(), about.layout.chunk_bytes());
        let buffer = &mut self.buffer;
        let rebuilt = match rebuild {
            None => {
                let read = |offset, out: &mut [u8]| data.read(offset, out);
                codec
                    .encode_copied(data_bytes, chunk_bytes, &mut output, buffer, read)
                    .expect("the layout fits the code");
                Vec::new()
            }
            Some((parity, present)) => {
                let read = |chunk, offset, out: &mut [u8]| match chunk {
                    Chunk::Data(chunk) => data.read(chunk * chunk_bytes + offset, out),
                    Chunk::Parity(chunk) => parity.read(chunk * chunk_bytes + offset, out),
                };
                codec
                    .recover_copied(data_bytes, chunk_bytes, &present, &mut output, buffer, read)
                    .expect("the layout fits the code, and enough is present");
                let missing = present.data.missing(about.group.data_chunks);
                missing.iter().collect()
            }
        };
        Coded {
            about,
            rebuilt,
            output,
        }
    }
}

impl Source {
    fn read(&self, offset: usize, out: &mut [u8]) {
        self.region
            .copy_out(self.offset + offset as u64, out)
            .expect("the group lies in its region");
    }
}

/// If there are too many codecs, the one that was not used for the longest time is freed.
fn codec(codecs: &mut Vec<Codec>, code: Code) -> &Codec {
    let known = codecs.iter().position(|codec| codec.code() == code);
    let codec = match known {
        Some(index) => codecs.remove(index),
        None => {
            if codecs.len() >= MAX_CODECS {
                codecs.remove(0);
            }
            Codec::new(code)
        }
    };
    codecs.push(codec);
    &codecs[codecs.len() - 1]
}

#[cfg(test)]
mod tests {
    use farwrite_codes::Kind;

    use super::*;

    #[test]
    fn codecs_of_codes_that_are_not_used_are_freed() {
        let code = |m| Code::new(Kind::Mds, 2, m).expect("a shape");
        let mut codecs = Vec::new();
        for m in 1..200 {
            // The first code stays in use.
            assert_eq!(codec(&mut codecs, code(1)).code(), code(1));
            assert_eq!(codec(&mut codecs, code(m)).code(), code(m));
            assert!(codecs.len() <= MAX_CODECS);
        }
        let kept = |m| codecs.iter().any(|codec| codec.code() == code(m));
        assert_eq!([1, 199, 2].map(kept), [true, true, false]);
    }
}
