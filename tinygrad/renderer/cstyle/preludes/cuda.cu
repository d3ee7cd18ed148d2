// The intrinsics of CUDA kernels. Each paragraph defines one name.

__device__ inline int block_number() { return blockIdx.x; }

__device__ inline int thread_number() { return threadIdx.x; }

// Waits for all threads of the block, which then see each other's writes to shared memory.
__device__ inline void block_barrier() { __syncthreads(); }

// The value of another lane of the warp.
template <class T> __device__ inline T warp_shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

#define INFINITY __int_as_float(0x7f800000)

#define NAN __int_as_float(0x7fc00000)

struct half { unsigned short bits; };

__device__ inline half half_of_bits(unsigned short bits) { return half{bits}; }

__device__ inline unsigned short bits_of_half(half x) { return x.bits; }

__device__ inline float half_to_float(half x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}

// To nearest, ties to even.
__device__ inline half float_to_half(float x) {
  half result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

struct bfloat16 { unsigned short bits; };

__device__ inline bfloat16 bfloat16_of_bits(unsigned short bits) { return bfloat16{bits}; }

__device__ inline unsigned short bits_of_bfloat16(bfloat16 x) { return x.bits; }

__device__ inline float bfloat16_to_float(bfloat16 x) { return __int_as_float(x.bits << 16); }

// To nearest, ties to even.
__device__ inline bfloat16 float_to_bfloat16(float x) {
  bfloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
