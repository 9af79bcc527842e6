//! The programs in `tests/c/` call each function with each wrong argument.

use std::collections::{BTreeMap, BTreeSet};

const HEADERS: [&str; 3] = [
    include_str!("../../include/sdr.h"),
    include_str!("../../include/sdr_mr.h"),
    include_str!("../../include/farwrite.h"),
];
const PROGRAMS: [&str; 2] = [
    include_str!("../c/misuse.c"),
    include_str!("../c/misuse_connections.c"),
];

/// Pointers that may be NULL.
const OPTIONAL: [&str; 10] = [
    "sdr_context_create dev_name",
    "sdr_send_poll status",
    "farwrite_connect peer",
    "farwrite_qp_accept name",
    "farwrite_send attr",
    "farwrite_recv attr",
    "farwrite_wait result",
    "farwrite_bitmap num_bytes",
    "farwrite_bitmap chunk_bytes",
    "farwrite_stream_accept name",
];

/// What lies between parentheses that `text` begins with, divided at commas outside of inner parentheses.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in text.chars() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            _ => {}
        }
        match c {
            _ if depth == 0 => break,
            '(' if depth == 1 => {}
            ',' if depth == 1 => parts.push(String::new()),
            c => parts.last_mut().expect("never empty").push(c),
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

/// The functions of the headers, and their parameters.
fn functions() -> BTreeMap<String, Vec<String>> {
    let text = HEADERS.concat();
    let code: String = text
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    let opened = code.match_indices('(');
    let declared = opened.filter_map(|(at, _)| {
        let name = code[..at].rsplit([' ', '*', '\n']).next()?;
        let is_function = name.starts_with("sdr_") || name.starts_with("farwrite_");
        is_function.then(|| (name.to_owned(), arguments(&code[at..])))
    });
    declared.collect()
}

/// The arguments of all calls that must fail, by function.
fn failing_calls() -> BTreeMap<String, Vec<Vec<String>>> {
    let mut calls: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let text = PROGRAMS.concat();
    for start in ["FAILS(", "CHECK(!"] {
        for (at, _) in text.match_indices(start) {
            let call = &text[at + start.len()..];
            let Some((name, _)) = call.split_once('(') else {
                continue;
            };
            let found = arguments(&call[name.len()..]);
            calls.entry(name.to_owned()).or_default().push(found);
        }
    }
    calls
}

#[test]
fn each_function_is_called_with_each_wrong_argument() {
    let (functions, calls) = (functions(), failing_calls());
    assert!(functions.len() > 40, "{functions:?}");
    let (mut missing, mut optional) = (Vec::new(), BTreeSet::from(OPTIONAL));
    for (name, parameters) in &functions {
        // `(void)`.
        if parameters == &["void"] {
            continue;
        }
        let of_function = calls.get(name).map_or(&[][..], Vec::as_slice);
        for (at, parameter) in parameters.iter().enumerate() {
            let Some((_, parameter)) = parameter.rsplit_once('*') else {
                continue;
            };
            let what = format!("{name} {parameter}");
            let is_null = |call: &Vec<String>| call.get(at).is_some_and(|value| value == "NULL");
            if !optional.remove(what.as_str()) && !of_function.iter().any(is_null) {
                missing.push(format!("{what} = NULL"));
            }
        }
        // A handle that was destroyed, is of another kind, or is no handle at all.
        let is_handle = parameters[0].starts_with("struct ")
            && !parameters[0].contains("_attr")
            && !parameters[0].contains("keys");
        let is_other = |call: &Vec<String>| call[0] != "NULL";
        if is_handle && !of_function.iter().any(is_other) {
            missing.push(format!("{name} with a wrong handle"));
        }
    }
    assert!(missing.is_empty(), "no call must fail for: {missing:#?}");
    assert!(optional.is_empty(), "no such parameters: {optional:?}");
}
