//! Targets of the SDR crate.

use std::net::SocketAddr;

use farwrite_sdr::{EndpointId, QpConfig, QpInfo, Timing};

/// Bytes of the only field that may be missing: what is written has it.
const OPTIONAL_FIELD_BYTES: usize = 14;

/// Queue-pair information. What can be read has a possible shape and timing. Written again, without the
/// fields that this version does not know, it reads the same.
pub fn qp_info(data: &[u8]) {
    let Ok(info) = QpInfo::decode(data) else {
        return;
    };
    info.config.validate().unwrap();
    info.timing.validate().unwrap();
    let bytes = info.encode().unwrap();
    assert!(bytes.len() <= data.len() + OPTIONAL_FIELD_BYTES);
    assert_eq!(QpInfo::decode(&bytes), Ok(info));
}

/// The same for valid information whose typed fields are `data`.
pub fn qp_info_fields(data: &[u8]) {
    let config = QpConfig::default();
    let address = SocketAddr::from(([192, 0, 2, 1], 4791));
    let good = QpInfo {
        control: address,
        channels: vec![address; config.channels.into()],
        control_qpn: 2,
        data_qpns: (0..u32::from(config.generations))
            .map(|generation| {
                let channels = 0..u32::from(config.channels);
                channels
                    .map(|channel| 3 + 256 * generation + channel)
                    .collect()
            })
            .collect(),
        config,
        control_key: [7; 32],
        timing: Timing::wide_area(),
        endpoint: EndpointId([9; 16]),
        grants_credit: false,
        answers_reads: true,
        reads_stale: true,
        seals: true,
        requires_sealing: false,
        has_aes: true,
        omits_icrc: true,
    };
    let mut bytes = good.encode().unwrap();
    let (channels, generations) = (config.channels, config.generations);
    let before_fields = 90 + 18 * usize::from(channels) + 4 * usize::from(generations * channels);
    bytes.truncate(before_fields);
    bytes.extend_from_slice(data);
    qp_info(&bytes);
}
