/* Runs one case with a net plugin of NCCL: harness PLUGIN VERSION CASE [NUMBER] */
#include "ranks.h"

/* The number of the command line; what it means depends on the case. */
static int number;

static size_t slice(int message) {
    (void)message;
    return 512 * 1024;
}

static size_t small(int message) {
    uint64_t draw = mix(1000003 + (uint64_t)message);
    size_t most = (size_t)1 << (draw % 19);
    return mix(draw) % (most + 1);
}

/* Few are long: a hundred have 1.3 GiB. */
static size_t of_all_sizes(int message) {
    double part = (double)(mix(7 + (uint64_t)message) >> 11) / (double)((uint64_t)1 << 53);
    if (message == 0) return 64 << 20;
    if (message == 1) return 0;
    return (size_t)(part * part * part * part * part * (64 << 20));
}

/* A handle as the plugin makes it, of a listener that nobody has. */
static const char absent[HANDLE_BYTES] = {'F', 'W', 'N', 'C', 1, 1, [14] = 9, [46] = 4, 127, 0, 0, 1, [64] = 9};

/* A handle with one other byte is refused, and the warning has a word that says why. */
static void refuses_handle(int at, char byte, const char *word) {
    char handle[HANDLE_BYTES];
    void *comm = NULL;
    memcpy(handle, absent, sizeof handle);
    handle[at] = byte;
    CHECK(net_connect(context, 0, handle, &comm) == 4 && comm == NULL && strstr(warning, word) != NULL);
}

/* One message each way, and everything beside messages. */
static void basic(void) {
    void *second = NULL, *request = NULL, *memory = NULL;
    int devices = 0, is_done = 0, size = -1;
    struct properties properties;
    char source[100] = "hello", target[200];
    SUCCEEDS(net_init(&second, log_line));
    SUCCEEDS(CALL(devices, &devices));
    CHECK(devices == 1);
    SUCCEEDS(net_properties(0, &properties));
    CHECK(properties.ptr_support == PTR_HOST && properties.max_recvs == 1 && properties.net_device_type == 0);
    CHECK(properties.speed == 2000 && properties.latency == 12500 && properties.max_comms > 1000);
    CHECK(properties.max_p2p_bytes >= 1 << 30);
    CHECK(net_properties(7, &properties) != 0 && strstr(warning, "device 7") != NULL);
    refuses_handle(0, 'X', "another plugin");
    refuses_handle(4, 2, "version 2");
    refuses_handle(14, 0, "no public key");
    refuses_handle(46, 5, "addresses");

    struct ends ends = join_ring(1, 1);
    CHECK(CALL(reg_mr, ends.send, source, sizeof source, PTR_CUDA, &memory) != 0);
    SUCCEEDS(CALL(reg_mr, ends.send, source, sizeof source, PTR_HOST, &memory));
    CHECK(net_isend(ends.send, source + 50, 51, memory, &request) != 0 && strstr(warning, "leave") != NULL);
    CHECK(net_isend(ends.receive, source, 6, memory, &request) != 0);
    void *incoming = NULL, *receive = NULL;
    SUCCEEDS(CALL(reg_mr, ends.receive, target, sizeof target, PTR_HOST, &incoming));
    CHECK(net_irecv(ends.receive, 2, target, sizeof target, incoming, &receive) != 0);
    /* A receive that is larger than its send, then empty messages. */
    for (int round = 0; round < 3; round++) {
        size_t bytes = round == 0 ? 6 : 0;
        request = receive = NULL;
        while (receive == NULL) SUCCEEDS(net_irecv(ends.receive, 1, target, sizeof target, incoming, &receive));
        while (request == NULL) SUCCEEDS(net_isend(ends.send, source, bytes, memory, &request));
        for (is_done = 0; !is_done;) SUCCEEDS(CALL(test, receive, &is_done, &size));
        CHECK(size == (int)bytes && strcmp(target, "hello") == 0);
        for (is_done = 0; !is_done;) SUCCEEDS(CALL(test, request, &is_done, NULL));
    }
    CHECK(CALL(test, request, &is_done, NULL) != 0);
    request = &request;
    void *data = target;
    SUCCEEDS(CALL(iflush, ends.receive, 1, &data, &size, &incoming, &request));
    CHECK(request == NULL);
    SUCCEEDS(CALL(dereg_mr, ends.send, memory));
    SUCCEEDS(CALL(dereg_mr, ends.receive, incoming));
    barrier();
    leave_ring(ends);
    CHECK(CALL(close_listen, ends.listener) != 0);
    SUCCEEDS(net_finalize(second));
}

/* One way, from rank 0 to rank 1. */
static void one_way(int window, int count, size_t most, size_t (*size_of)(int)) {
    int is_send = rank == 0;
    struct ends ends = join_ring(is_send, !is_send);
    struct flow flow = start_flow(is_send ? ends.send : ends.receive, is_send, window, count, most, size_of);
    run_flows(&flow, 1);
    leave_ring(ends);
}

/* As NCCL's channels: eight requests of half a mebibyte. */
static void channel(void) { one_way(8, number, 512 * 1024, slice); }

static void many(void) { one_way(32, number, 256 * 1024, small); }

static void sizes(void) { one_way(4, number, 64 << 20, of_all_sizes); }

/* Both ways at a time, around a ring. */
static void ring(void) {
    struct ends ends = join_ring(1, 1);
    struct flow flows[] = {start_flow(ends.send, 1, 8, number, 512 * 1024, slice),
                           start_flow(ends.receive, 0, 8, number, 512 * 1024, slice)};
    run_flows(flows, 2);
    barrier();
    leave_ring(ends);
}

/* Sends `count` values to the next rank and receives as many of the previous one, as NCCL does: pieces of half a mebibyte,
 * eight of them open. */
static void exchange(struct ends ends, float *from, void *sent, float *to, void *received, size_t count) {
    enum { PIECE = 512 * 1024 / sizeof(float), WINDOW = 8 };
    size_t pieces = (count + PIECE - 1) / PIECE, posted[2] = {0}, done[2] = {0};
    void *requests[2][WINDOW];
    while (done[0] < pieces || done[1] < pieces) {
        for (int is_receive = 0; is_receive < 2; is_receive++) {
            while (posted[is_receive] < pieces && posted[is_receive] - done[is_receive] < WINDOW) {
                size_t at = posted[is_receive] * PIECE, bytes = (count - at < PIECE ? count - at : PIECE) * sizeof(float);
                void *request = NULL;
                if (is_receive) SUCCEEDS(net_irecv(ends.receive, 1, to + at, bytes, received, &request));
                else SUCCEEDS(net_isend(ends.send, from + at, bytes, sent, &request));
                if (request == NULL) break;
                requests[is_receive][posted[is_receive]++ % WINDOW] = request;
            }
            while (done[is_receive] < posted[is_receive]) {
                int is_done = 0;
                SUCCEEDS(CALL(test, requests[is_receive][done[is_receive] % WINDOW], &is_done, NULL));
                if (!is_done) break;
                done[is_receive]++;
            }
        }
        sched_yield();
    }
}

/* A ring all-reduce of `number` MiB: sums that travel once around, and results that do. Prints the seconds of each. */
static void all_reduce(void) {
    enum { ROUNDS = 3 };
    size_t part = (size_t)number * (1 << 20) / sizeof(float) / (size_t)ranks, all = part * (size_t)ranks;
    float *values = malloc(all * sizeof *values), *incoming = malloc(part * sizeof *incoming);
    void *sent = NULL, *results = NULL, *received = NULL;
    struct ends ends = join_ring(1, 1);
    SUCCEEDS(CALL(reg_mr, ends.send, values, all * sizeof *values, PTR_HOST, &sent));
    SUCCEEDS(CALL(reg_mr, ends.receive, values, all * sizeof *values, PTR_HOST, &results));
    SUCCEEDS(CALL(reg_mr, ends.receive, incoming, part * sizeof *incoming, PTR_HOST, &received));
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t at = 0; at < all; at++) values[at] = (float)(mix(at) % 1000 + (uint64_t)(rank + round));
        barrier();
        double start = now();
        for (int step = 0; step < 2 * (ranks - 1); step++) {
            float *from = values + part * (size_t)((rank - step + 2 * ranks) % ranks);
            float *to = values + part * (size_t)((rank - step - 1 + 2 * ranks) % ranks);
            if (step < ranks - 1) {
                exchange(ends, from, sent, incoming, received, part);
                for (size_t at = 0; at < part; at++) to[at] += incoming[at];
            } else {
                exchange(ends, from, sent, to, results, part);
            }
        }
        barrier();
        if (rank == 0) printf("%.3f s, ", now() - start);
        for (size_t at = 0; at < all; at++) {
            uint64_t sum = (uint64_t)ranks * (mix(at) % 1000 + (uint64_t)round) + (uint64_t)(ranks * (ranks - 1) / 2);
            CHECK(values[at] == (float)sum);
        }
    }
    SUCCEEDS(CALL(dereg_mr, ends.send, sent));
    SUCCEEDS(CALL(dereg_mr, ends.receive, results));
    SUCCEEDS(CALL(dereg_mr, ends.receive, received));
    free(values);
    free(incoming);
    barrier();
    leave_ring(ends);
}

/* Memory is free, and not used any more, when deregistering or closing has returned. */
static void close_early(void) {
    for (int round = 0; round < number; round++) {
        struct ends ends = join_ring(1, 1);
        struct flow flows[] = {start_flow(ends.send, 1, 32, 32, 1 << 20, slice),
                               start_flow(ends.receive, 0, 16, 16, 1 << 20, slice)};
        for (int each = 0; each < 2; each++) SUCCEEDS(step_flow(&flows[each]));
        barrier();
        if (round % 2 == 0) {
            end_flow(&flows[0]);
            end_flow(&flows[1]);
            leave_ring(ends);
        } else {
            leave_ring(ends);
            end_flow(&flows[1]);
            end_flow(&flows[0]);
        }
        atomic_store(&shared->has_handle[rank], 0);
        barrier();
    }
}

/* A rank is killed: the other one gets errors, for what it sends and for what it receives. */
static void death(void) {
    struct ends ends = join_ring(1, 1);
    struct flow flows[] = {start_flow(ends.send, 1, 8, 1 << 30, 512 * 1024, slice),
                           start_flow(ends.receive, 0, 8, 1 << 30, 512 * 1024, slice)};
    int codes[2] = {0};
    double errors[2] = {0}, died;
    while (codes[0] == 0 || codes[1] == 0) {
        for (int each = 0; each < 2; each++) {
            if (codes[each] == 0 && (codes[each] = step_flow(&flows[each])) != 0) errors[each] = now();
        }
        if (rank == 1 && flows[1].done > 20) {
            atomic_store(&shared->died, now());
            raise(SIGKILL);
        }
        died = atomic_load(&shared->died);
        if (died != 0 && now() - died > 10) fail("no error within 10 s: codes %d and %d", codes[0], codes[1]);
    }
    CHECK(died != 0 && strstr(warning, "the connection") != NULL);
    printf("errors %d and %d after %.1f s and %.1f s\n", codes[0], codes[1], errors[0] - died, errors[1] - died);
    end_flow(&flows[0]);
    leave_ring(ends);
}

/* Without a secret, listening and connecting fail, and say what to do. */
static void no_secret(void) {
    void *comm = NULL;
    char handle[HANDLE_BYTES];
    CHECK(net_listen(context, 0, handle, &comm) == 5 && strstr(warning, "FARWRITE_PSK_FILE") != NULL);
    memcpy(handle, absent, sizeof handle);
    warning[0] = 0;
    CHECK(net_connect(context, 0, handle, &comm) == 5 && strstr(warning, "FARWRITE_PSK_FILE") != NULL);
}

/* The listener refuses the rank that connects. `flipped` are bits of a byte of its public key in the handle. */
static void refused(int flipped) {
    struct ends ends = {0};
    int code = 0;
    if (rank == 1) {
        SUCCEEDS(net_listen(context, 0, shared->handles[1], &ends.listener));
        atomic_store(&shared->has_handle[1], 1);
    } else {
        char handle[HANDLE_BYTES];
        while (!atomic_load(&shared->has_handle[1])) sched_yield();
        memcpy(handle, shared->handles[1], sizeof handle);
        handle[20] ^= (char)flipped;
        for (double start = now(); code == 0 && now() - start < 20;) {
            code = net_connect(context, 0, handle, &ends.send);
            CHECK(ends.send == NULL);
            sched_yield();
        }
        CHECK(code == 6 && strstr(warning, "key") != NULL);
    }
    barrier();
    if (rank == 1) {
        SUCCEEDS(net_accept(ends.listener, &ends.receive));
        CHECK(ends.receive == NULL);
        SUCCEEDS(CALL(close_listen, ends.listener));
    }
}

/* Ranks with different secrets: HARNESS_OTHER_PSK_FILE names that of rank 1. */
static void other_secret(void) {
    CHECK(getenv("HARNESS_OTHER_PSK_FILE") != NULL);
    refused(0);
}

/* A handle that names another listener. */
static void other_listener(void) { refused(1); }

static const struct {
    const char *name;
    void (*body)(void);
    int ranks, number, killed;
} cases[] = {
    {"basic", basic, 2, 0, -1},
    {"channel", channel, 2, 200, -1},
    {"many", many, 2, 10000, -1},
    {"sizes", sizes, 2, 100, -1},
    {"ring-2", ring, 2, 100, -1},
    {"ring-3", ring, 3, 100, -1},
    {"ring-4", ring, 4, 100, -1},
    {"all-reduce", all_reduce, 4, 64, -1},
    {"close", close_early, 2, 4, -1},
    {"death", death, 2, 0, 1},
    {"no-secret", no_secret, 1, 0, -1},
    {"other-secret", other_secret, 2, 0, -1},
    {"other-listener", other_listener, 2, 0, -1},
};

int main(int count, char **arguments) {
    for (size_t each = 0; count >= 4 && each < sizeof cases / sizeof *cases; each++) {
        if (strcmp(cases[each].name, arguments[3]) != 0) continue;
        number = count > 4 ? atoi(arguments[4]) : cases[each].number;
        double start = now();
        int failures = run_ranks(cases[each].ranks, arguments[1], atoi(arguments[2]), cases[each].body, cases[each].killed);
        if (failures == 0) printf("ok, %.1f s\n", now() - start);
        return failures != 0;
    }
    fprintf(stderr, "harness PLUGIN VERSION CASE [NUMBER]\n");
    return 2;
}
