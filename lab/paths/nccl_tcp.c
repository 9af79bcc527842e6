/* A net plugin of version 12 over TCP, one connection for each of NCCL's: what the plugin of Farwrite is compared with.
 * TCP_ADDRESS is the address at which peers connect, TCP_CC the congestion control. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../crates/nccl/tests/c/net.h"

enum { OPEN = 64 };

/* A message: its length, then its bytes. */
struct request {
    struct comm *comm;
    char *data;
    size_t most;
    uint64_t length;
    size_t moved;
    int is_done;
};

/* A connection, which carries messages one way and in order. */
struct comm {
    int socket, is_send;
    unsigned first, next;
    struct request requests[OPEN];
};

static const char *variable(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value != NULL ? value : otherwise;
}

static struct comm *new_comm(int socket, int is_send) {
    struct comm *comm = calloc(1, sizeof *comm);
    int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(socket, F_SETFL, O_NONBLOCK);
    comm->socket = socket;
    comm->is_send = is_send;
    return comm;
}

static int choose_cc(int socket) {
    const char *name = variable("TCP_CC", "cubic");
    return setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
}

static int init(void **context, uint64_t id, int *config, logger log, void *profiler) {
    (void)id, (void)config, (void)log, (void)profiler;
    *context = NULL;
    return 0;
}

static int devices(int *count) {
    *count = 1;
    return 0;
}

static int get_properties(int device, struct properties_v12 *properties) {
    (void)device;
    *properties = (struct properties_v12){.name = "tcp", .ptr_support = PTR_HOST, .speed = 10000, .max_comms = 1024,
                                          .max_recvs = 1, .max_p2p_bytes = 1 << 30, .max_coll_bytes = 1 << 30};
    return 0;
}

static int listen_at(void *context, int device, void *handle, void **listener) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    int found = socket(AF_INET, SOCK_STREAM, 0);
    (void)context, (void)device;
    inet_pton(AF_INET, variable("TCP_ADDRESS", "127.0.0.1"), &at.sin_addr);
    if (choose_cc(found) != 0 || bind(found, (struct sockaddr *)&at, sizeof at) != 0 || listen(found, 64) != 0) return 2;
    getsockname(found, (struct sockaddr *)&at, &length);
    fcntl(found, F_SETFL, O_NONBLOCK);
    memset(handle, 0, HANDLE_BYTES);
    memcpy(handle, &at, sizeof at);
    *listener = new_comm(found, 0);
    return 0;
}

static int connect_to(void *context, int device, void *handle, void **comm, void **device_handle) {
    struct sockaddr_in at;
    char *calls = (char *)handle + HANDLE_BYTES - 1;
    (void)context, (void)device, (void)device_handle;
    *comm = NULL;
    if ((*calls)++ == 0) return 0;
    memcpy(&at, handle, sizeof at);
    int found = socket(AF_INET, SOCK_STREAM, 0);
    if (choose_cc(found) != 0 || connect(found, (struct sockaddr *)&at, sizeof at) != 0) return 2;
    *comm = new_comm(found, 1);
    return 0;
}

static int accept_one(void *listener, void **comm, void **device_handle) {
    int found = accept(((struct comm *)listener)->socket, NULL, NULL);
    (void)device_handle;
    *comm = found < 0 ? NULL : new_comm(found, 0);
    return found < 0 && errno != EAGAIN ? 2 : 0;
}

static int reg_mr(void *comm, void *data, size_t size, int kind, void **memory) {
    (void)data, (void)size, (void)kind;
    *memory = comm;
    return 0;
}

static int dereg_mr(void *comm, void *memory) {
    (void)comm, (void)memory;
    return 0;
}

/* Moves what the socket takes or has. Returns a code. */
static int progress(struct comm *comm) {
    while (comm->first != comm->next) {
        struct request *request = &comm->requests[comm->first % OPEN];
        int is_head = request->moved < sizeof request->length;
        char *at = is_head ? (char *)&request->length + request->moved
                           : request->data + request->moved - sizeof request->length;
        size_t end = is_head ? sizeof request->length : sizeof request->length + request->length;
        if (request->moved < end) {
            ssize_t moved = comm->is_send ? send(comm->socket, at, end - request->moved, MSG_NOSIGNAL)
                                          : recv(comm->socket, at, end - request->moved, 0);
            if (moved == 0 || (moved < 0 && errno != EAGAIN)) return 6;
            if (moved < 0) return 0;
            request->moved += (size_t)moved;
            if (!is_head || request->moved < sizeof request->length) continue;
            if (request->length > request->most) return 6;
        }
        if (request->moved == sizeof request->length + request->length) {
            request->is_done = 1;
            comm->first++;
        }
    }
    return 0;
}

static int start(struct comm *comm, void *data, size_t size, void **started) {
    struct request *request = &comm->requests[comm->next % OPEN];
    *started = NULL;
    /* A place is free when NCCL has seen that its message is done. */
    if (request->comm != NULL) return 0;
    *request = (struct request){.comm = comm, .data = data, .most = size, .length = comm->is_send ? size : 0};
    comm->next++;
    *started = request;
    return progress(comm);
}

static int isend(void *comm, void *data, size_t size, int tag, void *memory, void *profiled, void **request) {
    (void)tag, (void)memory, (void)profiled;
    return start(comm, data, size, request);
}

static int irecv(void *comm, int count, void **data, size_t *sizes, int *tags, void **memory, void **profiled,
                 void **request) {
    (void)count, (void)tags, (void)memory, (void)profiled;
    return start(comm, data[0], sizes[0], request);
}

static int iflush(void *comm, int count, void **data, int *sizes, void **memory, void **request) {
    (void)comm, (void)count, (void)data, (void)sizes, (void)memory;
    *request = NULL;
    return 0;
}

static int test(void *started, int *done, int *size) {
    struct request *request = started;
    int code = progress(request->comm);
    *done = request->is_done;
    if (*done && size != NULL) *size = (int)request->length;
    if (*done) request->comm = NULL;
    return code;
}

static int close_comm(void *comm) {
    close(((struct comm *)comm)->socket);
    free(comm);
    return 0;
}

static int finalize(void *context) {
    (void)context;
    return 0;
}

__attribute__((visibility("default"))) const struct net_v12 ncclNetPlugin_v12 = {
    .name = "TCP", .init = init, .devices = devices, .get_properties = get_properties, .listen = listen_at,
    .connect = connect_to, .accept = accept_one, .reg_mr = reg_mr, .dereg_mr = dereg_mr, .isend = isend, .irecv = irecv,
    .iflush = iflush, .test = test, .close_send = close_comm, .close_recv = close_comm, .close_listen = close_comm,
    .finalize = finalize,
};
