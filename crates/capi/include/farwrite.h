/*
 * farwrite.h - what sdr.h does not have.
 */
#ifndef FARWRITE_H
#define FARWRITE_H

#include <stddef.h>
#include <stdint.h>

#include "sdr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the version of the library, such as 0.1.0. */
const char *farwrite_version(void);

/*
 * Returns why the last call of this thread failed, in words. It is never NULL, and valid until the next
 * call of this thread that fails.
 */
const char *farwrite_last_error(void);

/*
 * Returns 64 packet bits of a chunk, as sdr_recv_bitmap_chunk_expand does, from packet 64 * word on.
 */
int farwrite_recv_packets(struct sdr_recv_handle *handle, uint32_t chunk, uint32_t word, uint64_t *bitmap);

#ifdef __cplusplus
}
#endif

#endif
