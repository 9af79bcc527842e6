//! `sdr.h`: the interface of the SDR paper (Table 1), in the form in which its authors published it.
#![allow(unsafe_code, non_camel_case_types, clippy::upper_case_acronyms)]

use std::ffi::{c_int, c_void};

use crate::context::Context;
use crate::failure::Failure;
use crate::ffi::{CEnum, In, Out, Text, c_header};
use crate::info::INFO_BYTES;
use crate::messages::{Receive, Send};
use crate::queue_pair::Pair;
use crate::table::{self, named, number};

fn immediate(opcode: u32, value: u32) -> Result<Option<u32>, Failure> {
    match opcode {
        0 => Ok(None),
        1 => Ok(Some(value)),
        other => Err(Failure::new(format!(
            "opcode = {other}: not a value of enum sdr_wr_opcode"
        ))),
    }
}

fn chunk(remote_offset: u64) -> Result<u32, Failure> {
    u32::try_from(remote_offset).map_err(|_| {
        Failure::new(format!(
            "remote_offset = {remote_offset}: it is a number of bitmap chunks, and too large"
        ))
    })
}

c_header! {
    opaque sdr_context;
    opaque sdr_qp;
    opaque sdr_send_handle;
    opaque sdr_recv_handle;
    opaque sdr_mr;

    enum sdr_errcode { SDR_SUCCESS, SDR_ERROR, SDR_RETRY }
    enum sdr_mtu {
        SDR_MTU_64,
        SDR_MTU_128,
        SDR_MTU_256,
        SDR_MTU_512,
        SDR_MTU_1024,
        SDR_MTU_2048,
        SDR_MTU_4096,
    }
    enum sdr_wr_opcode { SDR_WR_WRITE, SDR_WR_WRITE_WITH_IMM }
    enum sdr_access_flags { SDR_ACCESS_REMOTE_WRITE }

    struct sdr_dev_attr {
        num_channels: u32,
        log_max_qps: u32,
    }
    struct sdr_qp_attr {
        bitmap_chunk_size_log_bytes: u32,
        max_in_flight_log_bytes: usize,
        max_log_num_msgs: u32,
        mtu: CEnum<sdr_mtu>,
        send_enable: u8,
        recv_enable: u8,
        rate_limit: u32,
    }
    struct sdr_send_wr {
        opcode: CEnum<sdr_wr_opcode>,
        imm_value: u32,
        length: u32,
        lkey: u32,
        local_addr: u64,
        remote_offset: u64,
    }
    struct sdr_send_start_wr {
        opcode: CEnum<sdr_wr_opcode>,
        imm_value: u32,
    }
    struct sdr_send_continue_wr {
        length: u32,
        local_addr: u64,
        lkey: u32,
        remote_offset: u64,
    }
    struct sdr_recv_wr {
        max_length: u32,
        lkey: u32,
        address: u64,
    }
    struct sdr_send_status {
        flags: u32,
    }

    fn sdr_context_create(dev_name: Text, attr: In<sdr_dev_attr>) -> *mut sdr_context {
        let attr = attr.read("attr")?;
        let context = Context::new(dev_name.read_if_any().as_deref(), attr.num_channels)?;
        table::publish(context)
    }
    fn sdr_context_destroy(ctx: *mut sdr_context) -> c_int {
        table::find::<Context>(number(ctx))?.check_unused()?;
        table::remove::<Context>(number(ctx)).map(drop)
    }
    fn sdr_qp_create(ctx: *mut sdr_context, attr: In<sdr_qp_attr>) -> *mut sdr_qp {
        let context = table::find::<Context>(number(ctx))?;
        let pair = Pair::new(&context, &attr.read("attr")?)?;
        table::publish(pair)
    }
    fn sdr_qp_destroy(qp: *mut sdr_qp) -> c_int {
        table::remove::<Pair>(number(qp))?.destroy()
    }
    fn sdr_qp_info_size_get(qp: *mut sdr_qp, size: Out<usize>) -> c_int {
        size.check("size")?;
        table::find::<Pair>(number(qp))?;
        size.write(INFO_BYTES);
        Ok(())
    }
    fn sdr_qp_info_get(qp: *mut sdr_qp, info: Out<c_void>) -> c_int {
        let blob = table::find::<Pair>(number(qp))?.info()?;
        info.write_bytes(&blob, "info")
    }
    fn sdr_qp_connect(qp: *mut sdr_qp, remote_info: In<c_void>) -> c_int {
        let pair = table::find::<Pair>(number(qp))?;
        pair.connect(&remote_info.bytes(INFO_BYTES, "remote_info")?)
    }
    fn sdr_recv_post(
        qp: *mut sdr_qp,
        wr: In<sdr_recv_wr>,
        handle: Out<*mut sdr_recv_handle>,
    ) -> c_int {
        handle.check("handle")?;
        let pair = table::find::<Pair>(number(qp))?;
        let wr = wr.read("wr")?;
        let target = pair.slice(wr.lkey, wr.address, wr.max_length)?;
        let posted = pair.post_recv(target)?;
        let receive = Receive::new(&pair, posted, wr.max_length.into());
        handle.write(named(pair.name_receive(receive)?));
        Ok(())
    }
    fn sdr_recv_bitmap_get(
        handle: *mut sdr_recv_handle,
        bitmap: Out<*mut u8>,
        num_bytes: Out<usize>,
    ) -> c_int {
        bitmap.check("bitmap")?;
        num_bytes.check("num_bytes")?;
        let (bits, bytes) = table::find::<Receive>(number(handle))?.bitmap()?;
        bitmap.write(bits);
        num_bytes.write(bytes);
        Ok(())
    }
    fn sdr_recv_bitmap_chunk_expand(
        handle: *mut sdr_recv_handle,
        chunk: u32,
        bitmap: Out<u64>,
    ) -> c_int {
        let words = table::find::<Receive>(number(handle))?.packets(chunk)?;
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        bitmap.write_bytes(&bytes, "bitmap")
    }
    fn sdr_recv_imm_get(handle: *mut sdr_recv_handle, imm: Out<u32>) -> c_int {
        imm.check("imm")?;
        imm.write(table::find::<Receive>(number(handle))?.immediate()?);
        Ok(())
    }
    fn sdr_recv_complete(handle: *mut sdr_recv_handle) -> c_int {
        let receive = table::find::<Receive>(number(handle))?;
        receive.complete()?;
        receive.pair.forget_receive(number(handle));
        table::remove::<Receive>(number(handle)).map(drop)
    }
    fn sdr_send_post(
        qp: *mut sdr_qp,
        wr: In<sdr_send_wr>,
        handle: Out<*mut sdr_send_handle>,
    ) -> c_int {
        handle.check("handle")?;
        let pair = table::find::<Pair>(number(qp))?;
        let wr = wr.read("wr")?;
        let immediate = immediate(wr.opcode.value(), wr.imm_value)?;
        let first_chunk = chunk(wr.remote_offset)?;
        let source = pair.slice(wr.lkey, wr.local_addr, wr.length)?;
        let posted = pair.post_send(source, first_chunk, immediate)?;
        let send = Send::new(&pair, posted, false);
        handle.write(named(pair.name_send(send)?));
        Ok(())
    }
    fn sdr_streaming_send_start(
        qp: *mut sdr_qp,
        wr: In<sdr_send_start_wr>,
        handle: Out<*mut sdr_send_handle>,
    ) -> c_int {
        handle.check("handle")?;
        let pair = table::find::<Pair>(number(qp))?;
        let wr = wr.read("wr")?;
        let started = pair.start_stream(immediate(wr.opcode.value(), wr.imm_value)?)?;
        let send = Send::new(&pair, started, true);
        handle.write(named(pair.name_send(send)?));
        Ok(())
    }
    fn sdr_streaming_send_continue(
        handle: *mut sdr_send_handle,
        wr: In<sdr_send_continue_wr>,
    ) -> c_int {
        let send = table::find::<Send>(number(handle))?;
        let wr = wr.read("wr")?;
        let source = send.pair.slice(wr.lkey, wr.local_addr, wr.length)?;
        send.add(source, chunk(wr.remote_offset)?)
    }
    fn sdr_streaming_send_end(handle: *mut sdr_send_handle) -> c_int {
        table::find::<Send>(number(handle))?.end()
    }
    fn sdr_send_poll(
        handle: *mut sdr_send_handle,
        completed: Out<c_int>,
        status: Out<sdr_send_status>,
    ) -> c_int {
        completed.check("completed")?;
        // Also if the call fails: a program may look at nothing else.
        completed.write(0);
        let flags = table::find::<Send>(number(handle))?.poll()?;
        completed.write(1);
        status.write(sdr_send_status { flags });
        Ok(())
    }
}
