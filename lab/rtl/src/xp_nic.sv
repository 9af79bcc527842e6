// All parts: one event enters in a cycle, in the order of xp_dcqcn's results, packets, the host, the scan of timers.
//
//   cycle 0   the event enters: context, deadline and region are read
//   cycle 1   xp_rx and xp_tx compute; xp_dcqcn starts
//   cycle 2   context and deadline are written; what the event did is at the outputs
//
// An event that needs xp_dcqcn waits until it is free; other packets do not.
module xp_nic #(
    parameter int PAIRS = 1024,
    parameter int KEYS = 64,
    parameter int CTX_BYTES = 52,
    parameter int INDEX = $clog2(PAIRS)
) (
    input  logic        clk,
    input  logic        rst,
    input  logic [63:0] now_ns,
    input  logic [31:0] now_us,
    input  logic [31:0] line_kbps,
    // Packets whose ICRC holds: their first beats.
    input  logic         rx_valid,
    input  logic         rx_first,
    input  logic [511:0] rx_beat,
    output logic         rx_ready,
    // The host, and whoever schedules its sends.
    input  xp_pkg::kind_t   host_kind,
    input  logic [23:0]     host_qpn,
    input  logic [23:0]     host_seq,
    input  logic [63:0]     host_addr,
    input  logic [31:0]     host_rkey,
    input  logic [31:0]     host_bytes,
    input  logic [31:0]     host_imm,
    input  logic [63:0]     host_deadline,
    output logic            host_ready,
    input  logic            scans,
    input  logic            region_write,
    input  xp_pkg::region_t region_entry,
    // What an event did.
    output xp_pkg::kind_t                   out_kind,
    output logic [INDEX-1:0]                out_qpn,
    output logic [xp_pkg::CONTEXT_BITS-1:0] out_context,
    output logic [63:0]                     out_deadline,
    output xp_pkg::outcome_t                out_outcome,
    output xp_pkg::write_t                  out_write,
    output xp_pkg::received_t               out_received,
    output xp_pkg::transmit_t               out_transmit,
    output xp_pkg::sent_t                   out_sent
);
  localparam int WIDTH = 8 * CTX_BYTES;

  // Cycle 0: which event enters.
  xp_pkg::event_t   packet, ev, ev1;
  logic             packet_found, packet_taken, host_taken, scanned, job_done, job_taken, job_busy, job_starts;
  logic [INDEX-1:0] scan_at, job_qpn;
  logic             job_may_start;

  xp_headers #(.PAIRS(PAIRS)) headers (
      .clk, .rst, .now_ns, .now_us, .valid(rx_valid), .first(rx_first), .beat(rx_beat), .ready(rx_ready),
      .found(packet_found), .header(packet), .taken(packet_taken));

  function automatic logic needs_job(input xp_pkg::kind_t kind);
    needs_job = kind == xp_pkg::SEND || kind == xp_pkg::SCAN;
  endfunction

  always_comb begin
    // An event of cycle 1 may start a job.
    job_may_start = !job_busy && !(needs_job(ev1.kind) || (ev1.kind == xp_pkg::PACKET && ev1.is_notification));
    packet_taken = packet_found && !job_done && (job_may_start || !packet.is_notification);
    host_taken = host_kind != xp_pkg::NOTHING && !job_done && !packet_found && (job_may_start || !needs_job(host_kind));
    host_ready = host_taken;
    scanned = scans && !job_done && !packet_found && host_kind == xp_pkg::NOTHING && job_may_start;
    job_taken = job_done;

    ev = packet;
    if (!packet_taken) begin
      ev.kind = host_taken ? host_kind : xp_pkg::NOTHING;
      ev.now_ns = now_ns;
      ev.now_us = now_us;
      ev.qpn = host_qpn;
      ev.seq = host_seq;
      ev.addr = host_addr;
      ev.rkey = host_rkey;
      ev.bytes = host_bytes;
      ev.imm = host_imm;
      ev.deadline = host_deadline;
      ev.is_notification = 1'b0;
    end
    if (scanned) begin
      ev.kind = xp_pkg::SCAN;
      ev.qpn = 24'(scan_at);
    end
    if (job_taken) begin
      ev.kind = xp_pkg::RATE;
      ev.qpn = 24'(job_qpn);
    end
  end

  // Cycle 1.
  logic [WIDTH-1:0]  entry, new_entry, entry2;
  logic [63:0]       deadline, new_deadline;
  xp_pkg::region_t   region;
  xp_pkg::context_t  old, after;
  xp_pkg::outcome_t  outcome;
  xp_pkg::write_t    write;
  xp_pkg::received_t received;
  xp_pkg::transmit_t transmit;
  xp_pkg::sent_t     sent;
  logic [15:0]       wire_bytes;
  logic              rx_notifies, timer_is_over;
  logic [31:0]       over_us;
  logic [23:0]       rx_expected, tx_sending;
  logic [7:0]        rx_receives, tx_sends;
  logic [31:0]       rx_placed_bytes, tx_sent_bytes;
  logic [63:0]       rx_deadline;
  xp_pkg::dcqcn_t    job_after, job_result;
  logic              is_written;

  always_ff @(posedge clk) begin
    ev1 <= ev;
    job_result <= job_after;
    if (rst) ev1.kind <= xp_pkg::NOTHING;
  end

  xp_ctx #(.WIDTH(WIDTH), .PAIRS(PAIRS)) contexts (
      .clk, .read_at(ev.qpn[INDEX-1:0]), .entry,
      .write(is_written), .write_at(out_qpn), .write_entry(entry2));

  xp_timer #(.PAIRS(PAIRS)) timer (
      .clk, .rst, .read_at(ev.qpn[INDEX-1:0]), .deadline,
      .write(is_written), .write_at(out_qpn), .write_deadline(out_deadline), .scan_at, .scanned);

  xp_keys #(.KEYS(KEYS)) keys (
      .clk, .key(ev.rkey), .region, .write(region_write), .write_region(region_entry));

  xp_rx rx (
      .ev(ev1), .old, .deadline, .region, .expected(rx_expected), .receives(rx_receives),
      .placed_bytes(rx_placed_bytes), .notifies(rx_notifies), .next_deadline(rx_deadline), .outcome, .write, .received);

  xp_tx tx (
      .ev(ev1), .old, .sending(tx_sending), .sends(tx_sends), .sent_bytes(tx_sent_bytes), .transmit, .wire_bytes,
      .sent);

  xp_dcqcn dcqcn (
      .clk, .rst, .line_kbps, .start(job_starts), .is_sent(ev1.kind == xp_pkg::SEND),
      .is_notification(ev1.kind == xp_pkg::PACKET), .bytes(wire_bytes), .now_ns(ev1.now_ns), .now_us(ev1.now_us),
      .old(old.dcqcn), .busy(job_busy), .done(job_done), .after(job_after), .taken(job_taken));

  always_comb begin
    old = entry[xp_pkg::CONTEXT_BITS-1:0];
    over_us = ev1.now_us - old.dcqcn.increase_us;
    timer_is_over = old.dcqcn.counters.runs && !over_us[31];
    job_starts = (ev1.kind == xp_pkg::SEND && transmit.valid) || (ev1.kind == xp_pkg::PACKET && ev1.is_notification)
        || (ev1.kind == xp_pkg::SCAN && timer_is_over);

    after = old;
    after.expected = rx_expected;
    after.receives = rx_receives;
    after.placed_bytes = rx_placed_bytes;
    after.notifies = rx_notifies && ev1.kind != xp_pkg::NOTIFY;
    after.sending = tx_sending;
    after.sends = tx_sends;
    after.sent_bytes = tx_sent_bytes;
    new_deadline = rx_deadline;
    if (ev1.kind == xp_pkg::RATE) after.dcqcn = job_result;
    if (ev1.kind == xp_pkg::CREATE) begin
      after = '0;
      after.peer_qpn = ev1.seq;
      after.mtu_log = ev1.bytes[3:0];
      after.sending = ev1.imm[23:0];
      after.expected = ev1.imm[23:0];
      after.dcqcn.rate_kbps = line_kbps;
      after.dcqcn.target_kbps = line_kbps;
      after.dcqcn.alpha = 32'h8000_0000;
      new_deadline = xp_pkg::NEVER;
    end
    new_entry = entry;
    new_entry[xp_pkg::CONTEXT_BITS-1:0] = after;
  end

  // Cycle 2.
  always_ff @(posedge clk) begin
    out_kind <= rst ? xp_pkg::NOTHING : ev1.kind;
    out_qpn <= ev1.qpn[INDEX-1:0];
    entry2 <= new_entry;
    out_deadline <= new_deadline;
    out_outcome <= outcome;
    out_write <= write;
    out_received <= received;
    out_transmit <= transmit;
    out_sent <= sent;
    if (job_starts) job_qpn <= ev1.qpn[INDEX-1:0];
  end
  assign is_written = out_kind != xp_pkg::NOTHING;
  assign out_context = entry2[xp_pkg::CONTEXT_BITS-1:0];
endmodule
