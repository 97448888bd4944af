// Private pools, of CUDA graphs and of MemPool: PyTorch's own allocator serves them beside us.
#include "mounted.h"

namespace gmlake {

void Mounted::beginAllocateToPool(c10::DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) {
  stock_->beginAllocateToPool(device, id, filter);
  of(device).pools.begin(id, std::move(filter));
#if GMLAKE_MINOR < 13
  gmlake_mount_hold(device, 1); // it may be a capture
#endif
}

void Mounted::endAllocateToPool(c10::DeviceIndex device, MempoolId_t id) {
  stock_->endAllocateToPool(device, id);
  of(device).pools.end(id);
#if GMLAKE_MINOR < 13
  gmlake_mount_hold(device, 0);
#endif
}

#if GMLAKE_MINOR >= 13
void Mounted::markCaptureBegin(c10::DeviceIndex device) {
  stock_->markCaptureBegin(device);
  gmlake_mount_hold(device, 1);
}

void Mounted::markCaptureEnd(c10::DeviceIndex device) {
  stock_->markCaptureEnd(device);
  gmlake_mount_hold(device, 0);
}

c10::DataPtr Mounted::allocateWithAddress(size_t size, void* at) {
  return stock_->allocateWithAddress(size, at);
}
#endif

void Mounted::releasePool(c10::DeviceIndex device, MempoolId_t id) {
  stock_->releasePool(device, id);
  stock_changed(device);
}

int Mounted::getPoolUseCount(c10::DeviceIndex device, MempoolId_t id) {
  return stock_->getPoolUseCount(device, id);
}

void Mounted::createOrIncrefPool(c10::DeviceIndex device, MempoolId_t id, OtherAllocator allocator) {
  stock_->createOrIncrefPool(device, id, std::move(allocator));
}

#if GMLAKE_MINOR >= 11
void Mounted::setUseOnOOM(c10::DeviceIndex device, MempoolId_t id, bool use) {
  stock_->setUseOnOOM(device, id, use);
}
#else
void Mounted::setUseOnOOM(c10::DeviceIndex device, MempoolId_t id) {
  stock_->setUseOnOOM(device, id);
}
#endif

#if GMLAKE_MINOR >= 10
void Mounted::setNoSplit(c10::DeviceIndex device, MempoolId_t id) {
  stock_->setNoSplit(device, id);
}

std::vector<StreamSegmentSize> Mounted::getExpandableSegmentSizes(c10::DeviceIndex device) {
  return stock_->getExpandableSegmentSizes(device);
}
#endif

bool Mounted::checkPoolLiveAllocations(c10::DeviceIndex device, MempoolId_t id,
                                       const std::unordered_set<void*>& expected) {
  return stock_->checkPoolLiveAllocations(device, id, expected);
}

std::shared_ptr<AllocatorState> Mounted::getCheckpointState(c10::DeviceIndex device, MempoolId_t id) {
  return stock_->getCheckpointState(device, id);
}

// What is live again has PyTorch's own deleter, and gets ours: PyTorch compares it with `raw_deleter()`.
CheckpointDelta Mounted::setCheckpointPoolState(c10::DeviceIndex device, std::shared_ptr<AllocatorState> state) {
  auto delta = stock_->setCheckpointPoolState(device, std::move(state));
  for (auto& ptr : delta.dataptrs_allocd) {
    const auto where = ptr.device();
    void* at = ptr.release_context();
    ptr = c10::DataPtr(at, at, raw_deleter(), where);
  }
  stock_changed(device);
  return delta;
}

DeviceStats Mounted::stock_stats(c10::DeviceIndex device) {
  return stock_->getDeviceStats(device);
}

void Mounted::stock_changed(c10::DeviceIndex device) {
  of(device).is_stock_used = true;
  of(device).is_stale = false;
  tell_elsewhere(device, stock_stats(device));
}

// It is asked how much it holds when that matters next: before ours grows.
void Mounted::stock_shrank() {
  for (int device = 0; device < count_; ++device) {
    if (of(static_cast<c10::DeviceIndex>(device)).is_stock_used) {
      of(static_cast<c10::DeviceIndex>(device)).is_stale = true;
    }
  }
}

} // namespace gmlake
