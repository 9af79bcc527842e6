/*
 * sdr.h - messages whose losses you repair yourself.
 *
 * The interface of "SDR-RDMA: Software-Defined Reliability Architecture for Planetary Scale RDMA
 * Communication" (SC '25), Table 1, as implemented by libfarwrite. A receiver posts buffers. A sender's
 * messages are written into them, in order. A bitmap shows which chunks of a message have arrived, and
 * the program decides what to do about the others. farwrite.h has messages that the library repairs.
 *
 * Calls return a value of enum sdr_errcode, or a pointer that is NULL on failure. farwrite_last_error
 * (farwrite.h) returns the reason; with FARWRITE_VERBOSE in the environment, it is printed as well.
 *
 * Contexts, queue pairs and memory regions may be used by all threads. A send or receive handle belongs
 * to one thread at a time: of two calls on it that overlap, one can return SDR_ERROR. Handles are not
 * addresses. A handle that was destroyed or completed gives SDR_ERROR.
 */
#ifndef FARWRITE_SDR_H
#define FARWRITE_SDR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A device: its sockets, and a thread that sends and receives. */
struct sdr_context;
/* One end of a connection for messages. */
struct sdr_qp;
/* A message being sent. */
struct sdr_send_handle;
/* A posted receive. */
struct sdr_recv_handle;
/* A memory region (sdr_mr.h). */
struct sdr_mr;

/* What calls return. SDR_RETRY: the library has no free resources at the moment, or what the program asks for
 * has not arrived yet. The program can call again later. */
enum sdr_errcode {
	SDR_SUCCESS,
	SDR_ERROR,
	SDR_RETRY
};

/* Payload bytes of a packet. */
enum sdr_mtu {
	SDR_MTU_64,
	SDR_MTU_128,
	SDR_MTU_256,
	SDR_MTU_512,
	SDR_MTU_1024,
	SDR_MTU_2048,
	SDR_MTU_4096
};

/* Whether a message has a user immediate: 32 bits beside its bytes. */
enum sdr_wr_opcode {
	SDR_WR_WRITE,
	SDR_WR_WRITE_WITH_IMM
};

/* What peers may do with a memory region. */
enum sdr_access_flags {
	SDR_ACCESS_REMOTE_WRITE
};

struct sdr_dev_attr {
	uint32_t num_channels; /* sockets, and paths through the network; 0 counts as 1; at most 64 */
	uint32_t log_max_qps;  /* not used: there is no such limit */
};

struct sdr_qp_attr {
	uint32_t bitmap_chunk_size_log_bytes; /* log2 of the bytes of a chunk; at least a packet */
	size_t max_in_flight_log_bytes;       /* log2 of the longest message in bytes; many messages or a small mtu lower it */
	uint32_t max_log_num_msgs;            /* log2 of the messages in flight in one direction; at most 15 */
	enum sdr_mtu mtu;                     /* payload bytes of a packet */
	uint8_t send_enable;                  /* 0: sends are refused */
	uint8_t recv_enable;                  /* 0: receives are refused */
	uint32_t rate_limit;                  /* most kbit/s on the wire, with headers; 0: no limit */
};

struct sdr_send_wr {
	enum sdr_wr_opcode opcode;
	uint32_t imm_value;     /* the user immediate, with SDR_WR_WRITE_WITH_IMM */
	uint32_t length;        /* bytes */
	uint32_t lkey;          /* of the region that has the bytes */
	uint64_t local_addr;    /* address of the bytes */
	uint64_t remote_offset; /* where they go in the peer's buffer, in bitmap chunks */
};

struct sdr_send_start_wr {
	enum sdr_wr_opcode opcode;
	uint32_t imm_value; /* the user immediate, with SDR_WR_WRITE_WITH_IMM */
};

struct sdr_send_continue_wr {
	uint32_t length;        /* bytes; whole chunks, except at the end of the message */
	uint64_t local_addr;    /* address of the bytes */
	uint32_t lkey;          /* of the region that has the bytes */
	uint64_t remote_offset; /* where they go in the peer's buffer, in bitmap chunks */
};

struct sdr_recv_wr {
	uint32_t max_length; /* bytes of the buffer */
	uint32_t lkey;       /* of the region that has the buffer */
	uint64_t address;    /* address of the buffer */
};

struct sdr_send_status {
	uint32_t flags; /* 0, or 1: the receiver completed the message before all packets had left */
};

/*
 * Creates a context on a device.
 *
 * dev_name is udp:ADDRESS, udp:ADDRESS:PORT or udp:INTERFACE, or an RDMA device of this machine: NAME,
 * NAME/PORT, NAME@ADDRESS or NAME/PORT@ADDRESS. For any other name, and for NULL, the library takes the
 * name in the environment variable FARWRITE_DEVICE, or else the address of the default route, with a
 * line on the standard error output. With num_channels above 1, the sockets after the first have the
 * port numbers after it.
 *
 * An RDMA device sends to port 4791 only, so a peer without a device is udp:ADDRESS:4791.
 *
 * FARWRITE_PSK_FILE names a file with a pre-shared key (farwrite keygen makes one). With it, what
 * sdr_qp_info_get returns is encrypted, and so are all packets. The peer needs the same key. RDMA
 * devices cannot encrypt packets: with this variable set, the call returns NULL for them.
 *
 * Returns NULL if the name is wrong, the socket cannot be bound, the device cannot be opened, or the key
 * cannot be read.
 */
struct sdr_context *sdr_context_create(const char *dev_name, struct sdr_dev_attr *attr);

/*
 * Destroys a context.
 *
 * Returns SDR_ERROR while queue pairs or memory regions of the context exist; then nothing changes.
 */
int sdr_context_destroy(struct sdr_context *ctx);

/*
 * Creates a queue pair.
 *
 * Both ends must have the same attributes (except send_enable and recv_enable), the same number of
 * channels and the same SDR_QP_NUM_GENERATIONS (2 to 16, 4 by default). Queue pairs to one peer must have
 * the same rate_limit. If the interface carries only smaller packets than mtu, smaller ones are sent;
 * FARWRITE_MTU sets their payload bytes where a path carries less than the interface. Both ends must
 * use the same payload size.
 *
 * Returns NULL for attributes that are not valid.
 */
struct sdr_qp *sdr_qp_create(struct sdr_context *ctx, struct sdr_qp_attr *attr);

/*
 * Destroys a queue pair, with its messages: their handles and bitmaps are gone. When this returns, no
 * packet changes the memory of its receives.
 */
int sdr_qp_destroy(struct sdr_qp *qp);

/* Returns the bytes that sdr_qp_info_get writes. They are the same for all queue pairs. */
int sdr_qp_info_size_get(struct sdr_qp *qp, size_t *size);

/*
 * Writes what the peer needs to connect to a queue pair. Carry it to the peer, which passes it to
 * sdr_qp_connect. Without FARWRITE_PSK_FILE it contains a secret in the clear: who can read it can write
 * into the receives of the queue pair.
 */
int sdr_qp_info_get(struct sdr_qp *qp, void *info);

/*
 * Connects a queue pair to the peer's, of which remote_info is the blob of sdr_qp_info_get. Receives may
 * be posted before.
 *
 * Returns SDR_ERROR if the blob is damaged, if the attributes of the two ends differ, if one end has
 * FARWRITE_PSK_FILE and the other has not, or if the queue pair is connected.
 */
int sdr_qp_connect(struct sdr_qp *qp, void *remote_info);

/*
 * Posts a buffer for the next message of the peer. Messages and buffers match in order.
 *
 * Returns SDR_RETRY while 2^max_log_num_msgs receives are posted.
 */
int sdr_recv_post(struct sdr_qp *qp, struct sdr_recv_wr *wr, struct sdr_recv_handle **handle);

/*
 * Returns the live bitmap of a receive: one bit for each chunk of the buffer, the least significant bit
 * first. A bit is set when all packets of its chunk are in memory. The bytes change while packets
 * arrive. They stay readable until the queue pair is destroyed, and are cleared by sdr_recv_complete.
 *
 * A last chunk that is not full counts as whole once the sender's length has arrived. A message with an
 * immediate is sent in at least as many packets as the immediate has parts, so some packets can have no bytes.
 * A chunk is whole only when these packets of it have arrived too. Bits after the last chunk of the buffer have
 * no meaning.
 */
int sdr_recv_bitmap_get(struct sdr_recv_handle *handle, uint8_t **bitmap, size_t *num_bytes);

/*
 * Writes which packets of a chunk have arrived: one bit for each packet of the queue pair's mtu, 64 in
 * each word, the least significant bit first. bitmap is an array that has room for all packets of a
 * chunk, also for the last chunk of a buffer: ((chunk bytes / mtu bytes) + 63) / 64 words. The call writes
 * all of these words. One word is enough for chunks of up to 64 packets.
 */
int sdr_recv_bitmap_chunk_expand(struct sdr_recv_handle *handle, uint32_t chunk, uint64_t *bitmap);

/*
 * Returns the user immediate of a message.
 *
 * Returns SDR_RETRY until all parts of the immediate have arrived. If the sender sends no immediate, it always
 * returns SDR_RETRY. Each packet carries one part, usually 4 of the 32 bits.
 */
int sdr_recv_imm_get(struct sdr_recv_handle *handle, uint32_t *imm);

/*
 * Completes a receive, whether all of it has arrived or not. Each posted receive is completed once. When
 * this returns, no packet changes its buffer: late packets are dropped. The handle is gone, and the bits
 * are cleared.
 */
int sdr_recv_complete(struct sdr_recv_handle *handle);

/*
 * Sends a message. Its bytes must not change until sdr_send_poll says that it is complete. The packets
 * leave once the peer has posted a buffer for the message.
 *
 * A message with a remote_offset above 0 and an immediate needs a packet for each part of the immediate.
 *
 * Returns SDR_RETRY while 2^max_log_num_msgs messages are in flight. A message is in flight until the peer
 * completes its receive.
 */
int sdr_send_post(struct sdr_qp *qp, struct sdr_send_wr *wr, struct sdr_send_handle **handle);

/*
 * Starts a message whose chunks are added by sdr_streaming_send_continue.
 *
 * Returns SDR_RETRY as sdr_send_post does.
 */
int sdr_streaming_send_start(struct sdr_qp *qp, struct sdr_send_start_wr *wr, struct sdr_send_handle **handle);

/*
 * Sends chunks of a streaming message, in any order, and again if they were lost. The bytes must not
 * change until the message is complete.
 *
 * Returns SDR_ERROR after sdr_streaming_send_end, and if the receiver has completed the message.
 */
int sdr_streaming_send_continue(struct sdr_send_handle *handle, struct sdr_send_continue_wr *wr);

/*
 * Ends a streaming message: no more chunks are added. It ends where its furthest chunks end.
 *
 * Returns SDR_ERROR if the message does not fit the peer's buffer. The message has failed then.
 */
int sdr_streaming_send_end(struct sdr_send_handle *handle);

/*
 * Asks whether a message is complete: all of its packets have left, or the receiver has completed it. It
 * does not say what has arrived. Once a message is complete, its bytes may change.
 *
 * Returns SDR_SUCCESS with *completed = 1 if the message is complete. Returns SDR_RETRY with *completed = 0
 * if it is not: the program can poll again. Returns SDR_ERROR with *completed = 0 if the message failed, for
 * example since it is longer than the peer's buffer. status may be NULL; it is written when the message is
 * complete.
 *
 * The program can poll a complete handle again. The handle stays valid until the program has posted
 * 2 * 2^max_log_num_msgs later messages on the queue pair.
 */
int sdr_send_poll(struct sdr_send_handle *handle, int *completed, struct sdr_send_status *status);

#ifdef __cplusplus
}
#endif

#endif
