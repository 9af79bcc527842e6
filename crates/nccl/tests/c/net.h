/* The functions of a net plugin, called as NCCL of each version calls them. The members of the tables are those of the
 * public header; tests/layout.txt has their offsets. */
#ifndef NET_H
#define NET_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { OLDEST = 8, NEWEST = 12, HANDLE_BYTES = 128, PTR_HOST = 1, PTR_CUDA = 2 };

typedef void (*logger)(int level, unsigned long subsystems, const char *file, int line, const char *format, ...);

#define HEAD(n)                \
    char *name;                \
    char *pci_path;            \
    uint64_t guid;             \
    int ptr_support;           \
    int reg_is_global;
#define MIDDLE            \
    int speed;            \
    int port;             \
    float latency;        \
    int max_comms;        \
    int max_recvs;        \
    int net_device_type;  \
    int net_device_version;
#define VIRTUAL(devices)                      \
    struct { int ndevs, devs[devices]; } v_props; \
    size_t max_p2p_bytes;                     \
    size_t max_coll_bytes;

struct properties_v8 { HEAD() MIDDLE };
struct properties_v9 { HEAD() int force_flush; MIDDLE VIRTUAL(4) };
struct properties_v10 { HEAD() int force_flush; MIDDLE VIRTUAL(4) };
struct properties_v11 { HEAD() int force_flush; MIDDLE VIRTUAL(4) int max_multi_request_size; };
struct properties_v12 { HEAD() int force_flush; MIDDLE VIRTUAL(8) int max_multi_request_size; int16_t rail_id, plane_id; };

#define MEMORY                                                     \
    int (*accept)(void *, void **, void **);                       \
    int (*reg_mr)(void *, void *, size_t, int, void **);           \
    void *reg_mr_dma_buf;                                          \
    int (*dereg_mr)(void *, void *);
#define END                                                              \
    int (*iflush)(void *, int, void **, int *, void **, void **);        \
    int (*test)(void *, int *, int *);                                   \
    int (*close_send)(void *);                                           \
    int (*close_recv)(void *);                                           \
    int (*close_listen)(void *);                                         \
    void *get_device_mr;                                                 \
    void *irecv_consumed;

struct net_v8 {
    const char *name;
    int (*init)(logger);
    int (*devices)(int *);
    int (*get_properties)(int, struct properties_v8 *);
    int (*listen)(int, void *, void **);
    int (*connect)(int, void *, void **, void **);
    MEMORY
    int (*isend)(void *, void *, int, int, void *, void **);
    int (*irecv)(void *, int, void **, int *, int *, void **, void **);
    END
};
struct net_v9 {
    const char *name;
    int (*init)(logger);
    int (*devices)(int *);
    int (*get_properties)(int, struct properties_v9 *);
    int (*listen)(int, void *, void **);
    int (*connect)(int, void *, void **, void **);
    MEMORY
    int (*isend)(void *, void *, size_t, int, void *, void **);
    int (*irecv)(void *, int, void **, size_t *, int *, void **, void **);
    END
    void *make_v_device;
};
struct net_v10 {
    const char *name;
    int (*init)(logger, void *);
    int (*devices)(int *);
    int (*get_properties)(int, struct properties_v10 *);
    int (*listen)(int, void *, void **);
    int (*connect)(int, int *, void *, void **, void **);
    MEMORY
    int (*isend)(void *, void *, size_t, int, void *, void *, void **);
    int (*irecv)(void *, int, void **, size_t *, int *, void **, void **, void **);
    END
    void *make_v_device;
};
#define CONTEXTS(n)                                                                        \
    const char *name;                                                                      \
    int (*init)(void **, uint64_t, int *, logger, void *);                                 \
    int (*devices)(int *);                                                                 \
    int (*get_properties)(int, struct properties_v##n *);                                  \
    int (*listen)(void *, int, void *, void **);                                           \
    int (*connect)(void *, int, void *, void **, void **);                                 \
    MEMORY                                                                                 \
    int (*isend)(void *, void *, size_t, int, void *, void *, void **);                    \
    int (*irecv)(void *, int, void **, size_t *, int *, void **, void **, void **);        \
    END                                                                                    \
    void *make_v_device;                                                                   \
    int (*finalize)(void *);                                                               \
    int (*set_net_attr)(void *, void *);
struct net_v11 { CONTEXTS(11) };
struct net_v12 { CONTEXTS(12) };

/* The plugin, of one version. */
static struct {
    int version;
    union {
        void *table;
        struct net_v8 *v8;
        struct net_v9 *v9;
        struct net_v10 *v10;
        struct net_v11 *v11;
        struct net_v12 *v12;
    };
} net;

/* What all versions say of a device. */
struct properties {
    const char *name;
    int ptr_support, speed, max_recvs, net_device_type, max_comms;
    float latency;
    size_t max_p2p_bytes;
};

#define CALL(member, ...)                           \
    (net.version == 8    ? net.v8->member(__VA_ARGS__)  \
     : net.version == 9  ? net.v9->member(__VA_ARGS__)  \
     : net.version == 10 ? net.v10->member(__VA_ARGS__) \
     : net.version == 11 ? net.v11->member(__VA_ARGS__) \
                         : net.v12->member(__VA_ARGS__))

static inline int net_load(const char *plugin, int version) {
    char symbol[32];
    void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
    net.version = version;
    net.table = dlsym(library, symbol);
    return net.table == NULL;
}

static inline int net_init(void **context, logger log) {
    int traffic_class = -1;
    *context = NULL;
    switch (net.version) {
    case 8: return net.v8->init(log);
    case 9: return net.v9->init(log);
    case 10: return net.v10->init(log, NULL);
    case 11: return net.v11->init(context, 1, &traffic_class, log, NULL);
    default: return net.v12->init(context, 1, &traffic_class, log, NULL);
    }
}

static inline int net_finalize(void *context) {
    return net.version == 11 ? net.v11->finalize(context) : net.version == 12 ? net.v12->finalize(context) : 0;
}

#define COPY(n, longest)                                                                              \
    case n: {                                                                                         \
        struct properties_v##n p;                                                                     \
        int code = net.v##n->get_properties(device, &p);                                              \
        *properties = (struct properties){p.name, p.ptr_support, p.speed, p.max_recvs, p.net_device_type, \
                                          p.max_comms, p.latency, longest};                           \
        return code;                                                                                  \
    }
static inline int net_properties(int device, struct properties *properties) {
    switch (net.version) {
        COPY(8, 1 << 30)
        COPY(9, p.max_p2p_bytes)
        COPY(10, p.max_p2p_bytes)
        COPY(11, p.max_p2p_bytes)
        COPY(12, p.max_p2p_bytes)
    default: return -1;
    }
}

static inline int net_listen(void *context, int device, void *handle, void **comm) {
    switch (net.version) {
    case 8: return net.v8->listen(device, handle, comm);
    case 9: return net.v9->listen(device, handle, comm);
    case 10: return net.v10->listen(device, handle, comm);
    case 11: return net.v11->listen(context, device, handle, comm);
    default: return net.v12->listen(context, device, handle, comm);
    }
}

static inline int net_connect(void *context, int device, void *handle, void **comm) {
    int traffic_class = -1;
    void *device_handle = NULL;
    switch (net.version) {
    case 8: return net.v8->connect(device, handle, comm, &device_handle);
    case 9: return net.v9->connect(device, handle, comm, &device_handle);
    case 10: return net.v10->connect(device, &traffic_class, handle, comm, &device_handle);
    case 11: return net.v11->connect(context, device, handle, comm, &device_handle);
    default: return net.v12->connect(context, device, handle, comm, &device_handle);
    }
}

static inline int net_accept(void *listener, void **comm) {
    void *device_handle = NULL;
    return CALL(accept, listener, comm, &device_handle);
}

static inline int net_isend(void *comm, void *data, size_t size, void *memory, void **request) {
    switch (net.version) {
    case 8: return net.v8->isend(comm, data, (int)size, 1, memory, request);
    case 9: return net.v9->isend(comm, data, size, 1, memory, request);
    case 10: return net.v10->isend(comm, data, size, 1, memory, NULL, request);
    case 11: return net.v11->isend(comm, data, size, 1, memory, NULL, request);
    default: return net.v12->isend(comm, data, size, 1, memory, NULL, request);
    }
}

static inline int net_irecv(void *comm, int count, void *data, size_t size, void *memory, void **request) {
    int tag = 1, size_v8 = (int)size;
    void *profiled = NULL;
    switch (net.version) {
    case 8: return net.v8->irecv(comm, count, &data, &size_v8, &tag, &memory, request);
    case 9: return net.v9->irecv(comm, count, &data, &size, &tag, &memory, request);
    case 10: return net.v10->irecv(comm, count, &data, &size, &tag, &memory, &profiled, request);
    case 11: return net.v11->irecv(comm, count, &data, &size, &tag, &memory, &profiled, request);
    default: return net.v12->irecv(comm, count, &data, &size, &tag, &memory, &profiled, request);
    }
}

#endif
