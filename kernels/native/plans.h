// What is known of calls, by shapes, strides, types and alignments.

#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "launch.h"

namespace tapestry {

constexpr int64_t kAligned = 15;  // the bits of addresses that kernels ask for

// A key: a few dozen numbers.
struct Key {
  std::array<int64_t, 40> words{};
  size_t count = 0;

  void add(int64_t word) { words[count++] = word; }

  void add_bits(double number) {
    int64_t word;
    std::memcpy(&word, &number, sizeof word);
    add(word);
  }

  // A tensor of four dimensions; `dtype` and `odd` are those that it will have.
  void add(const at::Tensor& tensor, at::ScalarType dtype, int64_t odd) {
    add(static_cast<int64_t>(dtype) << 4 | odd);
    for (const auto extent : tensor.sizes()) add(extent);
    for (const auto step : tensor.strides()) add(step);
  }

  void add(const at::Tensor& tensor) {
    add(tensor, tensor.scalar_type(), reinterpret_cast<int64_t>(tensor.const_data_ptr()) & kAligned);
  }

  // Images that will be of `dtype`, dense and channels-last.
  void add_dense(const at::Tensor& images, at::ScalarType dtype) {
    add(static_cast<int64_t>(dtype) << 4);
    for (const auto extent : images.sizes()) add(extent);
    const int64_t channels = images.size(1), row = channels * images.size(3);
    for (const auto step : {row * images.size(2), int64_t{1}, row, channels}) add(step);
  }

  bool operator==(const Key& other) const {
    return count == other.count && std::memcmp(words.data(), other.words.data(), count * sizeof(int64_t)) == 0;
  }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t found = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < key.count; ++i) {
      found = (found ^ static_cast<uint64_t>(key.words[i])) * 0xD6E8FEB86659FD93u;
      found ^= found >> 32;
    }
    return found;
  }
};

// A result to allocate: of the type of x, or f32.
struct Result {
  std::array<int64_t, 4> sizes, strides;
  bool wide;

  explicit Result(Words& words) {
    for (auto& extent : sizes) extent = static_cast<int64_t>(words.next());
    for (auto& step : strides) step = static_cast<int64_t>(words.next());
    wide = words.next() != 0;
  }
};

// A call: its results, the bytes of its workspace, and its launches.
struct Call {
  std::vector<Result> results;
  int64_t workspace;
  Launches launches;

  explicit Call(Words words) : results(read(words)), workspace(static_cast<int64_t>(words.next())), launches(words) {}

 private:
  static std::vector<Result> read(Words& words) {
    std::vector<Result> found;
    for (uint64_t left = words.next(); left; --left) found.emplace_back(words);
    return found;
  }
};

using CallPointer = std::shared_ptr<const Call>;

// Calls by their keys, for any number of threads.
class Plans {
 public:
  CallPointer find(const Key& key) {
    const std::lock_guard<std::mutex> turn(lock_);
    const auto found = calls_.find(key);
    return found == calls_.end() ? nullptr : found->second;
  }

  void add(const Key& key, CallPointer call) {
    const std::lock_guard<std::mutex> turn(lock_);
    calls_[key] = std::move(call);
  }

  void clear() {
    const std::lock_guard<std::mutex> turn(lock_);
    calls_.clear();
  }

 private:
  std::mutex lock_;
  std::unordered_map<Key, CallPointer, KeyHash> calls_;
};

}  // namespace tapestry
