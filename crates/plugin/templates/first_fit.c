/* First fit over cudaMalloc: a template. cc -O2 -shared -fPIC -I crates/plugin/include -o libmine.so first_fit.c */
#include "gmlake_allocator.h"
#include <stdlib.h>

typedef struct range { /* a piece of a segment, in a list by segment and then by address */
    uint64_t at, size, segment;
    uint32_t stream;
    int used;
    struct range *before, *next;
} range;
typedef struct { range head; } mine;

static uint64_t up(uint64_t size, uint64_t unit) { return (size + unit - 1) / unit * unit; }

static range *insert(range *before, uint64_t at, uint64_t size, uint64_t segment, uint32_t stream) {
    range *r = malloc(sizeof *r);
    *r = (range){at, size, segment, stream, 0, before, before->next};
    if (r->next) r->next->before = r;
    return before->next = r;
}
static void take_out(range *r) {
    r->before->next = r->next;
    if (r->next) r->next->before = r->before;
    free(r);
}
static int joins(const range *a, const range *b) { return a && b && !a->used && !b->used && a->segment == b->segment; }

static void *create(const char *options) { return *options ? NULL : calloc(1, sizeof(mine)); }
static void destroy(void *self) {
    while (((mine *)self)->head.next) take_out(((mine *)self)->head.next);
    free(self);
}
static int allocate(void *self, const gmlake_host *host, uint64_t size, uint32_t stream, gmlake_block *block) {
    range *head = &((mine *)self)->head, *r = head->next;
    size = up(size, 512);
    while (r && (r->used || r->stream != stream || r->size < size)) r = r->next;
    if (!r) {
        uint64_t at, length = up(size, (uint64_t)20 << 20);
        int error = host->malloc(host->context, length, &at);
        if (error) return error; /* perhaps empty_cache() first */
        r = insert(head, at, length, at, stream);
    }
    if (r->size > size) insert(r, r->at + size, r->size - size, r->segment, stream);
    r->size = size;
    r->used = 1;
    *block = (gmlake_block){r->at, size, (uint64_t)(uintptr_t)r};
    return 0;
}
static int free_block(void *self, const gmlake_host *host, const gmlake_block *block, uint32_t stream) {
    range *r = (range *)(uintptr_t)block->tag;
    r->used = 0;
    if (joins(r, r->next)) { r->size += r->next->size; take_out(r->next); }
    if (r->before->size && joins(r->before, r)) { r->before->size += r->size; take_out(r); }
    return 0;
}
static const gmlake_allocator ME = {
    GMLAKE_ALLOCATOR_VERSION, 512, "first-fit", "first fit in segments of cudaMalloc", create, destroy, allocate, free_block, NULL};
const gmlake_allocator *gmlake_allocator_entry(void) { return &ME; }
