#include "faults.h"

#include <csetjmp>
#include <csignal>

namespace emulator {

namespace {

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr size_t HANDLER_STACK_BYTES = 64 << 10;

thread_local sigjmp_buf *landing = nullptr;
thread_local Fault last_fault{};
struct sigaction previous[NSIG];

void handle(int number, siginfo_t *info, void *) {
  if (!landing) {
    // not a kernel's: what was there before sees it when the instruction is run again
    sigaction(number, &previous[number], nullptr);
    return;
  }
  last_fault = {true, info->si_addr, number};
  siglongjmp(*landing, 1);
}

// A stack that overflowed cannot run the handler.
void use_handler_stack() {
  static thread_local char stack[HANDLER_STACK_BYTES];
  stack_t current;
  sigaltstack(nullptr, &current);
  if (!(current.ss_flags & SS_DISABLE)) return;
  stack_t own{};
  own.ss_sp = stack;
  own.ss_size = sizeof stack;
  sigaltstack(&own, nullptr);
}

void install_handlers() {
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : SIGNALS) {
    struct sigaction current;
    sigaction(number, nullptr, &current);
    if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == handle) continue;
    previous[number] = current;
    sigaction(number, &action, nullptr);
  }
}

}  // namespace

Fault run_until_fault(const std::function<void()> &work) {
  use_handler_stack();
  install_handlers();
  last_fault = {};
  sigjmp_buf here;
  if (!sigsetjmp(here, 1)) {
    landing = &here;
    work();
  }
  landing = nullptr;
  return last_fault;
}

}  // namespace emulator
