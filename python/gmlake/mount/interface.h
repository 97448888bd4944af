// The functions of libgmlake_torch.so that the mount calls; crates/torch/src/mount_interface.rs says what each does.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct gmlake_served {
  uint64_t at;
  uint64_t size;
  int64_t allocated; // bytes in the program's hands, on this GPU, after it
  int64_t reserved;  // bytes that the driver gave
  uint32_t device;
};

struct gmlake_stat {
  int64_t current, peak, allocated, freed;
};

constexpr int GMLAKE_SUMS = 9;
constexpr int ACTIVE = 6; // the place of active_bytes
constexpr int RESERVED = 5; // the place of reserved_bytes

struct gmlake_numbers {
  gmlake_stat sums[GMLAKE_SUMS][3]; // in the order of c10's DeviceStats: all, small, large
  int64_t retries, ooms, waits, obtained, returned;
};

struct gmlake_shown {
  uint64_t segment, at, size, requested, stream;
  uint32_t state; // 0: free; 1: freed, and in use by a stream; 2: in the program's hands
  uint32_t is_small;
};

constexpr int GMLAKE_SERVED = 0;
constexpr int GMLAKE_NO_MEMORY = 1;

int gmlake_mount_malloc(int device, uint64_t size, uint64_t stream, gmlake_served* out);
void gmlake_mount_refused(int device, uint64_t size, uint64_t stream);
size_t gmlake_mount_failure(char* out, size_t room);
int gmlake_mount_free(uint64_t at, gmlake_served* out);
int gmlake_mount_record_stream(uint64_t at, uint64_t stream);
int gmlake_mount_find(uint64_t at, uint64_t* base, uint64_t* size);
void gmlake_mount_trim(int device);
void gmlake_mount_hold(int device, int begins);
void gmlake_mount_elsewhere(int device, const int64_t held[GMLAKE_SUMS][3]);
void gmlake_mount_numbers(int device, gmlake_numbers* out);
void gmlake_mount_reset_accumulated(int device);
void gmlake_mount_show(int device, void (*visit)(void* context, const gmlake_shown*), void* context);
void gmlake_mount_observe(void (*listener)(int device, int action, uint64_t at, uint64_t size, uint64_t stream));
void gmlake_mount_begin();
int gmlake_mount_sleep(int device, const char* tags, uint64_t (*keep)(void* context, uint64_t at, uint64_t size),
                       void* context, uint64_t* bytes);
int gmlake_mount_wake(int device, const char* tags, void (*fill)(void* context, uint64_t at, uint64_t kept),
                      void* context, uint64_t* bytes);
void gmlake_mount_unwanted(int device, void (*drop)(void* context, uint64_t kept), void* context);
uint64_t gmlake_host_take(uint64_t size);
uint64_t gmlake_host_evict(uint64_t size);
void gmlake_host_pin(uint64_t at, uint64_t size);
void gmlake_host_put(uint64_t at);
void gmlake_reset_peak(int device);
void gmlake_memory_fraction(double fraction, int device);
}
