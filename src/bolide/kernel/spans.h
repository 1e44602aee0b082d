/* Bytes that lie somewhere, and words of our own among them. */
#ifndef BOLIDE_SPANS_H
#define BOLIDE_SPANS_H
#include <stdint.h>

typedef struct {
    const uint8_t *at;
    Py_ssize_t size;
} Span;

/* The span of a literal: the compiler counts its bytes. What is no array has another size, and does not compile. */
#define IS_POINTER(text) __builtin_types_compatible_p(__typeof__(text), __typeof__(&(text)[0]))
#define LITERAL(text) ((Span){(const uint8_t *)(text), sizeof(text) - 1 + 0 * sizeof(char[1 - 2 * IS_POINTER(text)])})
#endif
