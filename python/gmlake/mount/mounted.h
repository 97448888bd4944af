// The allocator that PyTorch sees.
//
//   tensors ───────────▶ Mounted ──▶ libgmlake_torch.so        memory of the program
//   CUDA graphs, MemPool ──▶ │ ──▶ PyTorch's own allocator     private pools, checkpoints, memory for other processes
//
// Both hold memory of one GPU: where one finds none, the other gives back what it does not need.
#pragma once

#include "history.h"
#include "numbers.h"
#include "pools.h"

#include <mutex>
#include <set>
#include <unordered_set>

namespace gmlake {

// Why the last request of this thread was not served.
std::string last_failure();

class Mounted final : public CUDAAllocator {
 public:
  explicit Mounted(CUDAAllocator* stock) : stock_(stock) {}

  static Mounted*& only() {
    static Mounted* mounted = nullptr;
    return mounted;
  }

  // Requests and frees: requests.cpp.
  c10::DataPtr allocate(size_t size) override;
  void* raw_alloc(size_t size) override;
  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
  void raw_delete(void* at) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void recordStream(const c10::DataPtr& ptr, c10::cuda::CUDAStream stream) override;
  void emptyCache(MempoolId_t id) override;
  void* getBaseAllocation(void* at, size_t* size) override;
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  double getMemoryFraction(c10::DeviceIndex device) override;

  // Pools: private_pools.cpp.
  void beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) override;
  void releasePool(c10::DeviceIndex device, MempoolId_t id) override;
  int getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) override;
  void createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id, OtherAllocator allocator) override;
#if GMLAKE_MINOR >= 11
  void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool use) override;
#else
  void setUseOnOOM(c10::DeviceIndex device, MempoolId_t id) override;
#endif
#if GMLAKE_MINOR >= 10
  void setNoSplit(c10::DeviceIndex device, MempoolId_t id) override;
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override;
#endif
#if GMLAKE_MINOR >= 13
  void markCaptureBegin(c10::DeviceIndex device) override;
  void markCaptureEnd(c10::DeviceIndex device) override;
  c10::DataPtr allocateWithAddress(size_t size, void* at) override;
#endif
  bool checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<AllocatorState> getCheckpointState(c10::DeviceIndex device, MempoolId_t id) override;
  CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device, std::shared_ptr<AllocatorState> state) override;

  // What is asked and recorded: questions.cpp.
  DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
#if GMLAKE_MINOR >= 11
  SnapshotInfo snapshot(MempoolId_t id, bool with_traces) override;
  void recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override;
#else
  SnapshotInfo snapshot(MempoolId_t id) override;
  void recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear) override;
#endif
  bool isHistoryEnabled() override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& words) override;
  void pushCompileContext(std::string& text) override;
  void popCompileContext() override;
#if GMLAKE_MINOR >= 10
  void setUserMetadata(const std::string& text) override;
  std::string getUserMetadata() override;
#endif
#if GMLAKE_MINOR >= 12
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* at) override;
  void attachOomRejectionObserver(OomRejectionObserver observer) override;
#endif
#if GMLAKE_MINOR >= 14
  bool supportsUserMetadata() override;
  void annotateMemory(const void* at, const std::string& text) override;
#endif
  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;
  std::string name() override;

  // Other GPUs and processes: others.cpp.
  void init(int devices) override;
  bool initialized() override;
  void enable(bool value) override;
  bool isEnabled() const override;
  ShareableHandle shareIpcHandle(void* at) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(c10::DeviceIndex from, c10::DeviceIndex to) override;
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool are_peers) override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  using CUDAAllocator::recordStream;

 private:
  struct OfDevice {
    Pools<cudaStream_t> pools;
    std::atomic<double> fraction{1.0};
    std::atomic<bool> is_fraction_known{false};
    std::atomic<int64_t> hidden_ooms{0}; // of PyTorch's own allocator, that were none after all
    std::atomic<bool> is_stock_used{false};
    std::atomic<bool> is_stale{true}; // PyTorch's own allocator has given something up since we were told
  };

  void* obtain(c10::DeviceIndex device, size_t size, cudaStream_t stream);
  void* obtain_stock(c10::DeviceIndex device, size_t size, cudaStream_t stream);
  void* try_stock(c10::DeviceIndex device, size_t size, cudaStream_t stream, std::string* why);
  void* last_resort(c10::DeviceIndex device, size_t size, cudaStream_t stream, const std::string& text);
  bool make_room(c10::DeviceIndex device, cudaStream_t stream);
  [[noreturn]] void refuse(c10::DeviceIndex device, size_t size, const std::string& text);
  void let_go(void* at);
  void learn_fraction(c10::DeviceIndex device);
  void catch_up(c10::DeviceIndex device);
  void stock_changed(c10::DeviceIndex device);
  void stock_shrank();
  DeviceStats stock_stats(c10::DeviceIndex device);
  void listen();
  void add_segments(std::vector<SegmentInfo>& segments);
  static void on_event(int device, int action, uint64_t at, uint64_t size, uint64_t stream);
  void on_stock_event(const TraceEntry& entry);
  OfDevice& of(c10::DeviceIndex device) {
    return devices_[static_cast<size_t>(device)];
  }

  CUDAAllocator* stock_; // PyTorch's own
  std::array<OfDevice, C10_COMPILE_TIME_MAX_GPUS> devices_;
  int count_ = 0;
  History history_;
  std::mutex mutex_;
  std::vector<OutOfMemoryObserver> oom_observers_;
};

} // namespace gmlake
