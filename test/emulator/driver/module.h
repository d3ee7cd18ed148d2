// Loaded kernels.
#pragma once

#include <list>
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
  Module(Context *context, const char *image, size_t bytes)
      : context(context), image_(image, image + bytes) {}
  Module(const Module &) = delete;
  ~Module();

  // The copy of one of the threads that run blocks, or null and an error. Modules that were not
  // used for long are unloaded: a process can map only so many files.
  const LoadedCopy *copy(size_t number, std::string *error);

  // A copy that `copy` has loaded for a launch that runs.
  const LoadedCopy &loaded_copy(size_t number) const { return *copies_[number]; }

  Context *const context;
  bool is_unloaded = false;  // by the program; launches that were not done keep its code

 private:
  void note_use();
  void unload();

  const std::vector<char> image_;
  std::vector<std::unique_ptr<LoadedCopy>> copies_;
  std::list<Module *>::iterator place_;  // among the loaded ones
};

// A kernel, and the limits that its attributes set.
struct Function {
  std::shared_ptr<Module> module;
  std::string name;
  std::vector<unsigned> parameter_bytes;
  unsigned max_threads;
  unsigned cluster;
  bool checked;
  size_t static_shared;
  size_t max_dynamic_shared;
};

}  // namespace emulator
