// xp_nic with five pins, for place and route: a shift register brings all of its inputs, and another one takes all of
// its outputs away. So each path of xp_nic begins and ends at a register, and no path reaches the edge of the device.
module xp_route #(
    parameter int PAIRS = 1024
) (
    input  logic clk,
    input  logic rst,
    input  logic shift_in,
    input  logic load,
    output logic shift_out
);
  localparam int INDEX = $clog2(PAIRS);

  typedef struct packed {
    logic [63:0]     now_ns;
    logic [31:0]     now_us;
    logic [31:0]     line_kbps;
    logic            rx_valid;
    logic            rx_first;
    logic [511:0]    rx_beat;
    xp_pkg::kind_t   host_kind;
    logic [23:0]     host_qpn;
    logic [23:0]     host_seq;
    logic [63:0]     host_addr;
    logic [31:0]     host_rkey;
    logic [31:0]     host_bytes;
    logic [31:0]     host_imm;
    logic [63:0]     host_deadline;
    logic            scans;
    logic            region_write;
    xp_pkg::region_t region_entry;
  } inputs_t;

  typedef struct packed {
    logic                            rx_ready;
    logic                            host_ready;
    xp_pkg::kind_t                   kind;
    logic [INDEX-1:0]                qpn;
    logic [xp_pkg::CONTEXT_BITS-1:0] context_;
    logic [63:0]                     deadline;
    xp_pkg::outcome_t                outcome;
    xp_pkg::write_t                  write;
    xp_pkg::received_t               received;
    xp_pkg::transmit_t               transmit;
    xp_pkg::sent_t                   sent;
  } outputs_t;

  inputs_t  in;
  outputs_t now, out;
  logic     reset, loads;

  xp_nic #(.PAIRS(PAIRS)) nic (
      .clk, .rst(reset), .now_ns(in.now_ns), .now_us(in.now_us), .line_kbps(in.line_kbps),
      .rx_valid(in.rx_valid), .rx_first(in.rx_first), .rx_beat(in.rx_beat), .rx_ready(now.rx_ready),
      .host_kind(in.host_kind), .host_qpn(in.host_qpn), .host_seq(in.host_seq), .host_addr(in.host_addr),
      .host_rkey(in.host_rkey), .host_bytes(in.host_bytes), .host_imm(in.host_imm),
      .host_deadline(in.host_deadline), .host_ready(now.host_ready), .scans(in.scans),
      .region_write(in.region_write), .region_entry(in.region_entry),
      .out_kind(now.kind), .out_qpn(now.qpn), .out_context(now.context_), .out_deadline(now.deadline),
      .out_outcome(now.outcome), .out_write(now.write), .out_received(now.received),
      .out_transmit(now.transmit), .out_sent(now.sent));

  always_ff @(posedge clk) begin
    reset <= rst;
    loads <= load;
    in <= {in[$bits(in)-2:0], shift_in};
    out <= loads ? now : {1'b0, out[$bits(out)-1:1]};
    shift_out <= out[0];
  end
endmodule
