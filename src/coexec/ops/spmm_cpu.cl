/* out = s b for CPUs: a work-item per row of a sparse matrix. Four vectors of a row of the result are summed at a time in
   registers, over the row's stored elements. PARAMETERS, T, W and INDEX come from sparse.py. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
typedef JOIN(T, W) V;
#define VLOAD JOIN(vload, W)
#define VSTORE JOIN(vstore, W)

__kernel void spmm(PARAMETERS)
{
    const long row = get_global_id(0);
    if (row >= n0)
        return;
    const long zero = indptr_data[indptr_start];
    const long first = indptr_data[indptr_start + row * indptr_stride0] - zero;
    const long last = indptr_data[indptr_start + (row + 1) * indptr_stride0] - zero;
    __global T *const to = out_data + out_start + row * out_stride0;
    long j = 0;
    if (b_stride1 == 1 && out_stride1 == 1) {
        for (; j + 4 * W <= n1; j += 4 * W) {
            V c0 = 0, c1 = 0, c2 = 0, c3 = 0;
            for (long e = first; e < last; e++) {
                const V s = (V)(data_data[data_start + e * data_stride0]);
                const __global T *const p =
                    b_data + b_start + (long)indices_data[indices_start + e * indices_stride0] * b_stride0 + j;
                c0 += s * VLOAD(0, p);
                c1 += s * VLOAD(1, p);
                c2 += s * VLOAD(2, p);
                c3 += s * VLOAD(3, p);
            }
            VSTORE(c0, 0, to + j);
            VSTORE(c1, 1, to + j);
            VSTORE(c2, 2, to + j);
            VSTORE(c3, 3, to + j);
        }
        for (; j + W <= n1; j += W) {
            V c = 0;
            for (long e = first; e < last; e++)
                c += (V)(data_data[data_start + e * data_stride0])
                     * VLOAD(0, b_data + b_start
                                    + (long)indices_data[indices_start + e * indices_stride0] * b_stride0 + j);
            VSTORE(c, 0, to + j);
        }
    }
    for (; j < n1; j++) {
        T c = 0;
        for (long e = first; e < last; e++)
            c += data_data[data_start + e * data_stride0]
                 * b_data[b_start + (long)indices_data[indices_start + e * indices_stride0] * b_stride0 + j * b_stride1];
        to[j * out_stride1] = c;
    }
}
