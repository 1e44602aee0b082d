/* The SHA-1 of the first 0 to `count` bytes of the input, by steps and by instructions: a line for each size. Where the
 * processor has no such instructions, the second is a dash. */
#include <stdio.h>
#include <stdlib.h>
#include "../../src/bolide/kernel/big_endian.h"
#include "../../src/bolide/kernel/sha1.h"

static void put_sum(const uint8_t *bytes, size_t size) {
    uint8_t digest[20];
    Sha1 sum;
    sha1_start(&sum);
    sha1_add(&sum, bytes, size / 3); /* in parts, as fields come */
    sha1_add(&sum, bytes + size / 3, size - size / 3);
    sha1_end(&sum, digest);
    for (int i = 0; i < 20; i++) printf("%02x", digest[i]);
}

int main(void) {
    static uint8_t bytes[1024];
    size_t count = fread(bytes, 1, sizeof bytes, stdin);
    for (size_t size = 0; size <= count; size++) {
        sha1_prepare(0);
        put_sum(bytes, size);
        putchar(' ');
        if (sha1_prepare(1))
            put_sum(bytes, size);
        else
            putchar('-');
        putchar('\n');
    }
    return 0;
}
