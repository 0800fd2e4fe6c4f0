// Launches of kernels that were laid out once, and are told where their operands lie as they run.
//
// What a launch is comes as 64-bit words, packed by `runtime/native.py`. Nothing of CUDA's headers is needed: the
// driver's functions are given as addresses.

#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace tapestry {

struct Attribute {  // CUlaunchAttribute: an id and a union of 64 bytes
  int id, pad, value[16];
};

struct Configuration {  // CUlaunchConfig
  unsigned numbers[7];  // grid, block, dynamic shared memory
  void* stream;
  const Attribute* attributes;
  unsigned count;
};

// The driver's cuLaunchKernelEx, cuCtxGetCurrent, cuCtxPushCurrent and cuCtxPopCurrent.
struct Driver {
  int (*launch)(const Configuration*, void*, void**, void**);
  int (*current)(void**);
  int (*push)(void*);
  int (*pop)(void**);
};

// The words of a description, one after the other.
class Words {
 public:
  Words(const void* data, size_t bytes) : at_(static_cast<const char*>(data)), end_(at_ + bytes) {}

  uint64_t next() {
    if (end_ - at_ < 8) throw std::invalid_argument("a description of launches that ends early");
    uint64_t word;
    std::memcpy(&word, at_, 8);
    at_ += 8;
    return word;
  }

  std::vector<uint64_t> counted(size_t most) {
    const uint64_t count = next();
    if (count > most) throw std::invalid_argument("a description of launches that is too long");
    std::vector<uint64_t> found(count);
    for (auto& word : found) word = next();
    return found;
  }

 private:
  const char* at_;
  const char* end_;
};

class Launch {
 public:
  static constexpr size_t kWords = 2048, kParameters = 64, kOperands = 12, kAttributes = 2;

  explicit Launch(Words& words) : function_(reinterpret_cast<void*>(words.next())) {
    for (auto& number : numbers_) number = static_cast<unsigned>(words.next());
    const auto attributes = words.counted(kAttributes * sizeof(Attribute) / 8);
    attributes_.resize(attributes.size() * 8 / sizeof(Attribute));
    if (!attributes_.empty()) std::memcpy(attributes_.data(), attributes.data(), attributes_.size() * sizeof(Attribute));
    arguments_ = words.counted(kWords);
    offsets_ = words.counted(kParameters);
    const auto places = words.counted(3 * kWords);
    for (size_t i = 0; i + 2 < places.size(); i += 3) {
      if (places[i] >= arguments_.size() || places[i + 1] >= kOperands)
        throw std::invalid_argument("an address outside a launch's arguments");
      places_.push_back({places[i], places[i + 1], places[i + 2]});
    }
    for (const auto offset : offsets_)
      if (offset >= arguments_.size() * 8) throw std::invalid_argument("a parameter outside a launch's arguments");
  }

  // The driver's error code. The arguments are this call's own, so that threads need not take turns.
  int run(const Driver& driver, const uint64_t* addresses, void* stream) const {
    alignas(64) uint64_t arguments[kWords];
    void* parameters[kParameters];
    std::memcpy(arguments, arguments_.data(), arguments_.size() * 8);
    for (const auto& place : places_) arguments[place.word] = addresses[place.operand] + place.offset;
    for (size_t i = 0; i < offsets_.size(); ++i) parameters[i] = reinterpret_cast<char*>(arguments) + offsets_[i];
    Configuration configuration{};
    std::memcpy(configuration.numbers, numbers_, sizeof numbers_);
    configuration.stream = stream;
    configuration.attributes = attributes_.data();
    configuration.count = static_cast<unsigned>(attributes_.size());
    return driver.launch(&configuration, function_, parameters, nullptr);
  }

 private:
  struct Place {
    uint64_t word, operand, offset;
  };

  void* function_;
  unsigned numbers_[7];
  std::vector<Attribute> attributes_;
  std::vector<uint64_t> arguments_, offsets_;
  std::vector<Place> places_;
};

// Launches one behind the other in one context.
class Launches {
 public:
  explicit Launches(Words& words) : context_(reinterpret_cast<void*>(words.next())) {
    for (uint64_t left = words.next(); left; --left) launches_.emplace_back(words);
  }

  // The driver's error code. The context need not be the calling thread's, nor need that have one.
  int run(const Driver& driver, const uint64_t* addresses, void* stream) const {
    void* current = nullptr;
    if (driver.current(&current) == 0 && current == context_) return queue(driver, addresses, stream);
    if (const int status = driver.push(context_)) return status;
    const int status = queue(driver, addresses, stream);
    driver.pop(&current);
    return status;
  }

 private:
  int queue(const Driver& driver, const uint64_t* addresses, void* stream) const {
    for (const auto& launch : launches_)
      if (const int status = launch.run(driver, addresses, stream)) return status;
    return 0;
  }

  void* context_;
  std::vector<Launch> launches_;
};

}  // namespace tapestry
