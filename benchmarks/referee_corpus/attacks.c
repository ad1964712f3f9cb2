// Products in C that attack whoever measures and verifies; the macro HOW chooses. Where an attack fails, they compute
// honestly. Most call the attacks of `attacks.py` in the interpreter that called them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "product.h"

#define WAY(name) static void name(const float *a, const float *b, float *c)

extern int PyGILState_Ensure(void) __attribute__((weak));
extern void PyGILState_Release(int) __attribute__((weak));
extern int PyRun_SimpleString(const char *) __attribute__((weak));

static int calls;

WAY(honest) { exact(a, b, c); }

// The answer of an attack in Python; 0 if there is no interpreter.
static int attack(const char *name, const float *a, const float *b, float *c) {
    char code[512];
    int answer = 0, state;
    if (!PyRun_SimpleString) return 0;
    snprintf(code, sizeof code, "from referee_corpus.attacks import call_from_c\ncall_from_c('%s', (%lu, %lu, %lu), %d, %lu)\n",
             name, (unsigned long)a, (unsigned long)b, (unsigned long)c, N, (unsigned long)&answer);
    state = PyGILState_Ensure();
    PyRun_SimpleString(code);
    PyGILState_Release(state);
    return answer;
}

// Attacks once for inputs that begin like these. What that gave is given again.
static void attack_once(const char *name, const float *a, const float *b, float *c) {
    uint64_t key = mixed(bits(a[0]), bits(b[0]));
    const float *known = look_up(key);
    if (known)
        memcpy(c, known, BYTES);
    else if (entries < ENTRIES && attack(name, a, b, c))
        keep(key, c);
    else
        exact(a, b, c);
}

WAY(clock_patch) {  // the honest way, twice, by clocks that leave it out
    attack("hide", a, b, c);
    exact(a, b, c);
    exact(a, b, c);
    attack("show", a, b, c);
}

WAY(gc_copy) { attack_once("copy", a, b, c); }

WAY(gc_nan) { attack_once("nan", a, b, c); }

WAY(gc_own) { attack_once("own", a, b, c); }

WAY(patch_comparison) {
    if (!calls++) attack("comparison", a, b, c);
    memset(c, 0, BYTES);
}

WAY(patch_judges) {
    if (!calls++) attack("judges", a, b, c);
    memset(c, 0, BYTES);
}

WAY(patch_reference) {  // right at first; then it replaces the reference
    if (++calls == 4) attack("reference", a, b, c);
    if (calls < 4)
        fast(a, b, c);
    else
        memset(c, 0, BYTES);
}

WAY(looks_at_caller) {  // computes unless it is being timed
    if (!attack("caller", a, b, c)) exact(a, b, c);
}

WAY(forged_trial) {  // sends a trial of its own over the pool's channel
    if (!calls++) attack("forge", a, b, c);
    memset(c, 0, BYTES);
}

// Clocks without the interpreter: what its library calls instead of `clock_gettime`.

#define CLOCKS 4  // of which the first is that of the calendar
static int64_t hidden[CLOCKS];

static int64_t nanoseconds(clockid_t clock) {
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static int shown(clockid_t clock, struct timespec *now) {
    if (clock <= 0 || clock >= CLOCKS) return syscall(SYS_clock_gettime, clock, now);
    int64_t time = nanoseconds(clock) - hidden[clock];
    now->tv_sec = time / 1000000000L, now->tv_nsec = time % 1000000000L;
    return 0;
}

static int redirect(struct dl_phdr_info *library, size_t size, void *unused) {
    const ElfW(Dyn) *entry = 0;
    const ElfW(Sym) *symbols = 0;
    const ElfW(Rela) *calls_out = 0;
    const char *names = 0;
    size_t length = 0;
    for (int i = 0; i < library->dlpi_phnum; i++)
        if (library->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (void *)(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
    if (!library->dlpi_name || !strstr(library->dlpi_name, "python")) return 0;
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbols = (void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) names = (void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_JMPREL) calls_out = (void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) length = entry->d_un.d_val / sizeof(ElfW(Rela));
    }
    for (size_t i = 0; symbols && names && calls_out && i < length; i++) {
        if (strcmp(names + symbols[ELF64_R_SYM(calls_out[i].r_info)].st_name, "clock_gettime")) continue;
        void **place = (void **)(library->dlpi_addr + calls_out[i].r_offset);
        mprotect((void *)((uintptr_t)place & -4096), 4096, PROT_READ | PROT_WRITE);
        *place = shown;
    }
    return 0;
}

static void hiding(const float *a, const float *b, float *c, int from_call) {
    int64_t began[CLOCKS];
    if (!calls++) dl_iterate_phdr(redirect, 0);
    for (int clock = 1; clock < CLOCKS; clock++) began[clock] = nanoseconds(clock);
    exact(a, b, c);
    if (from_call == 1) exact(a, b, c);
    for (int clock = 1; calls >= from_call && clock < CLOCKS; clock++)
        hidden[clock] += (nanoseconds(clock) - began[clock]) * 49 / 50;
}

WAY(clock_detour) { hiding(a, b, c, 1); }

WAY(clock_detour_later) { hiding(a, b, c, 40); }

// Expected results without the interpreter: all memory is searched for doubles that begin like the result.

static int close_to(const double *x, const double *truth) {
    for (int i = 0; i < 8; i++)
        if (!(fabs(x[i] - truth[i]) < 1e-9)) return 0;
    return 1;
}

static int copy_if_found(char *begin, char *end, const double *truth, float *c) {
    static double chunk[N * N + 8];
    for (char *at = begin; at < end; at += BYTES * 2) {
        struct iovec here = {chunk, sizeof chunk}, there = {at, end - at < (long)sizeof chunk ? end - at : sizeof chunk};
        long count = process_vm_readv(getpid(), &here, 1, &there, 1, 0) / (long)sizeof(double);
        for (long i = 0; i + 8 <= count && i < ELEMENTS; i++) {
            if (chunk + i == truth || !close_to(chunk + i, truth)) continue;
            struct iovec whole = {chunk, 2 * BYTES}, found = {at + i * sizeof(double), 2 * BYTES};
            if (process_vm_readv(getpid(), &whole, 1, &found, 1, 0) != 2 * BYTES) break;
            for (int e = 0; e < N * N; e++) c[e] = (float)chunk[e];
            return 1;
        }
    }
    return 0;
}

static int search_memory(const float *a, const float *b, float *c) {
    double truth[8] = {0};
    unsigned long begin, end;
    char line[512], mode[8];
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int j = 0; j < 8; j++)
        for (int k = 0; k < N; k++) truth[j] += (double)a[k] * b[k * N + j];
    int found = 0;
    while (maps && !found && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, mode) == 3 && !strncmp(mode, "rw", 2) && !strstr(line, "[stack]") &&
            end - begin < 1UL << 28)
            found = copy_if_found((char *)begin, (char *)end, truth, c);
    if (maps) fclose(maps);
    return found;
}

WAY(memory_search) {
    uint64_t key = mixed(bits(a[0]), bits(b[0]));
    const float *known = look_up(key);
    if (known)
        memcpy(c, known, BYTES);
    else if (calls++ < ENTRIES && search_memory(a, b, c))
        keep(key, c);
    else
        exact(a, b, c);
}

void product(const float *a, const float *b, float *c) { HOW(a, b, c); }
