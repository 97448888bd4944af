// Other GPUs, other processes, and how the allocator is put in place.
#include "mounted.h"

// libstdc++ looks at this (glibc 2.32) to leave out atomic operations in programs without threads. Ours says no, and the
// library runs with the older glibc that PyTorch itself is content with.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

namespace gmlake {

void Mounted::init(int devices) {
  stock_->init(devices);
  if (count_ == 0) {
    count_ = devices;
    stock_->attachAllocatorTraceTracker([this](const TraceEntry& entry) { on_stock_event(entry); });
  }
}

bool Mounted::initialized() {
  return stock_->initialized();
}

void Mounted::enable(bool value) {
  stock_->enable(value);
}

bool Mounted::isEnabled() const {
  return stock_->isEnabled();
}

ShareableHandle Mounted::shareIpcHandle(void* at) {
  uint64_t base = 0, size = 0;
  TORCH_CHECK(gmlake_mount_find(reinterpret_cast<uint64_t>(at), &base, &size) == 0,
              "gmlake: this tensor's memory is put together from pieces and cannot be opened by another process. Make "
              "tensors that are sent to other processes inside `with torch.cuda.use_mem_pool(torch.cuda.MemPool()):`");
  return stock_->shareIpcHandle(at);
}

std::shared_ptr<void> Mounted::getIpcDevPtr(std::string handle) {
  return stock_->getIpcDevPtr(std::move(handle));
}

void Mounted::enablePeerAccess(c10::DeviceIndex from, c10::DeviceIndex to) {
  stock_->enablePeerAccess(from, to); // our memory is open to all GPUs that can use it
}

cudaError_t Mounted::memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                 cudaStream_t stream, bool are_peers) {
  if (are_peers || to_device == from_device) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

void Mounted::copy_data(void* to, const void* from, size_t bytes) const {
  stock_->copy_data(to, from, bytes);
}

} // namespace gmlake

// Puts the allocator in place: 0; 1: the GPU was used already; 2: PyTorch uses cudaMallocAsync.
extern "C" __attribute__((visibility("default"))) int gmlake_mount_install() {
  using namespace gmlake;
  if (Mounted::only() != nullptr) {
    return 0;
  }
  auto* stock = c10::cuda::CUDACachingAllocator::get();
  if (stock->initialized()) {
    return 1;
  }
  if (stock->name() != "native") {
    return 2;
  }
  gmlake_mount_begin();
  auto* mounted = new Mounted(stock); // lives as long as the process
  Mounted::only() = mounted;
  c10::cuda::CUDACachingAllocator::allocator.store(mounted);
  c10::SetAllocator(c10::DeviceType::CUDA, mounted);
  return 0;
}
