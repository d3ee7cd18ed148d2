#include "context.h"

#include <unistd.h>

#include <map>

#include "api.h"
#include "checks.h"
#include "settings.h"

namespace emulator {

namespace {

std::map<int, std::unique_ptr<Context>> contexts;
thread_local std::vector<Context *> stack_of_contexts;
pid_t initialized_in = 0;

}  // namespace

std::recursive_mutex &driver_lock() {
  static std::recursive_mutex lock;
  return lock;
}

bool is_initialized() { return initialized_in == getpid(); }

Stream &Context::stream(void *handle) {
  bool is_default = reinterpret_cast<uintptr_t>(handle) <= 2;
  return is_default ? *default_stream : *static_cast<Stream *>(handle);
}

void Context::synchronize() {
  for (const auto &stream : streams) stream->end().wait();
  default_stream->end().wait();
}

void Context::fail(int result) {
  if (!failure) failure = result;
}

Context *Context::current() {
  return stack_of_contexts.empty() ? nullptr : stack_of_contexts.back();
}

void Context::set_current(Context *context) {
  if (!stack_of_contexts.empty()) stack_of_contexts.pop_back();
  if (context) stack_of_contexts.push_back(context);
}

Context &Context::primary(int device) {
  std::unique_ptr<Context> &context = contexts[device];
  if (!context) context = std::make_unique<Context>(device);
  return *context;
}

std::vector<Context *> Context::all() {
  std::vector<Context *> found;
  for (auto &[device, context] : contexts) found.push_back(context.get());
  return found;
}

bool is_accessible(int device, int owner) {
  return owner < 0 || owner == device || Context::primary(device).peers.count(owner);
}

}  // namespace emulator

using namespace emulator;

API cuInit(unsigned) {
  if (initialized_in && !is_initialized()) return NOT_INITIALIZED;
  initialized_in = getpid();
  return SUCCESS;
}

API cuDevicePrimaryCtxRetain(Context **context, int device) {
  std::lock_guard<std::recursive_mutex> guard(driver_lock());
  if (!is_initialized()) return NOT_INITIALIZED;
  if (device < 0 || device >= settings().devices) return INVALID_DEVICE;
  *context = &Context::primary(device);
  return SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }

// Also forgets what went wrong.
API cuDevicePrimaryCtxReset_v2(int device) {
  std::lock_guard<std::recursive_mutex> guard(driver_lock());
  if (device < 0 || device >= settings().devices) return INVALID_DEVICE;
  Context &context = Context::primary(device);
  context.synchronize();
  context.failure = SUCCESS;
  context.peers.clear();
  return SUCCESS;
}

API cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = contexts.count(device) ? 1 : 0;
  return SUCCESS;
}

API cuCtxSetCurrent(Context *context) {
  if (!is_initialized()) return NOT_INITIALIZED;
  Context::set_current(context);
  return SUCCESS;
}

API cuCtxGetCurrent(Context **context) {
  if (!is_initialized()) return NOT_INITIALIZED;
  *context = Context::current();
  return SUCCESS;
}

API cuCtxPushCurrent_v2(Context *context) {
  stack_of_contexts.push_back(context);
  return SUCCESS;
}

API cuCtxPopCurrent_v2(Context **context) {
  if (stack_of_contexts.empty()) return INVALID_CONTEXT;
  if (context) *context = stack_of_contexts.back();
  stack_of_contexts.pop_back();
  return SUCCESS;
}

API cuCtxGetDevice(int *device) {
  return in_context([&](Context &context) {
    *device = context.device;
    return SUCCESS;
  });
}

API cuCtxSynchronize() {
  return in_context([](Context &context) {
    context.synchronize();
    return static_cast<Result>(context.failure);
  });
}

API cuDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = settings().peers && device != peer;
  return SUCCESS;
}

API cuDeviceGetP2PAttribute(int *value, int, int device, int peer) {
  if (device == peer) return INVALID_DEVICE;
  *value = settings().peers && device != peer;
  return SUCCESS;
}

API cuCtxEnablePeerAccess(Context *peer, unsigned) {
  return in_context([&](Context &context) {
    if (!settings().peers || peer == &context) return PEER_ACCESS_UNSUPPORTED;
    return context.peers.insert(peer->device).second ? SUCCESS : PEER_ACCESS_ALREADY_ENABLED;
  });
}

API cuCtxDisablePeerAccess(Context *peer) {
  return in_context([&](Context &context) {
    return context.peers.erase(peer->device) ? SUCCESS : PEER_ACCESS_NOT_ENABLED;
  });
}
