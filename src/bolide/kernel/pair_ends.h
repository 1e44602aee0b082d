/* Where the pairs of a property text end: in which of 64 bytes there is a 2, bit i for byte i. */
#ifndef BOLIDE_PAIR_ENDS_H
#define BOLIDE_PAIR_ENDS_H
#include <stdint.h>
#if defined(__SSE2__)
#include <emmintrin.h>

static inline uint64_t pair_ends_of_16(const uint8_t *at) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(2)));
}
/* Not inline: in the middle of a larger loop gcc passes every block through the stack. */
__attribute__((noinline)) static uint64_t pair_ends(const uint8_t *at) {
    return pair_ends_of_16(at) | pair_ends_of_16(at + 16) << 16 | pair_ends_of_16(at + 32) << 32 |
           pair_ends_of_16(at + 48) << 48;
}
#else
static inline uint64_t pair_ends(const uint8_t *at) {
    uint64_t found = 0;
    for (int i = 0; i < 64; i++) found |= (uint64_t)(at[i] == 2) << i;
    return found;
}
#endif
static inline int lowest_bit(uint64_t bits) { return __builtin_ctzll(bits); }
static inline void fetch(const uint8_t *at) { __builtin_prefetch(at); }
#endif
