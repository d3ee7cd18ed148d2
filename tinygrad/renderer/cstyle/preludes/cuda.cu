// The intrinsics of CUDA kernels. Each paragraph defines one name.

__device__ inline int block_number() { return blockIdx.x; }

__device__ inline int thread_number() { return threadIdx.x; }

// Waits for all threads of the block, which then see what the others wrote to shared memory.
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

// To nearest, ties to even. GPUs before sm_80 have no instruction for it.
__device__ inline bfloat16 float_to_bfloat16(float x) {
  bfloat16 result;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
#else
  unsigned int bits = __float_as_uint(x);
  result.bits = x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#endif
  return result;
}

// ---- asynchronous copies from global to shared memory ----

#define shared_address(p) ((unsigned int)__cvta_generic_to_shared(p))

__device__ inline void copy_async_16(void *shared, const void *global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
    :: "r"(shared_address(shared)), "l"(global) : "memory");
}

__device__ inline void copy_async_8(void *shared, const void *global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
    :: "r"(shared_address(shared)), "l"(global) : "memory");
}

__device__ inline void copy_async_4(void *shared, const void *global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
    :: "r"(shared_address(shared)), "l"(global) : "memory");
}

// Where it is not valid, the source is not read and zeros are written.
__device__ inline void copy_async_16_or_zero(void *shared, const void *global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"(shared_address(shared)), "l"(global), "r"(valid ? 16 : 0) : "memory");
}

__device__ inline void copy_async_8_or_zero(void *shared, const void *global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
    :: "r"(shared_address(shared)), "l"(global), "r"(valid ? 8 : 0) : "memory");
}

__device__ inline void copy_async_4_or_zero(void *shared, const void *global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
    :: "r"(shared_address(shared)), "l"(global), "r"(valid ? 4 : 0) : "memory");
}

// Ends a group of copies.
__device__ inline void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most so many groups of this thread's copies are in flight.
template <int groups> __device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(groups) : "memory");
}

// ---- matrix instructions; the lane maps are in renderer/matrix_instruction.py ----

// 8x8 matrices of 16-bit elements: lane 8 * i + j gives the address of row j of matrix i.
__device__ inline u32x4 load_matrix_x4(const void *row) {
  u32x4 x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(x.lane[0]), "=r"(x.lane[1]), "=r"(x.lane[2]), "=r"(x.lane[3])
    : "r"(shared_address(row)) : "memory");
  return x;
}

__device__ inline u32x4 load_matrix_x4_transposed(const void *row) {
  u32x4 x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(x.lane[0]), "=r"(x.lane[1]), "=r"(x.lane[2]), "=r"(x.lane[3])
    : "r"(shared_address(row)) : "memory");
  return x;
}

__device__ inline u32x2 load_matrix_x2(const void *row) {
  u32x2 x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
    : "=r"(x.lane[0]), "=r"(x.lane[1]) : "r"(shared_address(row)) : "memory");
  return x;
}

__device__ inline u32x2 load_matrix_x2_transposed(const void *row) {
  u32x2 x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
    : "=r"(x.lane[0]), "=r"(x.lane[1]) : "r"(shared_address(row)) : "memory");
  return x;
}

// c + a @ b
__device__ inline f32x4 mma_m16n8k16_f16(u32x4 a, u32x2 b, f32x4 c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c.lane[0]), "+f"(c.lane[1]), "+f"(c.lane[2]), "+f"(c.lane[3])
    : "r"(a.lane[0]), "r"(a.lane[1]), "r"(a.lane[2]), "r"(a.lane[3]),
      "r"(b.lane[0]), "r"(b.lane[1]));
  return c;
}

__device__ inline f32x4 mma_m16n8k16_bf16(u32x4 a, u32x2 b, f32x4 c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c.lane[0]), "+f"(c.lane[1]), "+f"(c.lane[2]), "+f"(c.lane[3])
    : "r"(a.lane[0]), "r"(a.lane[1]), "r"(a.lane[2]), "r"(a.lane[3]),
      "r"(b.lane[0]), "r"(b.lane[1]));
  return c;
}

// To nearest, ties away from zero, with 11 significant bits.
__device__ inline unsigned int round_to_tf32(float x) {
  unsigned int result;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(x));
  return result;
}

__device__ inline f32x4 mma_m16n8k8_tf32(f32x4 a, f32x2 b, f32x4 c) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
    : "+f"(c.lane[0]), "+f"(c.lane[1]), "+f"(c.lane[2]), "+f"(c.lane[3])
    : "r"(round_to_tf32(a.lane[0])), "r"(round_to_tf32(a.lane[1])),
      "r"(round_to_tf32(a.lane[2])), "r"(round_to_tf32(a.lane[3])),
      "r"(round_to_tf32(b.lane[0])), "r"(round_to_tf32(b.lane[1])));
  return c;
}

// ---- matrix instructions of four warps, which read shared memory while the threads continue ----

// What this thread wrote to shared memory is seen by instructions that read it asynchronously.
__device__ inline void async_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A matrix in panels of 128-byte rows, of which 8 are swizzled; the bytes from a panel to the next.
__device__ inline unsigned long long matrix_descriptor(const void *matrix, unsigned int panel) {
  unsigned int low = (shared_address(matrix) & 0x3ffff) >> 4 | panel >> 4 << 16;
  unsigned int high = 8 * 128 >> 4 | 1u << 30;
  return (unsigned long long)high << 32 | low;
}

// The registers of sums are what earlier instructions made them.
__device__ inline void wgmma_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Ends a group of products.
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most so many groups are running; no use of the sums moves before it.
template <int groups, int count> __device__ inline void wgmma_wait(float (&sums)[count]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(groups) : "memory");
  #pragma unroll
  for (int i = 0; i < count; i++) asm volatile("" : "+f"(sums[i]) :: "memory");
}

// ---- bulk copies: one thread begins the copy of a box of a tensor to shared memory ----

// What `cuTensorMapEncodeTiled` makes.
struct TensorMap { alignas(64) unsigned long long bits[16]; };

// A phase of an mbarrier ends when so many threads have arrived, and the bytes that one of them may
// expect have been copied. An async_fence() lets copies see the new mbarrier, a barrier other
// threads.
__device__ inline void mbarrier_init(unsigned long long *mbarrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1; fence.mbarrier_init.release.cluster;"
    :: "r"(shared_address(mbarrier)), "r"(arrivals) : "memory");
}

// What this thread has read may be overwritten when the phase has ended.
__device__ inline void mbarrier_arrive(unsigned long long *mbarrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
    :: "r"(shared_address(mbarrier)) : "memory");
}

// The same of the mbarrier at that place in a block of the cluster. It orders no writes, which would
// take a release for the cluster: a wait for all memory.
__device__ inline void mbarrier_arrive_in(unsigned long long *mbarrier, int block) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
    " mbarrier.arrive.shared::cluster.b64 _, [there]; }"
    :: "r"(shared_address(mbarrier)), "r"(block) : "memory");
}

__device__ inline void mbarrier_expect(unsigned long long *mbarrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
    :: "r"(shared_address(mbarrier)), "r"(bytes) : "memory");
}

// Waits for the end of the phase that is 0 or 1 modulo 2, the current one or that before.
__device__ inline void mbarrier_wait(unsigned long long *mbarrier, int parity) {
  int is_done;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
      " selp.b32 %0, 1, 0, p; }"
      : "=r"(is_done) : "r"(shared_address(mbarrier)), "r"(parity) : "memory");
  } while (!is_done);
}

// Four warps, which all come here, give registers to others of their block or wait for theirs.
template <int registers> __device__ inline void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(registers));
}

template <int registers> __device__ inline void acquire_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(registers));
}

// Waits for all threads of the blocks of a cluster. They see each other's mbarriers, and what they
// have read may be overwritten; it does not order what they wrote.
__device__ inline void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
