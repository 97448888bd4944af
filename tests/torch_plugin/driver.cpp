// Drives libgmlake_torch.so as PyTorch does, on the mock driver. usage: driver LIBRARY SCENARIO
//
// Memory of the mock can be read and written by the host, so every block can be checked byte by byte.

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef WITH_C10
#include "c10.h"
#endif

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);   \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

using Stream = void *;
using PoolId = std::pair<unsigned long, unsigned long>;
constexpr size_t kMiB = 1 << 20;

static void *library, *cuda;

template <class F>
F *of(void *from, const char *name) {
    void *found = dlsym(from, name);
    if (!found) fprintf(stderr, "no %s\n", name);
    CHECK(found);
    return reinterpret_cast<F *>(found);
}

// The types are those of PyTorch's CUDAPluggableAllocator.
static void *take(size_t size, int device, Stream stream) {
    static auto *call = of<void *(size_t, int, Stream)>(library, "gmlake_malloc");
    return call(size, device, stream);
}
static void give(void *at, size_t size, int device, Stream stream) {
    static auto *call = of<void(void *, size_t, int, Stream)>(library, "gmlake_free");
    call(at, size, device, stream);
}
static void lend(void *at, Stream stream) { of<void(void *, Stream)>(library, "gmlake_record_stream")(at, stream); }
static void empty_cache() { of<void()>(library, "gmlake_reset")(); }
static void begin_pool(int device, PoolId id) {
    std::function<bool(Stream)> filter = [id](Stream) { return id.first == 0; };
    of<void(int, PoolId, std::function<bool(Stream)>)>(library, "gmlake_begin_pool")(device, id, filter);
}
static void end_pool(int device, PoolId id) { of<void(int, PoolId)>(library, "gmlake_end_pool")(device, id); }
static void release_pool(int device, PoolId id) { of<void(int, PoolId)>(library, "gmlake_release_pool")(device, id); }
static void work(Stream stream, int ms) { of<void(Stream, int)>(cuda, "mock_work")(stream, ms); }
static void capture(Stream stream, bool on) { of<void(Stream, int)>(cuda, "mock_capture")(stream, on); }

static std::string stats() {
    auto *call = of<size_t(char *, size_t)>(library, "gmlake_stats");
    std::string text(call(nullptr, 0) + 4096, '\0');
    text.resize(call(text.data(), text.size()));
    return text;
}

// The first number after a key.
static long number(const std::string &text, const std::string &key) {
    size_t at = text.find("\"" + key + "\":");
    CHECK(at != std::string::npos);
    return atol(text.c_str() + at + key.size() + 3);
}
static long counted(const char *key) { return number(stats(), key); }

static void *current() {
    void *context;
    CHECK(of<int(void **)>(cuda, "cuCtxGetCurrent")(&context) == 0);
    return context;
}
static void use(int device) {
    void *context;
    CHECK(of<int(void **, int)>(cuda, "cuDevicePrimaryCtxRetain")(&context, device) == 0);
    CHECK(of<int(void *)>(cuda, "cuCtxSetCurrent")(context) == 0);
}
static Stream new_stream() {
    Stream stream;
    CHECK(of<int(Stream *, unsigned)>(cuda, "cuStreamCreate")(&stream, 1) == 0);
    return stream;
}
static void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

static void fill(void *at, size_t size, unsigned char value) { memset(at, value, size); }
static bool holds(const void *at, size_t size, unsigned char value) {
    auto *bytes = static_cast<const unsigned char *>(at);
    return size == 0 || (bytes[0] == value && !memcmp(bytes, bytes + 1, size - 1));
}

struct Block { void *at; size_t size; int device; Stream stream; unsigned char value; };

// Threads on two GPUs that allocate, lend, and free what another thread allocated.
static void threads() {
    constexpr int kThreads = 6, kRounds = 200;
    std::mutex lock;
    std::vector<Block> shared;
    std::atomic<unsigned> next{0};
    auto run = [&](int seed) {
        std::mt19937 random(seed);
        int device = seed % 2;
        use(1 - device);  // not the GPU of the requests: it must not matter, and must stay
        void *before = current();
        Stream streams[] = {new_stream(), new_stream()};
        for (int round = 0; round < kRounds; round++) {
            size_t size = random() % 3 ? random() % (600 << 10) + 1 : random() % (24 * kMiB) + 1;
            Stream stream = streams[random() % 2];
            unsigned char value = next++;
            Block block{take(size, device, stream), size, device, stream, value};
            CHECK(block.at);
            fill(block.at, size, value);
            if (random() % 4 == 0) lend(block.at, streams[random() % 2]);
            if (random() % 8 == 0) work(streams[random() % 2], 1);
            Block gone;
            {
                std::lock_guard<std::mutex> guard(lock);
                shared.push_back(block);
                if (shared.size() < 24) continue;
                std::swap(shared[random() % shared.size()], shared.back());
                gone = shared.back();
                shared.pop_back();
            }
            CHECK(holds(gone.at, gone.size, gone.value));
            give(gone.at, gone.size, gone.device, gone.stream);
        }
        CHECK(current() == before);
    };
    std::vector<std::thread> all;
    for (int seed = 0; seed < kThreads; seed++) all.emplace_back(run, seed);
    for (auto &thread : all) thread.join();
    for (auto &block : shared) {
        CHECK(holds(block.at, block.size, block.value));
        give(block.at, block.size, block.device, block.stream);
    }
    CHECK(current() == nullptr);
    std::string text = stats();
    size_t second = text.find("\"device\":1");
    CHECK(second != std::string::npos);
    for (const auto &half : {text.substr(0, second), text.substr(second)}) {
        CHECK(number(half, "live_blocks") == 0);
        CHECK(number(half, "mallocs") == kThreads / 2 * kRounds && number(half, "frees") == kThreads / 2 * kRounds);
        CHECK(number(half, "deferred_frees") > 0 && number(half, "num_ooms") == 0);
    }
    sleep_ms(50);
    empty_cache();
    CHECK(counted("held_bytes") == 0);
}

// A block that was lent is not handed out again before the borrower is done.
static void lending() {
    use(0);
    Stream own = new_stream(), other = new_stream();
    size_t size = 8 * kMiB;
    void *first = take(size, 0, own);
    lend(first, own);  // lending to the owner means nothing
    give(first, size, 0, own);
    void *again = take(size, 0, own);
    CHECK(again == first);
    lend(again, other);
    work(other, 300);
    give(again, size, 0, own);
    void *second = take(size, 0, own);
    CHECK(second != first);
    CHECK(counted("pending_blocks") == 1);
    sleep_ms(350);
    void *third = take(size, 0, own);
    CHECK(third == first);
    CHECK(counted("pending_blocks") == 0 && counted("deferred_frees") == 1 && counted("recorded_uses") == 1);
    give(second, size, 0, own);
    give(third, size, 0, own);
    // When memory is short, the wait is worth it: two thirds of all are lent, and asked for again.
    size = number(stats(), "held_bytes") ? 600 * kMiB : 0;
    void *large = take(size, 0, own);
    lend(large, other);
    work(other, 100);
    give(large, size, 0, own);
    large = take(size, 0, own);
    CHECK(large && counted("pending_blocks") == 0);
    give(large, size, 0, own);
}

static void oom() {
    use(0);
    void *keep = take(700 * kMiB, 0, nullptr);
    std::string text;
#ifdef WITH_C10
    CHECK(dlopen("libc10.so", RTLD_NOW | RTLD_LOCAL));
    try {
        take(700 * kMiB, 0, nullptr);
        CHECK(!"reached");
    } catch (const c10::OutOfMemoryError &error) {
        text = error.what_without_backtrace();
        CHECK(error.place() == "gmlake:gmlake_malloc" && error.line() == 0);
        CHECK(c10::Error::alive() == 1);
    }
    CHECK(c10::Error::alive() == 0);
#else
    try {
        take(700 * kMiB, 0, nullptr);
        CHECK(!"reached");
    } catch (const std::runtime_error &error) {
        text = error.what();
    }
#endif
    printf("%s\n", text.c_str());
    CHECK(text.find("CUDA out of memory. Tried to allocate 700") == 0);
    CHECK(counted("num_ooms") == 1);
    // Life goes on, with a smaller request and after a free.
    give(take(100 * kMiB, 0, nullptr), 100 * kMiB, 0, nullptr);
    give(keep, 700 * kMiB, 0, nullptr);
    keep = take(800 * kMiB, 0, nullptr);
    CHECK(keep);
    give(keep, 800 * kMiB, 0, nullptr);
    try {
        take(kMiB, 9, nullptr);
        CHECK(!"reached");
    } catch (const std::runtime_error &error) {
        CHECK(strstr(error.what(), "there is no GPU 9"));
    }
    empty_cache();
    of<void(double, int)>(library, "gmlake_memory_fraction")(0.25, 0);
    bool refused = false;
    try {
        take(300 * kMiB, 0, nullptr);
    } catch (const std::exception &error) {
        refused = strstr(error.what(), "that this process may hold");
    }
    CHECK(refused);
    of<void(double, int)>(library, "gmlake_memory_fraction")(1.0, 0);
    give(take(300 * kMiB, 0, nullptr), 300 * kMiB, 0, nullptr);
}

// What a graph was captured with is its own until the graph is gone.
static void graph() {
    use(0);
    Stream side = new_stream(), other = new_stream();
    PoolId pool{0, 1};
    size_t size = 4 * kMiB;
    void *eager = take(size, 0, side);
    give(eager, size, 0, side);
    void *lent = take(size, 0, other);
    begin_pool(0, pool);
    capture(side, true);
    void *inside = take(size, 0, side);
    CHECK(inside != eager);
    void *kept = take(2 * size, 0, side);
    give(inside, size, 0, side);
    CHECK(take(size, 0, side) == inside);
    void *outside = take(size, 0, other);  // another thread's work goes on meanwhile
    CHECK(outside != inside);
    lend(lent, side);
    give(lent, size, 0, other);  // cannot ask for events now
    give(inside, size, 0, side);
    capture(side, false);
    end_pool(0, pool);
    CHECK(take(size, 0, side) == eager);
    for (int i = 0; i < 50; i++) {
        void *at = take(size, 0, side);
        CHECK(at != inside && at != kept);
    }
    long held = counted("held_bytes");
    release_pool(0, pool);
    CHECK(counted("held_bytes") <= held);
    held = counted("held_bytes");
    give(kept, 2 * size, 0, side);
    CHECK(counted("held_bytes") < held);
    CHECK(counted("graph_pools") == 1 && counted("pending_blocks") == 0);
    // Two captures at once on one GPU cannot be told apart.
    begin_pool(0, {0, 2});
    begin_pool(0, {0, 3});
    capture(side, true);
    try {
        take(size, 0, side);
        CHECK(!"reached");
    } catch (const std::runtime_error &error) {
        CHECK(strstr(error.what(), "two CUDA graphs are being captured"));
    }
    capture(side, false);
    end_pool(0, {0, 3});
    end_pool(0, {0, 2});
}

// Frees after the driver has gone, from a thread that never had a context, and in a child.
static void shutdown() {
    use(0);
    Stream stream = new_stream(), other = new_stream();
    std::vector<void *> blocks;
    for (int i = 0; i < 40; i++) blocks.push_back(take(i * 300000 + 1, 0, stream));
    lend(blocks[3], other);
    pid_t child = fork();
    if (child == 0) {
        for (void *block : blocks) give(block, 1, 0, stream);
        bool refused = false;
        try {
            take(kMiB, 0, stream);
        } catch (const std::exception &) {
            refused = true;
        }
        _exit(refused ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    of<void()>(cuda, "mock_go_away")();
    std::thread([&] {
        for (void *block : blocks) give(block, 1, 0, stream);
    }).join();
    empty_cache();
}

static void poison() {
    use(0);
    Stream stream = new_stream();
    size_t size = 3 * kMiB;
    void *at = take(size, 0, stream);
    fill(at, size, 7);
    give(at, size, 0, stream);
    CHECK(take(size, 0, stream) == at);
    std::string text = stats();
    CHECK(number(text, "checks") == 1 && number(text, "corrupted_bytes") == 0);
    CHECK(number(text, "checked_bytes") >= long(size));
    give(at, size, 0, stream);
    static_cast<unsigned char *>(at)[123456] = 7;  // a kernel that should have ended
    CHECK(take(size, 0, stream) == at);
    CHECK(counted("corrupted_bytes") == 4);
    give(at, size, 0, stream);
}

static void snapshot(const char *path) {
    use(0);
    Stream stream = new_stream(), other = new_stream();
    void *a = take(5 * kMiB, 0, stream), *b = take(1000, 0, other);
    give(a, 5 * kMiB, 0, stream);
    a = take(7 * kMiB, 1, stream);
    lend(b, stream);
    give(b, 1000, 0, other);
    b = take(2000, 0, other);
    char message[200];
    auto *write = of<size_t(const char *, char *, size_t)>(library, "gmlake_snapshot");
    CHECK(write("/no/such/folder/x.json", message, sizeof message) > 0);
    CHECK(strstr(message, "/no/such/folder/x.json: No such file"));
    CHECK(write(path, message, sizeof message) == 0);
}

// Mapped memory of one GPU can be used by the other as soon as the process uses both, before and after.
static void peers() {
    auto *may_use = of<int(int, uint64_t)>(cuda, "mock_may_use");
    use(0);
    void *early = take(30 * kMiB, 0, nullptr);
    CHECK(may_use(0, uint64_t(early)) && !may_use(1, uint64_t(early)));
    void *other = take(30 * kMiB, 1, nullptr);
    void *late = take(60 * kMiB, 0, nullptr);
    for (void *at : {early, other, late}) CHECK(may_use(0, uint64_t(at)) && may_use(1, uint64_t(at)));
}

static void odds_and_ends() {
    auto *configure = of<size_t(const char *, char *, size_t)>(library, "gmlake_configure");
    char message[30];
    CHECK(configure("allocator=magic", message, sizeof message) > sizeof message);
    CHECK(!strcmp(message, "there is no allocator \"magic\""));
    CHECK(configure("allocator=caching", message, sizeof message) == 0);
    CHECK(configure("allocator=caching", message, sizeof message) == 0);
    CHECK(configure("allocator=gmlake", message, sizeof message) > 0);
    of<void(int)>(library, "gmlake_init")(2);
    use(0);
    CHECK(take(0, 0, nullptr) == nullptr);
    give(nullptr, 0, 0, nullptr);
    give(message, 10, 0, nullptr);  // said once, otherwise ignored
    give(message, 10, 0, nullptr);
    lend(message, nullptr);
    char *at = static_cast<char *>(take(3 * kMiB, 0, nullptr));
    size_t size = 0;
    auto *base = of<void *(void *, size_t *)>(library, "gmlake_base");
    CHECK(base(at + 12345, &size) == at && size >= 3 * kMiB);
    CHECK(base(message, nullptr) == message);
    CHECK(counted("unknown_frees") == 2);
    long peak = number(stats().substr(stats().find("\"peak\"")), "allocated");
    CHECK(peak >= long(3 * kMiB));
    give(at, 0, 0, nullptr);
    of<void(int)>(library, "gmlake_reset_peak")(0);
    CHECK(number(stats().substr(stats().find("\"peak\"")), "allocated") == 0);
    auto *check = of<size_t(int, char *, size_t)>(library, "gmlake_check");
    CHECK(check(0, message, sizeof message) == 0 && check(77, message, sizeof message) > 0);
}

int main(int count, char **arguments) {
    CHECK(count >= 3);
    library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    cuda = dlopen("libcuda.so", RTLD_NOW | RTLD_LOCAL);
    CHECK(cuda && of<int(unsigned)>(cuda, "cuInit")(0) == 0);
    std::map<std::string, std::function<void()>> scenarios{
        {"threads", threads}, {"lending", lending}, {"oom", oom}, {"graph", graph}, {"shutdown", shutdown},
        {"poison", poison}, {"peers", peers}, {"odds_and_ends", odds_and_ends}, {"snapshot", [&] { snapshot(arguments[3]); }},
    };
    CHECK(scenarios.count(arguments[2]));
    scenarios[arguments[2]]();
    CHECK(of<unsigned()>(cuda, "mock_violations")() == 0);
    printf("done\n");
    return 0;
}
