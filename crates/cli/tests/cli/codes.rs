//! Runs `farwrite codes` as a user does: files and their parity.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use farwrite_codes::{Code, Codec, Layout};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;
use tempfile::TempDir;

use crate::{result_of, text};

/// A directory with files. The program runs in it.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("a file");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("the file is there")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).expect("the directory");
        let name = |entry: std::io::Result<fs::DirEntry>| {
            let name = entry.expect("an entry").file_name();
            name.into_string().expect("text")
        };
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    }

    fn farwrite(&self, args: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_farwrite"))
            .current_dir(self.directory.path())
            .args(args.split_whitespace())
            .output()
            .expect("the program starts")
    }

    /// Runs a command that must succeed. Returns its JSON.
    fn json(&self, args: &str) -> Value {
        let output = self.farwrite(&format!("{args} --json --quiet"));
        let command: Vec<_> = args.split_whitespace().take(2).collect();
        result_of(&output, &command.join(" "))
    }

    /// Runs a command that must fail with this exit code, print one line, and leave no file.
    /// Returns the line.
    fn fail(&self, exit: i32, args: &str) -> String {
        let before = self.names();
        let output = self.farwrite(args);
        let stderr = text(&output.stderr).to_owned();
        assert_eq!(output.status.code(), Some(exit), "{args}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args}: {stderr}");
        assert!(stderr.starts_with("farwrite: "), "{stderr}");
        assert_eq!(self.names(), before, "{args}");
        stderr
    }
}

fn random(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    ChaCha8Rng::seed_from_u64(bytes as u64).fill_bytes(&mut data);
    data
}

/// Returns the expected parity of a file. Zeros fill each group to its full length.
fn expected_parity(code: &str, chunk_bytes: usize, data: &[u8]) -> Vec<u8> {
    let code: Code = code.parse().expect("a code");
    let mut padded = data.to_vec();
    let group_bytes = code.k() * chunk_bytes;
    padded.resize(data.len().div_ceil(group_bytes) * group_bytes, 0);
    let layout = Layout::new(code, padded.len(), chunk_bytes).expect("a layout");
    let mut parity = vec![0; layout.parity_bytes()];
    Codec::new(code)
        .encode_message(&padded, chunk_bytes, &mut parity, NonZeroUsize::MIN)
        .expect("lengths fit");
    parity
}

const CODES: [&str; 5] = [
    "ec-mds:32,8",
    "ec-xor:32,8",
    "ec-mds:1,1",
    "ec-xor:5,5",
    "ec-mds:3,7",
];

#[test]
fn parity_is_that_of_the_library_with_the_last_group_padded() {
    let place = Place::new();
    for code in CODES {
        let k = code.parse::<Code>().expect("a code").k();
        for bytes in [1, 99, 100, 101, 100 * k - 1, 100 * k, 100 * k + 1, 50_001] {
            let data = random(bytes);
            place.write("data", &data);
            let report = place.json(&format!(
                "codes encode --code {code} --chunk-bytes 100 --in data --out parity"
            ));
            let parity = place.read("parity");
            assert!(
                parity == expected_parity(code, 100, &data),
                "{code}, {bytes} bytes"
            );
            assert_eq!(report["data_bytes"], bytes);
            assert_eq!(report["parity_bytes"], parity.len());
            assert_eq!(report["groups"], bytes.div_ceil(100 * k));
        }
    }
    assert_eq!(place.names(), ["data", "parity"]);
}

/// Overwrites the bytes of chunks.
fn damage(bytes: &mut [u8], chunk_bytes: usize, chunks: &[usize]) {
    for chunk in chunks {
        let end = bytes.len().min((chunk + 1) * chunk_bytes);
        for byte in &mut bytes[chunk * chunk_bytes..end] {
            *byte ^= 0x5a;
        }
    }
}

#[test]
fn damaged_files_are_made_whole() {
    let place = Place::new();
    // Each group has 8 chunks, the last group has 2, and the last chunk has 7 bytes. There are two
    // threads and several groups.
    let data = random(1000 * (8 * 5 + 1) + 7);
    place.write("data", &data);
    let cases: [(&str, &[usize], &[usize]); 5] = [
        ("ec-mds:8,3", &[], &[]),
        ("ec-mds:8,3", &[0, 1, 2, 11, 39, 40, 41], &[4]),
        ("ec-mds:8,3", &[5, 6, 41], &[0, 15, 16]),
        ("ec-xor:8,3", &[0, 4, 8, 13, 18, 40, 41], &[]),
        ("ec-xor:8,3", &[7, 41], &[0, 2, 17]),
    ];
    for (code, lost, lost_parity) in cases {
        let common = format!("--code {code} --chunk-bytes 1000 --threads 2");
        place.json(&format!("codes encode {common} --in data --out parity"));
        let (mut holes, mut parity) = (data.clone(), place.read("parity"));
        damage(&mut holes, 1000, lost);
        damage(&mut parity, 1000, lost_parity);
        place.write("holes", &holes);
        place.write("parity", &parity);
        let mut args = format!("codes decode {common} --in holes --parity parity --out whole");
        for (option, chunks) in [("--lost", lost), ("--lost-parity", lost_parity)] {
            if !chunks.is_empty() {
                let chunks: Vec<_> = chunks.iter().map(ToString::to_string).collect();
                args = format!("{args} {option} {}", chunks.join(","));
            }
        }
        let report = place.json(&args);
        assert!(place.read("whole") == data, "{args}");
        assert_eq!(report["rebuilt_chunks"], lost.len());
        assert_eq!(report["lost_parity_chunks"], lost_parity.len());
        assert_eq!(report["groups"], 6);
        fs::remove_file(place.path("whole")).expect("it is there");
    }
}

#[test]
fn every_loss_of_as_many_chunks_as_there_is_parity_is_repaired() {
    let place = Place::new();
    let data = random(4 * 50 - 3);
    place.write("data", &data);
    let common = "--code ec-mds:4,2 --chunk-bytes 50";
    place.json(&format!("codes encode {common} --in data --out parity"));
    for first in 0..4 {
        for second in first + 1..4 {
            let mut holes = data.clone();
            damage(&mut holes, 50, &[first, second]);
            place.write("holes", &holes);
            let report = place.json(&format!(
                "codes decode {common} --in holes --parity parity --out whole --lost {first},{second}"
            ));
            assert!(place.read("whole") == data, "{first}, {second}");
            assert_eq!(report["unchecked_groups"], 1);
        }
    }
}

#[test]
fn a_file_that_was_cut_short_is_completed() {
    let place = Place::new();
    let data = random(32 * 1024 * 2 + 5000);
    place.write("data", &data);
    let common = "--chunk-bytes 1KiB";
    place.json(&format!("codes encode {common} --in data --out parity"));
    // The file ends in the middle of chunk 66, so 3 chunks must be rebuilt. The last chunk of the
    // parity is also missing, and the command names it.
    place.write("short", &data[..66 * 1024 + 1]);
    let parity = place.read("parity");
    place.write("short-parity", &parity[..parity.len() - 3000]);
    let decode = format!("codes decode {common} --in short --parity short-parity --out whole");
    let report = place.json(&format!(
        "{decode} --bytes {} --lost-parity 21-23",
        data.len()
    ));
    assert!(place.read("whole") == data);
    assert_eq!(report["rebuilt_chunks"], 3);
    fs::remove_file(place.path("whole")).expect("it is there");

    let told = place.fail(2, &format!("{decode} --bytes {}", data.len()));
    assert!(told.contains("--lost-parity"), "{told}");
    // Without the length, the program assumes that the last group is shorter.
    let told = place.fail(4, &format!("{decode} --lost-parity 21-23"));
    assert!(told.contains("--bytes"), "{told}");
    let told = place.fail(2, &format!("{decode} --bytes 1000"));
    assert!(told.contains("short is longer"), "{told}");
}

#[test]
fn an_empty_file_has_no_parity() {
    let place = Place::new();
    place.write("data", &[]);
    let report = place.json("codes encode --in data --out parity");
    assert_eq!(report["groups"], 0);
    assert!(place.read("parity").is_empty());
    place.json("codes decode --in data --parity parity --out whole");
    assert!(place.read("whole").is_empty());
    let told = place.fail(2, "codes decode --in data --parity parity --out x --lost 0");
    assert!(told.contains("there are none"), "{told}");
}

#[test]
fn what_cannot_be_rebuilt_is_named() {
    let place = Place::new();
    place.write("data", &random(100 * 10));
    for code in ["ec-mds:4,2", "ec-xor:4,2"] {
        let encode = format!("codes encode --code {code} --chunk-bytes 100 --in data");
        place.json(&format!("{encode} --out {}", &code[..6]));
    }
    let decode = "codes decode --chunk-bytes 100 --in data --out whole";
    let mds = format!("{decode} --code ec-mds:4,2 --parity ec-mds");
    let told = place.fail(1, &format!("{mds} --lost 0,5-7"));
    assert!(told.contains("group 1 (data chunks 4 to 7)"), "{told}");
    assert!(
        told.contains("3 of its data chunks") && told.contains("2 parity chunks are there"),
        "{told}"
    );
    let told = place.fail(1, &format!("{mds} --lost 8,9 --lost-parity 5"));
    assert!(told.contains("group 2 (data chunks 8 to 9)"), "{told}");
    assert!(told.contains("1 parity chunks are there"), "{told}");
    let xor = format!("{decode} --code ec-xor:4,2 --parity ec-xor");
    let told = place.fail(1, &format!("{xor} --lost 1,3"));
    assert!(told.contains("group 0") && told.contains("mod 2"), "{told}");
}

#[test]
fn damage_that_was_not_named_is_found() {
    let place = Place::new();
    let data = random(100 * 10);
    place.write("data", &data);
    let common = "--code ec-mds:4,2 --chunk-bytes 100";
    place.json(&format!("codes encode {common} --in data --out parity"));
    let mut holes = data.clone();
    damage(&mut holes, 100, &[1, 6]);
    place.write("holes", &holes);
    let decode = format!("codes decode {common} --in holes --out whole");
    let told = place.fail(4, &format!("{decode} --parity parity --lost 1"));
    assert!(
        told.contains("group 1") && told.contains("--lost-parity"),
        "{told}"
    );

    let mut parity = place.read("parity");
    damage(&mut parity, 100, &[5]);
    place.write("other", &parity);
    let told = place.fail(4, &format!("{decode} --parity other --lost 1,6"));
    assert!(
        told.contains("parity chunk 5") && told.contains("group 2"),
        "{told}"
    );
    let report = place.json(&format!(
        "{decode} --parity other --lost 1,6 --lost-parity 5"
    ));
    assert!(place.read("whole") == data);
    assert_eq!(report["unchecked_groups"], 0);
}

#[test]
fn files_that_cannot_be_are_refused() {
    use std::os::unix::fs::symlink;

    let place = Place::new();
    place.write("data", &random(1000));
    place.json("codes encode --in data --out parity");
    symlink("data", place.path("link")).expect("a link");
    fs::create_dir(place.path("directory")).expect("a directory");
    let encode = "codes encode --in data --out";
    for (exit, args, named) in [
        (2, format!("{encode} data"), "input data"),
        (2, format!("{encode} link"), "input data"),
        (6, format!("{encode} directory"), "no file"),
        (6, format!("{encode} /dev/null"), "no file"),
        (6, format!("{encode} missing/parity"), "missing/parity"),
        (6, format!("{encode} .."), ".."),
        (6, "codes encode --in missing --out x".into(), "missing"),
        (6, "codes encode --in directory --out x".into(), "directory"),
        (
            2,
            "codes decode --in data --parity parity --out parity".into(),
            "input parity",
        ),
        (
            2,
            "codes decode --in data --parity data --out x".into(),
            "of parity",
        ),
        (
            6,
            "codes decode --in data --parity missing --out x".into(),
            "missing",
        ),
        (
            6,
            "codes decode --in /dev/null --parity parity --out x".into(),
            "/dev/null",
        ),
    ] {
        let told = place.fail(exit, &args);
        assert!(told.contains(named), "{args}: {told}");
    }
    assert_eq!(place.read("data"), random(1000));
}

#[test]
fn senseless_codes_are_refused() {
    let place = Place::new();
    place.write("data", &random(1000));
    let encode = "codes encode --in data --out x";
    for (args, named) in [
        (format!("{encode} --code rs:32,8"), "ec-mds:32,8"),
        (format!("{encode} --code ec-mds:200,56"), "255"),
        (format!("{encode} --code ec-mds:0,8"), "at least 1"),
        (format!("{encode} --code ec-xor:4,5"), "at most k"),
        (format!("{encode} --code ec-mds:4"), "ec-mds:32,8"),
        (format!("{encode} --chunk-bytes 0"), "--chunk-bytes"),
        (format!("{encode} --chunk-bytes 1GiB"), "26843545"),
        (format!("{encode} --threads 0"), "--threads"),
        ("codes encode --in data".into(), "--out"),
        (
            "codes decode --in data --parity data --out x --lost 3-1".into(),
            "3,17,40-44",
        ),
        (
            "codes decode --in data --parity data --out x --lost 1".into(),
            "chunk 0",
        ),
        ("codes bench --kernel mmx".into(), "scalar"),
        ("codes bench --lost 9".into(), "1 to 8"),
        ("codes bench --lost 0".into(), "1 to 8"),
        ("codes bench --code ec-mds:32,8,rs:4,2".into(), "rs:4,2"),
        ("codes dance".into(), "dance"),
    ] {
        let told = place.fail(2, &args);
        assert!(told.contains(named), "{args}: {told}");
    }
}

#[test]
fn bench_measures_every_kernel() {
    let place = Place::new();
    let args =
        "codes bench --code ec-mds:6,2,ec-xor:32,8 --bytes 1MiB --chunk-bytes 4KiB --rounds 1";
    let report = place.json(args);
    let codes = report["codes"].as_array().expect("codes");
    let kernels = farwrite_codes::Kernel::available().count();
    for (code, (name, losses)) in codes.iter().zip([("ec-mds:6,2", 1), ("ec-xor:32,8", 3)]) {
        assert_eq!(code["code"], name);
        let rows = code["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 1 + kernels * (1 + losses), "{code}");
        assert_eq!(rows[0]["work"], "read");
        for row in rows {
            let number = |name: &str| row[name].as_f64().expect("a number");
            let data_bytes = code["data_bytes"].as_f64().expect("a number");
            assert!(
                (number("data_bytes_per_s") * number("seconds") / data_bytes - 1.0).abs() < 1e-6
            );
            let cores = 50e9 / number("data_bytes_per_s");
            assert!(
                (number("cores_for_400_gbit") / cores - 1.0).abs() < 1e-6,
                "{row}"
            );
        }
    }
    let output = place.farwrite(&format!("{args} --threads 2 --kernel scalar --lost 2"));
    let stdout = text(&output.stdout);
    for word in [
        "GB/s",
        "of reading",
        "400 Gbit/s",
        "decode 2 lost",
        "scalar",
        "2 threads",
        "4 KiB",
    ] {
        assert!(stdout.contains(word), "{word:?} is not in\n{stdout}");
    }
    assert!(
        stdout.lines().all(|line| line.chars().count() <= 100),
        "{stdout}"
    );
}

#[test]
fn help_has_examples_and_says_how_parity_lies() {
    let place = Place::new();
    for (command, words) in [
        ("codes", &["Examples:", "gf_gen_cauchy1_matrix"][..]),
        (
            "codes encode",
            &["Examples:", "(g M + i) N + b", "padded with zeros"],
        ),
        ("codes decode", &["Examples:", "--lost-parity", "--bytes"]),
        ("codes bench", &["Examples:", "--kernel"]),
    ] {
        let output = place.farwrite(&format!("{command} --help"));
        // The help can break a line between any two words.
        let stdout = text(&output.stdout);
        let stdout = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            assert!(stdout.contains(word), "{word:?} is not in\n{stdout}");
        }
    }
}

/// The files are larger than the amount of data that is held in memory at a time.
#[test]
fn files_of_several_batches_are_made_whole() {
    let place = Place::new();
    let data = random((150 << 20) + 12_345);
    place.write("data", &data);
    let common = "--code ec-xor:16,4 --chunk-bytes 1MiB";
    place.json(&format!("codes encode {common} --in data --out parity"));
    assert!(place.read("parity") == expected_parity("ec-xor:16,4", 1 << 20, &data));
    let lost: [usize; 6] = [0, 15, 50, 99, 144, 150];
    let mut holes = data.clone();
    damage(&mut holes, 1 << 20, &lost);
    place.write("holes", &holes);
    place.json(&format!(
        "codes decode {common} --in holes --parity parity --out whole --lost 0,15,50,99 --lost 144,150"
    ));
    assert!(place.read("whole") == data);
    assert_mode(&place.path("whole"));
}

/// The mode is that of any new file: others can read it too, as far as the umask permits.
fn assert_mode(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode();
    let plain = path.with_extension("plain");
    fs::write(&plain, b"").expect("a file");
    assert_eq!(mode(path), mode(&plain));
}

#[test]
fn links_are_followed_and_devices_are_refused() {
    let place = Place::new();
    place.write("data", &random(1000));
    place.write("old", b"old");
    std::os::unix::fs::symlink("old", place.path("link")).expect("a link");
    let encode = "codes encode --code ec-mds:32,8 --chunk-bytes 100 --in data";
    place.json(&format!("{encode} --out link"));
    assert_eq!(place.read("old").len(), 800);
    assert!(place.path("link").is_symlink());
    for device in ["/dev/stdout", "/proc/self/fd/1"] {
        let why = place.fail(6, &format!("{encode} --out {device}"));
        assert!(why.contains("is a device and no file"), "{why}");
    }
}
