// Stacks that can be left and entered again.
#pragma once

#include <cstddef>
#include <vector>

#include "../kernel/interface.h"

namespace emulator {

// Leaves the current stack, whose pointer goes to `*left`, and continues on another one.
extern "C" void emulator_switch_stack(void **left, void *entered);

// A stack pointer with which `emulator_switch_stack` starts `main`, which must not return.
void *prepare_stack(char *stack, void (*main)());

// The thread whose record lies on a stack.
Thread &thread_of(char *stack);

// Stacks that are used again once their thread has finished. The one freed last is taken first, so
// threads that never wait share one stack.
class StackPool {
 public:
  StackPool() = default;
  StackPool(const StackPool &) = delete;
  ~StackPool();

  char *take();
  void give_back(char *stack) { free_.push_back(stack); }
  void give_back_all();
  bool contains(const void *address) const;

 private:
  struct Mapping {
    char *start;
    size_t bytes;
  };
  void grow();

  std::vector<Mapping> mappings_;
  std::vector<char *> all_, free_;
};

}  // namespace emulator
