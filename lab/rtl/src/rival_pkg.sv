// What a reliable receiver has beside xp_pkg. Both rivals serve WRITEs of reliable connections, with and without
// immediate, and keep only what their receiving half needs.
package rival_pkg;
  // An answer: the PSN that is acknowledged or missed, the number of executed messages, and for selective repeat the
  // packet that came after the gap.
  typedef struct packed {
    logic        valid;
    logic        is_nak;
    logic        is_error;      // the request is not valid, or its memory may not be written
    logic [23:0] psn;
    logic [23:0] msn;
    logic [23:0] after_gap;
  } answer_t;

  typedef struct packed {
    logic [1:0]  zero;
    logic        broken;
    logic        is_refusing;   // a NAK has named the gap
    logic [3:0]  mtu_log;
    logic [23:0] psn;           // expected
    logic [23:0] msn;
    logic [63:0] addr;          // of the next payload of the message that is coming in
    logic [31:0] rkey;
    logic [31:0] left_bytes;    // of that message; 0: none is coming in
  } gbn_t;

  localparam int WINDOW = 128;
  typedef struct packed {
    logic [7:0]        zero;
    logic              broken;
    logic [2:0]        zero2;
    logic [3:0]        mtu_log;
    logic [23:0]       psn;
    logic [23:0]       msn;
    logic [WINDOW-1:0] arrived;  // bit i: packet psn + i
    logic [WINDOW-1:0] ends;     // and it is the last one of a message
  } irn_t;
endpackage
