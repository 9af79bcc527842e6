//! The tables in memory: `tests/layout.txt` has the size of each struct of the public header, and the offset of each
//! member. The following command compares the file with the headers of all versions in FOLDER, such as
//! `plugins/net/example/nccl` of NCCL's sources:
//! `FARWRITE_NCCL_HEADERS=FOLDER cargo test -p farwrite-nccl --test nccl headers -- --ignored`

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;
use std::process::Command;

use nccl_net_farwrite::abi::{v8, v9, v10, v11, v12};

use crate::{folder, lines, run};

/// A struct of the header, its size, and the offsets of its members.
struct Layout {
    name: String,
    size: usize,
    members: Vec<(String, usize)>,
}

macro_rules! layout {
    ($type:path, $name:literal, $($member:ident)*) => {
        Layout {
            name: $name.to_owned(),
            size: size_of::<$type>(),
            members: vec![$((camel(stringify!($member)), offset_of!($type, $member)),)*],
        }
    };
}

/// A name as the header has it.
fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (first, rest) = part.split_at(1);
        text += &first.to_uppercase();
        text += rest;
    }
    text
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!(v8::Properties, "ncclNetProperties_v8_t", name pci_path guid ptr_support reg_is_global speed port latency
            max_comms max_recvs net_device_type net_device_version),
        layout!(v8::Net, "ncclNet_v8_t", name init devices get_properties listen connect accept reg_mr reg_mr_dma_buf
            dereg_mr isend irecv iflush test close_send close_recv close_listen get_device_mr irecv_consumed),
        layout!(v9::VirtualDevice, "ncclNetVDeviceProps_v9_t", ndevs devs),
        layout!(v9::Properties, "ncclNetProperties_v9_t", name pci_path guid ptr_support reg_is_global force_flush speed
            port latency max_comms max_recvs net_device_type net_device_version v_props max_p2p_bytes max_coll_bytes),
        layout!(v9::Net, "ncclNet_v9_t", name init devices get_properties listen connect accept reg_mr reg_mr_dma_buf
            dereg_mr isend irecv iflush test close_send close_recv close_listen get_device_mr irecv_consumed
            make_v_device),
        layout!(v10::VirtualDevice, "ncclNetVDeviceProps_v10_t", ndevs devs),
        layout!(v10::CommConfig, "ncclNetCommConfig_v10_t", traffic_class),
        layout!(v10::Properties, "ncclNetProperties_v10_t", name pci_path guid ptr_support reg_is_global force_flush
            speed port latency max_comms max_recvs net_device_type net_device_version v_props max_p2p_bytes
            max_coll_bytes),
        layout!(v10::Net, "ncclNet_v10_t", name init devices get_properties listen connect accept reg_mr reg_mr_dma_buf
            dereg_mr isend irecv iflush test close_send close_recv close_listen get_device_mr irecv_consumed
            make_v_device),
        layout!(v11::VirtualDevice, "ncclNetVDeviceProps_v11_t", ndevs devs),
        layout!(v11::CommConfig, "ncclNetCommConfig_v11_t", traffic_class),
        layout!(v11::CommAttributes, "ncclNetCommAttr_v11_t", max_concurrent_peers min_concurrent_peers
            max_flows_per_peer min_flows_per_peer),
        layout!(v11::Attributes, "ncclNetAttr_v11_t", send_comm_attr recv_comm_attr op algo proto),
        layout!(v11::Properties, "ncclNetProperties_v11_t", name pci_path guid ptr_support reg_is_global force_flush
            speed port latency max_comms max_recvs net_device_type net_device_version v_props max_p2p_bytes
            max_coll_bytes max_multi_request_size),
        layout!(v11::Net, "ncclNet_v11_t", name init devices get_properties listen connect accept reg_mr reg_mr_dma_buf
            dereg_mr isend irecv iflush test close_send close_recv close_listen get_device_mr irecv_consumed
            make_v_device finalize set_net_attr),
        layout!(v12::VirtualDevice, "ncclNetVDeviceProps_v12_t", ndevs devs),
        layout!(v12::CommConfig, "ncclNetCommConfig_v12_t", traffic_class),
        layout!(v12::CommAttributes, "ncclNetCommAttr_v12_t", max_concurrent_peers min_concurrent_peers
            max_flows_per_peer min_flows_per_peer),
        layout!(v12::Attributes, "ncclNetAttr_v12_t", send_comm_attr recv_comm_attr op algo proto),
        layout!(v12::Properties, "ncclNetProperties_v12_t", name pci_path guid ptr_support reg_is_global force_flush
            speed port latency max_comms max_recvs net_device_type net_device_version v_props max_p2p_bytes
            max_coll_bytes max_multi_request_size rail_id plane_id),
        layout!(v12::Net, "ncclNet_v12_t", name init devices get_properties listen connect accept reg_mr reg_mr_dma_buf
            dereg_mr isend irecv iflush test close_send close_recv close_listen get_device_mr irecv_consumed
            make_v_device finalize set_net_attr),
    ]
}

#[test]
fn the_tables_have_the_layout_of_the_header() {
    let ours = layouts().into_iter().flat_map(|layout| {
        let size = format!("{} {}", layout.name, layout.size);
        let member = |(member, offset)| format!("{}.{member} {offset}", layout.name);
        let members: Vec<_> = layout.members.into_iter().map(member).collect();
        [size].into_iter().chain(members)
    });
    assert_eq!(ours.collect::<Vec<_>>(), lines("tests/layout.txt"));
}

#[test]
#[ignore = "needs the public headers of NCCL: FARWRITE_NCCL_HEADERS=FOLDER"]
fn headers_have_the_layout_of_the_file() {
    let headers = env::var("FARWRITE_NCCL_HEADERS").expect("FARWRITE_NCCL_HEADERS=FOLDER");
    let mut source =
        "#include <stddef.h>\n#include <stdio.h>\n#include \"net.h\"\nint main(void) {\n"
            .to_owned();
    for Layout { name, members, .. } in layouts() {
        let size = format!("printf(\"{name} %zu\\n\", sizeof({name}));");
        writeln!(source, "{size}").expect("memory");
        for (member, _) in members {
            let offset = format!("printf(\"{name}.{member} %zu\\n\", offsetof({name}, {member}));");
            writeln!(source, "{offset}").expect("memory");
        }
    }
    source += "}\n";
    let (file, program) = (folder().join("layout.c"), folder().join("layout"));
    fs::write(&file, source).expect("a file");
    run(Command::new("cc")
        .args(["-I", &headers])
        .arg(&file)
        .arg("-o")
        .arg(&program));
    let text = run(&mut Command::new(program));
    let theirs: Vec<_> = text.lines().map(str::to_owned).collect();
    assert_eq!(theirs, lines("tests/layout.txt"), "{text}");
}
