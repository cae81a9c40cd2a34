/* out = s b for GPUs: a work-item per element of the result; neighbours read neighbouring columns of the same row of b. */
__kernel void spmm(PARAMETERS)
{
    const long row = get_global_id(1), j = get_global_id(0);
    if (row >= n0 || j >= n1)
        return;
    const long zero = indptr_data[indptr_start];
    const long first = indptr_data[indptr_start + row * indptr_stride0] - zero;
    const long last = indptr_data[indptr_start + (row + 1) * indptr_stride0] - zero;
    T sum = 0;
    for (long e = first; e < last; e++)
        sum += data_data[data_start + e * data_stride0]
               * b_data[b_start + (long)indices_data[indices_start + e * indices_stride0] * b_stride0 + j * b_stride1];
    out_data[out_start + row * out_stride0 + j * out_stride1] = sum;
}
