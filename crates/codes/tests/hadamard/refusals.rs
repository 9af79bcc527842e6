//! Invalid arguments are refused with a reason, and nothing is written.

use farwrite_codes::hadamard::{Interleave, Rescale, Transform, TransformError};

#[test]
fn shapes_that_do_not_exist() {
    for (block, packet, stride, words) in [
        (0, 4, 1, "block of 0"),
        (12, 4, 1, "block of 12"),
        (1 << 26, 4, 1, "block of 67108864"),
        (8, 0, 1, "packet of 0"),
        (8, 12, 1, "packet of 12"),
        (8, 1 << 16, 1, "packet of 65536"),
        (8, 4, 0, "stride 0"),
        (8, 4, 3, "stride 3"),
        (8, 4, 8, "stride 8"),
    ] {
        let error = Interleave::new(block, packet, stride)
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
    for block in (0..=25).map(|bits| 1 << bits) {
        Interleave::new(block, 1 << 15, 1 << 15).unwrap();
    }
}

#[test]
fn arguments_that_do_not_fit() {
    let transform = Transform::new(Interleave::new(8, 4, 2).unwrap());
    let input = [1.0_f32; 20];
    for (output, ends, expected) in [
        (
            19,
            vec![20],
            TransformError::Lengths {
                input: 20,
                output: 19,
            },
        ),
        (
            20,
            vec![],
            TransformError::Segment {
                segment: 0,
                end: 0,
                elements: 20,
            },
        ),
        (
            20,
            vec![19],
            TransformError::Segment {
                segment: 1,
                end: 19,
                elements: 20,
            },
        ),
        (
            20,
            vec![8, 7, 20],
            TransformError::Segment {
                segment: 1,
                end: 7,
                elements: 20,
            },
        ),
        (
            20,
            vec![8, 21],
            TransformError::Segment {
                segment: 1,
                end: 21,
                elements: 20,
            },
        ),
    ] {
        let mut target = vec![7.0; output];
        assert_eq!(transform.encode(&input, &mut target, &ends), Err(expected));
        assert_eq!(transform.decode(&input, &mut target, &ends), Err(expected));
        let mut encoded = input;
        let result = transform.decode_partial(
            &mut encoded,
            &mut target,
            &ends,
            |_, _| false,
            Rescale::ByArrived,
        );
        assert_eq!(result, Err(expected));
        assert!(encoded == input && target.iter().all(|&value| value == 7.0));
    }
}

#[test]
fn shares_that_cannot_be() {
    let transform = Transform::new(Interleave::new(8, 4, 2).unwrap());
    for share in [0.0, -0.5, 1.5, f32::NAN] {
        let (mut encoded, mut target) = ([1.0_f32; 20], [7.0; 20]);
        let rescale = Rescale::ByShare(share);
        let result =
            transform.decode_partial(&mut encoded, &mut target, &[20], |_, _| false, rescale);
        assert!(matches!(result, Err(TransformError::Share { .. })));
        assert!(encoded == [1.0; 20] && target == [7.0; 20]);
    }
}

#[test]
fn empty_tensors_and_segments_are_fine() {
    let transform = Transform::new(Interleave::new(8, 4, 2).unwrap());
    transform.encode::<f32>(&[], &mut [], &[]).unwrap();
    transform.encode::<f32>(&[], &mut [], &[0, 0]).unwrap();
    let mut encoded = [0.0_f32; 3];
    transform
        .encode(&[1.0; 3], &mut encoded, &[0, 3, 3])
        .unwrap();
    let mut decoded = [0.0; 3];
    transform
        .decode(&encoded, &mut decoded, &[0, 3, 3])
        .unwrap();
    assert!(decoded.iter().all(|value| (value - 1.0).abs() < 1e-6));
}
