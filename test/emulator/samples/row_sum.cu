// The sum of each row, of n numbers.
extern "C" __global__ void __launch_bounds__(256)
    row_sum(float *out, const float *in, long long n) {
  __shared__ float parts[8];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += 256) sum += in[blockIdx.x * n + i];
  for (int offset = 16; offset; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();  // parts are written
  if (threadIdx.x < 8) {
    float total = 0;
    for (int i = 0; i < 8; i++) total += parts[i];
    if (threadIdx.x == 0) out[blockIdx.x] = total;
  }
}
