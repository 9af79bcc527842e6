// A RAM with one entry for each queue pair, for a pipeline that reads an entry in one stage, changes it in the next
// one, and writes it in the third. The RAM has a port that reads and one that writes. An event that follows another one
// of its queue pair after one or two cycles has read too early, so that it gets what the other one writes.
module xp_ctx #(
    parameter int WIDTH = 416,
    parameter int PAIRS = 1024,
    parameter int INDEX = $clog2(PAIRS)
) (
    input  logic             clk,
    input  logic [INDEX-1:0] read_at,
    output logic [WIDTH-1:0] entry,      // one cycle after `read_at`
    input  logic             write,      // one cycle after `entry`
    input  logic [INDEX-1:0] write_at,
    input  logic [WIDTH-1:0] write_entry
);
  logic [WIDTH-1:0] ram[PAIRS];
  logic [WIDTH-1:0] stored, old;
  logic [INDEX-1:0] at, old_at;
  logic             was_written;

  always_ff @(posedge clk) begin
    if (write) ram[write_at] <= write_entry;
    stored <= ram[read_at];
    at <= read_at;
    was_written <= write;
    old_at <= write_at;
    old <= write_entry;
  end

  always_comb begin
    entry = stored;
    // Written in the cycle of the read.
    if (was_written && old_at == at) entry = old;
    // Written in this cycle.
    if (write && write_at == at) entry = write_entry;
  end
endmodule
