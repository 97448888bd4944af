/* A GPU memory allocator for gmlake-sim and gmlake-replay, as a shared library.
 *
 * The library exports one function, gmlake_allocator_entry. The host calls it once and gets a table of functions. It
 * then makes an instance with `create` and asks it for memory. The instance asks the host for memory calls:
 *
 *   host ── allocate, free, empty_cache ──> your instance ── malloc, reserve, map, ... ──> host (simulated or a GPU)
 *
 * Rules
 *   - One thread calls an instance at a time. Several instances may run at once: keep your state in the instance.
 *   - Take memory only from the host table, and only during a call. The table is valid during the call that got it.
 *   - A block may be handed out again on the stream that freed it at once. On another stream, first make it wait
 *     (event_record, stream_wait_event), or make sure that the first is done (event_query, synchronize).
 *   - The host checks every address that you return, and every memory call. The first mistake ends the run.
 *   - Functions return 0 for success and GMLAKE_OUT_OF_MEMORY if memory is short. Anything else is a failure.
 */
#ifndef GMLAKE_ALLOCATOR_H
#define GMLAKE_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever an old library would no longer work. */
#define GMLAKE_ALLOCATOR_VERSION 1

#define GMLAKE_OUT_OF_MEMORY 1
#define GMLAKE_FAILED 2

/* Handles, and mappings, are multiples of 2 MiB. */
#define GMLAKE_GRANULE ((uint64_t)2 << 20)

/* The device. The first argument of each function is `context`. Sizes are bytes, addresses are the GPU's. */
typedef struct gmlake_host {
    void *context;
    /* cuMemGetInfo */
    int (*memory_info)(void *context, uint64_t *free, uint64_t *total);
    /* cuMemAlloc, cuMemFree (which waits until the GPU is idle) */
    int (*malloc)(void *context, uint64_t size, uint64_t *address);
    int (*free)(void *context, uint64_t address);
    /* cuMemAddressReserve, cuMemAddressFree: addresses without memory; sizes are multiples of GMLAKE_GRANULE */
    int (*reserve)(void *context, uint64_t size, uint64_t *address);
    int (*unreserve)(void *context, uint64_t address, uint64_t size);
    /* cuMemCreate, cuMemRelease: memory without an address; it stays until it is released and mapped nowhere */
    int (*create)(void *context, uint64_t size, uint64_t *handle);
    int (*release)(void *context, uint64_t handle);
    /* cuMemMap of one whole handle, cuMemSetAccess, cuMemUnmap of whole mappings (which does not wait for the GPU) */
    int (*map)(void *context, uint64_t address, uint64_t handle);
    int (*set_access)(void *context, uint64_t address, uint64_t size);
    int (*unmap)(void *context, uint64_t address, uint64_t size);
    /* cuCtxSynchronize */
    int (*synchronize)(void *context);
    /* cuEventRecord (a new event), cuEventQuery, cuStreamWaitEvent, cuEventDestroy */
    int (*event_record)(void *context, uint32_t stream, uint64_t *event);
    int (*event_query)(void *context, uint64_t event, int *is_reached);
    int (*stream_wait_event)(void *context, uint32_t stream, uint64_t event);
    int (*event_destroy)(void *context, uint64_t event);
} gmlake_host;

/* What you hand out: `size` may be more than was requested, `tag` is yours and comes back with the free. */
typedef struct gmlake_block {
    uint64_t address;
    uint64_t size;
    uint64_t tag;
} gmlake_block;

typedef struct gmlake_allocator {
    /* GMLAKE_ALLOCATOR_VERSION */
    uint32_t version;
    /* All addresses that you return are multiples of this power of two, 1 or more; 512 is what PyTorch relies on. */
    uint32_t alignment;
    /* 1 to 24 of a-z, 0-9, - and _; and one line that says what it is. Both live as long as the library. */
    const char *name;
    const char *summary;
    /* A new instance that holds nothing. `options` is "" or "a=1,b=2", as given with --set name.a=1 (bench: --option). NULL: refused. */
    void *(*create)(const char *options);
    /* The host has forgotten all that the instance held: only free your own memory. */
    void (*destroy)(void *self);
    /* `size` is more than 0. GMLAKE_OUT_OF_MEMORY: the host waits for frees that are pending, and asks once more. */
    int (*allocate)(void *self, const gmlake_host *host, uint64_t size, uint32_t stream, gmlake_block *block);
    /* A block that you handed out, once no stream but `stream` uses it. The host sees to that (record_stream). */
    int (*free)(void *self, const gmlake_host *host, const gmlake_block *block, uint32_t stream);
    /* torch.cuda.empty_cache: give back what you need not hold. May be NULL. */
    int (*empty_cache)(void *self, const gmlake_host *host);
} gmlake_allocator;

/* What you export. */
#if defined(_WIN32)
__declspec(dllexport)
#else
__attribute__((visibility("default")))
#endif
const gmlake_allocator *gmlake_allocator_entry(void);

#ifdef __cplusplus
}
#endif

#endif
