//! Checks that `docs/json.md` describes what the program prints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::rig::{Rig, Running, farwrite, free_port, pattern};

const PAGE: &str = include_str!("../../../../docs/json.md");

/// Returns the rows of the tables, cell by cell, without the two header lines of each table.
fn tables() -> Vec<Vec<Vec<String>>> {
    let mut tables = vec![Vec::new()];
    for line in PAGE.lines() {
        let Some(row) = line
            .strip_prefix("| ")
            .and_then(|line| line.strip_suffix(" |"))
        else {
            tables.push(Vec::new());
            continue;
        };
        let cells = row
            .split(" | ")
            .map(|cell| cell.trim_matches('`').to_owned());
        let table = tables.last_mut().expect("never empty");
        table.push(cells.collect());
    }
    tables.retain(|table| !table.is_empty());
    // The line of dashes does not begin with `| `, so it separates the header from the rows.
    let is_head =
        |table: &Vec<Vec<String>>| table.len() == 1 && table[0].contains(&"meaning".into());
    tables.retain(|table| !is_head(table));
    tables
}

/// Returns the documented types of fields, by path.
fn documented() -> BTreeMap<String, String> {
    let tables = tables();
    let [envelope, _, result, loss, ..] = &tables[..] else {
        panic!("four tables expected: {tables:?}");
    };
    let mut fields = BTreeMap::new();
    add(&mut fields, envelope, "");
    add(&mut fields, result, "result.");
    add(&mut fields, loss, "result.send_loss.");
    add(&mut fields, loss, "result.receive_loss.");
    fields
}

fn add(fields: &mut BTreeMap<String, String>, table: &[Vec<String>], prefix: &str) {
    for row in table {
        fields.insert(format!("{prefix}{}", row[0]), row[1].clone());
    }
}

/// Checks the fields of an object and adds their paths to `found`.
fn check(
    object: &Value,
    prefix: &str,
    documented: &BTreeMap<String, String>,
    found: &mut BTreeSet<String>,
) {
    for (name, value) in object.as_object().expect("an object") {
        let path = format!("{prefix}{name}");
        let Some(types) = documented.get(&path) else {
            panic!("{path} is not documented: {value}");
        };
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "text",
            Value::Array(_) => "list",
            Value::Object(_) => "object",
        };
        assert!(
            types.split(" or ").any(|it| it == kind),
            "{path} is {value}, not {types}"
        );
        let below = |sign: &str| {
            let below = format!("{path}{sign}");
            documented
                .keys()
                .any(|key| key.starts_with(&below))
                .then_some(below)
        };
        match (value, below("."), below("[].")) {
            (Value::Object(_), Some(below), _) => check(value, &below, documented, found),
            (Value::Array(items), _, Some(below)) => {
                items
                    .iter()
                    .for_each(|item| check(item, &below, documented, found));
            }
            _ => {}
        }
        found.insert(path);
    }
}

/// Returns what both ends print for a transfer.
fn printed(rig: &Rig, paths: &[&Path]) -> [Value; 2] {
    let addr = free_port();
    let receiver = rig.recv_command(&addr.to_string(), &rig.inbox(), &["--once", "--json"]);
    let receiver = Running::spawn(receiver);
    let sent = rig.send(addr, &["--json"], paths).end();
    [sent.json(), receiver.end().json()]
}

#[test]
fn fields_are_those_that_are_printed() {
    let (documented, mut found) = (documented(), BTreeSet::new());
    let rig = Rig::new();
    let file = rig.file("file", 4_000_000);
    // One transfer succeeds, one has a file that fails, and one fails.
    let mut objects = Vec::from(printed(&rig, &[&file]));
    objects.extend(printed(&rig, &[&file, Path::new("/proc/meminfo")]));
    let unreachable = rig
        .send(free_port(), &["--json", "--timeout", "1s"], &[&file])
        .end();
    objects.push(unreachable.json());
    for object in &objects {
        check(object, "", &documented, &mut found);
    }
    let documented = documented.into_keys().collect::<BTreeSet<_>>();
    let missing: Vec<_> = documented.difference(&found).collect();
    assert!(
        missing.is_empty(),
        "documented, but not printed: {missing:?}"
    );
}

/// The table of `--json-lines`.
const LINES: usize = 17;

/// The table of `send -`.
const PIPE: usize = 18;

/// The table of `perf`.
const PERF: usize = 19;

/// Checks that the object of a pipe has the fields that are documented.
pub(crate) fn check_pipe(object: &Value) {
    check_table(PIPE, std::slice::from_ref(object));
}

/// The same for the objects of `perf`, together.
pub(crate) fn check_perf(objects: &[Value]) {
    check_table(PERF, objects);
}

fn check_table(table: usize, objects: &[Value]) {
    let mut documented = BTreeMap::new();
    add(&mut documented, &tables()[0], "");
    add(&mut documented, &tables()[table], "result.");
    let mut found = BTreeSet::new();
    for object in objects {
        check(object, "", &documented, &mut found);
    }
    for row in &tables()[table] {
        assert!(found.contains(&format!("result.{}", row[0])), "{row:?}");
    }
}

/// The tables that this test does not compare: `link` and `lowar` need root, the table of `sim`
/// refers to the columns of a file, and other tests compare those of `--json-lines`, `send -` and `perf`.
const NOT_COMPARED: [usize; 6] = [6, 9, 10, LINES, PIPE, PERF];

/// In this transfer, two files and a link arrive, the receiver has two other files already, and one file
/// fails.
#[test]
fn lines_are_those_that_are_documented() {
    let rig = Rig::new();
    let tree = rig.path("tree");
    std::fs::create_dir(&tree).expect("directory");
    for (name, bytes) in [("a", 1000), ("b", 3_000_000)] {
        std::fs::write(tree.join(name), pattern(bytes)).expect("write");
    }
    std::os::unix::fs::symlink("a", tree.join("link")).expect("link");
    let mut documented = BTreeMap::new();
    add(&mut documented, &tables()[LINES], "");
    let mut found = BTreeSet::new();
    let mut states = Vec::new();
    let addr = free_port();
    let receiver = rig.recv_command(&addr.to_string(), &rig.inbox(), &["--json-lines"]);
    let receiver = Running::spawn(receiver);
    for arguments in [&["--json-lines", "--rate", "50Mbit"][..], &["--json-lines"]] {
        let paths = [tree.as_path(), Path::new("/proc/meminfo")];
        let sent = rig.send(addr, arguments, &paths).end();
        let mut lines: Vec<Value> = sent
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON on each line"))
            .collect();
        let last = lines.pop().expect("a result");
        assert_eq!(last["exit_code"], 6, "{last}");
        assert_eq!(lines[0]["event"], "start", "{}", lines[0]);
        for line in &lines {
            check(line, "", &documented, &mut found);
            if line["event"] == "file" {
                let name = line["path"].as_str().expect("text").to_owned();
                let is_hashed = line["blake3"].is_string();
                states.push((
                    name,
                    line["state"].as_str().expect("text").to_owned(),
                    is_hashed,
                ));
                if line["path"] == "tree/b" && is_hashed {
                    let want = blake3::hash(&pattern(3_000_000)).to_hex();
                    assert_eq!(line["blake3"], want.as_str());
                }
            }
        }
    }
    let want = [
        ("tree/a", "arrived", true),
        ("tree/b", "arrived", true),
        ("tree/link", "arrived", false),
        ("meminfo", "failed", false),
        ("tree/a", "unchanged", false),
        ("tree/b", "unchanged", false),
        ("tree/link", "unchanged", false),
        ("meminfo", "failed", false),
    ];
    let want = want.map(|(path, state, hashed)| (path.to_owned(), state.to_owned(), hashed));
    assert_eq!(states, want);
    receiver.signal("INT");
    let received = receiver.end();
    let files = received
        .stdout
        .lines()
        .filter(|line| line.contains(r#""event":"file""#));
    assert_eq!(files.count(), 8, "{}", received.stdout);
    // A warning comes from the options of the receiver, and nothing is lost here.
    let documented: BTreeSet<_> = documented.into_keys().collect();
    let missing: Vec<_> = documented.difference(&found).map(String::as_str).collect();
    // The number of a transfer comes only where a receiver serves several at once.
    assert_eq!(missing, ["lines", "transfer"]);
}

/// The arguments of a short probe.
const PROBE: [&str; 6] = ["--time", "2s", "--max-rate", "50Mbit", "--trials", "1"];

/// Returns the fields that a command prints. All of them must be documented.
fn printed_by(
    command: &[&str],
    arguments: &[&str],
    documented: &BTreeMap<String, String>,
) -> BTreeSet<String> {
    let output = farwrite()
        .args(command)
        .args(arguments)
        .arg("--json")
        .output();
    let output = output.expect("the program starts");
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(object["command"], command.join(" "));
    let mut printed = BTreeSet::new();
    check(&object, "", documented, &mut printed);
    printed
}

/// The arguments of a plan for a ring of two sites.
fn ring_arguments(rig: &Rig) -> [String; 6] {
    let path = "ends = [\"a\", \"b\"]\nrate = \"1Gbit\"\nrtt = \"25ms\"\nloss_packet = 1e-3\n";
    let file = rig.path("sites.toml");
    std::fs::write(&file, format!("sites = [\"a\", \"b\"]\n[[path]]\n{path}")).expect("written");
    let file = file.to_str().expect("plain");
    let args = [
        "--collective",
        "ring-all-reduce",
        "--paths",
        file,
        "--size",
        "8MiB",
    ];
    args.map(str::to_owned)
}

/// Answers one probe.
fn probe_listener(there: &str, key_file: &str) -> Running {
    let mut listener = farwrite();
    let key = ["--psk-file", key_file];
    listener
        .args(["probe", "--once", "--listen", there])
        .args(key);
    Running::spawn(listener)
}

#[test]
fn fields_of_the_other_commands_are_those_that_are_printed() {
    let rig = Rig::new();
    rig.file("data", 300_000);
    let [data, parity, again, key, identity, out, trace] = [
        "data",
        "parity",
        "again",
        "new-key",
        "identity",
        "out",
        "demo.jsonl",
    ]
    .map(|name| rig.path(name).to_str().expect("plain").to_owned());
    let code = ["--code", "ec-mds:4,2"];
    let plan = [
        "--rate", "1Gbit", "--rtt", "25ms", "--loss", "1e-3", "--size", "8MiB",
    ];
    let ring = ring_arguments(&rig);
    let demo = [
        "--size", "64KiB", "--rtt", "2ms", "--rate", "200Mbit", "--out", &out, "--trace", &trace,
    ];
    let encode = ["--in", &data, "--out", &parity];
    let decode = [
        "--in", &data, "--parity", &parity, "--lost", "1", "--out", &again,
    ];
    let bench = ["--bytes", "1MiB", "--rounds", "1", "--code", "ec-xor:4,2"];
    let (there, key_file) = (free_port().to_string(), rig.key());
    let key_file = key_file.to_str().expect("plain");
    let listener = probe_listener(&there, key_file);
    let probe = [&["--psk-file", key_file][..], &PROBE].concat();
    // The number of the table, the command, and its arguments, in the order of the page.
    let commands: [(usize, &[&str], Vec<&str>); 15] = [
        (4, &["plan"], plan.to_vec()),
        (5, &["plan"], ring.iter().map(String::as_str).collect()),
        (7, &["probe"], [&[there.as_str()], &probe[..]].concat()),
        (8, &["demo"], [&demo[..], &["--scheme", "sr-nack"]].concat()),
        (11, &["keygen"], vec![]),
        (11, &["keygen"], vec![&key]),
        (11, &["keygen"], vec!["--identity", &identity]),
        (11, &["keygen"], vec!["--public", &identity]),
        (12, &["codes", "encode"], [&encode[..], &code].concat()),
        (12, &["codes", "decode"], [&decode[..], &code].concat()),
        (13, &["codes", "bench"], bench.to_vec()),
        (14, &["trace"], vec![&trace]),
        (15, &["completions"], vec!["bash"]),
        (15, &["man"], vec![&out]),
        (16, &["send"], vec!["--dry-run", &out]),
    ];
    let tables = tables();
    let mut found = BTreeSet::new();
    for (table, command, arguments) in &commands {
        let mut documented = BTreeMap::new();
        add(&mut documented, &tables[0], "");
        add(&mut documented, &tables[*table], "result.");
        let printed = printed_by(command, arguments, &documented);
        found.extend(printed.into_iter().map(|path| (*table, path)));
    }
    assert_eq!(listener.end().code, Some(0));
    for (number, table) in tables.iter().enumerate().skip(4) {
        if NOT_COMPARED.contains(&number) {
            continue;
        }
        for row in table {
            let path = format!("result.{}", row[0]);
            assert!(
                found.contains(&(number, path.clone())),
                "{path} is not printed"
            );
        }
    }
}

#[test]
fn example_has_documented_fields() {
    let start = PAGE.find("```json\n").expect("an example") + "```json\n".len();
    let end = start + PAGE[start..].find("```").expect("its end");
    for line in PAGE[start..end].lines() {
        let example = serde_json::from_str(line).expect("JSON on one line");
        check(&example, "", &documented(), &mut BTreeSet::new());
    }
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let output = farwrite()
        .arg("--help")
        .output()
        .expect("the program starts");
    let help = String::from_utf8(output.stdout).expect("text");
    let (_, help) = help
        .split_once("Exit codes:\n")
        .expect("a list of exit codes");
    let listed: Vec<_> = help
        .lines()
        .map_while(|line| line.trim().split_once(' '))
        .map(|(code, meaning)| (code.to_owned(), meaning.trim().to_owned()))
        .filter(|(code, _)| code != "0")
        .collect();
    let rows = &tables()[1];
    let documented: Vec<_> = rows
        .iter()
        .map(|row| (row[0].clone(), row[2].clone()))
        .collect();
    assert_eq!(listed, documented);
    let rig = Rig::new();
    let missing = rig.send(free_port(), &["--json"], &[Path::new("missing")]);
    let object = missing.end().json();
    let code = object["exit_code"].as_u64().expect("a code");
    let row = rows.iter().find(|row| row[0].parse() == Ok(code));
    let row = row.expect("a documented code");
    assert_eq!(object["error"]["kind"], row[1].as_str(), "{object}");
}
