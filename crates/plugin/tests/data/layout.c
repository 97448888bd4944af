/* What the compiler makes of the header. */
#include "gmlake_allocator.h"
#include <stdio.h>

int main(void) {
    printf("%zu %zu %zu %zu %zu %zu %zu %d\n", sizeof(gmlake_host), offsetof(gmlake_host, event_destroy),
           sizeof(gmlake_block), offsetof(gmlake_block, tag), sizeof(gmlake_allocator),
           offsetof(gmlake_allocator, name), offsetof(gmlake_allocator, empty_cache), GMLAKE_ALLOCATOR_VERSION);
    return 0;
}
