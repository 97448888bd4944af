/* Plug-ins that misbehave: FLAW says how. Otherwise each request is one cudaMalloc. */
#include "gmlake_allocator.h"
#include <stdlib.h>

enum { NONE, NULL_ADDRESS, TOO_SMALL, UNMAPPED, OVERLAP, NO_ACCESS, UNKNOWN_FREE, ODD_SIZE, CODE, EARLY_FREE, REFUSES,
       NO_PLACE, MISALIGNED, OTHER_STREAM, VERSION, NAMELESS, NO_FUNCTION };
#ifndef FLAW
#define FLAW NONE
#endif

static uint64_t last;

static void *create(const char *options) { return FLAW == REFUSES || *options ? NULL : malloc(1); }
static void destroy(void *self) { *(char *)self = 0, free(self); }
static int map_without_access(const gmlake_host *host, uint64_t *address) {
    uint64_t handle;
    int error = host->reserve(host->context, GMLAKE_GRANULE, address);
    if (!error) error = host->create(host->context, GMLAKE_GRANULE, &handle);
    return error ? error : host->map(host->context, *address, handle);
}
static int allocate(void *self, const gmlake_host *host, uint64_t size, uint32_t stream, gmlake_block *block) {
    uint64_t address = 0;
    if (FLAW == CODE) return 77;
    if (FLAW == NO_PLACE) return host->malloc(host->context, size, NULL);
    if (FLAW == ODD_SIZE) return host->create(host->context, size + 1, &address);
    if (FLAW == NO_ACCESS) {
        int error = map_without_access(host, &address);
        *block = (gmlake_block){address, size, 0};
        return error;
    }
    if (FLAW == OTHER_STREAM && last) {
        *block = (gmlake_block){last, size, 0};
        last = 0;
        return 0;
    }
    int error = host->malloc(host->context, size + 512, &address);
    if (FLAW == NULL_ADDRESS) address = 0;
    if (FLAW == UNMAPPED) address += (uint64_t)1 << 40;
    if (FLAW == MISALIGNED) address += 8;
    if (FLAW == OVERLAP && last) address = last;
    if (FLAW != OTHER_STREAM) last = address;
    *block = (gmlake_block){address, FLAW == TOO_SMALL ? size - 1 : size, 0};
    if (FLAW == EARLY_FREE) host->free(host->context, address);
    return error;
}
static int free_block(void *self, const gmlake_host *host, const gmlake_block *block, uint32_t stream) {
    if (FLAW == UNKNOWN_FREE) return host->free(host->context, 4096);
    if (FLAW == OTHER_STREAM) {
        last = block->address;
        return 0;
    }
    return host->free(host->context, block->address);
}
static const gmlake_allocator ME = {FLAW == VERSION ? 99 : GMLAKE_ALLOCATOR_VERSION, 512,
                                    FLAW == NAMELESS ? "A Name" : NAME, NULL, create, destroy, allocate,
                                    FLAW == NO_FUNCTION ? NULL : free_block, NULL};
const gmlake_allocator *gmlake_allocator_entry(void) { return &ME; }
