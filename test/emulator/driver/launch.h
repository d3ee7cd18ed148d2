// A launch of a kernel: its shape, and its parameters by value.
#pragma once

#include <memory>
#include <vector>

#include "api.h"
#include "module.h"

namespace emulator {

// CUDA_KERNEL_NODE_PARAMS: how the API describes a launch.
struct LaunchDescription {
  Function *function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void **parameters;
  void **extra;
  void *kernel, *context;
};

class Launch {
 public:
  // Checks a launch as the driver does, and copies its parameters.
  static Result make(const LaunchDescription &description, std::shared_ptr<Launch> *made);

  // Runs all blocks. A mistake of the kernel fails its context.
  void run();

  Context &context() const { return *module_->context; }

 private:
  Result check() const;
  Result check_pointers() const;
  void run_cluster(size_t number, size_t worker, std::string *error);
  void run_workers(size_t workers);
  void check_ends();
  void fail(Result result, const std::string &reason);

  std::shared_ptr<Module> module_;
  std::string name_;
  unsigned max_threads_ = 0, cluster_ = 1;
  bool is_checked_ = false;
  Dim3 grid_{}, size_{};
  size_t shared_ = 0, max_shared_ = 0;
  std::vector<std::vector<char>> values_;
  std::vector<void *> parameters_;  // pointers to the values
};

}  // namespace emulator
