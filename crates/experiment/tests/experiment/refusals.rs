//! Plans that are refused before they run.

use crate::plans::{FIRST, read};

/// A text of the first plan, its replacement, and the resulting error.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "hosts = 8",
        "hosts = \"8\"",
        "topology.rack: hosts = \"8\": invalid type",
    ),
    (
        "hosts = 8",
        "host = 8",
        "topology.rack: host = 8: unknown field `host`, expected",
    ),
    ("hosts = 8", "", "topology.rack: missing field `hosts`"),
    (
        "hosts = 8",
        "hosts = 0",
        "topology.rack: hosts = 0: 1 to 65536",
    ),
    (
        "star",
        "ring",
        "topology.rack: shape = \"ring\": unknown variant `ring`, expected",
    ),
    (
        "100Gbit",
        "fast",
        "topology.rack: cable.rate = \"fast\": not a rate",
    ),
    (
        "delay = \"1us\"",
        "delay = \"soon\"",
        "topology.rack: cable.delay = \"soon\": not a time",
    ),
    (
        "delay = \"1us\"",
        "delay = \"48h\"",
        "topology.rack: cable.delay = \"48h\": a delay is at most 1day",
    ),
    (
        "shape",
        "shappe",
        "topology.rack: shappe: unknown field `shappe`; missing field `shape`",
    ),
    (
        "pattern",
        "patern",
        "workload.incast: patern: unknown field `patern`; missing field `pattern`",
    ),
    (
        "[topology.rack]",
        "[switch.s]\necn = { kmin = \"few\", kmax = \"9kB\", pmax = 1 }\n[topology.rack]",
        "switch.s: ecn.kmin = \"few\": not a size",
    ),
    (
        "[topology.rack]",
        "[switch.s]\nbuffer = \"1kB\"\n[topology.rack]",
        "topology.rack with switch.s: the buffer of switch0 has 1000 bytes beside its headroom, and \
         cannot hold a frame of 4178 bytes of transport.roce; give it more",
    ),
    (
        "[topology.rack]",
        "[switch.s]\nbuffer = \"200kB\"\npfc = { priorities = [3], xoff = { alpha = 1 }, headroom = \"24999\" \
         }\n[topology.rack]",
        "topology.rack with switch.s: the buffer of switch0 has 8 bytes beside its headroom",
    ),
    (
        "senders = 7",
        "senders = 8",
        "workload.incast: senders = 8: 1 to 7 on this topology",
    ),
    (
        "50kB",
        "0",
        "workload.incast: size = \"0\": a message has at least 1 byte",
    ),
    (
        "50kB",
        "99EB",
        "workload.incast: size = \"99EB\": a number of bytes is at most 9223372036854775808",
    ),
    (
        "50kB",
        "9999TB",
        "workload.incast: flow 0 has 9999000000000000 bytes; a run that has no end takes at most",
    ),
    (
        "shape = \"star\"",
        "file = \"x\"",
        "topology.rack: cable: an entry with a file has no other",
    ),
    (
        "[topology.rack]",
        "seeds = 0\n[topology.rack]",
        "seeds: 0: 1 to 100000",
    ),
    (
        "[topology.rack]",
        "loss = [2]\n[topology.rack]",
        "loss: 2: a probability from 0 to 0.5",
    ),
    (
        "[topology.rack]",
        "loss = [0, 0.001, 0.001]\n[topology.rack]",
        "loss: [0, 0.001, 0.001]: 0.001 is in the list twice",
    ),
    (
        "[topology.rack]",
        "until = \"25h\"\n[topology.rack]",
        "line 2: a time of at most a day (86400s), in \"until = \\\"25h\\\"\"",
    ),
    (
        "[topology.rack]",
        "first_seed = 18446744073709551615\nseeds = 2\n[topology.rack]",
        "first_seed: 18446744073709551615: 2 seeds from it on exceed 64 bits",
    ),
    (
        "size = \"50kB\"",
        "size = \"50kB\"\nspacing = \"2000000000s\"",
        "workload.incast: flow 1 starts at",
    ),
    (
        "50kB",
        "50Mb",
        "workload.incast: size = \"50Mb\": Mb could mean bits, and sizes are in bytes",
    ),
    (
        "[topology.rack]",
        "[switch.s]\npfc = { priorities = [], xoff = { alpha = 1 } }\n[topology.rack]",
        "switch.s: switch pfc.priorities = []: at least one of 0 to 7, or no pfc",
    ),
    (
        "[topology.rack]",
        "[switch.s]\npfc = { priorities = [3], xoff = 5 }\n[topology.rack]",
        "switch.s: pfc.xoff = 5: ",
    ),
    (
        "[topology.rack]",
        "[switch.s]\nalpha = -1\n[topology.rack]",
        "switch.s: switch alpha = -1",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"tcp\"\n[topology.rack]",
        "transport.t: protocol = \"tcp\": choose one of roce",
    ),
    (
        "[topology.rack]",
        "transport = [\"tcp\"]\n[topology.rack]",
        "transport: protocol = \"tcp\": choose one of roce, roce-nocc, roce-lossy, irn, eqds, srnic, \
         falcon, uccl",
    ),
    (
        "[topology.rack]",
        "transport = \"irn\"\n[topology.rack]",
        "transport: \"irn\": write a list of protocols, such as",
    ),
    (
        "[topology.rack]",
        "transport = [\"irn\", \"irn\"]\n[topology.rack]",
        "transport: \"irn\" is in the list twice",
    ),
    (
        "size = \"50kB\"\n",
        "size = \"50kB\"\ntransport = [\"irn\"]\n",
        "workload.incast: transport = (array): unknown field `transport`, expected one of `senders`, \
         `receiver`, `size`, `spacing`; the key transport of a plan stands before its first table",
    ),
    (
        "pattern = \"incast\"\nsenders = 7\nsize = \"50kB\"\n",
        "pattern = \"mix\"\nparts = [\"incast\"]\n",
        "workload.incast: parts = (array): invalid type: string \"incast\", expected a table such as { pattern",
    ),
    (
        "pattern = \"incast\"\nsenders = 7\nsize = \"50kB\"\n",
        "pattern = \"flows\"\nflows = [{ src = \"host1\", dst = \"host2\", size = \"5kB\" }]\n",
        "workload.incast: flows[0]: invalid type: string \"host2\", expected a whole number",
    ),
    (
        "[topology.rack]",
        "[topology]",
        "topology.hosts: 8: entries have names; write [topology.NAME]",
    ),
    (
        "[workload.incast]",
        "[[topology.rack.boxes]]\nkind = \"netrt\"\nat = \"hosts\"\nbitmap_bits = 0\n[workload.incast]",
        "topology.rack: boxes[0]: bitmap_bits = 0: invalid value: integer `0`, expected a whole number from 1",
    ),
    (
        "size = \"50kB\"",
        "size = \"1.5B\"",
        "workload.incast: size = \"1.5B\": a number of bytes is whole",
    ),
    (
        "delay = \"1us\"",
        "delay = \"1us\", loss = { loss_packet = 0.9, burst = 1 }",
        "topology.rack: cable.loss: loss_packet = 0.9, burst = 1: with this loss, a mean burst has at least",
    ),
    (
        "[topology.rack]",
        "transport = [\"farwrite-ec-mds:0,8\"]\n[topology.rack]",
        "transport: protocol = \"farwrite-ec-mds:0,8\": (0,8): a code has at least 1 data chunk",
    ),
    (
        "[topology.rack]",
        "transport = []\n[topology.rack]",
        "transport: the list is empty",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce\"\nmtu = 5\n[topology.rack]",
        "transport.t: mtu = 5: choose 256, 512, 1024, 2048 or 4096",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce\"\nwindow = 0\n[topology.rack]",
        "transport.t: window = 0: 1 to 4194304",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce\"\nack_every = 0\n[topology.rack]",
        "transport.t: ack_every = 0: at least 1",
    ),
    (
        "[workload.incast]",
        "[[topology.rack.changes]]\nat = \"1us\"\ncable = [\"leaf0\", \"host1\"]\nstate = \"down\"\n\
         [workload.incast]",
        "topology.rack: changes[0]: cable: the topology has no node \"leaf0\"; it has switch0, host0 to host7",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"eqds\"\ndcqcn = \"ns3\"\n[topology.rack]",
        "transport.t: dcqcn: eqds has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack\"\nwindow = 7\n[topology.rack]",
        "transport.t: window: farwrite-sr-nack has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\nnak_every = \"4us\"\n[topology.rack]",
        "transport.t: nak_every: irn has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce-nocc\"\ngap_is_cnp = true\n[topology.rack]",
        "transport.t: gap_is_cnp: roce-nocc has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\nrate = \"1Gbit\"\n[topology.rack]",
        "transport.t: rate: irn has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack\"\nrate = \"fast\"\n[topology.rack]",
        "transport.t: rate = \"fast\": ",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack\"\nport = 0\n[topology.rack]",
        "transport.t: port = 0: a port is a number from 1 to 65535",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack\"\nport = 65536\n[topology.rack]",
        "transport.t: port = 65536: a port is a number from 1 to 65535",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ndcqcn = \"fast\"\n[topology.rack]",
        "transport.t: dcqcn = \"fast\": unknown variant `fast`, expected",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ndcqcn = { g = 0.3 }\n[topology.rack]",
        "transport.t: dcqcn.g = 0.3: a power of two from 2^-16 to 1, such as 0.00390625",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ndcqcn = { K = \"0us\" }\n[topology.rack]",
        "transport.t: dcqcn.K = \"0us\": a time above 0",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ndcqcn = { F = 5000 }\n[topology.rack]",
        "transport.t: dcqcn.F = 5000: a number of steps from 0 to 1000",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce\"\ndcqcn = { preset = \"paper\", R_AL = \"1Mbit\" }\n[topology.rack]",
        "transport.t: dcqcn.R_AL = \"1Mbit\": unknown field `R_AL`, expected one of `preset`, `g`, `K`",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"falcon\"\nswift = { max_mdf = 1.5 }\n[topology.rack]",
        "transport.t: swift.max_mdf = 1.5: a number from 0 to 0.999999",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"falcon\"\nswift = { fs_min_cwnd = 200 }\n[topology.rack]",
        "transport.t: swift.fs_min_cwnd = 200 is not below swift.fs_max_cwnd = 100",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce\"\nswift = { ai = 1 }\n[topology.rack]",
        "transport.t: swift: roce has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\ntimeout = \"1ms\"\nirn = { RTO_high = \"1ms\" }\n[topology.rack]",
        "transport.t: timeout and irn.RTO_high are the same setting: give one of them",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\nirn = { RTO_low = \"1ms\", RTO_high = \"500us\" }\n[topology.rack]",
        "transport.t: irn.RTO_low = 1ms is above RTO_high = 500us",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack@swift\"\neqds = { first_window = \"1kB\" }\n[topology.rack]",
        "transport.t: eqds: farwrite-sr-nack@swift has no such setting",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"eqds\"\neqds = { first_window = \"0B\" }\n[topology.rack]",
        "transport.t: eqds.first_window = \"0B\": at least 1 byte",
    ),
    (
        "hosts = 8",
        "hosts = 1",
        "topology.rack: hosts = 1: a workload needs at least 2 hosts",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"eqds\"\npaths = 0\n[topology.rack]",
        "transport.t: paths = 0: 1 to 16384",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"uccl\"\npaths = 16385\n[topology.rack]",
        "transport.t: paths = 16385: 1 to 16384",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"irn\"\npaths = 4\n[topology.rack]",
        "transport.t: paths: irn has no such setting; leave the key out",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"farwrite-sr-nack@eqds\"\npaths = 4\n[topology.rack]",
        "transport.t: paths: farwrite-sr-nack@eqds has no such setting; leave the key out",
    ),
    (
        "[topology.rack]",
        "[switch.s]\nbuffer = \"10kB\"\npfc = { priorities = [3], xoff = { alpha = 0.1 } }\n[topology.rack]",
        "topology.rack with switch.s: ",
    ),
    (
        "\"50kB\"",
        "50000",
        "workload.incast: size = 50000: invalid type: integer `50000`, expected text such as \"256MiB\"",
    ),
    (
        "\"100Gbit\"",
        "100",
        "topology.rack: cable.rate = 100: invalid type: integer `100`, expected text such as \"2Gbit\"",
    ),
    (
        "cable = { rate = \"100Gbit\", delay = \"1us\" }",
        "cable = \"100Gbit\"",
        "topology.rack: cable = \"100Gbit\": invalid type: string \"100Gbit\", expected a table such as \
         { rate = \"100Gbit\", delay = \"1us\" }",
    ),
    (
        "[topology.rack]",
        "[switch.s]\nrouting = \"spray\"\n[topology.rack]",
        "switch.s: routing = \"spray\": invalid type: string \"spray\", expected a table such as \
         { policy = \"spray\" }",
    ),
    (
        "[topology.rack]",
        "[switch.s]\npfc = true\n[topology.rack]",
        "switch.s: pfc = true: invalid type: boolean `true`, expected a table of priorities, xoff",
    ),
    (
        "[topology.rack]",
        "loss = \"1%\"\n[topology.rack]",
        "loss: \"1%\": write a list of probabilities, such as [0, 1e-4]",
    ),
    (
        "hosts = 8",
        "hosts = 8.5",
        "topology.rack: hosts = 8.5: invalid type: floating point `8.5`, expected a whole number from 0 on",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce\"\nretries = 900\n[topology.rack]",
        "transport.t: retries = 900: invalid value: integer `900`, expected a number from 0 to 255, or \"unlimited\"",
    ),
    (
        "[topology.rack]",
        "[transport.t]\nprotocol = \"roce\"\ntimeout = \"0us\"\n[topology.rack]",
        "transport.t: timeout = \"0us\": a time above 0",
    ),
    (
        "[topology.rack]",
        "[switch.s]\ntrim = { queue = \"4kB\", priority = 7 }\n[topology.rack]",
        "topology.rack with switch.s: trim.queue = 4000 cannot hold a frame of 4178 bytes of transport.roce; give it more",
    ),
    (
        "pattern = \"incast\"\nsenders = 7\nsize = \"50kB\"",
        "pattern = \"flows\"\nflows = [{ src = 0, dst = 1, size = \"1kB\", priority = 9 }]",
        "workload.incast: flow 0 has priority 9; a priority is 0 to 7",
    ),
    (
        "pattern = \"incast\"\nsenders = 7\nsize = \"50kB\"",
        "pattern = \"flows\"\nflows = [{ src = 0, dst = 1, size = \"1kB\" }, { src = 0, dst = 1, sise = \"1kB\" }]",
        "workload.incast: flows[1].sise = \"1kB\": unknown field `sise`",
    ),
    (
        "pattern = \"incast\"\nsenders = 7\nsize = \"50kB\"",
        "pattern = \"poisson\"\nload = 0.5\nsizes = \"websurch\"\nflows = 9",
        "workload.incast: sizes = \"websurch\": websearch, hadoop, a size such as 64kB, or the name of a file",
    ),
];

#[test]
fn errors_name_the_key_the_value_and_what_is_accepted() {
    let error = |from: &str, to: &str| {
        assert!(FIRST.contains(from), "{from}");
        read(&FIRST.replacen(from, to, 1)).unwrap_err()
    };
    for (from, to, want) in WRONG {
        let got = error(from, to);
        assert!(got.starts_with(want), "{got}\nand not {want}");
    }
    let list = "shape = \"list\"\nhosts = [\"a\", \"b\"]\ncables = [{ ends = [\"a\", \"c\"], rate = \"1Gbit\", \
                delay = \"1us\" }]";
    let star = "shape = \"star\"\nhosts = 8\ncable = { rate = \"100Gbit\", delay = \"1us\" }";
    for (from, to, want) in [
        (
            "",
            "",
            "topology.rack: cables[0]: ends: \"c\" is not in hosts or switches; add it there",
        ),
        (
            "\"c\"",
            "\"a\"",
            "topology.rack: cables[0]: ends: \"a\" is at both ends",
        ),
        (
            "1Gbit",
            "fast",
            "topology.rack: cables[0].rate = \"fast\": not a rate",
        ),
        (
            "delay",
            "delaay",
            "topology.rack: cables[0].delaay = \"1us\": unknown field `delaay`",
        ),
    ] {
        let got = error(star, &list.replacen(from, to, 1));
        assert!(got.starts_with(want), "{got}\nand not {want}");
    }
    let both = "transport = [\"roce\"]\n[transport.slow]\nprotocol = \"roce\"\n[topology.rack]";
    let both = error("[topology.rack]", both);
    let remedy = "; write transport as a list, or as tables [transport.NAME], not both";
    assert!(both.ends_with(remedy), "{both}");
    let unknown = error("[workload.incast]", "[workloads.incast]");
    assert!(unknown.contains("unknown field `workloads`"), "{unknown}");
    let seeds = read(&format!("seeds = \"many\"\n{FIRST}")).unwrap_err();
    assert!(
        seeds.contains("expected a whole number from 0 on"),
        "{seeds}"
    );
    let no_time = read(&format!("until = \"0us\"\n{FIRST}")).unwrap_err();
    assert!(no_time.contains("a time above 0"), "{no_time}");
    let (topology, workload) = FIRST.split_once("\n\n").unwrap();
    for (part, rest) in [("topology", workload), ("workload", topology)] {
        let want = format!("{part}: has no entries; add one as [{part}.NAME]");
        assert_eq!(read(rest).unwrap_err(), want);
    }
    let missing = read(&FIRST.replace(
        "[workload.incast]",
        "[workload.incast]\nfile = \"no.cm\"\n#",
    ));
    assert!(missing.unwrap_err().starts_with("workload.incast: "));
}

/// With a search that takes time with the square of the entries, this test takes some minutes.
#[test]
fn the_entry_at_fault_is_found_in_a_long_list() {
    let flow = |key: &str| format!("{{ src = 0, dst = 1, {key} = \"1kB\" }}");
    let flows = |wrong: usize, count: usize| {
        let flows = (0..count).map(|number| flow(if number == wrong { "sise" } else { "size" }));
        let flows = flows.collect::<Vec<_>>().join(",\n");
        let part = format!("pattern = \"flows\"\nflows = [{flows}]");
        FIRST.replace("pattern = \"incast\"\nsenders = 7\nsize = \"50kB\"", &part)
    };
    for (wrong, count) in [(0, 1), (0, 7), (3, 7), (6, 7), (12_345, 20_000)] {
        let got = read(&flows(wrong, count)).unwrap_err();
        let want = format!(
            "workload.incast: flows[{wrong}].sise = \"1kB\": unknown field `sise`, expected"
        );
        assert!(got.starts_with(&want), "{got}\nand not {want}");
    }
    let keys: String = (0..20_000)
        .map(|number| format!("a{number} = \"1kB\"\n"))
        .collect();
    let got = read(&FIRST.replace("pattern = \"incast\"", &keys)).unwrap_err();
    assert_eq!(got, "workload.incast: missing field `pattern`");
}

#[test]
fn plans_of_too_many_runs_are_refused() {
    let losses: Vec<_> = (1..=200).map(|number| format!("{number}e-6")).collect();
    let plan = format!("seeds = 100_000\nloss = [{}]\n{FIRST}", losses.join(", "));
    let got = read(&plan).unwrap_err();
    assert!(
        got.starts_with("runs: 20000000 (1 topologies, 1 workloads, "),
        "{got}"
    );
    assert!(
        got.ends_with("200 losses, 100000 seeds): a plan has at most 1000000"),
        "{got}"
    );
}
