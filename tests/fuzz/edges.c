/* Which edges of the kernel were reached: what -fsanitize-coverage=trace-pc calls, preloaded. */
#include <stdint.h>

#define EDGES (1 << 18)
uint8_t edges[EDGES];
static __thread uintptr_t before;

__attribute__((no_sanitize("all"))) void __sanitizer_cov_trace_pc(void) {
    uintptr_t here = (uintptr_t)__builtin_return_address(0) >> 1;
    edges[(here * 0x9E3779B1u ^ before) & (EDGES - 1)] = 1;
    before = here >> 1;
}

/* How many were never reached before this call; `known` is the caller's, of EDGES bytes. */
__attribute__((no_sanitize("all"))) int new_edges(uint8_t *known) {
    int found = 0;
    uint64_t *words = (uint64_t *)edges;
    for (int i = 0; i < EDGES / 8; i++) {
        if (words[i] == 0) continue;
        for (int j = 8 * i; j < 8 * i + 8; j++) {
            if (edges[j] && !known[j]) {
                known[j] = 1;
                found++;
            }
        }
        words[i] = 0;
    }
    return found;
}
