//! Trees that are transferred completely.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use farwrite_files::Summary;

use crate::place::{Place, send};

fn set_time(path: &Path, time: SystemTime) {
    fs::File::open(path)
        .and_then(|file| file.set_modified(time))
        .expect("set time");
}

/// Sets permissions. Only root can send a file without read permission; for other users the file
/// gets some.
fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
    if path.is_file() && fs::File::open(path).is_err() {
        fs::set_permissions(path, PermissionsExt::from_mode(0o400)).expect("chmod");
    }
}

#[test]
fn tree_arrives_with_names_contents_modes_and_times() {
    let from = Place::new();
    let large: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    from.write("tree/large", &large);
    from.write("tree/empty", "");
    from.write("tree/deep/er/small", "small");
    from.write("tree/deep/\u{e9} \n'\"\\", "odd name");
    from.write(&format!("tree/deep/{}", "n".repeat(255)), "long name");
    from.write("tree/zzz/last and empty", "");
    fs::create_dir_all(from.path("tree/hollow/inner")).expect("directories");
    let mut clock = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let tree = from.path("tree");
    for (below, mode) in [
        ("large", 0o640),
        ("empty", 0o400),
        ("deep/er/small", 0o755),
        ("zzz/last and empty", 0o000),
        ("deep/er", 0o2750),
        ("deep", 0o555),
        ("hollow/inner", 0o700),
        ("hollow", 0o711),
        ("", 0o775),
    ] {
        let path = tree.join(below);
        set_time(&path, clock);
        set_mode(&path, mode);
        clock += Duration::from_secs(1);
    }
    let all_times = |root: &Path| {
        [
            "",
            "large",
            "empty",
            "deep",
            "deep/er",
            "deep/er/small",
            "hollow",
            "hollow/inner",
        ]
        .map(|below| {
            let metadata = fs::metadata(root.join(below)).expect("metadata");
            (
                below,
                metadata.mode() & 0o777,
                metadata.modified().expect("time"),
            )
        })
    };
    for segment_bytes in [1 << 20, 4096, 37] {
        let to = Place::new();
        let summary = send(std::slice::from_ref(&tree), &to, segment_bytes);
        assert_eq!(
            summary,
            Summary {
                verified_files: 6,
                verified_bytes: 1_200_000 + 5 + 8 + 9,
                kept_files: 0,
                deleted_files: 0,
                failed_files: 0
            }
        );
        assert_eq!(to.list(), from.list());
        assert_eq!(all_times(&to.path("tree")), all_times(&tree));
        let special = fs::metadata(to.path("tree/deep/er"))
            .expect("metadata")
            .mode();
        assert_eq!(special & 0o7000, 0, "set-group-id does not travel");
        // Send the tree again, over the existing files. Read-only directories and files are no
        // obstacle.
        send(std::slice::from_ref(&tree), &to, segment_bytes);
        assert_eq!(to.list(), from.list());
        assert_eq!(all_times(&to.path("tree")), all_times(&tree));
    }
}

#[test]
fn paths_are_named_as_cp_names_them() {
    let from = Place::new();
    from.write("d/x", "x");
    from.write("f", "f");
    symlink("d", from.path("link")).expect("link");
    for (path, arrives) in [
        ("d", &["d", "d/x"][..]),
        ("d/", &["d", "d/x"]),
        ("d/.", &["x"]),
        ("f", &["f"]),
        ("link", &["link", "link/x"]),
    ] {
        let to = Place::new();
        send(&[from.path(path)], &to, 100);
        assert_eq!(to.list().keys().collect::<Vec<_>>(), arrives, "{path}");
    }
    let to = Place::new();
    send(&[from.path("f"), from.path("d")], &to, 100);
    assert_eq!(to.list().len(), 3);
}

#[test]
fn many_small_files_are_quick() {
    let from = Place::in_memory();
    for index in 0..10_000 {
        from.write(&format!("tree/{}/{index}", index % 50), index.to_string());
    }
    let to = Place::in_memory();
    let start = Instant::now();
    let summary = send(&[from.path("tree")], &to, 1 << 20);
    let took = start.elapsed();
    eprintln!("10,000 files in {took:?}");
    assert_eq!(summary.verified_files, 10_000);
    // If the time grew with the square of the number of files, it would be much longer.
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!(to.list(), from.list());
}

/// Returns the bytes that the file system has allocated for a file.
fn allocated_bytes(path: &Path) -> u64 {
    fs::metadata(path).expect("metadata").blocks() * 512
}

#[test]
fn holes_arrive_as_holes() {
    const BYTES: u64 = 16 << 20;
    let from = Place::new();
    let probe = fs::File::create(from.path("probe")).expect("create");
    probe.set_len(BYTES).expect("set length");
    if allocated_bytes(&from.path("probe")) > BYTES / 2 {
        eprintln!("skipped: this file system has no holes");
        return;
    }
    let file = fs::File::create(from.path("sparse")).expect("create");
    file.set_len(BYTES).expect("set length");
    file.write_all_at(&[7; 5000], 5 << 20).expect("write");
    // Zeros that a dense file contains are written, not turned into holes.
    from.write("dense", vec![0; 1 << 20]);
    for segment_bytes in [1 << 20, 100_003] {
        let to = Place::new();
        send(
            &[from.path("sparse"), from.path("probe"), from.path("dense")],
            &to,
            segment_bytes,
        );
        assert!(to.list() == from.list());
        let arrived = allocated_bytes(&to.path("sparse"));
        assert!(arrived < 1 << 20, "{arrived} bytes allocated");
        assert_eq!(allocated_bytes(&to.path("probe")), 0);
        let dense = allocated_bytes(&from.path("dense"));
        assert_eq!(allocated_bytes(&to.path("dense")), dense);
    }
}

#[test]
fn names_of_any_length_and_script_arrive() {
    let from = Place::new();
    // Names of the maximum length, 255 bytes. A truncation of the first one can fall inside a
    // character.
    from.write(&format!("t/{}", "\u{20ac}".repeat(85)), "euro");
    from.write(&format!("t/{}", "n".repeat(255)), "n");
    let to = Place::new();
    send(&[from.path("t")], &to, 100);
    assert_eq!(to.list(), from.list());
}
