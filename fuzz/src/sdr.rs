//! Targets of the SDR crate.

use farwrite_sdr::QpInfo;

/// Queue-pair information: what reads has a possible shape, and reads again from its own bytes.
pub fn qp_info(data: &[u8]) {
    let Ok(info) = QpInfo::decode(data) else {
        return;
    };
    info.config.validate().unwrap();
    let bytes = info.encode().unwrap();
    assert_eq!(bytes.len(), data.len());
    assert_eq!(QpInfo::decode(&bytes), Ok(info));
}
