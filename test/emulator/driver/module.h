// Loaded kernels.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../kernel/interface.h"
#include "context.h"

namespace emulator {

// One copy of a module in this process. Static shared memory is static data of the module, so each
// thread of the operating system that runs blocks has a copy of its own.
class LoadedCopy {
 public:
  LoadedCopy(const std::vector<char> &image, std::string *error);
  LoadedCopy(const LoadedCopy &) = delete;
  ~LoadedCopy();

  bool is_loaded() const { return handle_ != nullptr; }
  const KernelInfo *kernel(const std::string &name) const;
  SharedRange shared() const { return shared_; }
  SharedRange code() const { return code_; }

 private:
  void *handle_ = nullptr;
  SharedRange shared_{}, code_{};
};

struct Module {
  Context *context;
  std::vector<char> image;
  std::vector<std::unique_ptr<LoadedCopy>> copies;

  // The copy of one of the threads that run blocks.
  const LoadedCopy &copy(size_t number);
};

// A kernel, and the limits that its attributes set.
struct Function {
  std::shared_ptr<Module> module;
  std::string name;
  KernelInfo info;
  size_t static_shared;
  size_t max_dynamic_shared;
};

}  // namespace emulator
