// Pinned host memory of the size that was requested.
//
//   request ──▶ libgmlake_torch.so: a free block, or blocks to unpin before the driver pins one ──▶ the program
//   free ─────▶ an event in each stream that used the block ──▶ when all have passed, it is free
//
// PyTorch's own allocator serves the captures of CUDA graphs: it knows how long a graph needs its memory.
#include "interface.h"
#include "pools.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <deque>
#include <unordered_map>

namespace gmlake {

namespace {

// The driver's calls, in a context that there is, and allowed while another stream is captured.
struct Calls {
  Calls() : relaxed(cudaStreamCaptureModeRelaxed) {
    if (auto device = c10::cuda::getDeviceIndexWithPrimaryContext()) {
      guard.set_index(*device);
    }
  }
  c10::cuda::CUDAStreamCaptureModeGuard relaxed;
  c10::cuda::OptionalCUDAGuard guard;
};

class Host final : public at::HostAllocator {
 public:
  explicit Host(at::HostAllocator* stock) : stock_(stock) {}

  static Host*& only() {
    static Host* host = nullptr;
    return host;
  }

  c10::DataPtr allocate(size_t size) override {
    if (pools_.count() > 0 && pools_.take(c10::cuda::getCurrentCUDAStream())) {
      return stock_->allocate(size);
    }
    void* at = size == 0 ? nullptr : obtain(size);
    return {at, at, &release, c10::DeviceType::CPU};
  }

  bool record_event(void* ptr, void* ctx, c10::Stream stream) override {
    {
      std::lock_guard lock(mutex_);
      for (void* at : {ctx, ptr}) {
        if (auto found = blocks_.find(at); found != blocks_.end()) {
          auto& streams = found->second.streams;
          if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
            streams.push_back(stream);
          }
          return true;
        }
      }
    }
    return stock_->record_event(ptr, ctx, stream);
  }

  void empty_cache() override {
    {
      std::lock_guard lock(mutex_);
      Calls calls;
      settle();
      unpin(0);
    }
    stock_->empty_cache();
  }

  at::HostStats get_stats() override {
    auto stats = stock_->get_stats();
    std::lock_guard lock(mutex_);
    for (auto [theirs, ours] : rows(stats)) {
      theirs->current += ours->current;
      theirs->peak += ours->peak;
      theirs->allocated += ours->allocated;
      theirs->freed += ours->freed;
    }
    stats.num_host_alloc += pins_.allocated;
    stats.num_host_free += pins_.freed;
    return stats;
  }

  void reset_accumulated_stats() override {
    stock_->reset_accumulated_stats();
    std::lock_guard lock(mutex_);
    for (auto* each : {&used_, &used_bytes_, &pins_, &pinned_bytes_}) {
      each->reset_accumulated();
    }
  }

  void reset_peak_stats() override {
    stock_->reset_peak_stats();
    std::lock_guard lock(mutex_);
    for (auto* each : {&used_, &used_bytes_, &pins_, &pinned_bytes_}) {
      each->reset_peak();
    }
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    stock_->copy_data(to, from, bytes);
  }

#if GMLAKE_MINOR >= 11
  void begin_allocate_to_pool(MempoolId_t id, std::function<bool(c10::Stream)> filter) override {
    stock_->begin_allocate_to_pool(id, filter);
    pools_.begin(id, std::move(filter));
  }

  void end_allocate_to_pool(MempoolId_t id) override {
    stock_->end_allocate_to_pool(id);
    pools_.end(id);
  }

  void release_pool(MempoolId_t id) override {
    stock_->release_pool(id);
  }
#endif

 private:
  struct Block {
    size_t size = 0;
    std::vector<c10::Stream> streams; // that use it
    size_t waits_for = 0; // events
  };

  struct Waiting {
    cudaEvent_t event;
    void* at;
  };

  std::array<std::pair<Stat*, const Stat*>, 4> rows(at::HostStats& stats) {
#if GMLAKE_MINOR >= 10
    return {{{&stats.active_requests, &used_}, {&stats.active_bytes, &used_bytes_},
             {&stats.allocations, &pins_}, {&stats.allocated_bytes, &pinned_bytes_}}};
#else
    return {{{&stats.allocation, &used_}, {&stats.allocated_bytes, &used_bytes_},
             {&stats.segment, &pins_}, {&stats.reserved_bytes, &pinned_bytes_}}};
#endif
  }

  void* obtain(size_t size) {
    std::lock_guard lock(mutex_);
    settle();
    auto* at = reinterpret_cast<void*>(gmlake_host_take(size));
    if (at == nullptr) {
      at = pin(size);
    }
    used_.increase(1);
    used_bytes_.increase(blocks_[at].size);
    return at;
  }

  void* pin(size_t size) {
    Calls calls;
    unpin(size);
    void* at = nullptr;
    if (cudaHostAlloc(&at, size, cudaHostAllocDefault) != cudaSuccess) {
      (void)cudaGetLastError();
      unpin(0);
      C10_CUDA_CHECK(cudaHostAlloc(&at, size, cudaHostAllocDefault));
    }
    gmlake_host_pin(reinterpret_cast<uint64_t>(at), size);
    blocks_[at].size = size;
    pins_.increase(1);
    pinned_bytes_.increase(size);
    return at;
  }

  // Makes room for so many bytes; 0: gives back all that is free.
  void unpin(size_t size) {
    while (auto* at = reinterpret_cast<void*>(gmlake_host_evict(size))) {
      auto found = blocks_.find(at);
      pins_.decrease(1);
      pinned_bytes_.decrease(found->second.size);
      blocks_.erase(found);
      C10_CUDA_CHECK(cudaFreeHost(at));
    }
  }

  static void release(void* at) {
    if (at != nullptr) {
      only()->take_back(at);
    }
  }

  void take_back(void* at) {
    std::lock_guard lock(mutex_);
    auto& block = blocks_[at];
    for (const auto& stream : std::exchange(block.streams, {})) {
      c10::cuda::CUDAStream each(stream);
      c10::cuda::CUDAGuard guard(stream.device_index());
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      C10_CUDA_CHECK_WARN(cudaStreamIsCapturing(each, &status));
      block.waits_for += 1;
      if (status != cudaStreamCaptureStatusNone) {
        continue; // a graph may use it for as long as there is one
      }
      cudaEvent_t event = nullptr;
      C10_CUDA_CHECK_WARN(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      C10_CUDA_CHECK_WARN(cudaEventRecord(event, each));
      waiting_.push_back({event, at});
    }
    if (block.waits_for == 0) {
      put(at, block);
    }
  }

  void put(void* at, const Block& block) {
    used_.decrease(1);
    used_bytes_.decrease(block.size);
    gmlake_host_put(reinterpret_cast<uint64_t>(at));
  }

  // Looks at the oldest events, up to one that has not passed.
  void settle() {
    if (waiting_.empty()) {
      return;
    }
    Calls calls;
    while (!waiting_.empty()) {
      auto [event, at] = waiting_.front();
      if (auto answer = cudaEventQuery(event); answer != cudaSuccess) {
        (void)cudaGetLastError();
        TORCH_CHECK(answer == cudaErrorNotReady, "CUDA error: ", cudaGetErrorString(answer));
        return;
      }
      C10_CUDA_CHECK_WARN(cudaEventDestroy(event));
      waiting_.pop_front();
      auto& block = blocks_[at];
      if (--block.waits_for == 0) {
        put(at, block);
      }
    }
  }

  at::HostAllocator* stock_; // PyTorch's own
  Pools<c10::Stream> pools_;
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::deque<Waiting> waiting_; // the oldest first
  Stat used_, used_bytes_, pins_, pinned_bytes_;
};

} // namespace

} // namespace gmlake

// Lets PyTorch take pinned memory from here. What it has pinned before stays as it is.
extern "C" __attribute__((visibility("default"))) void gmlake_mount_host() {
  using gmlake::Host;
  if (Host::only() == nullptr) {
    Host::only() = new Host(at::getHostAllocator(c10::DeviceType::CUDA)); // lives as long as the process
    at::setHostAllocator(c10::DeviceType::CUDA, Host::only(), 1);
  }
}
