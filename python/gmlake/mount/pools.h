// Which requests belong to a private pool: a CUDA graph's, or a MemPool's.
//
// PyTorch says when a pool begins and ends, with a question to ask about each stream. What a pool is asked for goes to
// PyTorch's own allocator, and all else to ours.
#pragma once

#include "versions.h"

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace gmlake {

template <typename Stream>
class Pools {
 public:
  using Filter = std::function<bool(Stream)>;

  void begin(MempoolId_t id, Filter filter) {
    std::lock_guard lock(mutex_);
    begun_.emplace_back(id, std::move(filter));
    count_.store(begun_.size());
  }

  void end(MempoolId_t id) {
    std::lock_guard lock(mutex_);
    for (auto it = begun_.begin(); it != begun_.end(); ++it) {
      if (it->first == id) {
        begun_.erase(it);
        break;
      }
    }
    count_.store(begun_.size());
  }

  // Whether a request on this stream belongs to one of them.
  bool take(Stream stream) {
    if (count_.load(std::memory_order_acquire) == 0) {
      return false;
    }
    std::lock_guard lock(mutex_);
    for (const auto& [id, filter] : begun_) {
      if (filter(stream)) {
        return true;
      }
    }
    return false;
  }

  size_t count() const {
    return count_.load(std::memory_order_acquire);
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<MempoolId_t, Filter>> begun_;
  std::atomic<size_t> count_{0};
};

} // namespace gmlake
