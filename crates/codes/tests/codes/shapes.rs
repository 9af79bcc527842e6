//! Tests of the shapes of codes and of their names.

use farwrite_codes::{Code, Kind, Layout, ParseCodeError, Present, ShapeError};
use proptest::prelude::*;

use crate::group::codes;

#[test]
fn a_code_has_data_and_parity_and_at_most_255_chunks() {
    for kind in [Kind::Xor, Kind::Mds] {
        for (k, m) in [(0, 1), (1, 0), (0, 0)] {
            assert_eq!(Code::new(kind, k, m), Err(ShapeError::Zero { k, m }));
        }
        for (k, m) in [
            (255, 1),
            (128, 128),
            (1, 255),
            (usize::MAX, 1),
            (1, usize::MAX),
        ] {
            assert_eq!(Code::new(kind, k, m), Err(ShapeError::TooLarge { k, m }));
        }
    }
    let idle = Err(ShapeError::IdleParity { k: 4, m: 5 });
    assert_eq!(Code::new(Kind::Xor, 4, 5), idle);
    assert!(Code::new(Kind::Mds, 4, 5).is_ok());
    assert!(Code::new(Kind::Xor, 127, 127).is_ok());
    assert!(Code::new(Kind::Mds, 1, 254).is_ok());
}

#[test]
fn what_is_no_code_is_refused_with_its_reason() {
    for text in [
        "",
        "ec-mds",
        "mds:32,8",
        "ec-rs:32,8",
        "ec-mds:32",
        "sr-nack",
        "EC-MDS:32,8",
    ] {
        let error = text.parse::<Code>().unwrap_err();
        assert_eq!(error, ParseCodeError::Form { given: text.into() });
        assert!(error.to_string().contains("ec-mds:32,8"), "{error}");
    }
    for (text, given) in [
        ("ec-mds:x,8", "x"),
        ("ec-mds:32,", ""),
        ("ec-xor:1,2,3", "2,3"),
        ("ec-mds:-1,2", "-1"),
    ] {
        let error = text.parse::<Code>().unwrap_err();
        assert_eq!(
            error,
            ParseCodeError::Number {
                given: given.into()
            }
        );
    }
    let error = "ec-mds:250,6".parse::<Code>().unwrap_err();
    assert_eq!(
        error,
        ParseCodeError::Shape(ShapeError::TooLarge { k: 250, m: 6 })
    );
    assert!(error.to_string().contains("at most 255"), "{error}");
}

#[test]
fn a_short_group_has_no_idle_parity() {
    let xor = Code::new(Kind::Xor, 32, 8).unwrap();
    let mds = Code::new(Kind::Mds, 32, 8).unwrap();
    for (data_chunks, of_xor, of_mds) in [(0, 0, 0), (1, 1, 8), (7, 7, 8), (8, 8, 8), (32, 8, 8)] {
        assert_eq!(xor.parity_chunks(data_chunks), of_xor);
        assert_eq!(mds.parity_chunks(data_chunks), of_mds);
    }
}

#[test]
fn xor_repairs_one_loss_a_class() {
    let code = Code::new(Kind::Xor, 6, 3).unwrap();
    let lose = |data: &[usize], parity: &[usize]| {
        let mut present = Present::all(code, 6);
        data.iter()
            .for_each(|&chunk| assert!(present.data.remove(chunk)));
        parity
            .iter()
            .for_each(|&chunk| assert!(present.parity.remove(chunk)));
        code.recoverable(6, &present)
    };
    assert!(lose(&[0, 1, 2], &[]));
    assert!(lose(&[3, 1, 5], &[]));
    assert!(!lose(&[0, 3], &[]));
    assert!(!lose(&[4], &[1]));
    assert!(lose(&[4], &[0, 2]));
    assert!(lose(&[], &[0, 1, 2]));
}

#[test]
fn chunks_that_a_group_does_not_have_repair_nothing() {
    let code = Code::new(Kind::Mds, 4, 2).unwrap();
    let mut present = Present::all(code, 4);
    present.data.remove(0);
    present.parity = (2..255).collect();
    present.data.insert(200);
    assert!(!code.recoverable(4, &present));
    // A group of three data chunks has no chunk 3, so that chunk is not missing.
    present.data = (0..3).collect();
    assert!(code.recoverable(3, &present));
}

proptest! {
    #[test]
    fn a_name_says_its_code(code in codes(255)) {
        prop_assert_eq!(code.to_string().parse::<Code>(), Ok(code));
    }

    #[test]
    fn groups_tile_a_message(code in codes(40), bytes in 1_usize..4000, chunk_bytes in 1_usize..20) {
        let layout = Layout::new(code, bytes, chunk_bytes).unwrap();
        let (mut data, mut parity, mut chunks) = (0, 0, 0);
        for group in (0..).map_while(|group| layout.group(group)) {
            prop_assert_eq!((group.data.start, group.parity.start), (data, parity));
            prop_assert_eq!(group.data.len().div_ceil(chunk_bytes), group.data_chunks);
            prop_assert_eq!(group.parity_chunks, code.parity_chunks(group.data_chunks));
            prop_assert_eq!(group.parity.len(), group.parity_chunks * chunk_bytes);
            prop_assert!(group.data_chunks == code.k() || group.data.end == bytes);
            (data, parity) = (group.data.end, group.parity.end);
            chunks += group.data_chunks;
        }
        prop_assert_eq!((data, parity), (bytes, layout.parity_bytes()));
        prop_assert_eq!(chunks, layout.data_chunks());
        prop_assert_eq!(layout.parity_chunks() * chunk_bytes, parity);
    }
}
