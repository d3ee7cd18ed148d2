// Twice each of n numbers.
extern "C" __global__ void double_it(float *out, const float *in, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)  // bound
    out[i] = in[i] * 2;
}
