/*
 * Calls every function of farwrite.h with wrong arguments. Each such call must return an error, and correct
 * calls must work before, between and after. The argument is a file with a pre-shared key.
 */
#include "checks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct server {
	struct farwrite_listener *listener;
	struct farwrite_connection *connection;
	struct farwrite_qp *qp;
	struct farwrite_stream *stream;
};

static void *serve(void *argument)
{
	struct server *server = argument;

	server->connection = farwrite_accept(server->listener, 20000);
	CHECK(server->connection);
	server->qp = farwrite_qp_accept(server->connection, "x", 20000);
	CHECK(server->qp);
	server->stream = farwrite_stream_accept(server->connection, NULL, 20000);
	CHECK(server->stream);
	return NULL;
}

/* farwrite.h: connections, messages and streams. */
static void connections(char *psk_file)
{
	struct farwrite_keys keys = {.size = sizeof(keys), .psk_file = psk_file}, none = {.size = sizeof(none)},
			     half = {.size = sizeof(half), .identity_file = "/nonesuch"},
			     wrong = {.size = sizeof(wrong), .psk_file = "/nonesuch"}, unsized = {.psk_file = psk_file},
			     older = {.size = offsetof(struct farwrite_keys, omit_icrc), .psk_file = psk_file};
	struct farwrite_message_attr attr = {sizeof(attr), "sr-nack", 300, 1}, unknown = {sizeof(unknown), "nonesuch", 0, 0},
				     without_size = {0};
	/* As of a program that was built with headers of a later version. */
	struct {
		struct farwrite_message_attr known;
		uint64_t later;
	} larger = {{sizeof(larger), NULL, 0, 0}, 0}, newer = {{sizeof(newer), NULL, 0, 0}, 1};
	struct farwrite_connection *connection;
	struct farwrite_message *message, *receive;
	struct farwrite_result result = {.size = sizeof(result)}, unset = {0};
	struct farwrite_path_statistics path = {.size = sizeof(path)}, path_unset = {0};
	struct farwrite_transfer_statistics statistics = {.size = sizeof(statistics)}, statistics_unset = {0};
	struct farwrite_stream *stream;
	struct farwrite_qp *qp;
	struct server server;
	uint8_t *bitmap, bytes[3000] = {1}, buffer[3000];
	size_t count;
	uint32_t port, chunk;
	pthread_t thread;
	char addr[64];
	int fd;

	CHECK(!farwrite_listen(NULL, &keys));
	CHECK(!farwrite_listen("nonesuch", &keys));
	CHECK(!farwrite_listen("127.0.0.1:0", NULL));
	CHECK(!farwrite_listen("127.0.0.1:0", &none));
	CHECK(!farwrite_listen("127.0.0.1:0", &half));
	CHECK(!farwrite_listen("127.0.0.1:0", &wrong));
	CHECK(!farwrite_listen("127.0.0.1:0", &unsized));
	CHECK(farwrite_last_code() == SDR_ERROR && strstr(farwrite_last_error(), "sizeof(struct farwrite_keys)"));
	server.listener = farwrite_listen("127.0.0.1:0", &older);
	CHECK(server.listener);
	WORKS(farwrite_listener_close(server.listener));
	server.listener = farwrite_listen("127.0.0.1:0", &keys);
	CHECK(server.listener);
	FAILS(farwrite_listener_port(NULL, &port));
	FAILS(farwrite_listener_port(server.listener, NULL));
	WORKS(farwrite_listener_port(server.listener, &port));
	FAILS(farwrite_listener_fd(NULL, &fd));
	FAILS(farwrite_listener_fd(server.listener, NULL));
	CHECK(!farwrite_accept(NULL, 0));
	CHECK(!farwrite_accept(server.listener, 0)); /* nobody connects */
	CHECK(farwrite_last_code() == SDR_RETRY);
	snprintf(addr, sizeof(addr), "127.0.0.1:%u", port);
	CHECK(!farwrite_connect(NULL, &keys, NULL));
	CHECK(!farwrite_connect("nonesuch", &keys, NULL));
	CHECK(!farwrite_connect(addr, NULL, NULL));
	CHECK(!farwrite_connect(addr, &none, "somebody"));
	CHECK(pthread_create(&thread, NULL, serve, &server) == 0);
	connection = farwrite_connect(addr, &keys, NULL);
	CHECK(connection);
	FAILS(farwrite_peer_name(NULL, addr, sizeof(addr)));
	FAILS(farwrite_peer_name(connection, NULL, sizeof(addr)));
	FAILS(farwrite_peer_name(connection, addr, 0));
	WORKS(farwrite_peer_name(connection, addr, 1));
	CHECK(addr[0] == 0);
	FAILS(farwrite_connection_fd(NULL, &fd));
	FAILS(farwrite_connection_fd(connection, NULL));
	FAILS(farwrite_connection_statistics(NULL, &path));
	FAILS(farwrite_connection_statistics(connection, NULL));
	FAILS(farwrite_connection_statistics(connection, &path_unset));
	CHECK(!farwrite_qp_open(NULL, "x", 0));
	CHECK(!farwrite_qp_open(connection, NULL, 0));
	CHECK(!farwrite_qp_open(connection, "", 1000));
	CHECK(!farwrite_qp_accept(NULL, "x", 0));
	CHECK(!farwrite_qp_accept(connection, "x", 0));
	qp = farwrite_qp_open(connection, "x", 20000);
	CHECK(qp);
	CHECK(!farwrite_stream_open(NULL, "y", 0));
	CHECK(!farwrite_stream_open(connection, NULL, 0));
	CHECK(!farwrite_stream_accept(NULL, NULL, 0));
	CHECK(!farwrite_stream_accept(connection, NULL, 0));
	stream = farwrite_stream_open(connection, "y", 20000);
	CHECK(stream);
	pthread_join(thread, NULL);

	FAILS(farwrite_send(NULL, bytes, 10, NULL, &message));
	FAILS(farwrite_send(qp, NULL, 10, NULL, &message));
	FAILS(farwrite_send(qp, bytes, 0, NULL, &message));
	FAILS(farwrite_send(qp, bytes, SIZE_MAX, NULL, &message));
	FAILS(farwrite_send(qp, bytes, 10, &unknown, &message));
	FAILS(farwrite_send(qp, bytes, 10, &without_size, &message));
	FAILS(farwrite_send(qp, bytes, 10, &newer.known, &message));
	CHECK(strstr(farwrite_last_error(), "fields"));
	FAILS(farwrite_send(qp, bytes, 10, NULL, NULL));
	FAILS(farwrite_recv(NULL, buffer, 10, NULL, &message));
	FAILS(farwrite_recv(qp, NULL, 10, NULL, &message));
	FAILS(farwrite_recv(qp, buffer, 0, NULL, &message));
	FAILS(farwrite_recv(qp, buffer, 10, &unknown, &message));
	FAILS(farwrite_recv(qp, buffer, 10, NULL, NULL));
	WORKS(farwrite_recv(server.qp, buffer, sizeof(buffer), &larger.known, &receive));
	CHECK(farwrite_wait(receive, 0, &result) == SDR_RETRY);
	CHECK(farwrite_last_code() == SDR_RETRY);
	FAILS(farwrite_wait(receive, 0, &unset));
	WORKS(farwrite_send(qp, bytes, sizeof(bytes), &attr, &message));
	FAILS(farwrite_wait(NULL, 0, &result));
	WORKS(farwrite_wait(message, 20000, NULL));
	WORKS(farwrite_wait(receive, 20000, &result));
	CHECK(result.outcome == FARWRITE_WHOLE && result.length == sizeof(bytes));
	CHECK(!memcmp(bytes, buffer, sizeof(bytes)));
	FAILS(farwrite_message_fd(NULL, &fd));
	FAILS(farwrite_message_fd(message, NULL));
	FAILS(farwrite_qp_statistics(NULL, &statistics));
	FAILS(farwrite_qp_statistics(qp, NULL));
	FAILS(farwrite_qp_statistics(qp, &statistics_unset));
	FAILS(farwrite_bitmap(NULL, &bitmap, &count, &chunk));
	FAILS(farwrite_bitmap(message, &bitmap, &count, &chunk)); /* it is a send */
	FAILS(farwrite_bitmap(receive, NULL, &count, &chunk));
	WORKS(farwrite_bitmap(receive, &bitmap, &count, &chunk));
	CHECK(count >= 1 && bitmap[0] & 1);
	FAILS(farwrite_message_close(NULL));
	WORKS(farwrite_message_close(message));
	FAILS(farwrite_message_close(message));
	FAILS(farwrite_wait(message, 0, NULL));
	WORKS(farwrite_message_close(receive));
	/* The deadline of a receive ends it as partial, with nothing. */
	WORKS(farwrite_recv(server.qp, buffer, sizeof(buffer), &attr, &receive));
	WORKS(farwrite_wait(receive, 20000, &result));
	CHECK(result.outcome == FARWRITE_PARTIAL && result.arrived_bytes == 0);
	WORKS(farwrite_message_close(receive));
	/* Open messages end when they are closed. */
	WORKS(farwrite_recv(server.qp, buffer, sizeof(buffer), NULL, &receive));
	WORKS(farwrite_message_close(receive));

	FAILS(farwrite_stream_write(NULL, bytes, 3, 0, &count));
	FAILS(farwrite_stream_write(stream, NULL, 3, 0, &count));
	FAILS(farwrite_stream_write(stream, bytes, 3, 0, NULL));
	WORKS(farwrite_stream_write(stream, bytes, 3, 1000, &count));
	CHECK(count == 3);
	FAILS(farwrite_stream_finish(NULL, 0));
	FAILS(farwrite_stream_read(NULL, buffer, 3, 0, &count));
	FAILS(farwrite_stream_read(server.stream, buffer, 3, 0, NULL));
	/* This call takes no bytes of the stream. */
	FAILS(farwrite_stream_read(server.stream, NULL, 3, 20000, &count));
	WORKS(farwrite_stream_read(server.stream, buffer, 3, 20000, &count));
	CHECK(count > 0 && count <= 3);
	CHECK(farwrite_stream_read(stream, buffer, 3, 1, &count) == SDR_RETRY);
	CHECK(!farwrite_stream_open(connection, "nobody accepts it", 1));
	CHECK(farwrite_last_code() == SDR_RETRY);
	FAILS(farwrite_stream_read_fd(NULL, &fd));
	FAILS(farwrite_stream_read_fd(stream, NULL));
	FAILS(farwrite_stream_write_fd(NULL, &fd));
	FAILS(farwrite_stream_write_fd(stream, NULL));
	FAILS(farwrite_stream_statistics(NULL, &statistics));
	FAILS(farwrite_stream_statistics(stream, NULL));
	FAILS(farwrite_stream_statistics(stream, &statistics_unset));
	FAILS(farwrite_stream_reset(NULL, 1));
	FAILS(farwrite_stream_reset((struct farwrite_stream *)qp, 1));
	FAILS(farwrite_stream_reset_code(NULL, &port));
	FAILS(farwrite_stream_reset_code(stream, NULL));
	FAILS(farwrite_stream_close(NULL));
	WORKS(farwrite_stream_close(stream));
	FAILS(farwrite_stream_close(stream));
	FAILS(farwrite_stream_finish(stream, 0));
	FAILS(farwrite_stream_close((struct farwrite_stream *)server.qp));
	WORKS(farwrite_stream_close(server.stream));
	FAILS(farwrite_qp_close(NULL));
	WORKS(farwrite_qp_close(qp));
	FAILS(farwrite_qp_close(qp));
	WORKS(farwrite_qp_close(server.qp));
	FAILS(farwrite_connection_close(NULL));
	WORKS(farwrite_connection_close(connection));
	FAILS(farwrite_connection_close(connection));
	CHECK(!farwrite_qp_open(connection, "x", 0));
	WORKS(farwrite_connection_close(server.connection));
	FAILS(farwrite_listener_close(NULL));
	WORKS(farwrite_listener_close(server.listener));
	FAILS(farwrite_listener_close(server.listener));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	connections(argv[1]);
	printf("%d failures\n", failures);
	return failures != 0;
}
