#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

// The registers that a function must preserve are pushed on the stack that is left, and popped from
// the one that is entered. The first entry of a stack "returns" to its main function.
#if defined(__x86_64__)
asm(R"(
.text
.globl emulator_switch_stack
.type emulator_switch_stack, @function
emulator_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch_stack, .-emulator_switch_stack
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl emulator_switch_stack
.type emulator_switch_stack, %function
emulator_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size emulator_switch_stack, .-emulator_switch_stack
)");
#else
#error "the emulator switches stacks on x86-64 and AArch64 only"
#endif

namespace emulator {

namespace {

constexpr size_t STACKS_AT_ONCE = 32;
constexpr size_t PAGE_BYTES = 4096;

}  // namespace

Thread &thread_of(char *stack) {
  return *reinterpret_cast<Thread *>(stack + STACK_BYTES - RECORD_BYTES);
}

void *prepare_stack(char *stack, void (*main)()) {
  void **top = reinterpret_cast<void **>(stack + STACK_BYTES - RECORD_BYTES);
#if defined(__x86_64__)
  *--top = nullptr;  // main's return address; keeps the stack aligned as after a call
  *--top = reinterpret_cast<void *>(main);
  return top - 6;
#else
  top -= 20;
  top[11] = reinterpret_cast<void *>(main);  // x30, to which `ret` jumps
  return top;
#endif
}

StackPool::~StackPool() {
  for (const Mapping &mapping : mappings_) munmap(mapping.start, mapping.bytes);
}

char *StackPool::take() {
  if (free_.empty()) grow();
  char *stack = free_.back();
  free_.pop_back();
  return stack;
}

void StackPool::give_back_all() { free_ = all_; }

bool StackPool::contains(const void *address) const {
  const char *at = static_cast<const char *>(address);
  for (const Mapping &mapping : mappings_) {
    if (mapping.start <= at && at < mapping.start + mapping.bytes) return true;
  }
  return false;
}

void StackPool::grow() {
  // one more than needed, so that an aligned start fits
  size_t bytes = (STACKS_AT_ONCE + 1) * STACK_BYTES;
  void *start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  mappings_.push_back({static_cast<char *>(start), bytes});
  uintptr_t aligned = (reinterpret_cast<uintptr_t>(start) + STACK_BYTES - 1) & ~(STACK_BYTES - 1);
  for (size_t i = 0; i < STACKS_AT_ONCE; i++) {
    char *stack = reinterpret_cast<char *>(aligned) + i * STACK_BYTES;
    mprotect(stack, PAGE_BYTES, PROT_NONE);  // a stack that overflows is a fault
    all_.push_back(stack);
    free_.push_back(stack);
  }
}

}  // namespace emulator
