// Names of result codes, and how the bindings find entry points.
#include <dlfcn.h>

#include <map>
#include <string>

#include "api.h"

using namespace emulator;

namespace {

struct Text {
  const char *name, *meaning;
};

const std::map<int, Text> TEXTS = {
    {SUCCESS, {"CUDA_SUCCESS", "no error"}},
    {INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {NOT_INITIALIZED, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {INVALID_DEVICE, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {INVALID_IMAGE, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {PEER_ACCESS_UNSUPPORTED,
     {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
      "peer access is not supported between these two devices"}},
    {INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {NOT_READY, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {ILLEGAL_ADDRESS, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {LAUNCH_OUT_OF_RESOURCES,
     {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {PEER_ACCESS_ALREADY_ENABLED,
     {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"}},
    {PEER_ACCESS_NOT_ENABLED,
     {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"}},
    {LAUNCH_FAILED, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {NOT_SUPPORTED, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
};

Text text_of(int result) {
  auto found = TEXTS.find(result);
  return found == TEXTS.end() ? Text{"CUDA_ERROR_UNKNOWN", "unknown error"} : found->second;
}

// This library, by the path from which it was loaded.
void *this_library() {
  Dl_info info;
  dladdr(reinterpret_cast<void *>(&this_library), &info);
  return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

}  // namespace

API cuGetErrorName(int result, const char **name) {
  *name = text_of(result).name;
  return SUCCESS;
}

API cuGetErrorString(int result, const char **text) {
  *text = text_of(result).meaning;
  return SUCCESS;
}

// The bindings ask for names without versions: the newest is theirs.
API cuGetProcAddress_v2(const char *name, void **function, int, uint64_t, int *status) {
  static void *library = this_library();
  *function = nullptr;
  for (const char *version : {"_v2", ""}) {
    if (!*function) *function = dlsym(library, (std::string(name) + version).c_str());
  }
  if (status) *status = *function ? 0 : 1;
  return *function ? SUCCESS : NOT_FOUND;
}

API cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

// NVRTC asks for tables that the driver does not document, and does without.
API cuGetExportTable(const void **, const void *) { return NOT_SUPPORTED; }
