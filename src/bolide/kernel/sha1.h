/* SHA-1 (FIPS 180-4) and HMAC over it (RFC 2104), from a state that already has the key in it.
 *
 * The format of RocketMQ's signatures asks for SHA-1. Its weakness is in collisions, which an HMAC does not rest on.
 * Where the processor has instructions for it, four steps are one of them; else the steps stand here, unrolled.
 */
#ifndef BOLIDE_SHA1_H
#define BOLIDE_SHA1_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint32_t words[5];
    uint64_t size; /* of all bytes so far, the key's block too */
    uint8_t block[64];
} Sha1;

static inline uint32_t sha1_rotl(uint32_t value, int count) { return value << count | value >> (32 - count); }

/* The words of the schedule follow each other in a ring of sixteen. */
#define SHA1_WORD(i) \
    ((i) < 16 ? w[(i) & 15] \
              : (w[(i) & 15] = sha1_rotl(w[((i) + 13) & 15] ^ w[((i) + 8) & 15] ^ w[((i) + 2) & 15] ^ w[(i) & 15], 1)))
#define SHA1_STEP(a, b, c, d, e, mix, constant, i) \
    e += sha1_rotl(a, 5) + (mix) + constant + SHA1_WORD(i); \
    b = sha1_rotl(b, 30);
/* Five steps, after which every variable has its name again. */
#define SHA1_FIVE(mix, constant, i) \
    SHA1_STEP(a, b, c, d, e, mix(b, c, d), constant, i) \
    SHA1_STEP(e, a, b, c, d, mix(a, b, c), constant, i + 1) \
    SHA1_STEP(d, e, a, b, c, mix(e, a, b), constant, i + 2) \
    SHA1_STEP(c, d, e, a, b, mix(d, e, a), constant, i + 3) \
    SHA1_STEP(b, c, d, e, a, mix(c, d, e), constant, i + 4)
#define SHA1_TWENTY(mix, constant, i) \
    SHA1_FIVE(mix, constant, i) \
    SHA1_FIVE(mix, constant, i + 5) SHA1_FIVE(mix, constant, i + 10) SHA1_FIVE(mix, constant, i + 15)
#define SHA1_CHOICE(x, y, z) (z ^ (x & (y ^ z)))
#define SHA1_PARITY(x, y, z) (x ^ y ^ z)
#define SHA1_MAJORITY(x, y, z) ((x & y) | (z & (x | y)))

static void sha1_by_steps(uint32_t state[5], const uint8_t *at) {
    uint32_t w[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 16; i++) w[i] = get32(at + 4 * i);
    SHA1_TWENTY(SHA1_CHOICE, 0x5A827999u, 0)
    SHA1_TWENTY(SHA1_PARITY, 0x6ED9EBA1u, 20)
    SHA1_TWENTY(SHA1_MAJORITY, 0x8F1BBCDCu, 40)
    SHA1_TWENTY(SHA1_PARITY, 0xCA62C1D6u, 60)
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

static int sha1_has_instructions = 0;

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SHA1_INSTRUCTIONS 1
#include <cpuid.h>
#include <immintrin.h>

/* Four steps with the words of m0; the variables before them are what the next four take their fifth from. From the
 * fourth on, the words of sixteen steps later are made of those that lie between. */
#define SHA1_FOUR(m0, m1, m2, m3, kind, is_first, is_last) \
    fifth = is_first ? _mm_add_epi32(fifth, m0) : _mm_sha1nexte_epu32(before, m0); \
    before = now; \
    now = _mm_sha1rnds4_epu32(now, fifth, kind); \
    if (!is_last) m0 = _mm_sha1msg2_epu32(_mm_xor_si128(_mm_sha1msg1_epu32(m0, m1), m2), m3);
#define SHA1_SIXTEEN(k0, k1, k2, k3, is_first, is_last) \
    SHA1_FOUR(a, b, c, d, k0, is_first, is_last) \
    SHA1_FOUR(b, c, d, a, k1, 0, is_last) \
    SHA1_FOUR(c, d, a, b, k2, 0, is_last) \
    SHA1_FOUR(d, a, b, c, k3, 0, is_last)

__attribute__((target("sha,ssse3,sse4.1")))
static void sha1_by_instructions(uint32_t state[5], const uint8_t *at) {
    const __m128i reversed = _mm_set_epi64x(0x0001020304050607, 0x08090A0B0C0D0E0F);
    const __m128i *words = (const __m128i *)at;
    __m128i now = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0x1B), before = now;
    __m128i fifth = _mm_set_epi32((int)state[4], 0, 0, 0);
    const __m128i first = now, first_fifth = fifth;
    __m128i a = _mm_shuffle_epi8(_mm_loadu_si128(words), reversed);
    __m128i b = _mm_shuffle_epi8(_mm_loadu_si128(words + 1), reversed);
    __m128i c = _mm_shuffle_epi8(_mm_loadu_si128(words + 2), reversed);
    __m128i d = _mm_shuffle_epi8(_mm_loadu_si128(words + 3), reversed);
    SHA1_SIXTEEN(0, 0, 0, 0, 1, 0)
    SHA1_SIXTEEN(0, 1, 1, 1, 0, 0)
    SHA1_SIXTEEN(1, 1, 2, 2, 0, 0)
    SHA1_SIXTEEN(2, 2, 2, 3, 0, 0)
    SHA1_SIXTEEN(3, 3, 3, 3, 0, 1)
    state[4] = (uint32_t)_mm_extract_epi32(_mm_sha1nexte_epu32(before, first_fifth), 3);
    _mm_storeu_si128((__m128i *)state, _mm_shuffle_epi32(_mm_add_epi32(now, first), 0x1B));
}
#endif

/* Choose for this processor; before it the steps are taken. `wants_instructions` is false where a test compares. */
static int sha1_prepare(int wants_instructions) {
#ifdef SHA1_INSTRUCTIONS
    unsigned a, b, c, d;
    int has_sse = __get_cpuid(1, &a, &b, &c, &d) && c >> 9 & 1 && c >> 19 & 1; /* SSSE3, SSE4.1 */
    int has_sha = __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1;
    sha1_has_instructions = wants_instructions && has_sse && has_sha;
#endif
    return sha1_has_instructions;
}

static inline void sha1_block(uint32_t state[5], const uint8_t *at) {
#ifdef SHA1_INSTRUCTIONS
    if (sha1_has_instructions) {
        sha1_by_instructions(state, at);
        return;
    }
#endif
    sha1_by_steps(state, at);
}

static void sha1_start(Sha1 *sum) {
    static const uint32_t first[5] = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};
    memcpy(sum->words, first, sizeof first);
    sum->size = 0;
}

static void sha1_add(Sha1 *sum, const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    size_t used = sum->size & 63, part;
    if (!size) return;
    sum->size += size;
    if (used) {
        part = 64 - used < size ? 64 - used : size;
        memcpy(sum->block + used, at, part);
        if (used + part < 64) return;
        sha1_block(sum->words, sum->block);
        at += part;
        size -= part;
    }
    for (; size >= 64; at += 64, size -= 64) sha1_block(sum->words, at);
    if (size) memcpy(sum->block, at, size);
}

static void sha1_end(Sha1 *sum, uint8_t digest[20]) {
    uint64_t bits = sum->size * 8;
    size_t used = sum->size & 63;
    sum->block[used++] = 0x80;
    if (used > 56) {
        memset(sum->block + used, 0, 64 - used);
        sha1_block(sum->words, sum->block);
        used = 0;
    }
    memset(sum->block + used, 0, 56 - used);
    put64(sum->block + 56, bits);
    sha1_block(sum->words, sum->block);
    for (int i = 0; i < 5; i++) put32(digest + 4 * i, sum->words[i]);
}

enum { HMAC_STATE_SIZE = 40 };

/* The states of both passes behind the key's block. */
static void hmac_key(const uint8_t *key, size_t size, uint8_t state[HMAC_STATE_SIZE]) {
    uint8_t block[64] = {0}, padded[64];
    Sha1 sum;
    if (size > 64) {
        sha1_start(&sum);
        sha1_add(&sum, key, size);
        sha1_end(&sum, block);
    } else if (size) {
        memcpy(block, key, size);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 64; i++) padded[i] = block[i] ^ (pass ? 0x5C : 0x36);
        sha1_start(&sum);
        sha1_block(sum.words, padded);
        for (int i = 0; i < 5; i++) put32(state + 20 * pass + 4 * i, sum.words[i]);
    }
}

static void hmac_start(Sha1 *sum, const uint8_t *state) {
    for (int i = 0; i < 5; i++) sum->words[i] = get32(state + 4 * i);
    sum->size = 64;
}

static void hmac_end(Sha1 *sum, const uint8_t *state, uint8_t digest[20]) {
    sha1_end(sum, digest);
    hmac_start(sum, state + 20);
    sha1_add(sum, digest, 20);
    sha1_end(sum, digest);
}
#endif
