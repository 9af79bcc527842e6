// The regions of memory that peers may write, by key: entry `key % KEYS` has the whole key beside it. A write that
// comes while an entry is read counts for the next event.
module xp_keys #(
    parameter int KEYS = 64
) (
    input  logic            clk,
    input  logic [31:0]     key,
    output xp_pkg::region_t region,      // one cycle after `key`
    input  logic            write,
    input  xp_pkg::region_t write_region
);
  localparam int INDEX = $clog2(KEYS);
  // Yosys 0.70 takes an array of a struct of a package for one struct, so this is one of bits.
  logic [xp_pkg::REGION_BITS-1:0] regions[KEYS];

  initial for (int i = 0; i < KEYS; i++) regions[i] = '0;

  always_ff @(posedge clk) begin
    if (write) regions[write_region.key[INDEX-1:0]] <= write_region;
    region <= regions[key[INDEX-1:0]];
  end
endmodule
