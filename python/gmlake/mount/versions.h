// What differs between the minor versions of PyTorch, from 2.9 on. GMLAKE_MINOR is the one whose headers are used.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/util/ApproximateClock.h>

#ifndef GMLAKE_MINOR
#error "say which PyTorch this is for: -DGMLAKE_MINOR=11"
#endif

namespace gmlake {

using namespace c10::cuda::CUDACachingAllocator;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::MempoolId_t;

#if GMLAKE_MINOR >= 11
using OtherAllocator = std::shared_ptr<CUDAAllocator>;
#else
using OtherAllocator = CUDAAllocator*;
#endif

// An entry of the history, now. Before 2.10 it has no metadata.
inline TraceEntry entry(TraceEntry::Action action, int device, uint64_t at, uint64_t size, cudaStream_t stream,
                        MempoolId_t pool, std::shared_ptr<c10::GatheredContext> context, std::string compile_context,
                        [[maybe_unused]] std::string metadata) {
  return TraceEntry(action, static_cast<c10::DeviceIndex>(device), at, size, stream, pool, c10::getApproximateTime(),
                    std::move(context), std::move(compile_context)
#if GMLAKE_MINOR >= 10
                    , std::move(metadata)
#endif
  );
}

// PyTorch's name of an action, as its option `skip_actions` takes it.
inline const char* action_name(TraceEntry::Action action) {
  static const char* const names[] = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
                                      "segment_map", "segment_unmap", "snapshot", "oom"};
  auto index = static_cast<size_t>(action);
  return index < std::size(names) ? names[index] : "";
}

} // namespace gmlake
