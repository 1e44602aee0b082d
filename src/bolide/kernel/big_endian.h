/* Numbers as the wire and the log have them: big-endian, at any address. */
#ifndef BOLIDE_BIG_ENDIAN_H
#define BOLIDE_BIG_ENDIAN_H
#include <stdint.h>
#include <string.h>

static inline uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static inline uint32_t get32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    return value;
}
static inline uint64_t get64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}
static inline void put16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}
static inline void put32(uint8_t *at, uint32_t value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    memcpy(at, &value, 4);
}
static inline void put64(uint8_t *at, uint64_t value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    memcpy(at, &value, 8);
}
#endif
