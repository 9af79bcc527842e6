// Types of all modules. The words of `context_t` are those of the Rust `Context` (crates/rc/src/xp/context.rs): bit
// 32 * i of the context is bit 0 of word i. A packed struct names its highest bits first, so the last word is first.
package xp_pkg;
  // Word 8: bytes since the last step of the byte counter, steps of the timer and of the counter, two flags.
  typedef struct packed {
    logic        notified;
    logic        runs;
    logic [2:0]  byte_steps;
    logic [2:0]  timer_steps;
    logic [23:0] bytes;
  } counters_t;

  // Words 5 to 12: the Rust `DcqcnContext`.
  typedef struct packed {
    logic [31:0] next_send_low;
    logic [31:0] next_send_high;
    logic [31:0] increase_us;
    logic [31:0] period_us;
    counters_t   counters;
    logic [31:0] alpha;
    logic [31:0] target_kbps;
    logic [31:0] rate_kbps;
  } dcqcn_t;

  // 52 bytes. Rust has zeros in `sends` and `receives`: it counts what is posted in queues of the host.
  typedef struct packed {
    dcqcn_t      dcqcn;
    logic [31:0] placed_bytes;
    logic [31:0] sent_bytes;
    logic [7:0]  receives;
    logic [23:0] expected;
    logic [7:0]  sends;
    logic [23:0] sending;
    logic        notifies;
    logic [2:0]  zero;
    logic [3:0]  mtu_log;
    logic [23:0] peer_qpn;
  } context_t;

  localparam int CONTEXT_BITS = 416;

  // What happens to a queue pair. One event enters the pipeline in a cycle.
  typedef enum logic [3:0] {
    NOTHING      = 4'd0,
    PACKET       = 4'd1,   // a packet has arrived
    CREATE       = 4'd2,   // seq: peer, imm: number of the first messages, bytes: logarithm of the MTU
    POST_RECEIVE = 4'd3,
    LOAD         = 4'd4,   // seq: the active receive, deadline: its deadline
    SCAN         = 4'd5,   // looks whether timers are over
    POST_SEND    = 4'd6,
    SEND         = 4'd7,   // the work request of message seq, for its next packet
    NOTIFY       = 4'd8,   // takes the congestion notification that waits
    RATE         = 4'd9    // xp_dcqcn has a result
  } kind_t;

  typedef struct packed {
    kind_t       kind;
    logic [23:0] qpn;
    logic [63:0] now_ns;
    logic [31:0] now_us;
    logic [23:0] seq;
    logic [63:0] addr;
    logic [31:0] rkey;
    logic [31:0] bytes;         // of the message
    logic [31:0] imm;
    logic [63:0] deadline;
    logic [15:0] payload_bytes;
    logic        has_imm;
    logic        is_fragment;
    logic        is_notification;
    logic        is_marked;
  } event_t;

  // A deadline that never comes.
  localparam logic [63:0] NEVER = 64'hFFFF_FFFF_FFFF_FFFF;

  // A region of memory. Entry `key % KEYS` of the table has key `key`.
  typedef struct packed {
    logic        valid;
    logic [31:0] key;
    logic [63:0] addr;
    logic [63:0] length;
  } region_t;

  localparam int REGION_BITS = 161;

  // What became of a packet: the names of the Rust `Counters`.
  typedef enum logic [2:0] {
    NONE       = 3'd0,
    PLACED     = 3'd1,
    LATE       = 3'd2,
    NOT_POSTED = 3'd3,
    REFUSED    = 3'd4
  } outcome_t;

  // A payload on its way to memory, over a bus of 64 bytes: the lanes of the first and of the last beat.
  typedef struct packed {
    logic        valid;
    logic [63:0] addr;
    logic [15:0] bytes;
    logic [63:0] first_lanes;
    logic [63:0] last_lanes;
  } write_t;

  // The receives that one event ends: at first one whose deadline came, then those that a later message preempts,
  // then one whose last packet came. The first of them has `first_bytes`, those in between have none, and the one of
  // the last packet has `last_bytes`. Message `first` is the first that ends.
  typedef struct packed {
    logic        timed_out;
    logic [7:0]  preempted;
    logic        last;
    logic [23:0] first;
    logic [31:0] first_bytes;
    logic [31:0] last_bytes;
    logic [31:0] imm;
  } received_t;

  // A packet that leaves: BTH, RETH and ImmDt, byte 0 in the lowest bits, and where its payload is in the message.
  typedef struct packed {
    logic         valid;
    logic         is_notification;
    logic         has_imm;
    logic [255:0] header;
    logic [31:0]  offset;
    logic [15:0]  payload_bytes;
  } transmit_t;

  // A send that ends.
  typedef struct packed {
    logic        valid;
    logic [23:0] seq;
    logic [31:0] bytes;
  } sent_t;
endpackage
