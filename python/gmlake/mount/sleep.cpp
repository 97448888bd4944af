// Sleeping: memory goes back to the driver, its contents into pinned host memory or nowhere, and its addresses stay.
#include "mounted.h"

#include <cstring>

namespace gmlake {

namespace {

// Contents in host memory.
struct Kept {
  void* host;
  uint64_t size;
};

uint64_t keep(void*, uint64_t at, uint64_t size) {
  void* host = nullptr;
  if (cudaHostAlloc(&host, size, cudaHostAllocDefault) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  if (cudaMemcpyAsync(host, reinterpret_cast<void*>(at), size, cudaMemcpyDeviceToHost, nullptr) != cudaSuccess ||
      cudaStreamSynchronize(nullptr) != cudaSuccess) {
    (void)cudaGetLastError();
    cudaFreeHost(host);
    return 0;
  }
  return reinterpret_cast<uint64_t>(new Kept{host, size});
}

void fill(void*, uint64_t at, uint64_t kept) {
  auto* contents = reinterpret_cast<Kept*>(kept);
  C10_CUDA_CHECK_WARN(cudaMemcpyAsync(reinterpret_cast<void*>(at), contents->host, contents->size,
                                      cudaMemcpyHostToDevice, nullptr));
}

void drop(void*, uint64_t kept) {
  auto* contents = reinterpret_cast<Kept*>(kept);
  cudaFreeHost(contents->host);
  delete contents;
}

size_t hand_over(const std::string& text, char* out, size_t room) {
  if (room > 0) {
    const auto length = std::min(text.size(), room - 1);
    std::memcpy(out, text.data(), length);
    out[length] = '\0';
  }
  return text.size();
}

// Runs something on every GPU in use, with it current, and adds up the bytes. The text says what went wrong.
template <typename Run>
std::string on_each(uint64_t* bytes, Run run) {
  *bytes = 0;
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device) {
    if (!c10::cuda::hasPrimaryContext(device)) {
      continue;
    }
    c10::cuda::CUDAGuard guard(device);
    uint64_t some = 0;
    const int outcome = run(device, &some);
    const auto settled = cudaDeviceSynchronize(); // what is kept must not go before it is copied
    gmlake_mount_unwanted(device, &drop, nullptr);
    *bytes += some;
    if (outcome != GMLAKE_SERVED) {
      return last_failure();
    }
    if (settled != cudaSuccess) {
      return std::string("gmlake: ") + cudaGetErrorString(settled);
    }
  }
  return "";
}

} // namespace

} // namespace gmlake

// Lets memory sleep: of these tags (names with commas between them; none: all), with its contents (1) or without (2).
// Returns the length of what went wrong, of which as much as fits is in `message`.
extern "C" __attribute__((visibility("default"))) size_t gmlake_sleep(int level, const char* tags, uint64_t* bytes,
                                                                      char* message, size_t room) {
  auto problem = gmlake::on_each(bytes, [&](int device, uint64_t* some) {
    return gmlake_mount_sleep(device, tags, level == 1 ? &gmlake::keep : nullptr, nullptr, some);
  });
  return gmlake::hand_over(problem, message, room);
}

// Wakes it. Returns as gmlake_sleep does.
extern "C" __attribute__((visibility("default"))) size_t gmlake_wake(const char* tags, uint64_t* bytes, char* message,
                                                                     size_t room) {
  auto problem = gmlake::on_each(bytes, [&](int device, uint64_t* some) {
    return gmlake_mount_wake(device, tags, &gmlake::fill, nullptr, some);
  });
  return gmlake::hand_over(problem, message, room);
}
