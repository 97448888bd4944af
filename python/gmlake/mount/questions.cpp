// What PyTorch asks: statistics, snapshots, history, observers.
#include "mounted.h"

#include <algorithm>
#include <map>

namespace gmlake {

DeviceStats Mounted::getDeviceStats(c10::DeviceIndex device) {
  auto stats = stock_stats(device);
  stats.num_ooms -= of(device).hidden_ooms;
  if (c10::cuda::hasPrimaryContext(device)) {
    if (of(device).is_stock_used) {
      tell_elsewhere(device, stats);
    }
    gmlake_numbers ours;
    gmlake_mount_numbers(device, &ours);
    add_ours(stats, ours);
  }
  return stats;
}

void Mounted::resetAccumulatedStats(c10::DeviceIndex device) {
  stock_->resetAccumulatedStats(device);
  of(device).hidden_ooms = 0;
  gmlake_mount_reset_accumulated(device);
}

void Mounted::resetPeakStats(c10::DeviceIndex device) {
  stock_->resetPeakStats(device);
  stock_changed(device);
  gmlake_reset_peak(device);
}

// The traces are those before the snapshot, which is itself an entry: the next snapshot has it.
#if GMLAKE_MINOR >= 11
SnapshotInfo Mounted::snapshot(MempoolId_t id, bool with_traces) {
  auto traces = with_traces ? history_.traces(count_) : std::vector<std::vector<TraceEntry>>();
  auto found = stock_->snapshot(id, with_traces);
#else
SnapshotInfo Mounted::snapshot(MempoolId_t id) {
  constexpr bool with_traces = true;
  auto traces = history_.traces(count_);
  auto found = stock_->snapshot(id);
#endif
  if (id == MempoolId_t{0, 0}) {
    add_segments(found.segments);
  }
  if (with_traces) {
    found.device_traces = std::move(traces);
  }
  return found;
}

namespace {

struct Collected {
  int device;
  std::vector<SegmentInfo> segments;
};

void collect(void* context, const gmlake_shown* shown) {
  auto& found = *static_cast<Collected*>(context);
  if (found.segments.empty() || found.segments.back().address != shown->segment) {
    SegmentInfo segment;
    segment.device = static_cast<c10::DeviceIndex>(found.device);
    segment.address = shown->segment;
    segment.stream = reinterpret_cast<cudaStream_t>(shown->stream);
    segment.is_large = shown->is_small == 0;
    found.segments.push_back(std::move(segment));
  }
  auto& segment = found.segments.back();
  BlockInfo block;
  block.size = shown->size;
  block.requested_size = shown->requested;
  block.allocated = shown->state == 2;
  block.active = shown->state != 0;
  segment.total_size += block.size;
  segment.requested_size += block.requested_size;
  segment.allocated_size += block.allocated ? block.size : 0;
  segment.active_size += block.active ? block.size : 0;
  segment.blocks.push_back(std::move(block));
}

} // namespace

void Mounted::add_segments(std::vector<SegmentInfo>& segments) {
  for (int device = 0; device < count_; ++device) {
    if (!c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) {
      continue;
    }
    Collected found{device, {}};
    gmlake_mount_show(device, &collect, &found);
    for (auto& segment : found.segments) {
      auto at = segment.address;
      for (auto& block : segment.blocks) {
        if (block.active) {
          block.context_when_allocated = history_.context_of(at);
        }
        at += block.size;
      }
      segments.push_back(std::move(segment));
    }
  }
  std::stable_sort(segments.begin(), segments.end(), [](const auto& one, const auto& other) {
    return std::pair(one.device, one.address) < std::pair(other.device, other.address);
  });
}

#if GMLAKE_MINOR >= 11
void Mounted::recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
                            const std::vector<std::string>& skipped) {
  // PyTorch's own allocator takes the stacks of its requests only while it records, too.
  stock_->recordHistory(enabled, recorder, 1, when, clear, skipped);
  history_.set(enabled, recorder, entries, when, clear, skipped);
#else
void Mounted::recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear) {
  stock_->recordHistory(enabled, recorder, 1, when, clear);
  history_.set(enabled, recorder, entries, when, clear, {});
#endif
  listen();
}

void Mounted::listen() {
  gmlake_mount_observe(history_.is_on() ? &on_event : nullptr);
}

void Mounted::on_event(int device, int action, uint64_t at, uint64_t size, uint64_t stream) {
  if (action == TraceEntry::OOM) {
    return; // whether there is no memory is known once both have given back what they do not need
  }
  only()->history_.note(static_cast<TraceEntry::Action>(action), device, at, size, stream);
}

void Mounted::on_stock_event(const TraceEntry& entry) {
  if (entry.action_ == TraceEntry::OOM || !history_.is_on()) {
    return;
  }
  auto copy = entry;
  if (copy.action_ == TraceEntry::SNAPSHOT) {
    gmlake_numbers ours;
    gmlake_mount_numbers(copy.device_, &ours);
    copy.size_ += ours.sums[ACTIVE][0].current; // it says how much is in use
  }
  history_.add(std::move(copy), false);
}

bool Mounted::isHistoryEnabled() {
  return history_.is_recorded();
}

void Mounted::recordAnnotation(const std::vector<std::pair<std::string, std::string>>& words) {
  stock_->recordAnnotation(words);
}

void Mounted::pushCompileContext(std::string& text) {
  stock_->pushCompileContext(text);
  History::compile_contexts().push_back(text);
}

void Mounted::popCompileContext() {
  stock_->popCompileContext();
  if (!History::compile_contexts().empty()) {
    History::compile_contexts().pop_back();
  }
}

#if GMLAKE_MINOR >= 10
void Mounted::setUserMetadata(const std::string& text) {
  stock_->setUserMetadata(text);
  History::metadata() = text;
}

std::string Mounted::getUserMetadata() {
  return History::metadata();
}
#endif

#if GMLAKE_MINOR >= 12
std::shared_ptr<c10::GatheredContext> Mounted::getContextForPointer(const void* at) {
  uint64_t base = 0, size = 0;
  if (gmlake_mount_find(reinterpret_cast<uint64_t>(at), &base, &size) == 0) {
    return stock_->getContextForPointer(at);
  }
  return history_.context_of(base);
}

void Mounted::attachOomRejectionObserver(OomRejectionObserver observer) {
  stock_->attachOomRejectionObserver(std::move(observer));
}
#endif

#if GMLAKE_MINOR >= 14
bool Mounted::supportsUserMetadata() {
  return true;
}

void Mounted::annotateMemory(const void* at, const std::string& text) {
  uint64_t base = 0, size = 0;
  if (gmlake_mount_find(reinterpret_cast<uint64_t>(at), &base, &size) == 0) {
    stock_->annotateMemory(at, text);
    return;
  }
  const auto device = c10::cuda::current_device();
  history_.add(entry(TraceEntry::ANNOTATE, device, base, size, nullptr, {0, 0}, nullptr, "", text), false);
}
#endif

void Mounted::attachOutOfMemoryObserver(OutOfMemoryObserver observer) {
  std::lock_guard lock(mutex_);
  oom_observers_.push_back(std::move(observer));
}

void Mounted::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  history_.track(std::move(tracker));
  listen();
}

std::string Mounted::name() {
  return "gmlake";
}

} // namespace gmlake
