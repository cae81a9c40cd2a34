/* out = conv2d(x, w) for GPUs: a work-item computes one pixel of EACH output channels, so that neighbours read
   neighbouring pixels and the same weights. PARAMETERS, T, and what is done to
   sums (BIAS, OTHER, LOW, HIGH) come from conv2d.py. */
#define EACH 4

__kernel void conv2d(PARAMETERS)
{
    const long pixel = get_global_id(0), first = (long)get_global_id(1) * EACH, n = get_global_id(2);
    if (pixel >= n2 * n3)
        return;
    const long p = pixel / n3, q = pixel % n3, row0 = lo2 * sh - pad_top;
    const long y0 = p * sh + min(row0, 0L), z0 = q * sw - pad_left; /* x begins with row max(row0, 0) */
    T sums[EACH];
    for (int e = 0; e < EACH; e++) {
        sums[e] = 0;
#ifdef BIAS
        if (first + e < n1)
            sums[e] = bias_data[bias_start + (first + e) * bias_stride0];
#endif
    }
    const long before = lo1 / per_group, group = (lo1 + first) / per_group;
    const int together = first + EACH <= n1 && (lo1 + first + EACH - 1) / per_group == group;
    for (long r = 0; r < w_n2; r++)
        for (long s = 0; s < w_n3; s++) {
            const long y = y0 + r * dh, z = z0 + s * dw;
            if (y < 0 || y >= x_n2 || z < 0 || z >= x_n3)
                continue;
            const __global T *const from = x_data + x_start + n * x_stride0 + y * x_stride2 + z * x_stride3;
            const __global T *const w = w_data + w_start + first * w_stride0 + r * w_stride2 + s * w_stride3;
            if (together) {
                for (long c = 0; c < w_n1; c++) {
                    const T value = from[((group - before) * w_n1 + c) * x_stride1];
                    for (int e = 0; e < EACH; e++)
                        sums[e] += value * w[e * w_stride0 + c * w_stride1];
                }
            } else {
                for (int e = 0; e < EACH && first + e < n1; e++) {
                    const long own = (lo1 + first + e) / per_group - before;
                    for (long c = 0; c < w_n1; c++)
                        sums[e] += from[(own * w_n1 + c) * x_stride1] * w[e * w_stride0 + c * w_stride1];
                }
            }
        }
    for (int e = 0; e < EACH && first + e < n1; e++) {
        T v = sums[e];
#ifdef OTHER
        v += other_data[other_start + n * other_stride0 + (first + e) * other_stride1 + p * other_stride2 + q * other_stride3];
#endif
#ifdef LOW
        v = v < LOW ? LOW : v; /* not a number stays so */
#endif
#ifdef HIGH
        v = v > HIGH ? HIGH : v;
#endif
        out_data[out_start + n * out_stride0 + (first + e) * out_stride1 + p * out_stride2 + q * out_stride3] = v;
    }
}
