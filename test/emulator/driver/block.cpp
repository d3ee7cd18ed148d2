#include "block.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "memory.h"
#include "report.h"

namespace emulator {

namespace {

constexpr int POISON = 0xff;
constexpr size_t SHARED_ALIGNMENT = 1024;

// The block that this thread of the operating system runs.
thread_local Block block_of_this_thread;

size_t volume(Dim3 size) { return static_cast<size_t>(size.x) * size.y * size.z; }

bool is_same(Site a, Site b) { return a.number == b.number; }

uint64_t bit(size_t lane) { return uint64_t{1} << lane; }

}  // namespace

const Services Block::services = {
    Block::barrier,       Block::meet,         Block::dynamic_shared, Block::copy_later,
    Block::commit_copies, Block::await_copies, Block::check_read,     Block::check_write,
    Block::note_atomic,   Block::warp_fence,   Block::fail,
};

Block &Block::mine() { return block_of_this_thread; }

std::string Block::run(const BlockLaunch &launch, Dim3 at) {
  start(launch, at);
  size_t warp = launch.kernel->warp, warps = (tasks_.size() + warp - 1) / warp;
  while (finished_ < tasks_.size()) {
    bool progress = false;
    for (size_t i = 0; i < warps && failure_.empty(); i++) {
      progress |= run_warp(launch.backwards ? warps - 1 - i : i);
    }
    progress |= release_barrier();
    if (failure_.empty() && !progress && finished_ < tasks_.size())
      failure_ = describe_divergence();
    if (!failure_.empty()) break;
  }
  return failure_;
}

void Block::start(const BlockLaunch &launch, Dim3 at) {
  static std::atomic<uint64_t> runs{0};
  launch_ = &launch;
  at_ = at;
  run_ = ++runs;
  finished_ = 0;
  failure_.clear();
  stacks_.give_back_all();
  tasks_.resize(volume(launch.size));
  for (Task &task : tasks_) {
    task.state = State::ready;
    task.stack = nullptr;
    task.copies.clear();
  }
  shared_.assign(launch.dynamic_shared + SHARED_ALIGNMENT, static_cast<char>(POISON));
  SharedRange fixed = launch.static_shared;
  std::memset(fixed.begin, POISON, static_cast<size_t>(fixed.end - fixed.begin));
  if (launch.kernel->checked) {
    char *dynamic = static_cast<char *>(dynamic_shared());
    checks_.start_block(
        {fixed, {dynamic, dynamic + launch.dynamic_shared}, launch.code, launch.device},
        launch.kernel->warp);
  }
}

bool Block::run_warp(size_t warp) {
  size_t first = warp * launch_->kernel->warp;
  size_t end = std::min(first + launch_->kernel->warp, tasks_.size());
  bool progress = false;
  do {
    progress |= run_ready_lanes(first, end);
  } while (failure_.empty() && complete_meeting(first, end));
  return progress;
}

bool Block::run_ready_lanes(size_t first, size_t end) {
  bool progress = false;
  for (size_t i = 0; i < end - first && failure_.empty(); i++) {
    size_t index = launch_->backwards ? end - 1 - i : first + i;
    if (tasks_[index].state != State::ready) continue;
    resume(index);
    progress = true;
  }
  return progress;
}

bool Block::complete_meeting(size_t first, size_t end) {
  uint64_t existing = end - first == 64 ? ~uint64_t{0} : bit(end - first) - 1;
  for (size_t i = first; i < end; i++) {
    const Task &task = tasks_[i];
    if (task.state != State::meeting) continue;
    uint64_t lanes = task.lanes & existing;
    void *records[64] = {};
    bool complete = true;
    for (size_t j = first; j < end; j++) {
      const Task &other = tasks_[j];
      if (!(lanes & bit(j - first))) continue;
      complete &= other.state == State::meeting && is_same(other.site, task.site) &&
                  (other.lanes & existing) == lanes;
      records[j - first] = other.record;
    }
    if (!complete) continue;
    task.operation(records);
    for (size_t j = first; j < end; j++) {
      if (lanes & bit(j - first)) tasks_[j].state = State::ready;
    }
    return true;
  }
  return false;
}

bool Block::release_barrier() {
  for (const Task &task : tasks_) {
    if (task.state != State::at_barrier || !is_same(task.site, tasks_[0].site)) return false;
  }
  for (Task &task : tasks_) task.state = State::ready;
  if (launch_->kernel->checked) checks_.pass_barrier();
  return true;
}

void Block::resume(size_t index) {
  Task &task = tasks_[index];
  current_ = index;
  if (!task.stack) prepare(index);
  emulator_switch_stack(&scheduler_, task.stack_pointer);
  if (task.state != State::finished) return;
  stacks_.give_back(task.stack);
  task.stack = nullptr;
  finished_++;
}

void Block::prepare(size_t index) {
  Task &task = tasks_[index];
  task.stack = stacks_.take();
  task.stack_pointer = prepare_stack(task.stack, run_thread);
  unsigned i = static_cast<unsigned>(index), warp = launch_->kernel->warp;
  Dim3 size = launch_->size;
  Dim3 thread = {i % size.x, i / size.x % size.y, i / size.x / size.y};
  thread_of(task.stack) = {thread, at_, size, launch_->grid, i, i % warp, i / warp, run_};
}

void Block::run_thread() {
  Block &block = mine();
  block.launch_->kernel->entry(block.launch_->parameters);
  block.wait(State::finished, {});
  __builtin_unreachable();
}

void Block::wait(State state, Site site) {
  Task &task = tasks_[current_];
  task.state = state;
  task.site = site;
  emulator_switch_stack(&task.stack_pointer, scheduler_);
}

std::string Block::describe_current() const {
  Dim3 size = launch_->size;
  unsigned i = static_cast<unsigned>(current_);
  return format("block (%u, %u, %u), thread (%u, %u, %u)", at_.x, at_.y, at_.z, i % size.x,
                i / size.x % size.y, i / size.x / size.y);
}

std::string Block::describe_fault(const void *address) const {
  std::string what = stacks_.contains(address) ? "its variables do not fit the stack of a thread"
                                               : "it touches " + describe(address);
  return describe_current() + ": " + what;
}

std::string Block::describe_task(const Task &task) const {
  std::string thread = format("thread %td", &task - tasks_.data());
  switch (task.state) {
    case State::finished: return thread + " has finished";
    case State::at_barrier:
      return thread + format(" waits at the barrier of line %u", task.site.line);
    default: return thread + format(" waits for its warp in line %u", task.site.line);
  }
}

std::string Block::describe_divergence() const {
  const Task &first = tasks_[0];
  for (const Task &task : tasks_) {
    if (task.state == first.state && is_same(task.site, first.site)) continue;
    return format("block (%u, %u, %u): divergence: ", at_.x, at_.y, at_.z) + describe_task(first) +
           ", " + describe_task(task);
  }
  return "divergence: " + describe_task(first) + ", and names lanes that do not come";
}

void Block::check(const void *address, size_t bytes, bool is_write) {
  if (stacks_.contains(address)) return;
  std::string wrong = checks_.check(address, bytes, is_write, static_cast<unsigned>(current_));
  if (wrong.empty()) return;
  failure_ = describe_current() + ": " + wrong;
  wait(State::ready, {});
}

void Block::check_copy(const AsyncCopy &copy) {
  if (!launch_->kernel->checked) return;
  if (copy.bytes) check(copy.source, copy.bytes, false);
  check(copy.target, copy.bytes + copy.zeros, true);
}

void Block::barrier(Site site) { mine().wait(State::at_barrier, site); }

void Block::meet(Site site, uint64_t lanes, void *record, WarpOperation operation) {
  Block &block = mine();
  Task &task = block.tasks_[block.current_];
  task.lanes = lanes;
  task.record = record;
  task.operation = operation;
  block.wait(State::meeting, site);
}

void *Block::dynamic_shared() {
  uintptr_t start = reinterpret_cast<uintptr_t>(mine().shared_.data());
  return reinterpret_cast<void *>((start + SHARED_ALIGNMENT - 1) & ~(SHARED_ALIGNMENT - 1));
}

void Block::copy_later(void *target, const void *source, unsigned bytes, unsigned zeros) {
  Block &block = mine();
  AsyncCopy copy = {target, source, bytes, zeros};
  block.check_copy(copy);
  if (block.launch_->backwards) {
    copy.run();
  } else {
    block.tasks_[block.current_].copies.add(copy);
  }
}

void Block::commit_copies() {
  Block &block = mine();
  block.tasks_[block.current_].copies.commit();
}

void Block::await_copies(unsigned groups_in_flight) {
  Block &block = mine();
  block.tasks_[block.current_].copies.await(groups_in_flight,
                                            [&](const AsyncCopy &copy) { block.check_copy(copy); });
}

void Block::check_read(const void *address, size_t bytes) { mine().check(address, bytes, false); }

void Block::check_write(const void *address, size_t bytes) { mine().check(address, bytes, true); }

void Block::note_atomic() { mine().checks_.note_atomic(); }

void Block::warp_fence() {
  Block &block = mine();
  if (!block.launch_->kernel->checked) return;
  block.checks_.warp_fence(static_cast<unsigned>(block.current_));
}

void Block::fail(const char *reason, unsigned line) {
  Block &block = mine();
  block.failure_ = block.describe_current() + format(", line %u: ", line) + reason;
  block.wait(State::ready, {});
}

}  // namespace emulator
