/*
 * farwrite.h - connections with keys, messages that the library repairs, byte streams, and what sdr.h
 * does not have.
 *
 * Calls return a value of enum sdr_errcode (sdr.h), or a pointer that is NULL on failure. A call that has
 * waited for timeout_ms milliseconds returns SDR_RETRY, or NULL, and then farwrite_last_code returns SDR_RETRY.
 * UINT32_MAX is no limit.
 *
 * Set size in each struct to its sizeof: later versions of the library know then which fields a program has.
 *
 * A descriptor (farwrite_..._fd) is for poll and epoll, in the event loop of a program. It is readable (POLLIN) for as
 * long as the call that it is for would not wait: because it would return something, or an error. It is no longer
 * readable once calls have taken everything there is. So call with timeout_ms 0 when it is readable; a thread that
 * shares the handle may have been faster, and then the call returns SDR_RETRY. The descriptor belongs to the library:
 * do not read, write or close it. It exists until the handle is closed: remove it from an epoll set before. Handles
 * whose descriptor nobody asks for have none.
 *
 * All threads may use all handles. Of a stream, one thread may read while another one writes. A second reader
 * or writer at the same time gets SDR_ERROR.
 */
#ifndef FARWRITE_H
#define FARWRITE_H

#include <stddef.h>
#include <stdint.h>

#include "sdr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A UDP port that accepts connections. */
struct farwrite_listener;
/* A connection to a peer that has proven who it is. It ends when nothing is heard of the peer for 60 s. */
struct farwrite_connection;
/* A queue pair of a connection, for messages. */
struct farwrite_qp;
/* A message being sent, or a posted receive. */
struct farwrite_message;
/* Bytes in order, in both directions. */
struct farwrite_stream;

/* How a message ended. */
enum farwrite_outcome {
	FARWRITE_WHOLE,
	FARWRITE_PARTIAL,
	FARWRITE_FAILED
};

/*
 * Files with keys: an identity and the peers that it knows, a pre-shared key, or both. NULL: none.
 * farwrite keygen makes keys.
 *
 * If both ends set omit_icrc, data packets have no ICRC, which saves about a tenth of the processor time. LoWAR and
 * NetRT boxes need the ICRC, so set omit_icrc only if no such box is on the path.
 */
struct farwrite_keys {
	size_t size;                  /* the sizeof of this struct */
	const char *identity_file;    /* the private key of this end */
	const char *known_peers_file; /* a name and a public key on each line */
	const char *psk_file;         /* a pre-shared key */
	uint64_t omit_icrc;           /* 1: packets have no ICRC if the peer wants that too; 0: they have it */
};

/* How a message is sent or received. NULL means the same as a struct of zeros, apart from its size. */
struct farwrite_message_attr {
	size_t size;             /* the sizeof of this struct */
	const char *scheme;      /* such as sr-nack or ec-mds:32,8; NULL: sr-nack for a send, any for a receive */
	uint32_t deadline_ms;    /* when the message ends, from now on; 0: never */
	uint32_t accept_partial; /* of a receive: whether it may end as partial at the deadline of the sender */
};

struct farwrite_result {
	size_t size;            /* the sizeof of this struct, which the program sets */
	enum farwrite_outcome outcome;
	uint64_t length;        /* bytes of the message; 0 if they are not known */
	uint64_t arrived_bytes; /* of a receive: bytes that have arrived, if it is whole or partial */
};

/* What a connection knows of the path to the peer, and has sent in all. All of its queue pairs and streams share it. */
struct farwrite_path_statistics {
	size_t size;              /* the sizeof of this struct, which the program sets */
	uint64_t rtt_ns;          /* smoothed round trip */
	uint64_t pace_bps;        /* rate at which packets leave at most, in bits of IP packets per second */
	uint64_t in_flight_bytes; /* sent, and neither reported nor given up */
	uint64_t sent_packets;    /* data packets that have left, repeats included */
	uint64_t sent_bytes;      /* their bytes, as IP packets */
	uint64_t reported_bytes;  /* bytes up to the newest packet that the peer has reported */
	uint64_t delivered_bytes; /* how many of these have arrived: the others were lost, or are late */
};

/* What a queue pair, or the one of a stream, has done since it was opened. A chunk is one packet (farwrite_bitmap). */
struct farwrite_transfer_statistics {
	size_t size;                    /* the sizeof of this struct, which the program sets */
	uint64_t sent_chunks;           /* repeats included */
	uint64_t resent_chunks;         /* repeats */
	uint64_t received_packets;      /* repeats included */
	uint64_t received_bytes;        /* their payload */
	uint64_t duplicate_packets;     /* packets that had arrived before */
	uint64_t rebuilt_chunks;        /* lost, and computed from parity */
	uint64_t send_judged_chunks;    /* chunks to the peer, sent once, of which it knows whether they arrived */
	uint64_t send_lost_chunks;      /* how many of these were lost */
	uint64_t receive_judged_chunks; /* the same for chunks from the peer */
	uint64_t receive_lost_chunks;
};

/* Returns the version of the library, such as 0.1.0. */
const char *farwrite_version(void);

/*
 * Returns why the last call of this thread failed, in words. It is never NULL, and valid until the next
 * call of this thread that fails.
 */
const char *farwrite_last_error(void);

/*
 * Returns the code of the last call of this thread that failed: SDR_RETRY if nothing came within timeout_ms, SDR_ERROR
 * otherwise, or SDR_SUCCESS if none has failed. After a call that returns NULL, it tells a timeout from an error.
 */
enum sdr_errcode farwrite_last_code(void);

/*
 * Listens at a UDP port, such as [::]:4792. Port 0 takes a free one.
 *
 * Returns NULL if the port cannot be bound or a key cannot be read.
 */
struct farwrite_listener *farwrite_listen(const char *addr, struct farwrite_keys *keys);

/* Returns the UDP port of a listener. */
int farwrite_listener_port(struct farwrite_listener *listener, uint32_t *port);

/* The descriptor for farwrite_accept. */
int farwrite_listener_fd(struct farwrite_listener *listener, int *fd);

/* Closes a listener. A farwrite_accept that waits returns NULL. Connections that were accepted go on. */
int farwrite_listener_close(struct farwrite_listener *listener);

/* Waits for the next connection. */
struct farwrite_connection *farwrite_accept(struct farwrite_listener *listener, uint32_t timeout_ms);

/*
 * Connects to the listener at HOST:PORT, which must prove that it is peer: a name of the known peers. With
 * a pre-shared key only, peer is not used and may be NULL. This takes 10 s at most.
 */
struct farwrite_connection *farwrite_connect(const char *addr, struct farwrite_keys *keys, const char *peer);

/*
 * Writes the name of the peer, with a zero byte at its end: the name in the known peers of this end, or
 * nothing if the peer has proven a pre-shared key only.
 *
 * Returns SDR_ERROR if size is too small.
 */
int farwrite_peer_name(struct farwrite_connection *connection, char *name, size_t size);

/*
 * The descriptor for farwrite_qp_accept and farwrite_stream_accept: it is readable while a queue pair or a stream of any
 * name waits to be accepted, or the connection is over.
 */
int farwrite_connection_fd(struct farwrite_connection *connection, int *fd);

/* Writes the statistics of a connection. Set their size before. Returns SDR_ERROR if the connection is over. */
int farwrite_connection_statistics(struct farwrite_connection *connection,
	struct farwrite_path_statistics *statistics);

/* Ends a connection. What is under way is lost: finish streams and wait for messages before. */
int farwrite_connection_close(struct farwrite_connection *connection);

/* Opens a queue pair by a name, which the peer accepts. */
struct farwrite_qp *farwrite_qp_open(struct farwrite_connection *connection, const char *name, uint32_t timeout_ms);

/*
 * Accepts the next queue pair that the peer opens by this name, or by any name for NULL. Those of other names wait
 * to be accepted. A stream is a queue pair too, so use other names for streams, and names rather than NULL where
 * the peer opens both.
 */
struct farwrite_qp *farwrite_qp_accept(struct farwrite_connection *connection, const char *name, uint32_t timeout_ms);

/* Writes the statistics of a queue pair. Set their size before. Returns SDR_ERROR if the connection is over. */
int farwrite_qp_statistics(struct farwrite_qp *qp, struct farwrite_transfer_statistics *statistics);

/*
 * Closes a queue pair. Its messages that are open fail, so a farwrite_wait for one of them returns. Close the messages
 * too: until then, their memory belongs to the library.
 */
int farwrite_qp_close(struct farwrite_qp *qp);

/*
 * Sends a message. The bytes must not change until farwrite_wait returns its outcome, or
 * farwrite_message_close returns.
 *
 * Returns SDR_RETRY while too many messages are in flight.
 */
int farwrite_send(struct farwrite_qp *qp, const void *bytes, size_t length, struct farwrite_message_attr *attr,
	struct farwrite_message **message);

/*
 * Posts a buffer for the next message of the peer. Messages and buffers match in order. The buffer belongs
 * to the library until farwrite_wait returns its outcome, or farwrite_message_close returns.
 *
 * Returns SDR_RETRY while too many receives are posted.
 */
int farwrite_recv(struct farwrite_qp *qp, void *buffer, size_t length, struct farwrite_message_attr *attr,
	struct farwrite_message **message);

/* Waits until a message has ended. result may be NULL; set its size before. */
int farwrite_wait(struct farwrite_message *message, uint32_t timeout_ms, struct farwrite_result *result);

/* The descriptor for farwrite_wait: it is readable once the message has ended. Each costs an open file of the process. */
int farwrite_message_fd(struct farwrite_message *message, int *fd);

/*
 * Returns which chunks of a receive have arrived: one bit for each, the least significant bit first. It is
 * valid until farwrite_message_close. num_bytes and chunk_bytes may be NULL.
 */
int farwrite_bitmap(struct farwrite_message *message, uint8_t **bitmap, size_t *num_bytes, uint32_t *chunk_bytes);

/* Frees a message, and ends it as failed if it has not ended. */
int farwrite_message_close(struct farwrite_message *message);

/* Opens a byte stream by a name, which the peer accepts. */
struct farwrite_stream *farwrite_stream_open(struct farwrite_connection *connection, const char *name,
	uint32_t timeout_ms);

/*
 * Accepts the next stream that the peer opens by this name, or by any name for NULL. Those of other names wait to be
 * accepted. The names of streams and of queue pairs must differ (farwrite_qp_accept).
 */
struct farwrite_stream *farwrite_stream_accept(struct farwrite_connection *connection, const char *name,
	uint32_t timeout_ms);

/* Reads what has arrived, and waits until something has. *length is 0 at the end of the stream. */
int farwrite_stream_read(struct farwrite_stream *stream, void *buffer, size_t size, uint32_t timeout_ms, size_t *length);

/* Writes some of the bytes, and waits until there is room. *length says how many. */
int farwrite_stream_write(struct farwrite_stream *stream, const void *bytes, size_t size, uint32_t timeout_ms,
	size_t *length);

/* The descriptor for farwrite_stream_read. */
int farwrite_stream_read_fd(struct farwrite_stream *stream, int *fd);

/* The descriptor for farwrite_stream_write; after the first farwrite_stream_finish, that for farwrite_stream_finish. */
int farwrite_stream_write_fd(struct farwrite_stream *stream, int *fd);

/* Writes the statistics of a stream. Set their size before. Returns SDR_ERROR if the connection is over. */
int farwrite_stream_statistics(struct farwrite_stream *stream, struct farwrite_transfer_statistics *statistics);

/*
 * Gives both directions of a stream up. Bytes that have not left and bytes that were not read are dropped. The code is
 * for the program of the peer, whose reads and writes return SDR_ERROR from then on. Close the stream afterwards.
 * A direction that has ended before is not changed. Programs use any code but UINT32_MAX, the one of a broken protocol.
 */
int farwrite_stream_reset(struct farwrite_stream *stream, uint32_t code);

/*
 * Writes the code with which the peer has given the stream up (farwrite_stream_reset), or reads no more: 0 if it has
 * closed the stream.
 *
 * Returns SDR_RETRY if the peer has done neither.
 */
int farwrite_stream_reset_code(struct farwrite_stream *stream, uint32_t *code);

/* Ends the direction to the peer, and waits until the peer has everything. */
int farwrite_stream_finish(struct farwrite_stream *stream, uint32_t timeout_ms);

/*
 * Closes a stream. Calls of other threads that wait for it return SDR_ERROR. What was written still leaves, while the
 * connection lasts.
 */
int farwrite_stream_close(struct farwrite_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
