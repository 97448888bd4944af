// A libcuda.so.1 without a GPU, for tests.
//
// Physical memory is one memfd; a mapping is an mmap of a piece of it, so two addresses of one handle are the same
// memory. The rules are those probed on an H200: handles are mapped whole, a call over half a mapping is refused, a
// released handle lives until its last mapping is gone. What a correct program never does is counted as a violation
// (what a program may well try, to see whether the driver allows it, is only refused), and what it leaves behind is
// reported at the end.
//
// Environment:
//   MOCK_CUDA_MEMORY=BYTES      memory of the GPU (default 1 GiB)
//   MOCK_CUDA_DEVICES=N         how many GPUs there are, each with that memory (default 1)
//   MOCK_CUDA_NO_VMM=1          the GPU has no virtual memory management
//   MOCK_CUDA_FAIL=CALL:N:CODE  the N-th CALL (from 1) and all later ones return CODE
//   MOCK_CUDA_MAP_NS=N          each cuMemMap takes at least N nanoseconds
//   MOCK_CUDA_CORRUPT=N         the N-th memset writes one wrong byte
//   MOCK_CUDA_REPORT=FILE       append the report to this file instead of writing it to stderr

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

enum Result : unsigned {
    kSuccess = 0,
    kInvalidValue = 1,
    kOutOfMemory = 2,
    kNotInitialized = 3,
    kDeinitialized = 4,
    kNoDevice = 100,
    kInvalidDevice = 101,
    kInvalidContext = 201,
    kNotFound = 500,
    kNotReady = 600,
    kIllegalAddress = 700,
    kNotSupported = 801,
    kCaptureUnsupported = 900,
    kCaptureImplicit = 906,
};

using Clock = std::chrono::steady_clock;

constexpr uint64_t kGranule = 2u << 20;
constexpr uint64_t kPage = 4096;

struct Location { int type, id; };
struct Properties {
    unsigned type, handle_types;
    Location location;
    void *windows;
    unsigned char flags[8];
};
struct Access { Location location; unsigned flags; };

struct Physical { uint64_t offset, size; int device; bool released; int mappings; };
struct Mapping { uint64_t size, handle; bool accessible; unsigned users; };
struct Buffer { uint64_t offset, size, backing; int device; };

// A page of 2 MiB that small buffers share, with a flag for each 512 bytes; pages of large buffers are not looked at.
constexpr uint64_t kUnit = 512, kUnits = kGranule / kUnit;
struct Page { std::vector<bool> taken = std::vector<bool>(kUnits); unsigned buffers = 0; };
struct Place { uint64_t page, first, units; };

uint64_t whole_pages(uint64_t size) { return (size + kGranule - 1) / kGranule * kGranule; }

// How an H200's driver packs what cuMemAlloc hands out: into the smallest run of free units that holds it.
struct Pages {
    std::map<uint64_t, Page> pages;
    std::map<uint64_t, Place> places;
    uint64_t next = 0;

    // The shortest run of free units that holds so many bytes, or a page anew.
    Place place(uint64_t size) const {
        uint64_t units = (size + kUnit - 1) / kUnit, shortest = kUnits + 1;
        Place best = {next, 0, units};
        for (auto &[number, page] : pages) {
            for (uint64_t first = 0, end; first < kUnits; first = end + 1) {
                for (end = first; end < kUnits && !page.taken[end]; end++) {}
                if (end - first >= units && end - first < shortest) {
                    shortest = end - first;
                    best = {number, first, units};
                }
            }
        }
        return best;
    }

    // Bytes of pages that a buffer would take beyond those in use.
    uint64_t lack(uint64_t size) const {
        bool fits = size < kGranule && place(size).page != next;
        return fits ? 0 : whole_pages(size);
    }

    void take(uint64_t at, uint64_t size) {
        Place best = place(size);
        if (best.page == next) next++;
        Page &page = pages[best.page];
        std::fill_n(page.taken.begin() + best.first, best.units, true);
        page.buffers++;
        places[at] = best;
    }

    void give(uint64_t at) {
        Place place = places[at];
        Page &page = pages[place.page];
        std::fill_n(page.taken.begin() + place.first, place.units, false);
        if (--page.buffers == 0) pages.erase(place.page);
        places.erase(at);
    }
};

constexpr int kMostDevices = 8;

// A GPU; its address is the handle of its primary context.
struct Gpu {
    uint64_t used;  // bytes in handles, and in large buffers, whose pages are their own
    int contexts;
    Pages small;
    uint64_t held() const { return used + small.pages.size() * kGranule; }
};

struct State {
    std::recursive_mutex lock;
    bool initialized = false, gone = false;
    Gpu gpus[kMostDevices] = {};
    int file = -1;
    uint64_t total = 1u << 30;
    uint64_t next_handle = 0x1000, next_object = 0x100;
    uint64_t memsets = 0;
    unsigned violations = 0;
    std::string first_violation;
    std::map<uint64_t, uint64_t> holes;         // unused pieces of the memfd: offset -> size
    std::map<uint64_t, uint64_t> reservations;  // address -> size
    std::map<uint64_t, Physical> handles;
    std::map<uint64_t, Mapping> mappings;
    std::map<uint64_t, Buffer> buffers;
    std::map<uint64_t, Clock::time_point> streams;  // busy until
    std::map<uint64_t, Clock::time_point> events;   // reached at
    std::set<uint64_t> captured;                    // streams
    std::map<uint64_t, bool> modules;
    std::map<std::string, long> calls;

    uint64_t used() const {
        uint64_t sum = 0;
        for (auto &gpu : gpus) sum += gpu.held();
        return sum;
    }
    int contexts() const {
        int sum = 0;
        for (auto &gpu : gpus) sum += gpu.contexts;
        return sum;
    }
};

State &state() {
    static State *one = new State;  // never destroyed: the report runs late
    return *one;
}

thread_local Gpu *current = nullptr;
thread_local int capture_mode = 0;  // global; 2 is relaxed

int device_of(const Gpu *gpu) { return int(gpu - state().gpus); }

uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}

Result violation(const char *call, const char *rule, Result result = kInvalidValue) {
    State &s = state();
    if (s.violations++ == 0) s.first_violation = std::string(call) + ": " + rule;
    return result;
}

// Counts a call, and says whether it is to fail.
Result injected(const char *call) {
    long count = ++state().calls[call];
    const char *text = getenv("MOCK_CUDA_FAIL");
    if (!text) return kSuccess;
    std::string spec(text);
    size_t first = spec.find(':'), second = spec.find(':', first + 1);
    if (second == std::string::npos || spec.substr(0, first) != call) return kSuccess;
    long nth = atol(spec.substr(first + 1, second - first - 1).c_str());
    return count >= nth ? Result(atoi(spec.c_str() + second + 1)) : kSuccess;
}

// Every call on memory begins with this: take the lock, look for a context, fail if told to.
#define ENTER(call)                                                                  \
    std::lock_guard<std::recursive_mutex> guard(state().lock);                       \
    if (!state().initialized) return violation(call, "before cuInit", kNotInitialized); \
    if (state().gone) return kDeinitialized;                                         \
    if (!current) return violation(call, "without a context", kInvalidContext);      \
    if (Result fault = injected(call)) return fault

// The same for a call that is not allowed while a stream is captured, unless the thread is relaxed about it.
#define ENTER_UNSAFE(call)                                                       \
    ENTER(call);                                                                 \
    if (!state().captured.empty() && capture_mode != 2) {                        \
        return violation(call, "while a stream is captured", kCaptureUnsupported); \
    }                                                                            \
    static_assert(true, "")

bool take(uint64_t size, uint64_t &offset) {
    State &s = state();
    for (auto hole = s.holes.begin(); hole != s.holes.end(); ++hole) {
        if (hole->second < size) continue;
        offset = hole->first;
        uint64_t rest = hole->second - size;
        s.holes.erase(hole);
        if (rest) s.holes[offset + size] = rest;
        return true;
    }
    return false;
}

void give_back(uint64_t offset, uint64_t size) {
    State &s = state();
    fallocate(s.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size);
    auto hole = s.holes.emplace(offset, size).first;
    auto next = std::next(hole);
    if (next != s.holes.end() && offset + size == next->first) {
        hole->second += next->second;
        s.holes.erase(next);
    }
    if (hole == s.holes.begin()) return;
    auto before = std::prev(hole);
    if (before->first + before->second != hole->first) return;
    before->second += hole->second;
    s.holes.erase(hole);
}

void drop_if_dead(uint64_t handle) {
    State &s = state();
    auto found = s.handles.find(handle);
    if (!found->second.released || found->second.mappings) return;
    s.gpus[found->second.device].used -= found->second.size;
    give_back(found->second.offset, found->second.size);
    s.handles.erase(found);
}

void *nowhere(uint64_t at, uint64_t size) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
    return mmap(reinterpret_cast<void *>(at), size, PROT_NONE, flags, -1, 0);
}

// Whether a range is inside a reservation.
bool is_reserved(uint64_t at, uint64_t size) {
    auto found = state().reservations.upper_bound(at);
    if (found == state().reservations.begin()) return false;
    --found;
    return at + size <= found->first + found->second;
}

// Whether the edges of a range cut no mapping; holes are fine.
bool is_whole(uint64_t at, uint64_t size) {
    auto &mappings = state().mappings;
    auto cuts = [&](uint64_t edge) {
        auto found = mappings.upper_bound(edge);
        if (found == mappings.begin()) return false;
        --found;
        return found->first < edge && edge < found->first + found->second.size;
    };
    return !cuts(at) && !cuts(at + size);
}

// Whether the GPU may read and write a range.
bool is_accessible(uint64_t at, uint64_t size) {
    State &s = state();
    auto buffer = s.buffers.upper_bound(at);
    if (buffer != s.buffers.begin()) {
        --buffer;
        if (at + size <= buffer->first + buffer->second.size) return true;
    }
    auto mapping = s.mappings.upper_bound(at);
    if (mapping == s.mappings.begin()) return false;
    --mapping;
    for (uint64_t reached = mapping->first; reached < at + size; ++mapping) {
        if (mapping == s.mappings.end() || mapping->first != reached) return false;
        if (!mapping->second.accessible) return false;
        reached += mapping->second.size;
        if (reached <= at) return false;
    }
    return true;
}

void wait_until(Clock::time_point when) { std::this_thread::sleep_until(when); }

Clock::time_point all_done() {
    std::lock_guard<std::recursive_mutex> guard(state().lock);
    Clock::time_point last{};
    for (auto &stream : state().streams) last = std::max(last, stream.second);
    return last;
}

bool is_plain(const Properties *wanted) {
    static const unsigned char none[8] = {};
    return wanted && wanted->type == 1 && wanted->handle_types == 0 && wanted->location.type == 1 &&
           wanted->location.id >= 0 && wanted->location.id < kMostDevices && !wanted->windows && !memcmp(wanted->flags, none, 8);
}

// When a stream will have done all that is queued on it; null if there is no such stream.
Clock::time_point *busy_until(void *stream) {
    static Clock::time_point never_busy;  // the default stream: its calls are done when they return
    if (!stream) return &never_busy;
    auto found = state().streams.find(reinterpret_cast<uint64_t>(stream));
    return found == state().streams.end() ? nullptr : &found->second;
}

// The memset of the number given in MOCK_CUDA_CORRUPT leaves one byte wrong.
void corrupt(uint64_t at) {
    if (++state().memsets == number("MOCK_CUDA_CORRUPT", 0)) *reinterpret_cast<uint8_t *>(at) ^= 1;
}

void report() {
    State &s = state();
    const char *path = getenv("MOCK_CUDA_REPORT");
    FILE *out = path ? fopen(path, "a") : stderr;
    if (!out) return;
    long calls = 0;
    for (auto &call : s.calls) calls += call.second;
    fprintf(out,
            "mock: %ld calls, %u violations%s%s; left: %zu reservations, %zu mappings, %zu handles, "
            "%zu buffers, %zu streams, %zu events, %zu modules, %d contexts, %llu bytes\n",
            calls, s.violations, s.violations ? ", first: " : "", s.first_violation.c_str(),
            s.reservations.size(), s.mappings.size(), s.handles.size(), s.buffers.size(),
            s.streams.size(), s.events.size(), s.modules.size(), s.contexts(), (unsigned long long)s.used());
    if (path) fclose(out);
}

// The one kernel that the program brings along, done on the host.
Result count_mismatches(void **parameters) {
    uint64_t value[6];
    for (int i = 0; i < 6; i++) value[i] = *static_cast<uint64_t *>(parameters[i]);
    auto [base, words, rows, pitch, want, counter] = value;
    if (!is_accessible(counter, 8)) return violation("cuLaunchKernel", "counter", kIllegalAddress);
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t at = base + row * pitch;
        if (!is_accessible(at, words * 4)) return violation("cuLaunchKernel", "range", kIllegalAddress);
        auto *data = reinterpret_cast<uint32_t *>(at);
        auto bad = std::count_if(data, data + words, [&](uint32_t have) { return have != uint32_t(want); });
        *reinterpret_cast<uint64_t *>(counter) += bad;
    }
    return kSuccess;
}

}  // namespace

extern "C" {

Result cuInit(unsigned flags) {
    State &s = state();
    std::lock_guard<std::recursive_mutex> guard(s.lock);
    if (Result fault = injected("cuInit")) return fault;
    if (flags) return kInvalidValue;
    if (number("MOCK_CUDA_DEVICES", 1) == 0) return kNoDevice;
    if (s.initialized) return kSuccess;
    s.total = number("MOCK_CUDA_MEMORY", s.total);
    s.file = memfd_create("mock-gpu", 0);
    // Pages are larger than small allocations: the file has room for the waste.
    uint64_t room = s.total * 16 * number("MOCK_CUDA_DEVICES", 1);
    if (s.file < 0 || ftruncate(s.file, room)) return kOutOfMemory;
    s.holes[0] = room;
    s.initialized = true;
    atexit(report);
    return kSuccess;
}

Result cuGetErrorName(Result code, const char **name) {
    switch (code) {
        case kSuccess: *name = "CUDA_SUCCESS"; break;
        case kInvalidValue: *name = "CUDA_ERROR_INVALID_VALUE"; break;
        case kOutOfMemory: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
        case kNotInitialized: *name = "CUDA_ERROR_NOT_INITIALIZED"; break;
        case kDeinitialized: *name = "CUDA_ERROR_DEINITIALIZED"; break;
        case kNoDevice: *name = "CUDA_ERROR_NO_DEVICE"; break;
        case kInvalidDevice: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
        case kInvalidContext: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
        case kNotFound: *name = "CUDA_ERROR_NOT_FOUND"; break;
        case kNotReady: *name = "CUDA_ERROR_NOT_READY"; break;
        case kIllegalAddress: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
        case kNotSupported: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
        case kCaptureUnsupported: *name = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; break;
        case kCaptureImplicit: *name = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"; break;
        default: *name = nullptr; return kInvalidValue;
    }
    return kSuccess;
}

Result cuGetErrorString(Result, const char **text) {
    *text = "said by the mock driver";
    return kSuccess;
}

Result cuDriverGetVersion(int *version) {
    *version = 13000;
    return kSuccess;
}

Result cuDeviceGetCount(int *count) {
    *count = int(number("MOCK_CUDA_DEVICES", 1));
    return state().initialized ? kSuccess : kNotInitialized;
}

Result cuDeviceGet(int *device, int index) {
    *device = index;
    return index >= 0 && uint64_t(index) < number("MOCK_CUDA_DEVICES", 1) ? kSuccess : kInvalidDevice;
}

Result cuDeviceGetName(char *name, int length, int) {
    snprintf(name, length, "Mock GPU");
    return kSuccess;
}

Result cuDeviceGetAttribute(int *value, int attribute, int) {
    if (attribute != 102) return kInvalidValue;  // virtual memory management
    *value = getenv("MOCK_CUDA_NO_VMM") ? 0 : 1;
    return kSuccess;
}

Result cuDeviceCanAccessPeer(int *answer, int from, int memory_of) {
    *answer = from != memory_of;
    return kSuccess;
}

Result cuDevicePrimaryCtxRetain(void **context, int device) {
    std::lock_guard<std::recursive_mutex> guard(state().lock);
    if (Result fault = injected("cuDevicePrimaryCtxRetain")) return fault;
    if (device < 0 || uint64_t(device) >= number("MOCK_CUDA_DEVICES", 1)) return kInvalidDevice;
    state().gpus[device].contexts++;
    *context = &state().gpus[device];
    return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(int device) {
    State &s = state();
    std::lock_guard<std::recursive_mutex> guard(s.lock);
    if (s.gpus[device].contexts == 0) return violation("cuDevicePrimaryCtxRelease", "once too often");
    s.gpus[device].contexts--;
    if (s.contexts() > 0) return kSuccess;
    if (!s.reservations.empty() || !s.handles.empty() || !s.buffers.empty() || !s.streams.empty() || !s.events.empty() ||
        !s.modules.empty()) {
        return violation("cuDevicePrimaryCtxRelease", "something is left in the context", kSuccess);
    }
    return kSuccess;
}

Result cuCtxSetCurrent(void *context) {
    if (state().gone) return kDeinitialized;
    current = nullptr;
    if (!context) return kSuccess;
    for (auto &gpu : state().gpus) {
        if (context == &gpu && gpu.contexts > 0) current = &gpu;
    }
    return current ? kSuccess : violation("cuCtxSetCurrent", "no such context", kInvalidContext);
}

Result cuCtxGetCurrent(void **context) {
    *context = current;
    return state().gone ? kDeinitialized : kSuccess;
}

Result cuCtxSynchronize() {
    {
        ENTER("cuCtxSynchronize");
        if (!state().captured.empty()) {
            return violation("cuCtxSynchronize", "while a stream is captured", kCaptureUnsupported);
        }
    }
    wait_until(all_done());
    return kSuccess;
}

Result cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER("cuMemGetInfo");
    *total = state().total;
    *free = state().total - current->held();
    return kSuccess;
}

Result cuMemGetAllocationGranularity(size_t *size, const Properties *wanted, unsigned option) {
    if (!is_plain(wanted) || option > 1) return violation("cuMemGetAllocationGranularity", "arguments");
    *size = kGranule;
    return kSuccess;
}

Result cuMemAlloc_v2(uint64_t *at, size_t size) {
    ENTER_UNSAFE("cuMemAlloc");
    State &s = state();
    if (!size) return violation("cuMemAlloc", "of nothing");
    if (current->small.lack(size) > s.total - current->held()) return kOutOfMemory;
    uint64_t offset, backing = (size + kPage - 1) / kPage * kPage;
    if (!take(backing, offset)) return kOutOfMemory;
    void *place = mmap(nullptr, backing, PROT_READ | PROT_WRITE, MAP_SHARED, s.file, offset);
    if (place == MAP_FAILED) {
        give_back(offset, backing);
        return kOutOfMemory;
    }
    *at = reinterpret_cast<uint64_t>(place);
    s.buffers[*at] = {offset, size, backing, device_of(current)};
    if (size < kGranule) current->small.take(*at, size);
    else current->used += whole_pages(size);
    return kSuccess;
}

Result cuMemFree_v2(uint64_t at) {
    {
        ENTER_UNSAFE("cuMemFree");
    }
    wait_until(all_done());
    State &s = state();
    std::lock_guard<std::recursive_mutex> guard(s.lock);
    auto found = s.buffers.find(at);
    if (found == s.buffers.end()) return violation("cuMemFree", "unknown address");
    munmap(reinterpret_cast<void *>(at), found->second.backing);
    give_back(found->second.offset, found->second.backing);
    Gpu &gpu = s.gpus[found->second.device];
    uint64_t size = found->second.size;
    if (size < kGranule) gpu.small.give(at);
    else gpu.used -= whole_pages(size);
    s.buffers.erase(found);
    return kSuccess;
}

Result cuMemAddressReserve(uint64_t *at, size_t size, size_t alignment, uint64_t hint, unsigned long long flags) {
    ENTER("cuMemAddressReserve");
    if (!size || size % kGranule || alignment % kGranule || hint || flags) {
        return violation("cuMemAddressReserve", "arguments");
    }
    void *place = nowhere(0, size + kGranule);
    if (place == MAP_FAILED) return kOutOfMemory;
    uint64_t first = reinterpret_cast<uint64_t>(place), aligned = (first + kGranule - 1) / kGranule * kGranule;
    if (aligned > first) munmap(place, aligned - first);
    if (first + kGranule > aligned) munmap(reinterpret_cast<void *>(aligned + size), first + kGranule - aligned);
    state().reservations[aligned] = size;
    *at = aligned;
    return kSuccess;
}

Result cuMemAddressFree(uint64_t at, size_t size) {
    ENTER("cuMemAddressFree");
    State &s = state();
    auto found = s.reservations.find(at);
    if (found == s.reservations.end()) return violation("cuMemAddressFree", "unknown address");
    if (found->second != size) return kInvalidValue;
    auto mapping = s.mappings.lower_bound(at);
    if (mapping != s.mappings.end() && mapping->first < at + size) {
        return violation("cuMemAddressFree", "still mapped");
    }
    munmap(reinterpret_cast<void *>(at), size);
    s.reservations.erase(found);
    return kSuccess;
}

Result cuMemCreate(uint64_t *handle, size_t size, const Properties *wanted, unsigned long long flags) {
    ENTER_UNSAFE("cuMemCreate");
    State &s = state();
    if (!is_plain(wanted) || flags || !size || size % kGranule) return violation("cuMemCreate", "arguments");
    int device = wanted->location.id;
    if (device_of(current) != device) return violation("cuMemCreate", "on another GPU than the current one");
    uint64_t offset;
    if (size > s.total - current->held() || !take(size, offset)) return kOutOfMemory;
    current->used += size;
    *handle = s.next_handle++;
    s.handles[*handle] = {offset, size, device, false, 0};
    return kSuccess;
}

Result cuMemRelease(uint64_t handle) {
    ENTER("cuMemRelease");
    auto found = state().handles.find(handle);
    if (found == state().handles.end() || found->second.released) return violation("cuMemRelease", "unknown handle");
    found->second.released = true;
    drop_if_dead(handle);
    return kSuccess;
}

Result cuMemMap(uint64_t at, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
    using Clock = std::chrono::steady_clock;
    auto end = Clock::now() + std::chrono::nanoseconds(number("MOCK_CUDA_MAP_NS", 0));
    ENTER("cuMemMap");
    State &s = state();
    auto found = s.handles.find(handle);
    if (found == s.handles.end() || found->second.released) return violation("cuMemMap", "unknown handle");
    if (offset || size != found->second.size) return kNotSupported;
    if (at % kGranule || flags || !is_reserved(at, size)) return violation("cuMemMap", "arguments");
    auto next = s.mappings.lower_bound(at);
    bool overlaps = next != s.mappings.end() && next->first < at + size;
    if (overlaps || !is_whole(at, size)) return kInvalidValue;
    int flags_ = MAP_SHARED | MAP_FIXED;
    void *place = mmap(reinterpret_cast<void *>(at), size, PROT_NONE, flags_, s.file, found->second.offset);
    if (place == MAP_FAILED) return kOutOfMemory;
    found->second.mappings++;
    s.mappings[at] = {size, handle, false, 0};
    while (Clock::now() < end) {}
    return kSuccess;
}

Result cuMemSetAccess(uint64_t at, size_t size, const Access *access, size_t count) {
    ENTER("cuMemSetAccess");
    if (!count || count > kMostDevices) return violation("cuMemSetAccess", "arguments");
    unsigned users = 0;
    for (size_t i = 0; i < count; i++) {
        bool known = access[i].location.id >= 0 && access[i].location.id < kMostDevices;
        if (!known || access[i].location.type != 1 || access[i].flags != 3) {
            return violation("cuMemSetAccess", "arguments");
        }
        users |= 1u << access[i].location.id;
    }
    if (!is_whole(at, size)) return kInvalidValue;
    auto &mappings = state().mappings;
    auto mapping = mappings.lower_bound(at);
    if (mapping == mappings.end() || mapping->first >= at + size) return violation("cuMemSetAccess", "nothing mapped");
    for (; mapping != mappings.end() && mapping->first < at + size; ++mapping) {
        void *place = reinterpret_cast<void *>(mapping->first);
        if (mprotect(place, mapping->second.size, PROT_READ | PROT_WRITE)) return kOutOfMemory;
        mapping->second.users |= users;
        mapping->second.accessible |= users >> state().handles[mapping->second.handle].device & 1;
    }
    return kSuccess;
}

Result cuMemUnmap(uint64_t at, size_t size) {
    ENTER("cuMemUnmap");
    if (!is_whole(at, size)) return kInvalidValue;
    auto &mappings = state().mappings;
    auto mapping = mappings.lower_bound(at);
    if (mapping == mappings.end() || mapping->first >= at + size) return violation("cuMemUnmap", "nothing mapped");
    while (mapping != mappings.end() && mapping->first < at + size) {
        nowhere(mapping->first, mapping->second.size);
        uint64_t handle = mapping->second.handle;
        mapping = mappings.erase(mapping);
        state().handles[handle].mappings--;
        drop_if_dead(handle);
    }
    return kSuccess;
}

Result cuMemsetD32_v2(uint64_t at, unsigned value, size_t count) {
    ENTER("cuMemsetD32");
    if (at % 4 || !is_accessible(at, count * 4)) return violation("cuMemsetD32", "range", kIllegalAddress);
    std::fill_n(reinterpret_cast<uint32_t *>(at), count, value);
    corrupt(at);
    return kSuccess;
}

Result cuMemsetD2D32_v2(uint64_t at, size_t pitch, unsigned value, size_t width, size_t height) {
    ENTER("cuMemsetD2D32");
    for (size_t row = 0; row < height; row++) {
        uint64_t place = at + row * pitch;
        if (!is_accessible(place, width * 4)) return violation("cuMemsetD2D32", "range", kIllegalAddress);
        std::fill_n(reinterpret_cast<uint32_t *>(place), width, value);
    }
    corrupt(at);
    return kSuccess;
}

Result cuMemsetD8_v2(uint64_t at, unsigned char value, size_t count) {
    ENTER("cuMemsetD8");
    if (!is_accessible(at, count)) return violation("cuMemsetD8", "range", kIllegalAddress);
    memset(reinterpret_cast<void *>(at), value, count);
    return kSuccess;
}

Result cuMemsetD8Async(uint64_t at, unsigned char value, size_t count, void *stream) {
    ENTER("cuMemsetD8Async");
    auto found = state().streams.find(reinterpret_cast<uint64_t>(stream));
    if (found == state().streams.end()) return violation("cuMemsetD8Async", "unknown stream");
    if (!is_accessible(at, count)) return violation("cuMemsetD8Async", "range", kIllegalAddress);
    // Only the ends are written; the time is that of a small GPU, which writes 200 GB/s.
    *reinterpret_cast<unsigned char *>(at) = *reinterpret_cast<unsigned char *>(at + count - 1) = value;
    auto start = std::max(found->second, Clock::now());
    found->second = start + std::chrono::nanoseconds(count / 200 + 1);
    return kSuccess;
}

// As cuMemsetD8Async, but everything is written.
Result cuMemsetD32Async(uint64_t at, unsigned value, size_t count, void *stream) {
    ENTER("cuMemsetD32Async");
    Clock::time_point *busy = busy_until(stream);
    if (!busy) return violation("cuMemsetD32Async", "unknown stream");
    if (at % 4 || !is_accessible(at, count * 4)) return violation("cuMemsetD32Async", "range", kIllegalAddress);
    std::fill_n(reinterpret_cast<uint32_t *>(at), count, value);
    *busy = std::max(*busy, Clock::now()) + std::chrono::nanoseconds(count / 50 + 1);
    return kSuccess;
}

Result cuMemcpyDtoH_v2(void *target, uint64_t at, size_t size) {
    ENTER("cuMemcpyDtoH");
    if (!is_accessible(at, size)) return violation("cuMemcpyDtoH", "range", kIllegalAddress);
    memcpy(target, reinterpret_cast<void *>(at), size);
    return kSuccess;
}

Result cuStreamCreate(void **stream, unsigned flags) {
    ENTER("cuStreamCreate");
    if (flags != 1) return violation("cuStreamCreate", "a stream that waits for others");
    uint64_t id = state().next_object++;
    state().streams[id] = Clock::time_point{};
    *stream = reinterpret_cast<void *>(id);
    return kSuccess;
}

Result cuStreamDestroy_v2(void *stream) {
    ENTER("cuStreamDestroy");
    bool known = state().streams.erase(reinterpret_cast<uint64_t>(stream)) == 1;
    return known ? kSuccess : violation("cuStreamDestroy", "unknown stream");
}

Result cuStreamQuery(void *stream) {
    ENTER("cuStreamQuery");
    auto found = state().streams.find(reinterpret_cast<uint64_t>(stream));
    if (found == state().streams.end()) return violation("cuStreamQuery", "unknown stream");
    return Clock::now() < found->second ? kNotReady : kSuccess;
}

Result cuStreamSynchronize(void *stream) {
    Clock::time_point done;
    {
        ENTER("cuStreamSynchronize");
        Clock::time_point *busy = busy_until(stream);
        if (!busy) return violation("cuStreamSynchronize", "unknown stream");
        done = *busy;
    }
    wait_until(done);
    return kSuccess;
}

Result cuEventCreate(void **event, unsigned flags) {
    ENTER("cuEventCreate");
    if (flags != 2) return violation("cuEventCreate", "an event that takes the time");
    uint64_t id = state().next_object++;
    state().events[id] = Clock::time_point{};
    *event = reinterpret_cast<void *>(id);
    return kSuccess;
}

Result cuEventDestroy_v2(void *event) {
    ENTER("cuEventDestroy");
    bool known = state().events.erase(reinterpret_cast<uint64_t>(event)) == 1;
    return known ? kSuccess : violation("cuEventDestroy", "unknown event");
}

Result cuEventRecord(void *event, void *stream) {
    ENTER("cuEventRecord");
    auto found = state().events.find(reinterpret_cast<uint64_t>(event));
    if (found == state().events.end()) return violation("cuEventRecord", "unknown event");
    Clock::time_point *busy = busy_until(stream);
    if (!busy) return violation("cuEventRecord", "unknown stream");
    if (state().captured.count(reinterpret_cast<uint64_t>(stream))) {
        return violation("cuEventRecord", "of ours in a stream that is captured");
    }
    found->second = *busy;
    return kSuccess;
}

Result cuEventQuery(void *event) {
    ENTER_UNSAFE("cuEventQuery");
    auto found = state().events.find(reinterpret_cast<uint64_t>(event));
    if (found == state().events.end()) return violation("cuEventQuery", "unknown event");
    return Clock::now() < found->second ? kNotReady : kSuccess;
}

Result cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    ENTER("cuStreamWaitEvent");
    auto found = state().events.find(reinterpret_cast<uint64_t>(event));
    if (found == state().events.end()) return violation("cuStreamWaitEvent", "unknown event");
    Clock::time_point *busy = busy_until(stream);
    if (!busy || flags) return violation("cuStreamWaitEvent", "unknown stream, or flags");
    *busy = std::max(*busy, found->second);
    return kSuccess;
}

Result cuStreamIsCapturing(void *stream, int *status) {
    ENTER("cuStreamIsCapturing");
    if (!stream && !state().captured.empty()) return kCaptureImplicit;
    if (!busy_until(stream)) return violation("cuStreamIsCapturing", "unknown stream");
    *status = state().captured.count(reinterpret_cast<uint64_t>(stream)) ? 1 : 0;
    return kSuccess;
}

Result cuThreadExchangeStreamCaptureMode(int *mode) {
    if (state().gone) return kDeinitialized;
    if (*mode < 0 || *mode > 2) return violation("cuThreadExchangeStreamCaptureMode", "mode");
    std::swap(*mode, capture_mode);
    return kSuccess;
}

// For tests alone: a stream is captured from now on, or no more; the driver goes, as at the end of a process.
void mock_capture(void *stream, int on) {
    std::lock_guard<std::recursive_mutex> guard(state().lock);
    uint64_t id = reinterpret_cast<uint64_t>(stream);
    on ? void(state().captured.insert(id)) : void(state().captured.erase(id));
}

void mock_go_away() {
    std::lock_guard<std::recursive_mutex> guard(state().lock);
    state().gone = true;
}

// For tests alone: keeps a stream busy for so many milliseconds more.
void mock_work(void *stream, int milliseconds) {
    std::lock_guard<std::recursive_mutex> guard(state().lock);
    Clock::time_point *busy = busy_until(stream);
    if (busy) *busy = std::max(*busy, Clock::now()) + std::chrono::milliseconds(milliseconds);
}

// For tests alone: whether a GPU may use the memory mapped at an address.
int mock_may_use(int device, uint64_t at) {
    std::lock_guard<std::recursive_mutex> guard(state().lock);
    auto found = state().mappings.upper_bound(at);
    if (found == state().mappings.begin()) return 0;
    --found;
    return at < found->first + found->second.size ? found->second.users >> device & 1 : 0;
}

unsigned mock_violations() { return state().violations; }

Result cuModuleLoadData(void **module, const void *image) {
    ENTER("cuModuleLoadData");
    if (!strstr(static_cast<const char *>(image), ".entry count_mismatches")) {
        return violation("cuModuleLoadData", "unknown code");
    }
    uint64_t id = state().next_object++;
    state().modules[id] = true;
    *module = reinterpret_cast<void *>(id);
    return kSuccess;
}

Result cuModuleGetFunction(void **function, void *module, const char *name) {
    ENTER("cuModuleGetFunction");
    if (strcmp(name, "count_mismatches")) return kNotFound;
    *function = module;
    return kSuccess;
}

Result cuModuleUnload(void *module) {
    ENTER("cuModuleUnload");
    bool known = state().modules.erase(reinterpret_cast<uint64_t>(module)) == 1;
    return known ? kSuccess : violation("cuModuleUnload", "unknown module");
}

Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned, void *, void **parameters, void **) {
    ENTER("cuLaunchKernel");
    if (!state().modules.count(reinterpret_cast<uint64_t>(function))) {
        return violation("cuLaunchKernel", "unknown kernel");
    }
    if (!gx || !gy || gy > 65535 || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1) {
        return violation("cuLaunchKernel", "grid");
    }
    return count_mismatches(parameters);
}

}  // extern "C"
