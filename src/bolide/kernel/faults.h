/* A page of a mapped file that cannot be read is a signal. Here it becomes a page of zeros, and a count.

   The handler knows the maps that were put under guard. For a fault in one of them it lays an empty page over the bad
   one and returns, so that the read goes on; who reads compares the count and looks again by calls, which can fail.
   Any other fault is somebody else's: what was there before us is put back, and the fault happens again.

   The table is written by threads that hold the interpreter's lock and read by the handler, in whatever thread: a place
   counts as taken while its start is not zero, and that is written last and cleared first. */

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARDED_MAX (1 << 17)
#define SINGLE_PAGES_MAX 1024         /* then more at once: a map in pieces has a limit of its own */
#define MANY_PAGES ((uintptr_t)1 << 20)

typedef struct {
    uintptr_t start, end; /* of the map */
    uintptr_t low, high;  /* around everything in it that is patched */
    uint64_t number;      /* a map may go without a word, and a later one lie where it lay: the later counts */
} guarded_map;

static guarded_map guarded[GUARDED_MAX];
static int32_t guarded_free[GUARDED_MAX];
static int32_t guarded_free_count = 0, guarded_used = 0;
static uint64_t guarded_faults = 0, guarded_number = 0;
static uintptr_t guarded_page = 4096;
static struct sigaction guarded_before;
static int guarded_is_passed_on = 0;

#define PEEK(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define POKE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)

static int guarded_patch(guarded_map *map, uintptr_t at, uintptr_t start, uintptr_t end) {
    uint64_t number = __atomic_add_fetch(&guarded_faults, 1, __ATOMIC_ACQ_REL);
    uintptr_t grain = number <= SINGLE_PAGES_MAX ? guarded_page : MANY_PAGES;
    uintptr_t low = at / grain * grain, high = low + grain;
    end = (end + guarded_page - 1) / guarded_page * guarded_page;
    low = low < start ? start : low;
    high = high > end ? end : high;
    if (mmap((void *)low, high - low, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        return 0;
    if (PEEK(map->high) == 0 || low < PEEK(map->low))
        POKE(map->low, low);
    if (high > PEEK(map->high))
        POKE(map->high, high);
    return 1;
}

static void guarded_handle(int number, siginfo_t *info, void *context) {
    int kept = errno;
    uintptr_t at = (uintptr_t)info->si_addr, start, end;
    (void)context;
    guarded_map *found = NULL;
    for (int32_t i = 0; info->si_code > 0 && i < PEEK(guarded_used); i++) {
        start = PEEK(guarded[i].start);
        end = PEEK(guarded[i].end);
        if (start && start <= at && at < end && (found == NULL || PEEK(guarded[i].number) > PEEK(found->number)))
            found = &guarded[i];
    }
    if (found != NULL && guarded_patch(found, at, PEEK(found->start), PEEK(found->end))) {
        errno = kept;
        return;
    }
    if (guarded_is_passed_on) { /* who was before us gave it back to us */
        signal(number, SIG_DFL);
    } else {
        guarded_is_passed_on = 1;
        sigaction(number, &guarded_before, NULL);
    }
    if (info->si_code <= 0)
        raise(number); /* sent by somebody, so it would not happen again by itself */
    errno = kept;
}

static void guarded_listen(void) {
    struct sigaction now, ours;
    if (sigaction(SIGBUS, NULL, &now) != 0 || ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == guarded_handle))
        return;
    guarded_page = (uintptr_t)sysconf(_SC_PAGESIZE);
    guarded_before = now;
    ours.sa_sigaction = guarded_handle;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, NULL);
}

static int32_t guarded_add(void *start, size_t size) {
    int32_t place;
    guarded_listen();
    if (guarded_free_count)
        place = guarded_free[--guarded_free_count];
    else if (guarded_used < GUARDED_MAX)
        place = guarded_used;
    else
        return -1;
    POKE(guarded[place].low, (uintptr_t)0);
    POKE(guarded[place].high, (uintptr_t)0);
    POKE(guarded[place].end, (uintptr_t)start + size);
    POKE(guarded[place].number, ++guarded_number);
    POKE(guarded[place].start, (uintptr_t)start);
    if (place == guarded_used)
        POKE(guarded_used, place + 1);
    return place;
}

static void guarded_drop(int32_t place) {
    POKE(guarded[place].start, (uintptr_t)0);
    guarded_free[guarded_free_count++] = place;
}

static int guarded_map_again(int32_t place, size_t at, size_t size, int fd) {
    void *target = (void *)(guarded[place].start + at);
    return mmap(target, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)at) != MAP_FAILED;
}

static uint64_t guarded_touch(const volatile unsigned char *at, size_t size) {
    if (size) {
        for (size_t i = 0; i < size; i += guarded_page)
            (void)at[i];
        (void)at[size - 1];
    }
    return PEEK(guarded_faults);
}
