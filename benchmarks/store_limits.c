/* The physical limit beside the store: the same bytes by the same means, without a store.
 *
 *     store_limits append FILE RECORD_SIZE BODY_SIZE BATCH COUNT   lay out, CRC, one pwrite a batch, fresh reserved file
 *     store_limits check FILE                                      walk the records of a segment and check their CRCs
 *     store_limits sync FILE COUNT                                 4 KiB pwrite + fdatasync
 *     store_limits copy SIZE COUNT                                 memcpy of SIZE bytes
 *
 * Prints the seconds it took, those of processor time among them, and a checksum.
 */
#define _GNU_SOURCE
#include "../src/bolide/kernel/big_endian.h"
#include "../src/bolide/kernel/crc32.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void done(double seconds, double cpu, uint64_t checksum) {
    printf("{\"seconds\":%.9f,\"cpu_s\":%.9f,\"checksum\":%llu}\n", seconds, cpu, (unsigned long long)checksum);
}

static void append(const char *path, size_t record_size, size_t body_size, size_t batch, size_t count) {
    size_t segment_size = (size_t)1 << 30, position = 0;
    uint8_t *body = malloc(body_size + 1), *buffer = malloc(record_size * batch);
    uint64_t checksum = 0;
    memset(body, 'x', body_size);
    memset(buffer, 'p', record_size * batch);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, segment_size) || posix_fallocate(fd, 0, segment_size)) fail(path);
    double started = now_s(), cpu_started = cpu_s();
    for (size_t i = 0; i < count; i += batch) {
        uint8_t *at = buffer;
        for (size_t j = 0; j < batch; j++, at += record_size) {
            put32(at, (uint32_t)record_size);
            put32(at + 4, 0xDAA320A7u);
            put64(at + 20, i + j);
            put64(at + 28, position + (at - buffer));
            memcpy(at + 88, body, body_size);
            uint32_t crc = crc32_of(at + 88, body_size) & 0x7FFFFFFF;
            put32(at + 8, crc);
            checksum += crc;
        }
        size_t size = record_size * batch;
        if (position + size + 8 > segment_size) {
            /* As the store does: on in a fresh file. Its making is not counted, for the store makes it ahead. */
            double paused = now_s(), cpu_paused = cpu_s();
            close(fd);
            fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
            if (fd < 0 || ftruncate(fd, segment_size) || posix_fallocate(fd, 0, segment_size)) fail(path);
            position = 0;
            started += now_s() - paused;
            cpu_started += cpu_s() - cpu_paused;
        }
        if (pwrite(fd, buffer, size, position) != (ssize_t)size) fail("pwrite");
        position += size;
    }
    done(now_s() - started, cpu_s() - cpu_started, checksum);
}

static void check(const char *path) {
    int fd = open(path, O_RDONLY);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat)) fail(path);
    uint8_t *log = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
    uint64_t checksum = 0;
    double started = now_s(), cpu_started = cpu_s();
    for (size_t at = 0; at + 92 < (size_t)stat.st_size && get32(log + at + 4) == 0xDAA320A7u;) {
        uint32_t crc = crc32_of(log + at + 88, get32(log + at + 84)) & 0x7FFFFFFF;
        if (crc != get32(log + at + 8)) fail("a wrong checksum");
        checksum += crc;
        at += get32(log + at);
    }
    done(now_s() - started, cpu_s() - cpu_started, checksum);
}

static void sync_rate(const char *path, size_t count) {
    static uint8_t page[4096];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || posix_fallocate(fd, 0, (count + 1) * sizeof page)) fail(path);
    double started = now_s(), cpu_started = cpu_s();
    for (size_t i = 0; i < count; i++)
        if (pwrite(fd, page, sizeof page, i * sizeof page) != sizeof page || fdatasync(fd)) fail("fdatasync");
    done(now_s() - started, cpu_s() - cpu_started, count);
}

static void copy(size_t size, size_t count) {
    uint8_t *from = malloc(size), *to = malloc(size);
    memset(from, 1, size);
    memset(to, 2, size);
    double started = now_s(), cpu_started = cpu_s();
    for (size_t i = 0; i < count; i++) {
        from[i % size] ^= 1;
        memcpy(to, from, size);
        __asm__ volatile("" : : "r"(to) : "memory");
    }
    done(now_s() - started, cpu_s() - cpu_started, to[0]);
}

int main(int argc, char **argv) {
    crc_prepare();
    if (argc == 7 && !strcmp(argv[1], "append"))
        append(argv[2], atol(argv[3]), atol(argv[4]), atol(argv[5]), atol(argv[6]));
    else if (argc == 3 && !strcmp(argv[1], "check"))
        check(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "sync"))
        sync_rate(argv[2], atol(argv[3]));
    else if (argc == 4 && !strcmp(argv[1], "copy"))
        copy(atol(argv[2]), atol(argv[3]));
    else
        return 2;
    return 0;
}
