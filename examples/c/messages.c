/*
 * messages - messages that the library repairs, and a byte stream, over a connection with keys.
 *
 *   listener: messages KEY ADDRESS:PORT                  receives
 *   other:    messages KEY HOST:PORT FILE [SCHEME]       sends a file as one message
 *
 * KEY is a file with a pre-shared key that both ends have (farwrite keygen). The listener answers over a
 * byte stream.
 */
#include <farwrite.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MS 20000
#define BUFFER ((size_t)64 << 20)

static void *must(void *pointer, const char *what)
{
	if (!pointer) {
		fprintf(stderr, "%s: %s\n", what, farwrite_last_error());
		exit(1);
	}
	return pointer;
}

static void check(int code, const char *what)
{
	if (code != SDR_SUCCESS)
		must(NULL, what);
}

static uint32_t sum_of(const uint8_t *bytes, size_t length)
{
	uint32_t sum = 1;

	while (length--)
		sum = sum * 31 + *bytes++;
	return sum;
}

static int listen_at(const char *addr, struct farwrite_keys *keys)
{
	struct farwrite_listener *listener = must(farwrite_listen(addr, keys), "farwrite_listen");
	/* The receive ends by its deadline, with what has arrived by then. */
	struct farwrite_message_attr attr = {.size = sizeof(attr), .deadline_ms = LIMIT_MS, .accept_partial = 1};
	struct farwrite_connection *connection;
	struct farwrite_message *message;
	struct farwrite_result result = {.size = sizeof(result)};
	struct farwrite_stream *stream;
	struct farwrite_qp *qp;
	uint8_t *buffer = malloc(BUFFER);
	char answer[100];
	size_t length, written;
	uint32_t port;

	check(farwrite_listener_port(listener, &port), "farwrite_listener_port");
	printf("listening at UDP port %u\n", port);
	fflush(stdout);
	connection = must(farwrite_accept(listener, UINT32_MAX), "farwrite_accept");
	qp = must(farwrite_qp_accept(connection, "file", LIMIT_MS), "farwrite_qp_accept");
	check(farwrite_recv(qp, buffer, BUFFER, &attr, &message), "farwrite_recv");
	check(farwrite_wait(message, UINT32_MAX, &result), "farwrite_wait");
	printf("outcome %d, %llu of %llu bytes\n", (int)result.outcome, (unsigned long long)result.arrived_bytes,
		(unsigned long long)result.length);

	stream = must(farwrite_stream_accept(connection, "answer", LIMIT_MS), "farwrite_stream_accept");
	length = (size_t)snprintf(answer, sizeof(answer), "%llu bytes, sum %08x", (unsigned long long)result.length,
		(unsigned int)sum_of(buffer, result.length));
	check(farwrite_stream_write(stream, answer, length, LIMIT_MS, &written), "farwrite_stream_write");
	check(farwrite_stream_finish(stream, LIMIT_MS), "farwrite_stream_finish");
	check(farwrite_stream_close(stream), "farwrite_stream_close");
	check(farwrite_message_close(message), "farwrite_message_close");
	check(farwrite_qp_close(qp), "farwrite_qp_close");
	check(farwrite_connection_close(connection), "farwrite_connection_close");
	check(farwrite_listener_close(listener), "farwrite_listener_close");
	free(buffer);
	return result.outcome != FARWRITE_WHOLE;
}

static int send_to(const char *addr, struct farwrite_keys *keys, const char *name, const char *scheme)
{
	struct farwrite_message_attr attr = {.size = sizeof(attr), .scheme = scheme, .deadline_ms = LIMIT_MS};
	struct farwrite_connection *connection;
	struct farwrite_message *message;
	struct farwrite_result result = {.size = sizeof(result)};
	struct farwrite_stream *stream;
	struct farwrite_qp *qp;
	uint8_t *bytes = malloc(BUFFER);
	FILE *file = fopen(name, "rb");
	char expected[100], answer[100] = "";
	size_t length, got, heard = 0;

	if (!file) {
		perror(name);
		return 1;
	}
	length = fread(bytes, 1, BUFFER, file);
	fclose(file);
	connection = must(farwrite_connect(addr, keys, NULL), "farwrite_connect");
	qp = must(farwrite_qp_open(connection, "file", LIMIT_MS), "farwrite_qp_open");
	check(farwrite_send(qp, bytes, length, &attr, &message), "farwrite_send");
	check(farwrite_wait(message, UINT32_MAX, &result), "farwrite_wait");
	printf("outcome %d\n", (int)result.outcome);

	stream = must(farwrite_stream_open(connection, "answer", LIMIT_MS), "farwrite_stream_open");
	do {
		check(farwrite_stream_read(stream, answer + heard, sizeof(answer) - 1 - heard, LIMIT_MS, &got),
			"farwrite_stream_read");
		heard += got;
	} while (got > 0 && heard < sizeof(answer) - 1);
	printf("the peer has %s\n", answer);
	snprintf(expected, sizeof(expected), "%llu bytes, sum %08x", (unsigned long long)length,
		(unsigned int)sum_of(bytes, length));
	check(farwrite_stream_close(stream), "farwrite_stream_close");
	check(farwrite_message_close(message), "farwrite_message_close");
	check(farwrite_qp_close(qp), "farwrite_qp_close");
	check(farwrite_connection_close(connection), "farwrite_connection_close");
	free(bytes);
	return result.outcome != FARWRITE_WHOLE || strcmp(answer, expected) != 0;
}

int main(int argc, char **argv)
{
	struct farwrite_keys keys = {.size = sizeof(keys), .psk_file = argc > 1 ? argv[1] : NULL};

	if (argc == 3)
		return listen_at(argv[2], &keys);
	if (argc == 4 || argc == 5)
		return send_to(argv[2], &keys, argv[3], argc == 5 ? argv[4] : NULL);
	fprintf(stderr, "usage: messages KEY ADDRESS:PORT\n       messages KEY HOST:PORT FILE [SCHEME]\n");
	return 2;
}
