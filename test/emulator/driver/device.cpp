// The devices: names, sizes and the attributes of their architecture.
#include <cstdio>
#include <cstring>
#include <map>

#include "api.h"
#include "memory.h"
#include "settings.h"

using namespace emulator;

namespace {

// Numbers of CUdevice_attribute and their values, for all architectures.
const std::map<int, int> COMMON = {
    {1, 1024},         // threads of a block
    {2, 1024},         // x
    {3, 1024},         // y
    {4, 64},           // z
    {5, 2147483647},   // blocks of a grid, x
    {6, 65535},        // y
    {7, 65535},        // z
    {8, 49152},        // shared memory of a block without opting in
    {9, 65536},        // constant memory
    {10, 32},          // warp
    {11, 2147483647},  // pitch
    {12, 65536},       // registers of a block
    {13, 1755000},     // clock rate in kHz
    {14, 512},         // alignment of textures
    {15, 1},           // overlaps copies
    {18, 0},           // integrated
    {19, 1},           // maps host memory
    {31, 1},           // concurrent kernels
    {34, 0},           // PCI device
    {36, 2619000},     // memory clock in kHz
    {37, 5120},        // width of the memory bus
    {39, 2048},        // threads of a multiprocessor
    {40, 3},           // copy engines
    {41, 1},           // unified addressing
    {78, 1},           // stream priorities
    {82, 65536},       // registers of a multiprocessor
    {83, 1},           // managed memory
    {95, 1},           // cooperative launches
    {106, 32},         // blocks of a multiprocessor
    {115, 1},          // memory pools
};

// What differs: compute capability, multiprocessors, L2 cache, shared memory of a multiprocessor
// and of a block that opts in.
const std::map<std::string, std::map<int, int>> ARCHITECTURES = {
    {"sm_80", {{75, 8}, {76, 0}, {16, 108}, {38, 41943040}, {81, 167936}, {97, 166912}}},
    {"sm_90a", {{75, 9}, {76, 0}, {16, 132}, {38, 52428800}, {81, 233472}, {97, 232448}}},
    {"sm_100a", {{75, 10}, {76, 0}, {16, 148}, {38, 132644864}, {81, 233472}, {97, 232448}}},
};

bool exists(int device) { return 0 <= device && device < settings().devices; }

}  // namespace

API cuDriverGetVersion(int *version) {
  *version = 13000;
  return SUCCESS;
}

API cuDeviceGetCount(int *count) {
  if (!is_initialized()) return NOT_INITIALIZED;
  *count = settings().devices;
  return SUCCESS;
}

API cuDeviceGet(int *device, int number) {
  if (!is_initialized()) return NOT_INITIALIZED;
  if (!exists(number)) return INVALID_DEVICE;
  *device = number;
  return SUCCESS;
}

API cuDeviceGetName(char *name, int bytes, int) {
  std::snprintf(name, static_cast<size_t>(bytes), "Emulated GPU %s",
                settings().architecture.c_str());
  return SUCCESS;
}

API cuDeviceGetUuid_v2(char *uuid, int device) {
  std::memset(uuid, 0, 16);
  uuid[15] = static_cast<char>(device + 1);
  return SUCCESS;
}

API cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = memory_info(device).total;
  return SUCCESS;
}

API cuDeviceGetAttribute(int *value, int attribute, int device) {
  if (!exists(device)) return INVALID_DEVICE;
  if (attribute == 33) {  // PCI bus
    *value = device;
    return SUCCESS;
  }
  auto architecture = ARCHITECTURES.find(settings().architecture);
  if (architecture == ARCHITECTURES.end()) return INVALID_DEVICE;
  auto special = architecture->second.find(attribute);
  auto common = COMMON.find(attribute);
  *value = special != architecture->second.end() ? special->second
           : common != COMMON.end()              ? common->second
                                                 : 0;
  return SUCCESS;
}

API cuDeviceGetPCIBusId(char *text, int bytes, int device) {
  std::snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", device);
  return SUCCESS;
}
