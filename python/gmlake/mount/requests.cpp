// Requests and frees.
#include "mounted.h"

namespace gmlake {

namespace {

void released(void* at) {
  Mounted::only()->raw_delete(at);
}

// What PyTorch's message says about this process and others, as the driver's library for monitoring knows it.
std::string who_holds(const std::string& text) {
  const auto from = text.find("is free. "), to = text.find("Of the allocated memory");
  return from < to && to != std::string::npos ? text.substr(from + 9, to - from - 9) : "";
}

// Without the limit of PyTorch's own allocator, which is what ours leaves of the process's.
std::string without_limit(std::string text) {
  constexpr std::string_view ALLOWED = " allowed; ";
  const auto at = text.find(ALLOWED), sentence = text.rfind(". ", at);
  if (at != std::string::npos && sentence != std::string::npos) {
    text.erase(sentence + 2, at + ALLOWED.size() - sentence - 2);
  }
  return text;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) {
    (void)cudaGetLastError(); // of the default stream, while another one is captured
    return true;
  }
  return status != cudaStreamCaptureStatusNone;
}

} // namespace

std::string last_failure() {
  std::string text(gmlake_mount_failure(nullptr, 0), '\0');
  gmlake_mount_failure(text.data(), text.size() + 1);
  return text;
}

c10::DataPtr Mounted::allocate(size_t size) {
  constexpr size_t EXABYTE = 1ULL << 60;
  TORCH_CHECK_WITH(OutOfMemoryError, size < EXABYTE, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  const auto device = c10::cuda::current_device();
  void* at = size == 0 ? nullptr : obtain(device, size, c10::cuda::getCurrentCUDAStream(device).stream());
  return {at, at, &released, c10::Device(c10::DeviceType::CUDA, device)};
}

void* Mounted::raw_alloc(size_t size) {
  if (size == 0) {
    return nullptr;
  }
  const auto device = c10::cuda::current_device();
  return obtain(device, size, c10::cuda::getCurrentCUDAStream(device).stream());
}

void* Mounted::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
  return size == 0 ? nullptr : obtain(c10::cuda::current_device(), size, stream);
}

void* Mounted::obtain(c10::DeviceIndex device, size_t size, cudaStream_t stream) {
  if (C10_UNLIKELY(of(device).pools.take(stream) || !stock_->isEnabled())) {
    return obtain_stock(device, size, stream);
  }
  if (C10_UNLIKELY(of(device).is_stale)) {
    catch_up(device);
  }
  gmlake_served served;
  const auto handle = reinterpret_cast<uint64_t>(stream);
  {
    History::Here here(history_, RecordContext::STATE);
    int outcome = gmlake_mount_malloc(device, size, handle, &served);
    if (C10_UNLIKELY(outcome == GMLAKE_NO_MEMORY && make_room(device, stream))) {
      outcome = gmlake_mount_malloc(device, size, handle, &served);
    }
    if (C10_UNLIKELY(outcome == GMLAKE_NO_MEMORY)) {
      const auto why = last_failure();
      gmlake_mount_refused(device, size, handle);
      return last_resort(device, size, stream, why);
    }
    TORCH_CHECK(outcome == GMLAKE_SERVED, last_failure());
  }
  void* at = reinterpret_cast<void*>(served.at);
  c10::reportMemoryUsageToProfiler(at, static_cast<int64_t>(served.size), served.allocated, served.reserved,
                                   c10::Device(c10::DeviceType::CUDA, device));
  if (const auto* interpreter = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(interpreter != nullptr)) {
    (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, served.at);
  }
  return at;
}

// PyTorch's own allocator may have a pool for this case (`use_on_oom`); and it knows who else holds memory.
void* Mounted::last_resort(c10::DeviceIndex device, size_t size, cudaStream_t stream, const std::string& text) {
  std::string why;
  if (void* at = try_stock(device, size, stream, &why)) {
    return at;
  }
  of(device).hidden_ooms += 1;
  const std::string hint =
      "To see which lines hold it: torch.cuda.memory._record_memory_history(), then `gmlake-sim blame --at oom`.";
  refuse(device, size, text + " " + who_holds(why) + hint);
}

// From PyTorch's own allocator, to which private pools belong.
void* Mounted::obtain_stock(c10::DeviceIndex device, size_t size, cudaStream_t stream) {
  std::string why;
  void* at = try_stock(device, size, stream, &why);
  if (at == nullptr && make_room(device, stream)) {
    of(device).hidden_ooms += 1;
    at = try_stock(device, size, stream, &why);
  }
  if (at == nullptr) {
    const auto share = of(device).fraction.load();
    refuse(device, size, share < 1.0 ? why + " The process may hold " + std::to_string(share * 100) + "% of the GPU." : why);
  }
  return at;
}

// Null, and why, if it has no memory.
void* Mounted::try_stock(c10::DeviceIndex device, size_t size, cudaStream_t stream, std::string* why) {
  learn_fraction(device);
  of(device).is_stock_used = true;
  if (of(device).fraction < 1.0) {
    size_t free = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    gmlake_numbers ours;
    gmlake_mount_numbers(device, &ours);
    const double held = static_cast<double>(ours.sums[RESERVED][0].current) / static_cast<double>(total);
    stock_->setMemoryFraction(std::max(0.0, of(device).fraction - held), device);
  }
  try {
    void* at = stock_->raw_alloc_with_stream(size, stream);
    stock_changed(device);
    return at;
  } catch (const c10::OutOfMemoryError& error) {
    *why = without_limit(error.what_without_backtrace());
    return nullptr;
  }
}

// Gives back what neither allocator needs, where the one that was asked has found nothing; says whether to ask again.
bool Mounted::make_room(c10::DeviceIndex device, cudaStream_t stream) {
  const auto begun = of(device).pools.count();
  if (begun == 0 && !of(device).is_stock_used) {
    return false; // ours has done all that can be done
  }
  if (begun > 0 && (begun > 1 || is_capturing(stream))) {
    return false; // the GPU must not be waited for
  }
#if GMLAKE_MINOR < 13
  if (begun > 0) {
    gmlake_mount_hold(device, 0); // a pool without a capture
  }
#endif
  gmlake_mount_trim(device);
#if GMLAKE_MINOR < 13
  if (begun > 0) {
    gmlake_mount_hold(device, 1);
  }
#endif
  if (of(device).is_stock_used) {
    stock_->emptyCache({0, 0});
    stock_changed(device);
  }
  return true;
}

void Mounted::refuse(c10::DeviceIndex device, size_t size, const std::string& text) {
  const auto stats = getDeviceStats(device);
  size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  History::Here here(history_, RecordContext::STATE);
  history_.note(TraceEntry::OOM, device, free, size, 0);
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), stats.allocated_bytes[0].current,
                                   stats.reserved_bytes[0].current, c10::Device(c10::DeviceType::CUDA, device));
  std::vector<OutOfMemoryObserver> observers;
  {
    std::lock_guard lock(mutex_);
    observers = oom_observers_;
  }
  for (const auto& observe : observers) {
    observe(device, size, total, free);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  std::abort(); // the line above throws
}

void Mounted::raw_delete(void* at) {
  let_go(at);
}

c10::DeleterFnPtr Mounted::raw_deleter() const {
  return &released;
}

void Mounted::let_go(void* at) {
  if (at == nullptr) {
    return;
  }
  gmlake_served freed;
  int is_ours;
  {
    History::Here here(history_, RecordContext::ALL);
    is_ours = gmlake_mount_free(reinterpret_cast<uint64_t>(at), &freed);
  }
  if (C10_UNLIKELY(is_ours == 0)) {
    stock_->raw_delete(at);
    stock_shrank();
    return;
  }
  if (const auto* interpreter = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(interpreter != nullptr)) {
    (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(at));
  }
  const auto device = static_cast<c10::DeviceIndex>(freed.device);
  c10::reportMemoryUsageToProfiler(at, -static_cast<int64_t>(freed.size), freed.allocated, freed.reserved,
                                   c10::Device(c10::DeviceType::CUDA, device));
}

void Mounted::recordStream(const c10::DataPtr& ptr, c10::cuda::CUDAStream stream) {
  // Memory that others made (from NumPy, or another process) is theirs to keep, as in PyTorch's own allocator.
  if (ptr.get() == nullptr || ptr.get_deleter() != &released) {
    return;
  }
  const auto at = reinterpret_cast<uint64_t>(ptr.get());
  if (gmlake_mount_record_stream(at, reinterpret_cast<uint64_t>(stream.stream())) == 0) {
    // PyTorch's own knows its memory by its own deleter.
    c10::DataPtr theirs(ptr.get(), ptr.get(), stock_->raw_deleter(), ptr.device());
    stock_->recordStream(theirs, stream);
    theirs.release_context();
  }
}

void Mounted::emptyCache(MempoolId_t id) {
  History::Here here(history_, RecordContext::ALL);
  if (id == MempoolId_t{0, 0}) {
    for (int device = 0; device < count_; ++device) {
      if (c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) {
        gmlake_mount_trim(device);
      }
    }
  }
  stock_->emptyCache(id);
  stock_shrank();
}

void* Mounted::getBaseAllocation(void* at, size_t* size) {
  uint64_t base = 0, bytes = 0;
  if (gmlake_mount_find(reinterpret_cast<uint64_t>(at), &base, &bytes) == 0) {
    return stock_->getBaseAllocation(at, size);
  }
  if (size != nullptr) {
    *size = bytes;
  }
  return reinterpret_cast<void*>(base);
}

void Mounted::cacheInfo(c10::DeviceIndex device, size_t* largest) {
  stock_->cacheInfo(device, largest);
  gmlake_mount_show(
      device,
      [](void* context, const gmlake_shown* block) {
        auto* largest = static_cast<size_t*>(context);
        if (block->state == 0 && block->size > *largest) {
          *largest = block->size;
        }
      },
      largest);
}

void Mounted::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
  of(device).fraction = fraction;
  of(device).is_fraction_known = true;
  stock_->setMemoryFraction(fraction, device);
  gmlake_memory_fraction(fraction, device);
}

double Mounted::getMemoryFraction(c10::DeviceIndex device) {
  return of(device).is_fraction_known ? of(device).fraction.load() : stock_->getMemoryFraction(device);
}

// PYTORCH_CUDA_ALLOC_CONF may have set one (per_process_memory_fraction). A GPU is asked when it is used first.
void Mounted::learn_fraction(c10::DeviceIndex device) {
  if (of(device).is_fraction_known) {
    return;
  }
  of(device).fraction = stock_->getMemoryFraction(device);
  of(device).is_fraction_known = true;
  if (of(device).fraction < 1.0) {
    gmlake_memory_fraction(of(device).fraction, device);
  }
}

// What there is to know before ours grows.
void Mounted::catch_up(c10::DeviceIndex device) {
  of(device).is_stale = false;
  learn_fraction(device);
  if (of(device).is_stock_used) {
    stock_changed(device);
  }
}

} // namespace gmlake
