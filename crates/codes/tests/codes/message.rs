//! Tests of messages with many groups, on several threads.

use std::num::NonZeroUsize;

use farwrite_codes::{Codec, CodecError, Layout, MessageError, Present};
use proptest::prelude::*;

use crate::group::{Group, bytes, codes, survivors};

fn threads(threads: usize) -> NonZeroUsize {
    NonZeroUsize::new(threads).unwrap()
}

proptest! {
    #[test]
    fn a_message_is_its_groups(
        code in codes(20),
        data_bytes in 1_usize..5000,
        chunk_bytes in 1_usize..80,
        seed: u64,
        count in 1_usize..5,
    ) {
        let codec = Codec::new(code);
        let layout = Layout::new(code, data_bytes, chunk_bytes).unwrap();
        let data = bytes(data_bytes, seed);
        let mut parity = vec![0; layout.parity_bytes()];
        codec.encode_message(&data, chunk_bytes, &mut parity, threads(count)).unwrap();

        let mut damaged = Vec::new();
        let mut present = Vec::new();
        let mut hopeless = None;
        for (at, cut) in (0..).map_while(|group| Some((group, layout.group(group)?))) {
            let group = Group { code, chunk_bytes, data: data[cut.data].to_vec() };
            let mut expected = vec![0; group.parity_bytes()];
            codec.encode(&group.data, chunk_bytes, &mut expected).unwrap();
            prop_assert!(parity[cut.parity] == expected);
            let left = survivors(&group, seed ^ at as u64, 20);
            if hopeless.is_none() && !code.recoverable(group.data_chunks(), &left) {
                hopeless = Some(at);
            }
            damaged.extend(group.damaged(&left));
            present.push(left);
        }
        let mut recovered = damaged.clone();
        let result =
            codec.recover_message(&mut recovered, &parity, chunk_bytes, &present, threads(count));
        match hopeless {
            None => prop_assert!(result == Ok(()) && recovered == data),
            Some(first) => {
                let named = matches!(result, Err(MessageError::Group { group, .. }) if group == first);
                prop_assert!(named && recovered == damaged, "{result:?}");
            }
        }
    }
}

#[test]
fn lengths_of_a_message_must_fit() {
    let codec = Codec::new("ec-xor:4,2".parse().unwrap());
    let mut data = [0; 45];
    let mut parity = [0; 40];
    let encode = |data: &[u8], chunk_bytes, parity: &mut [u8]| {
        codec.encode_message(data, chunk_bytes, parity, threads(2))
    };
    assert_eq!(encode(&data, 0, &mut parity), Err(CodecError::EmptyChunks));
    let nothing = encode(&[], 10, &mut parity).unwrap_err();
    assert!(matches!(nothing, CodecError::DataBytes { given: 0, .. }));
    // The first group has four data chunks. The second has half a chunk, and one parity chunk.
    let expected = Err(CodecError::ParityBytes {
        given: 40,
        expected: 30,
    });
    assert_eq!(encode(&data, 10, &mut parity), expected);
    encode(&data, 10, &mut parity[..30]).unwrap();
    let present = [Present::all(codec.code(), 4); 3];
    let result = codec.recover_message(&mut data, &parity[..30], 10, &present, threads(2));
    let groups = CodecError::Groups {
        given: 3,
        expected: 2,
    };
    assert_eq!(result, Err(MessageError::Whole(groups)));
}
