// History: what happened to GPU memory, in the form of torch.cuda.memory._snapshot().
//
//   libgmlake_torch.so ──note(event)──┐
//                                     ├──▶ one list for each GPU, in the order of events ──▶ device_traces
//   PyTorch's own allocator ──note────┘                       └──▶ trackers (NCCL and others listen)
//
// The call stack of a request is taken before any lock is held, and kept by the thread until the event comes.
#pragma once

#include "versions.h"

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gmlake {

using Context = std::shared_ptr<c10::GatheredContext>;

class History {
 public:
  // Whether anybody listens.
  bool is_on() const {
    return is_recorded_.load(std::memory_order_relaxed) || has_trackers_.load(std::memory_order_relaxed);
  }

  bool is_recorded() const {
    return is_recorded_.load(std::memory_order_relaxed);
  }

  void set(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
           std::vector<std::string> skipped) {
    std::lock_guard lock(mutex_);
    recorder_.store(enabled ? recorder : nullptr);
    when_.store(enabled ? when : RecordContext::NEVER);
    is_recorded_.store(enabled);
    entries_ = entries;
    skipped_ = std::move(skipped);
    if (clear || !enabled) {
      traces_.clear();
      contexts_.clear();
    }
  }

  void track(AllocatorTraceTracker tracker) {
    std::lock_guard lock(mutex_);
    trackers_.push_back(std::move(tracker));
    has_trackers_.store(true);
  }

  // The call stack of this thread, if it is wanted for this kind of event; to be taken without a lock.
  Context gather(RecordContext kind) const {
    auto recorder = recorder_.load();
    return recorder != nullptr && when_.load() >= kind ? recorder() : nullptr;
  }

  // Events of this thread have this stack, until it goes.
  class Here {
   public:
    Here(const History& history, RecordContext kind) : is_set_(history.is_recorded()) {
      if (is_set_) {
        current() = history.gather(kind);
      }
    }
    ~Here() {
      if (is_set_) {
        current() = nullptr;
      }
    }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;

   private:
    bool is_set_;
  };

  // Something happened to our own memory.
  void note(TraceEntry::Action action, int device, uint64_t at, uint64_t size, uint64_t stream) {
    add(entry(action, device, at, size, reinterpret_cast<cudaStream_t>(stream), {0, 0}, current(),
              compile_context(), metadata()),
        true);
  }

  // Something happened in PyTorch's own allocator, which has filled in everything.
  void add(TraceEntry entry, bool is_ours) {
    std::lock_guard lock(mutex_);
    for (const auto& tracker : trackers_) {
      tracker(entry);
    }
    if (!is_recorded_) {
      return;
    }
    if (is_ours && entry.action_ == TraceEntry::ALLOC) {
      contexts_[entry.addr_] = entry.context_;
    } else if (is_ours && entry.action_ == TraceEntry::FREE_COMPLETED) {
      contexts_.erase(entry.addr_);
    }
    if (is_skipped(entry.action_)) {
      return;
    }
    if (when_.load() < RecordContext::ALLOC) {
      entry.context_ = nullptr;
    }
    auto& trace = traces_[entry.device_];
    trace.push_back(std::move(entry));
    while (trace.size() > entries_) {
      trace.pop_front();
    }
  }

  // The stack with which the block at this address was asked for.
  Context context_of(uint64_t at) {
    std::lock_guard lock(mutex_);
    auto found = contexts_.find(at);
    return found == contexts_.end() ? nullptr : found->second;
  }

  // What was recorded on each GPU, with the time of day.
  std::vector<std::vector<TraceEntry>> traces(size_t devices) {
    auto time_of = clock_.makeConverter();
    std::lock_guard lock(mutex_);
    std::vector<std::vector<TraceEntry>> all(devices);
    for (auto& [device, trace] : traces_) {
      if (static_cast<size_t>(device) < devices) {
        all[device].assign(trace.begin(), trace.end());
      }
    }
    for (auto& trace : all) {
      for (auto& entry : trace) {
        entry.time_.t_ = time_of(entry.time_.approx_t_) / 1000;
      }
    }
    return all;
  }

  static std::vector<std::string>& compile_contexts() {
    thread_local std::vector<std::string> stack;
    return stack;
  }

  static std::string& metadata() {
    thread_local std::string text;
    return text;
  }

 private:
  static Context& current() {
    thread_local Context context;
    return context;
  }

  static std::string compile_context() {
    return compile_contexts().empty() ? "N/A" : compile_contexts().back(); // as PyTorch says it
  }

  bool is_skipped(TraceEntry::Action action) const {
    for (const auto& name : skipped_) {
      if (name == action_name(action)) {
        return true;
      }
    }
    return false;
  }

  std::mutex mutex_;
  std::atomic<bool> is_recorded_{false};
  std::atomic<bool> has_trackers_{false};
  std::atomic<CreateContextFn> recorder_{nullptr};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  size_t entries_ = 0;
  std::vector<std::string> skipped_;
  std::vector<AllocatorTraceTracker> trackers_;
  std::unordered_map<int, std::deque<TraceEntry>> traces_;
  std::unordered_map<uint64_t, Context> contexts_;
  c10::ApproximateClockToUnixTimeConverter clock_;
};

} // namespace gmlake
