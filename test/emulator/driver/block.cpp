#include "block.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>

#include "memory.h"
#include "report.h"

namespace emulator {

namespace {

constexpr int POISON = 0xff;
constexpr size_t SHARED_ALIGNMENT = 1024;

// The blocks of the cluster that this thread of the operating system runs, and the current one.
thread_local std::deque<Block> cluster(1);
thread_local Block *running = nullptr;
// what their warps know of each other
thread_local Order order;
// the number of a thread in checks that is in another block
constexpr unsigned OTHER_BLOCK = 1024;
constexpr size_t WARPS = OTHER_BLOCK / 32;

size_t volume(Dim3 size) { return static_cast<size_t>(size.x) * size.y * size.z; }

bool is_same(Site a, Site b) { return a.number == b.number; }

uint64_t bit(size_t lane) { return uint64_t{1} << lane; }

}  // namespace

const Services Block::services = {
    Block::barrier,       Block::meet,          Block::dynamic_shared,  Block::copy_later,
    Block::commit_copies, Block::await_copies,  Block::make_mbarrier,   Block::fence_mbarriers,
    Block::expect_bytes,  Block::copy_box,      Block::await_mbarrier,  Block::check_read,
    Block::check_write,   Block::note_atomic,   Block::warp_fence,      Block::fail,
    Block::cluster_barrier, Block::arrive,      Block::set_registers,
};

Block &Block::mine() { return running ? *running : cluster[0]; }

void Block::start_launch() {
  for (Block &block : cluster) block.checks_.start_launch();
}

std::string Block::run(const std::vector<BlockLaunch> &launches, const std::vector<Dim3> &at) {
  if (cluster.size() != launches.size()) {
    running = nullptr;
    while (cluster.size() > launches.size()) cluster.pop_back();
    while (cluster.size() < launches.size()) cluster.emplace_back();
    start_launch();
  }
  size_t count = launches.size();
  for (size_t i = 0; i < count; i++) {
    cluster[i].rank_ = i;
    cluster[i].start(launches[i], at[i]);
  }
  order.start(count * WARPS);
  Block *unfinished;
  do {
    bool progress = false;
    unfinished = nullptr;
    for (size_t i = 0; i < count; i++) {
      running = &cluster[launches[0].backwards ? count - 1 - i : i];
      while (running->advance()) progress = true;
      if (!running->failure_.empty()) return running->failure_;
      if (!running->is_finished()) unfinished = running;
    }
    progress |= release_cluster_barrier();
    if (unfinished && !progress) return unfinished->describe_divergence();
  } while (unfinished);
  for (const Block &block : cluster) {
    std::string wrong = block.mbarriers_.unfinished();
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// Runs each warp as far as it can. Returns whether anything happened, and nothing went wrong.
bool Block::advance() {
  if (is_finished()) return false;
  size_t warp = launch_->kernel->warp, warps = (tasks_.size() + warp - 1) / warp;
  bool progress = false;
  for (size_t i = 0; i < warps && failure_.empty(); i++) {
    progress |= run_warp(launch_->backwards ? warps - 1 - i : i);
  }
  progress |= release_barrier();
  progress |= release_mbarriers();
  progress |= release_registers();
  return progress && failure_.empty();
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
  mbarriers_.clear(tasks_.size());
  registers_.start(tasks_.size());
  shared_.assign(launch.dynamic_shared + SHARED_ALIGNMENT, static_cast<char>(POISON));
  SharedRange fixed = launch.static_shared;
  std::memset(fixed.begin, POISON, static_cast<size_t>(fixed.end - fixed.begin));
  if (launch.kernel->checked) {
    char *dynamic = dynamic_begin();
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
  mbarriers_.pass_barrier();
  order.meet(rank_ * WARPS, (rank_ + 1) * WARPS);
  if (launch_->kernel->checked) checks_.pass_barrier();
  return true;
}

bool Block::release_cluster_barrier() {
  for (const Block &block : cluster) {
    for (const Task &task : block.tasks_) {
      bool is_there = task.state == State::at_cluster_barrier &&
                      is_same(task.site, cluster[0].tasks_[0].site);
      if (!is_there) return false;
    }
  }
  for (Block &block : cluster) {
    for (Task &task : block.tasks_) task.state = State::ready;
    block.mbarriers_.pass_barrier();
    if (block.launch_->kernel->checked) block.checks_.pass_barrier();
  }
  order.meet(0, cluster.size() * WARPS);
  return true;
}

bool Block::release_mbarriers() {
  bool progress = false;
  for (Task &task : tasks_) {
    if (task.state != State::at_mbarrier) continue;
    bool goes_on = mbarriers_.is_past(task.mbarrier, task.parity) ||
                   mbarriers_.has_copies(task.mbarrier);
    if (goes_on) task.state = State::ready;
    progress |= goes_on;
  }
  return progress;
}

// Gives groups of four warps the registers that all of their threads wait for, if there are so many.
bool Block::release_registers() {
  bool progress = false;
  constexpr size_t size = RegisterPool::GROUP;
  for (size_t group = 0; (group + 1) * size <= tasks_.size(); group++) {
    Task *first = &tasks_[group * size], *end = first + size;
    bool all_wait = std::all_of(first, end, [&](const Task &task) {
      return task.state == State::at_registers && is_same(task.site, first->site);
    });
    if (!all_wait || !registers_.give(group, first->registers)) continue;
    for (Task *task = first; task < end; task++) task->state = State::ready;
    progress = true;
  }
  return progress;
}

size_t Block::warp_in_cluster() const { return rank_ * WARPS + current_ / 32; }

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
    case State::at_cluster_barrier:
      return thread + format(" waits at the barrier of the cluster in line %u", task.site.line);
    case State::at_mbarrier:
      return thread + format(" waits at the mbarrier of line %u for ", task.site.line) +
             mbarriers_.describe(task.mbarrier);
    case State::at_registers:
      return thread + format(" waits for %u registers in line %u", task.registers, task.site.line);
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
  if (first.state == State::at_mbarrier) return describe_task(first) + ", which do not come";
  if (first.state == State::at_cluster_barrier)
    return describe_task(first) + ", where another block does not come";
  return "divergence: " + describe_task(first) + ", and names lanes that do not come";
}

void Block::check(const void *address, size_t bytes, bool is_write) {
  if (stacks_.contains(address)) return;
  fail_if(checks_.check(address, bytes, is_write, static_cast<unsigned>(current_)));
  WarpMoment moment = order.now(warp_in_cluster());
  if (!is_write) fail_if(mbarriers_.check_read(address, current_, moment));
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

void *Block::dynamic_shared() { return mine().dynamic_begin(); }

char *Block::dynamic_begin() const {
  uintptr_t start = reinterpret_cast<uintptr_t>(shared_.data());
  return reinterpret_cast<char *>((start + SHARED_ALIGNMENT - 1) & ~(SHARED_ALIGNMENT - 1));
}

void Block::cluster_barrier(Site site) { mine().wait(State::at_cluster_barrier, site); }

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

void Block::fail_if(const std::string &wrong) {
  if (wrong.empty()) return;
  failure_ = describe_current() + ": " + wrong;
  wait(State::ready, {});
}

void Block::make_mbarrier(const void *mbarrier, unsigned arrivals) {
  Block &block = mine();
  if (!block.same_place(mbarrier, block)) block.fail_if("an mbarrier is not in shared memory");
  WarpMoment moment = order.now(block.warp_in_cluster());
  block.fail_if(block.mbarriers_.init(mbarrier, arrivals, block.current_, moment));
}

void Block::fence_mbarriers() { mine().mbarriers_.fence(mine().current_); }

void Block::expect_bytes(const void *mbarrier, unsigned bytes) {
  Block &block = mine();
  block.fail_if(block.mbarriers_.arrive(mbarrier, bytes, order, block.warp_in_cluster()));
}

void Block::arrive(const void *mbarrier, unsigned to) {
  Block &block = mine();
  bool is_own = to == OWN_BLOCK;
  if (!is_own && to >= cluster.size())
    block.fail_if("it arrives in a block that its cluster has not");
  Block &there = is_own ? block : cluster[to];
  if (there.is_finished()) block.fail_if("it arrives in a block that has ended");
  const void *place = there.same_place(mbarrier, block);
  block.fail_if(there.mbarriers_.arrive(place, 0, order, block.warp_in_cluster()));
}

void Block::set_registers(Site site, unsigned registers, bool is_more) {
  Block &block = mine();
  block.fail_if(block.registers_.check(block.current_, registers, is_more));
  block.tasks_[block.current_].registers = registers;
  block.wait(State::at_registers, site);
}

void Block::copy_box(void *target, const void *mbarrier, const void *map, const int *coordinates,
                     unsigned rank, unsigned blocks) {
  Block &block = mine();
  BoxCopy copy = {};
  std::memcpy(&copy.map, map, sizeof copy.map);
  std::copy(coordinates, coordinates + rank, copy.coordinates);
  if (copy.map.mark != TensorMap::MARK) block.fail_if("a copy of a box is given no tensor map");
  if (copy.map.rank != rank)
    block.fail_if("a tensor map is of another rank than the coordinates of a box");
  block.check_source(copy);
  if (blocks >> cluster.size()) block.fail_if("a box is copied to more blocks than a cluster has");
  for (size_t i = 0; i < cluster.size(); i++) {
    Block &to = cluster[i];
    if (blocks ? !(blocks >> i & 1) : &to != &block) continue;
    if (to.is_finished()) block.fail_if("a box is copied to a block that has ended");
    copy.target = to.same_place(target, block);
    unsigned thread = &to == &block ? static_cast<unsigned>(block.current_) : OTHER_BLOCK;
    block.fail_if(to.check_target(copy, to.same_place(mbarrier, block), thread));
    const void *signalled = to.same_place(mbarrier, block);
    block.fail_if(to.mbarriers_.begin(signalled, copy, block.launch_->backwards, order,
                                      block.warp_in_cluster()));
  }
}

void Block::check_source(const BoxCopy &copy) {
  copy.each_row([&](const char *row, size_t bytes) {
    const Allocation *allocation = find_allocation(row);
    if (!allocation || !allocation->contains(row, bytes)) {
      fail_if(format("a row of a box has %zu bytes ", bytes) + describe(row));
    } else if (!is_accessible(launch_->device, allocation->device)) {
      fail_if(format("a box is in memory of device %d", allocation->device));
    }
    // of unchecked kernels too, for this is cheap; the rest is not
    if (!launch_->kernel->checked) return;
    for (size_t i = 0; i < bytes; i += copy.map.itemsize) check(row + i, copy.map.itemsize, false);
  });
}

std::string Block::check_target(const BoxCopy &copy, const void *mbarrier, unsigned thread) {
  size_t bytes = copy.map.bytes();
  bool fits = false;
  for (const SharedRange &range : shared_ranges())
    fits |= range.begin <= copy.target && copy.target + bytes <= range.end;
  if (!fits) return "a box is copied out of shared memory";
  if (mbarriers_.is_target(mbarrier, copy.target)) return "";
  for (size_t i = 0; launch_->kernel->checked && i < bytes; i += 16) {
    std::string wrong = checks_.check_copy(copy.target + i, 16, thread);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::vector<SharedRange> Block::shared_ranges() const {
  char *dynamic = dynamic_begin();
  return {launch_->static_shared, {dynamic, dynamic + launch_->dynamic_shared}};
}

// Where an address in the shared memory of a block is in that of this one; null if it is in none.
char *Block::same_place(const void *address, const Block &in) {
  const char *at = static_cast<const char *>(address);
  std::vector<SharedRange> theirs = in.shared_ranges(), ours = shared_ranges();
  for (size_t i = 0; i < theirs.size(); i++) {
    if (theirs[i].begin <= at && at < theirs[i].end) return ours[i].begin + (at - theirs[i].begin);
  }
  return nullptr;
}

void Block::await_mbarrier(Site site, const void *mbarrier, unsigned parity) {
  Block &block = mine();
  block.fail_if(block.mbarriers_.check(mbarrier, order, block.warp_in_cluster()));
  while (!block.mbarriers_.is_past(mbarrier, parity)) {
    if (block.mbarriers_.has_copies(mbarrier)) {
      block.fail_if(block.mbarriers_.run_copy(mbarrier));
      continue;
    }
    Task &task = block.tasks_[block.current_];
    task.mbarrier = mbarrier;
    task.parity = parity;
    block.wait(State::at_mbarrier, site);
  }
  block.mbarriers_.note_wait(mbarrier, block.current_);
  order.be_told(block.warp_in_cluster(), block.mbarriers_.told(mbarrier));
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
