/* CRC-32 (polynomial 0x04C11DB7, reflected) by carry-less multiplication where the processor has it, else by tables.
 *
 * Four 128-bit lanes are folded over 64 bytes at a time, then into one, then reduced to 32 bits (Gopal and others,
 * "Fast CRC Computation Using PCLMULQDQ", 2009; the constants are powers of x modulo the polynomial). What is left
 * under 16 bytes, and anything shorter than 64, takes the tables: eight bytes a step.
 */
#ifndef BOLIDE_CRC32_H
#define BOLIDE_CRC32_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc_tables[8][256];

static void crc_make_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
        crc_tables[0][byte] = value;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int table = 1; table < 8; table++)
            crc_tables[table][byte] =
                crc_tables[table - 1][byte] >> 8 ^ crc_tables[0][crc_tables[table - 1][byte] & 0xFF];
}

/* crc is the inner state: the complement of a checksum. */
static uint32_t crc_by_tables(uint32_t crc, const uint8_t *bytes, size_t size) {
    while (size >= 8) {
        uint32_t low, high;
        memcpy(&low, bytes, 4);
        memcpy(&high, bytes + 4, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        low = __builtin_bswap32(low);
        high = __builtin_bswap32(high);
#endif
        low ^= crc;
        crc = crc_tables[7][low & 0xFF] ^ crc_tables[6][low >> 8 & 0xFF] ^ crc_tables[5][low >> 16 & 0xFF] ^
              crc_tables[4][low >> 24] ^ crc_tables[3][high & 0xFF] ^ crc_tables[2][high >> 8 & 0xFF] ^
              crc_tables[1][high >> 16 & 0xFF] ^ crc_tables[0][high >> 24];
        bytes += 8;
        size -= 8;
    }
    while (size--) crc = crc >> 8 ^ crc_tables[0][(crc ^ *bytes++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define CRC_FOLDS 1
#include <immintrin.h>

#define CRC_LOAD(at) _mm_loadu_si128((const __m128i *)(bytes + (at)))

__attribute__((target("pclmul,sse4.1"))) static inline __m128i crc_fold(__m128i lane, __m128i power, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(lane, power, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, power, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* size is at least 64 and a multiple of 16. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t crc_by_folding(uint32_t crc, const uint8_t *bytes, size_t size) {
    const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i words = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i a = _mm_xor_si128(CRC_LOAD(0), _mm_cvtsi32_si128((int)crc));
    __m128i b = CRC_LOAD(16), c = CRC_LOAD(32), d = CRC_LOAD(48);
    bytes += 64;
    size -= 64;
    while (size >= 64) {
        a = crc_fold(a, by_512, CRC_LOAD(0));
        b = crc_fold(b, by_512, CRC_LOAD(16));
        c = crc_fold(c, by_512, CRC_LOAD(32));
        d = crc_fold(d, by_512, CRC_LOAD(48));
        bytes += 64;
        size -= 64;
    }
    a = crc_fold(a, by_128, b);
    a = crc_fold(a, by_128, c);
    a = crc_fold(a, by_128, d);
    while (size >= 16) {
        a = crc_fold(a, by_128, CRC_LOAD(0));
        bytes += 16;
        size -= 16;
    }
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_128, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, words), by_64, 0x00));
    b = _mm_clmulepi64_si128(_mm_and_si128(a, words), barrett, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}
#endif

static int crc_can_fold = 0;

static void crc_prepare(void) {
    crc_make_tables();
#ifdef CRC_FOLDS
    __builtin_cpu_init();
    crc_can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static uint32_t crc32_of(const uint8_t *bytes, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
#ifdef CRC_FOLDS
    if (crc_can_fold && size >= 64) {
        size_t folded = size & ~(size_t)15;
        crc = crc_by_folding(crc, bytes, folded);
        bytes += folded;
        size -= folded;
    }
#endif
    return ~crc_by_tables(crc, bytes, size);
}
#endif
