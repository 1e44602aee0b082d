/* Sends (request 310) and pulls (11) against one broker, as fast as it answers or at a fixed rate.
 *
 *     broker_load port=P mode=send|pull|poll [pid=N] [connections=1] [in_flight=64] [body=128] [seconds=10] [warmup=2]
 *                 [topic=Bench] [topics=1] [queues=4] [rate=1000] [count=0] [batch=32] [parked=0] [reader=0]
 *                 [user= secret=]
 *
 * send: each connection keeps in_flight sends under way, round robin over the queues of the topic (topics > 1: of
 *       Bench-00000 and so on, one after the other), for warmup and then seconds, or until count are answered.
 *       parked=N holds N long polls on the topic's namesake with -parked; reader=1 pulls the backlog of queue 0..queues-1
 *       of the topic with -backlog meanwhile. With user and secret every send is signed (RocketMQ access control).
 * pull: each connection keeps one pull of `batch` under way for each queue, from the first offset to the last and again,
 *       for as long, or until count messages have come.
 * poll: rate sends a second leave by the clock, and long polls wait for them on another connection. A delay counts from
 *       the moment a send was due to the moment the message is here, so that a broker that stalls cannot hide it. The
 *       topic must be empty: what is pulled has to be what was sent.
 *
 * Every answer is checked: its opaque must be that of a request under way on that connection, its code one that can be;
 * the records of a pull must be whole. With pid, the CPU time of that process in the measured time is told. One line of
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
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include "../src/bolide/kernel/big_endian.h"
#include "../src/bolide/kernel/sha1.h"

enum {
    READ_SIZE = 1 << 20,
    CONNECTIONS_MAX = 4096,
    SLOTS_MAX = 4096,
    PARKED_A_CONNECTION = 100,
    SAMPLES_MAX = 1 << 20, /* microseconds; the last class holds all that is slower */
    SILENCE_MAX_MS = 40000,
    FOUND = 0, NOT_FOUND = 19, RETRY_IMMEDIATELY = 20, OFFSET_MOVED = 21,
};
static const uint32_t OPAQUE_FIRST = 100000000, OPAQUE_COUNT = 800000000; /* nine digits, always */

enum role { SENDER, PULLER, PARKER };

struct slot {
    uint32_t opaque; /* 0 when free */
    int64_t due_ns;
    int64_t offset;
};

struct connection {
    int fd, in_flight, slot_count, free_count;
    enum role role;
    int writes; /* is EPOLLOUT asked for? */
    size_t read_end, write_start, write_end, write_size;
    struct slot *slots;
    int *free_slots;
    char *input, *output;
};

static const char *mode = "send", *topic = "Bench", *user = "", *secret = "";
static int port, pid, wanted = 1, in_flight = 64, body_size = 128, topic_count = 1, queue_count = 4, batch = 32;
static int parked, has_reader;
static double seconds = 10, warmup = 2, rate = 1000;
static uint64_t count_max;

static struct connection *connections[CONNECTIONS_MAX];
static int connection_count, sender_count, poller, ticker = -1;
static char *send_frame, *now_text;
static size_t send_size, queue_at, opaque_at, born_at, key_at, topic_at, body_at, signature_at;
static uint8_t key_state[HMAC_STATE_SIZE]; /* of the secret, where sends are signed */
static uint64_t sent, answered, pulled, pull_answers, empty_pulls, generation, key_number, bytes;
static uint64_t total_sent, total_pulled;
static uint32_t *samples;
static uint64_t sample_count;
static int is_measuring, is_ending;
static int64_t start_ns;

static void fail(const char *what) {
    fprintf(stderr, "broker_load: %s\n", what);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static double cpu_s(void) {
    char path[64], line[1024];
    unsigned long user, system;
    if (!pid) return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) fail("the broker's process is gone");
    fclose(file);
    if (sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail("/proc/PID/stat is not as expected");
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

static double own_cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void put_digits(char *at, uint64_t value, int digits) {
    for (int i = digits - 1; i >= 0; i--, value /= 10) at[i] = '0' + value % 10;
}

/* The signature of a send: the values of its fields in the order of their names, then the body. */
static void sign_send(char *frame) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char before_key[] = "UNIQ_KEY\x01" "7F000001000018B4AAC200", behind_key[] = "\x02WAIT\x01true\x02TAGS\x01TagA\x02" "0falsefalse";
    size_t name_size = strlen(topic) + (topic_count > 1 ? 6 : 0);
    uint8_t digest[21] = {0};
    Sha1 sum;
    hmac_start(&sum, key_state);
    sha1_add(&sum, user, strlen(user));
    sha1_add(&sum, "bench_producer", 14);
    sha1_add(&sum, frame + topic_at - strlen(topic) - 1, name_size);
    sha1_add(&sum, "TBW1024", 7);
    sha1_add(&sum, frame + queue_at, 1);
    sha1_add(&sum, "0", 1);
    sha1_add(&sum, frame + born_at, 13);
    sha1_add(&sum, "0", 1);
    sha1_add(&sum, before_key, sizeof before_key - 1);
    sha1_add(&sum, frame + key_at, 10);
    sha1_add(&sum, behind_key, sizeof behind_key - 1);
    sha1_add(&sum, frame + body_at, body_size);
    hmac_end(&sum, key_state, digest);
    for (int i = 0; i < 7; i++) {
        uint32_t bits = (uint32_t)digest[3 * i] << 16 | (uint32_t)digest[3 * i + 1] << 8 | digest[3 * i + 2];
        for (int j = 0; j < 4; j++) frame[signature_at + 4 * i + j] = letters[bits >> (18 - 6 * j) & 63];
    }
    frame[signature_at + 27] = '=';
}

/* The header is that of the Java client; what changes from message to message has a fixed place and width. */
static void prepare_send(void) {
    char header[2048], name[300], proof[256] = "";
    if (*user)
        snprintf(proof, sizeof proof, ",\"AccessKey\":\"%s\",\"Signature\":\"0123456789012345678901234567\"", user);
    snprintf(name, sizeof name, topic_count > 1 ? "%s-00000" : "%s", topic);
    int size = snprintf(header, sizeof header,
                        "{\"code\":310,\"extFields\":{\"a\":\"bench_producer\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\","
                        "\"e\":\"0\",\"f\":\"0\",\"g\":\"0000000000000\",\"h\":\"0\","
                        "\"i\":\"UNIQ_KEY\\u00017F000001000018B4AAC200\?\?00000000\\u0002WAIT\\u0001true\\u0002TAGS\\u0001"
                        "TagA\\u0002\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"%s},\"flag\":0,\"language\":\"JAVA\","
                        "\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
                        name, proof, OPAQUE_FIRST);
    send_size = 8 + size + body_size;
    send_frame = malloc(send_size);
    uint32_t total = htonl(send_size - 4), header_size = htonl(size);
    memcpy(send_frame, &total, 4);
    memcpy(send_frame + 4, &header_size, 4);
    memcpy(send_frame + 8, header, size);
    for (int i = 0; i < body_size; i++) send_frame[8 + size + i] = 'a' + i % 26;
    opaque_at = strstr(header, "\"opaque\":") + 9 - header + 8;
    queue_at = strstr(header, "\"e\":\"") + 5 - header + 8;
    born_at = strstr(header, "\"g\":\"") + 5 - header + 8;
    key_at = strstr(header, "?\?") - header + 8;
    topic_at = strstr(header, "\"b\":\"") + 5 - header + 8 + strlen(topic) + 1;
    memcpy(send_frame + key_at, "00", 2);
    body_at = 8 + size;
    if (*user) {
        signature_at = strstr(header, "\"Signature\":\"") + 13 - header + 8;
        sha1_prepare(1);
        hmac_key((const uint8_t *)secret, strlen(secret), key_state);
    }
}

static struct connection *open_connection(enum role role, int slot_count, size_t write_size) {
    struct connection *c = calloc(1, sizeof *c);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    if (connection_count == CONNECTIONS_MAX) fail("too many connections");
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0) fail("cannot connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->role = role;
    c->slot_count = slot_count;
    c->slots = calloc(slot_count, sizeof *c->slots);
    c->free_slots = calloc(slot_count, sizeof *c->free_slots);
    c->write_size = write_size;
    c->input = malloc(READ_SIZE);
    c->output = malloc(write_size);
    for (; c->free_count < slot_count; c->free_count++) c->free_slots[c->free_count] = slot_count - 1 - c->free_count;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
    return connections[connection_count++] = c;
}

/* The rest of opaque divided by slot_count is the slot, so an answer finds its request without a search. */
static uint32_t take_slot(struct connection *c, int slot, int64_t due_ns) {
    uint64_t rounds = OPAQUE_COUNT / c->slot_count;
    uint32_t opaque = (uint32_t)((generation++ % rounds) * c->slot_count) + slot;
    opaque += (c->slot_count - OPAQUE_FIRST % c->slot_count) % c->slot_count + OPAQUE_FIRST;
    c->slots[slot].opaque = opaque;
    c->slots[slot].due_ns = due_ns;
    c->in_flight++;
    return opaque;
}

static void add_send(struct connection *c, int64_t due_ns) {
    uint32_t opaque = take_slot(c, c->free_slots[--c->free_count], due_ns);
    if (c->write_end + send_size > c->write_size) fail("the broker does not read");
    char *frame = c->output + c->write_end;
    memcpy(frame, send_frame, send_size);
    put_digits(frame + opaque_at, opaque, 9);
    put_digits(frame + key_at, key_number++, 10);
    memcpy(frame + born_at, now_text, 13);
    frame[queue_at] = '0' + sent / topic_count % queue_count;
    if (topic_count > 1) put_digits(frame + topic_at, sent % topic_count, 5);
    if (body_size >= 8) memcpy(frame + body_at, &due_ns, 8);
    if (*user) sign_send(frame);
    c->write_end += send_size;
    sent++;
}

static void add_pull(struct connection *c, int slot) {
    char header[1024];
    const char *suffix = c->role == PARKER ? "-parked" : has_reader ? "-backlog" : "";
    int waits = c->role == PARKER || !strcmp(mode, "poll");
    c->free_count--;
    uint32_t opaque = take_slot(c, slot, now_ns());
    int size = snprintf(header, sizeof header,
                        "{\"code\":11,\"extFields\":{\"consumerGroup\":\"bench_consumer\",\"topic\":\"%s%s\",\"queueId\":\"%d\","
                        "\"queueOffset\":\"%ld\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"%d\",\"commitOffset\":\"0\","
                        "\"suspendTimeoutMillis\":\"15000\",\"subscription\":\"*\",\"subVersion\":\"0\","
                        "\"expressionType\":\"TAG\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,"
                        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
                        topic, suffix, slot, c->slots[slot].offset, batch, waits ? 6 : 4, opaque);
    if (c->write_end + 8 + size > c->write_size) fail("the broker does not read");
    uint32_t total = htonl(4 + size), header_size = htonl(size);
    memcpy(c->output + c->write_end, &total, 4);
    memcpy(c->output + c->write_end + 4, &header_size, 4);
    memcpy(c->output + c->write_end + 8, header, size);
    c->write_end += 8 + size;
}

static void flush(struct connection *c) {
    while (c->write_start < c->write_end) {
        ssize_t size = write(c->fd, c->output + c->write_start, c->write_end - c->write_start);
        if (size < 0 && errno == EAGAIN) break;
        if (size < 0) fail("the broker hung up");
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

static void sample(int64_t delay_ns) {
    int64_t us = delay_ns / 1000;
    if (!is_measuring) return;
    samples[us < 0 ? 0 : us < SAMPLES_MAX ? us : SAMPLES_MAX - 1]++;
    sample_count++;
}

static const char *field(const char *header, uint32_t size, const char *name) {
    const char *found = memmem(header, size, name, strlen(name));
    return found ? found + strlen(name) : NULL;
}

static uint32_t number_at(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

/* Returns how many records there are; in poll mode each tells when it was due. */
static uint64_t take_records(const char *body, uint32_t size, int64_t at_ns) {
    uint64_t found = 0;
    while (size >= 92) {
        uint32_t total = number_at(body), magic = number_at(body + 4), sys_flag = number_at(body + 36);
        if (total < 92 || total > size) fail("a record that is cut");
        if (magic != 0xDAA320A7 && magic != 0xDAA320AB) fail("a record without its magic");
        if (ticker >= 0 && is_measuring) {
            uint32_t at = 84 + (sys_flag & 0x10 ? 12 : 0) + (sys_flag & 0x20 ? 12 : 0);
            int64_t due_ns;
            if (number_at(body + at) != (uint32_t)body_size) fail("a message of another size");
            memcpy(&due_ns, body + at + 4, 8);
            if (due_ns >= start_ns) sample(at_ns - due_ns);
        }
        body += total;
        size -= total;
        found++;
    }
    if (size) fail("bytes after the last record");
    return found;
}

static void take_pull(struct connection *c, struct slot *slot, int code, const char *header, uint32_t header_size,
                      const char *body, uint32_t body_size_, int64_t at_ns) {
    const char *next = field(header, header_size, "\"nextBeginOffset\":\"");
    if (code != FOUND && code != NOT_FOUND && code != RETRY_IMMEDIATELY && code != OFFSET_MOVED)
        fail("a pull was refused");
    if (code == FOUND) {
        if (!next) fail("a pull answer without the next offset");
        uint64_t found = take_records(body, body_size_, at_ns);
        pull_answers++;
        if (is_measuring) pulled += found;
        total_pulled += found;
        if (ticker < 0) sample(at_ns - slot->due_ns);
    } else {
        empty_pulls++;
    }
    slot->offset = next ? strtoll(next, NULL, 10) : 0;
    if (code != FOUND && !strcmp(mode, "pull")) slot->offset = 0; /* from the start again */
    if (code != FOUND && has_reader && c->role == PULLER) slot->offset = 0;
}

static void take_answer(struct connection *c, const char *frame, uint32_t total, int64_t at_ns) {
    uint32_t header_size = number_at(frame + 4);
    if (header_size >> 24 != 0 || header_size > total - 4) fail("an answer that is not framed as JSON");
    const char *header = frame + 8, *code_at = field(header, header_size, "\"code\":"), *opaque_text;
    opaque_text = field(header, header_size, "\"opaque\":");
    if (!code_at || !opaque_text) fail("an answer without code or opaque");
    int code = atoi(code_at);
    uint32_t opaque = strtoul(opaque_text, NULL, 10);
    int number = opaque % c->slot_count;
    struct slot *slot = &c->slots[number];
    if (slot->opaque != opaque) fail("an answer to a request that is not under way");
    slot->opaque = 0;
    c->free_slots[c->free_count++] = number;
    c->in_flight--;
    bytes += 4 + total;
    if (c->role == SENDER) {
        if (code != 0) {
            fprintf(stderr, "%.*s\n", (int)header_size, header);
            fail("a send was refused");
        }
        if (is_measuring) answered++;
        total_sent++;
        if (ticker < 0) sample(at_ns - slot->due_ns);
        return;
    }
    take_pull(c, slot, code, header, header_size, header + header_size, total - 4 - header_size, at_ns);
    if (!is_ending || !strcmp(mode, "poll")) add_pull(c, number); /* what was sent is waited for */
}

static void take_answers(struct connection *c) {
    ssize_t size = read(c->fd, c->input + c->read_end, READ_SIZE - c->read_end);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) fail("the broker hung up");
    c->read_end += size;
    int64_t at_ns = now_ns();
    size_t position = 0;
    while (c->read_end - position >= 8) {
        uint32_t total = number_at(c->input + position);
        if (total < 4 || total > READ_SIZE - 4) fail("an answer of an impossible size");
        if (c->read_end - position < 4 + total) break;
        take_answer(c, c->input + position, total, at_ns);
        position += 4 + total;
    }
    memmove(c->input, c->input + position, c->read_end - position);
    c->read_end -= position;
}

static void fill(struct connection *c, int64_t at) {
    while (!is_ending && c->in_flight < in_flight && (!count_max || sent < count_max)) add_send(c, at);
}

static void send_due(void) {
    static uint64_t paced;
    uint64_t due = (uint64_t)((now_ns() - start_ns) / 1e9 * rate);
    for (; paced < due && !is_ending; paced++) {
        struct connection *c = connections[paced % sender_count];
        if (!c->free_count) break; /* the broker is too slow for the rate: its delay grows, for due stays due */
        add_send(c, start_ns + (int64_t)(paced / rate * 1e9));
    }
    for (int i = 0; i < sender_count; i++) flush(connections[i]);
}

static void start_ticker(void) {
    long period_ns = (long)(1e9 / rate);
    ticker = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec tick = {{0, period_ns}, {0, period_ns}};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    prctl(PR_SET_TIMERSLACK, 1);
    timerfd_settime(ticker, 0, &tick, NULL);
    epoll_ctl(poller, EPOLL_CTL_ADD, ticker, &event);
}

static void turn(void) {
    struct epoll_event events[256];
    uint64_t ticks;
    int ready = epoll_wait(poller, events, 256, SILENCE_MAX_MS);
    if (ready == 0) fail("the broker is silent");
    put_digits(now_text, wall_ms(), 13);
    for (int i = 0; i < ready; i++) {
        struct connection *c = events[i].data.ptr;
        if (!c) {
            if (read(ticker, &ticks, sizeof ticks) > 0) send_due();
            continue;
        }
        if (events[i].events & ~EPOLLOUT) take_answers(c);
        if (c->role == SENDER && ticker < 0) fill(c, now_ns());
        flush(c);
    }
}

static void open_all(void) {
    int is_pull = !strcmp(mode, "pull"), is_poll = !strcmp(mode, "poll");
    size_t write_size = (is_poll ? SLOTS_MAX : in_flight) * send_size * 2 + 4096;
    sender_count = is_pull ? 0 : wanted;
    for (int i = 0; i < sender_count; i++) open_connection(SENDER, is_poll ? SLOTS_MAX : in_flight, write_size);
    for (int i = 0; i < (is_pull ? wanted : is_poll || has_reader); i++) open_connection(PULLER, queue_count, 1 << 16);
    for (int i = 0; i * PARKED_A_CONNECTION < parked; i++) open_connection(PARKER, PARKED_A_CONNECTION, 1 << 17);
}

static void start_all(void) {
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = connections[i];
        if (c->role == SENDER && ticker < 0) fill(c, now_ns());
        if (c->role != SENDER)
            for (int slot = 0; slot < c->slot_count; slot++) add_pull(c, slot);
        flush(c);
    }
}

static uint32_t quantile(double share) {
    uint64_t wanted_rank = (uint64_t)(share * sample_count), seen = 0;
    for (uint32_t us = 0; us < SAMPLES_MAX; us++)
        if ((seen += samples[us]) > wanted_rank) return us;
    return SAMPLES_MAX - 1;
}

static void report(double elapsed_s, double cpu, double own_cpu) {
    uint32_t longest = SAMPLES_MAX - 1;
    while (longest && !samples[longest]) longest--;
    printf("{\"sends\":%lu,\"pulled\":%lu,\"seconds\":%.6f,\"cpu_s\":%.2f,\"own_cpu_s\":%.2f,\"total_sends\":%lu,"
           "\"total_pulled\":%lu,\"pull_answers\":%lu,\"empty_pulls\":%lu,\"samples\":%lu,\"p50_us\":%u,\"p99_us\":%u,"
           "\"p999_us\":%u,\"max_us\":%u}\n",
           answered, pulled, elapsed_s, cpu, own_cpu, total_sent, total_pulled, pull_answers, empty_pulls, sample_count,
           quantile(0.5), quantile(0.99), quantile(0.999), longest);
}

static int is_drained(void) {
    for (int i = 0; i < sender_count; i++)
        if (connections[i]->in_flight) return 0;
    return strcmp(mode, "poll") || total_pulled >= total_sent;
}

static void read_options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) fail("options are name=value");
        *value++ = 0;
        struct { const char *name; int *at; } numbers[] = {
            {"port", &port}, {"pid", &pid}, {"connections", &wanted}, {"in_flight", &in_flight}, {"body", &body_size},
            {"topics", &topic_count}, {"queues", &queue_count}, {"batch", &batch}, {"parked", &parked}, {"reader", &has_reader}};
        int is_known = 0;
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            if (!strcmp(argv[i], numbers[n].name)) *numbers[n].at = atoi(value), is_known = 1;
        if (!strcmp(argv[i], "mode")) mode = value;
        else if (!strcmp(argv[i], "topic")) topic = value;
        else if (!strcmp(argv[i], "user")) user = value;
        else if (!strcmp(argv[i], "secret")) secret = value;
        else if (!strcmp(argv[i], "seconds")) seconds = atof(value);
        else if (!strcmp(argv[i], "warmup")) warmup = atof(value);
        else if (!strcmp(argv[i], "rate")) rate = atof(value);
        else if (!strcmp(argv[i], "count")) count_max = strtoull(value, NULL, 10);
        else if (!is_known) fail("an option nobody knows");
    }
    if (!port || wanted < 1 || in_flight < 1 || in_flight > SLOTS_MAX || queue_count < 1 || queue_count > 9)
        fail("port, connections, in_flight or queues are not possible");
    if (topic_count < 1 || topic_count > 100000 || body_size < 8 || rate <= 0) fail("topics, body or rate are not possible");
    if (strcmp(mode, "send") && strcmp(mode, "pull") && strcmp(mode, "poll")) fail("mode is send, pull or poll");
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    samples = calloc(SAMPLES_MAX, sizeof *samples);
    now_text = calloc(1, 16);
    put_digits(now_text, wall_ms(), 13);
    key_number = wall_ms() % 1000000 * 10000;
    poller = epoll_create1(0);
    prepare_send();
    open_all();
    start_ns = now_ns();
    if (!strcmp(mode, "poll")) start_ticker();
    start_all();
    while (!count_max && now_ns() < start_ns + (int64_t)(warmup * 1e9)) turn();
    int is_pull = !strcmp(mode, "pull");
    is_measuring = 1;
    double cpu = cpu_s(), own_cpu = own_cpu_s();
    int64_t begin = now_ns(), end = begin + (int64_t)(seconds * 1e9);
    while (count_max ? total_sent + (is_pull ? total_pulled : 0) < count_max : now_ns() < end) turn();
    double elapsed_s = (now_ns() - begin) / 1e9;
    cpu = cpu_s() - cpu, own_cpu = own_cpu_s() - own_cpu;
    is_ending = 1;
    if (!is_pull) while (!is_drained()) turn();
    report(elapsed_s, cpu, own_cpu);
    return 0;
}
