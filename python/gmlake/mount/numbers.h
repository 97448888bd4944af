// The numbers of torch.cuda.memory_stats(): ours and those of PyTorch's own allocator, which serves private pools.
#pragma once

#include "interface.h"
#include "versions.h"

namespace gmlake {

// In the order of `gmlake_numbers`.
inline StatArray DeviceStats::*const ROWS[GMLAKE_SUMS] = {
    &DeviceStats::allocation,      &DeviceStats::segment,        &DeviceStats::active,
    &DeviceStats::inactive_split,  &DeviceStats::allocated_bytes, &DeviceStats::reserved_bytes,
    &DeviceStats::active_bytes,    &DeviceStats::inactive_split_bytes, &DeviceStats::requested_bytes,
};

// Tells our allocator what PyTorch's holds, for peaks and limits of the sum.
inline void tell_elsewhere(int device, const DeviceStats& theirs) {
  int64_t held[GMLAKE_SUMS][3];
  for (int row = 0; row < GMLAKE_SUMS; ++row) {
    for (int place = 0; place < 3; ++place) {
      held[row][place] = (theirs.*ROWS[row])[place].current;
    }
  }
  gmlake_mount_elsewhere(device, held);
}

// Adds our numbers to theirs. Peaks are those of the sum already.
inline void add_ours(DeviceStats& theirs, const gmlake_numbers& ours) {
  for (int row = 0; row < GMLAKE_SUMS; ++row) {
    for (int place = 0; place < 3; ++place) {
      Stat& stat = (theirs.*ROWS[row])[place];
      const gmlake_stat& more = ours.sums[row][place];
      stat.current += more.current;
      stat.allocated += more.allocated;
      stat.freed += more.freed;
      stat.peak = std::max(more.peak, stat.current);
    }
  }
  theirs.num_alloc_retries += ours.retries;
  theirs.num_ooms += ours.ooms;
  theirs.num_sync_all_streams += ours.waits;
  theirs.num_device_alloc += ours.obtained;
  theirs.num_device_free += ours.returned;
}

} // namespace gmlake
