/* Route look-ups (request 105) against one name server, as fast as it answers or at a fixed rate.
 *
 *     routes_load PORT CONNECTIONS IN_FLIGHT COUNT SECONDS RATE TOPICS
 *
 * RATE 0: each connection keeps IN_FLIGHT requests under way until COUNT answers are there (or SECONDS have passed, when
 * COUNT is 0). RATE > 0: requests leave by the clock, RATE a second, and a delay counts from the moment at which a request
 * was due, so that a server that stalls cannot hide it by slowing us down (our own tick adds up to a millisecond).
 *
 * Every answer is checked: its opaque must be that of a request under way on that connection, its code 0, its body
 * present. The checksum is the sum of a hash of each body, so it does not depend on the order of the answers. One line of
 * JSON goes to standard output. Any wrong answer ends the run with status 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_SIZE = 1 << 20,
    WRITE_SIZE = 1 << 20,
    FRAME_SIZE = 192,
    CONNECTIONS_MAX = 256,
    SLOTS_MAX = 4096,
    TOPICS_MAX = 100000,
    SAMPLES_MAX = 1 << 23,
    TICK_NS = 1000000,
    SILENCE_MAX_MS = 10000,
};
static const uint32_t OPAQUE_FIRST = 100000000, OPAQUE_COUNT = 800000000; /* nine digits, always */

struct slot {
    uint32_t opaque; /* 0 when free */
    int64_t due_ns;
};

struct connection {
    int fd;
    int in_flight;
    int writes; /* is EPOLLOUT asked for? */
    size_t read_end, write_start, write_end;
    struct slot slots[SLOTS_MAX];
    int free_slots[SLOTS_MAX], free_count;
    char input[READ_SIZE], output[WRITE_SIZE];
};

static struct connection *connections[CONNECTIONS_MAX];
static int connection_count, slot_count, topic_count, poller, ticker;
static char (*frames)[FRAME_SIZE];
static int *frame_sizes, *opaque_positions;
static uint32_t *samples;
static uint64_t sample_count, sent, answered, bytes, checksum, generation, state = 88172645463325252ULL;

static void fail(const char *what) {
    fprintf(stderr, "routes_load: %s\n", what);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static uint64_t next_random(void) { /* xorshift: the same topics in the same order in every run */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void prepare_frames(void) {
    frames = calloc(topic_count, FRAME_SIZE);
    frame_sizes = calloc(topic_count, sizeof *frame_sizes);
    opaque_positions = calloc(topic_count, sizeof *opaque_positions);
    for (int i = 0; i < topic_count; i++) {
        int size = snprintf(frames[i] + 8, FRAME_SIZE - 8,
                            "{\"code\":105,\"extFields\":{\"topic\":\"Topic-%05d\"},\"flag\":0,\"language\":\"JAVA\","
                            "\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
                            i, OPAQUE_FIRST);
        uint32_t total = htonl(4 + size), header = htonl(size);
        memcpy(frames[i], &total, 4);
        memcpy(frames[i] + 4, &header, 4);
        frame_sizes[i] = 8 + size;
        opaque_positions[i] = (int)(strstr(frames[i] + 8, "\"opaque\":") + 9 - frames[i]);
    }
}

static void open_connection(int port) {
    struct connection *c = calloc(1, sizeof *c);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0) fail("cannot connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    for (c->free_count = 0; c->free_count < slot_count; c->free_count++) c->free_slots[c->free_count] = c->free_count;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
    connections[connection_count++] = c;
}

static void add_request(struct connection *c, int64_t due_ns) {
    int topic = (int)(next_random() % topic_count), slot = c->free_slots[--c->free_count];
    /* The rest of opaque divided by slot_count is the slot, so an answer finds its request without a search. */
    uint64_t rounds = OPAQUE_COUNT / slot_count;
    uint32_t opaque = OPAQUE_FIRST + (uint32_t)((generation++ % rounds) * slot_count) + slot, digits = opaque;
    if (c->write_end + frame_sizes[topic] > WRITE_SIZE) fail("the server does not read");
    char *frame = c->output + c->write_end;
    memcpy(frame, frames[topic], frame_sizes[topic]);
    for (int i = 8; i >= 0; i--, digits /= 10) frame[opaque_positions[topic] + i] = '0' + digits % 10;
    c->write_end += frame_sizes[topic];
    c->slots[slot] = (struct slot){opaque, due_ns};
    c->in_flight++;
    sent++;
}

static void flush(struct connection *c) {
    while (c->write_start < c->write_end) {
        ssize_t size = write(c->fd, c->output + c->write_start, c->write_end - c->write_start);
        if (size < 0 && errno == EAGAIN) break;
        if (size < 0) fail("the server hung up");
        c->write_start += size;
    }
    int waits = c->write_start < c->write_end;
    if (!waits) c->write_start = c->write_end = 0;
    if (waits != c->writes) {
        struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
        c->writes = waits;
    }
}

static int64_t header_number(const char *header, uint32_t size, const char *name) {
    const char *found = memmem(header, size, name, strlen(name));
    if (!found) fail("an answer without code or opaque");
    return strtoll(found + strlen(name), NULL, 10);
}

static uint64_t hash(const char *body, uint32_t size) {
    uint64_t value = size, word;
    for (; size >= 8; body += 8, size -= 8) {
        memcpy(&word, body, 8);
        value = (value ^ word) * 0x9E3779B97F4A7C15ULL;
    }
    for (; size; body++, size--) value = (value ^ (unsigned char)*body) * 0x9E3779B97F4A7C15ULL;
    return value ^ value >> 32;
}

static void take_answer(struct connection *c, const char *frame, uint32_t total, int64_t at_ns) {
    uint32_t header_size;
    memcpy(&header_size, frame + 4, 4);
    header_size = ntohl(header_size);
    if (header_size >> 24 != 0 || header_size > total - 4) fail("an answer that is not framed as JSON");
    const char *header = frame + 8, *body = header + header_size;
    uint32_t body_size = total - 4 - header_size;
    int64_t code = header_number(header, header_size, "\"code\":"), opaque = header_number(header, header_size, "\"opaque\":");
    if (code != 0) fail("an answer with another code than 0");
    struct slot *slot = &c->slots[(opaque - OPAQUE_FIRST) % slot_count];
    if (slot->opaque != opaque) fail("an answer to a request that is not under way");
    if (body_size < 2 || body[0] != '{') fail("an answer without a route");
    if (sample_count < SAMPLES_MAX) samples[sample_count++] = (uint32_t)((at_ns - slot->due_ns) / 1000);
    slot->opaque = 0;
    c->free_slots[c->free_count++] = (int)(slot - c->slots);
    c->in_flight--;
    answered++;
    bytes += 4 + total;
    checksum += hash(body, body_size);
}

static void take_answers(struct connection *c) {
    ssize_t size = read(c->fd, c->input + c->read_end, READ_SIZE - c->read_end);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) fail("the server hung up");
    c->read_end += size;
    int64_t at_ns = now_ns();
    size_t position = 0;
    while (c->read_end - position >= 8) {
        uint32_t total;
        memcpy(&total, c->input + position, 4);
        total = ntohl(total);
        if (total < 4 || total > READ_SIZE - 4) fail("an answer of an impossible size");
        if (c->read_end - position < 4 + total) break;
        take_answer(c, c->input + position, total, at_ns);
        position += 4 + total;
    }
    memmove(c->input, c->input + position, c->read_end - position);
    c->read_end -= position;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t quantile(double share) {
    uint64_t position = (uint64_t)(share * sample_count);
    return samples[position < sample_count ? position : sample_count - 1];
}

static void report(double seconds) {
    if (!sample_count) fail("not one answer");
    qsort(samples, sample_count, sizeof *samples, compare);
    printf("{\"answers\":%lu,\"seconds\":%.6f,\"bytes\":%lu,\"checksum\":%lu,"
           "\"p50_us\":%u,\"p99_us\":%u,\"p999_us\":%u,\"max_us\":%u}\n",
           answered, seconds, bytes, checksum, quantile(0.5), quantile(0.99), quantile(0.999), samples[sample_count - 1]);
}

static void send_due(double rate, int64_t start_ns) {
    int64_t now = now_ns();
    uint64_t due = (uint64_t)((now - start_ns) / 1e9 * rate);
    while (sent < due) {
        struct connection *c = connections[sent % connection_count];
        if (!c->free_count) fail("more requests under way than there are slots: the server is far too slow for the rate");
        add_request(c, start_ns + (int64_t)(sent / rate * 1e9));
    }
    for (int i = 0; i < connection_count; i++) flush(connections[i]);
}

static void start_ticker(void) {
    ticker = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec tick = {{0, TICK_NS}, {0, TICK_NS}};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    timerfd_settime(ticker, 0, &tick, NULL);
    epoll_ctl(poller, EPOLL_CTL_ADD, ticker, &event);
}

static void fill(struct connection *c, int in_flight, uint64_t count) {
    int64_t at = now_ns();
    while (c->in_flight < in_flight && (!count || sent < count)) add_request(c, at);
}

static void turn(int in_flight, uint64_t count, double rate, int64_t start) {
    struct epoll_event events[CONNECTIONS_MAX + 1];
    int ready = epoll_wait(poller, events, CONNECTIONS_MAX + 1, SILENCE_MAX_MS);
    if (ready == 0) fail("the server is silent");
    for (int i = 0; i < ready; i++) {
        struct connection *c = events[i].data.ptr;
        uint64_t ticks;
        if (!c) {
            if (read(ticker, &ticks, sizeof ticks) > 0) send_due(rate, start);
            continue;
        }
        if (events[i].events & ~EPOLLOUT) take_answers(c);
        if (rate <= 0) fill(c, in_flight, count);
        flush(c);
    }
}

int main(int argc, char **argv) {
    if (argc != 8) fail("PORT CONNECTIONS IN_FLIGHT COUNT SECONDS RATE TOPICS");
    int port = atoi(argv[1]), wanted = atoi(argv[2]), in_flight = atoi(argv[3]);
    uint64_t count = strtoull(argv[4], NULL, 10);
    double seconds = atof(argv[5]), rate = atof(argv[6]);
    topic_count = atoi(argv[7]);
    if (wanted < 1 || wanted > CONNECTIONS_MAX || in_flight < 1 || in_flight > SLOTS_MAX) fail("too many at once");
    if (topic_count < 1 || topic_count > TOPICS_MAX) fail("1 to 100000 topics");
    slot_count = rate > 0 ? SLOTS_MAX : in_flight;
    samples = malloc(sizeof *samples * SAMPLES_MAX);
    poller = epoll_create1(0);
    prepare_frames();
    for (int i = 0; i < wanted; i++) open_connection(port);
    int64_t start = now_ns(), end = start + (int64_t)(seconds * 1e9);
    if (rate > 0) start_ticker();
    for (int i = 0; rate <= 0 && i < connection_count; i++) {
        fill(connections[i], in_flight, count);
        flush(connections[i]);
    }
    while (count ? answered < count : now_ns() < end) turn(in_flight, count, rate, start);
    report((now_ns() - start) / 1e9);
    return 0;
}
