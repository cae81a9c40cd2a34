// One work-group does a block: its items a row each, four numbers at a time; the first adds up what all have found.
#define FOUR(a, i, j) (double4)(a((i), (j)), a((i), (j) + 1), a((i), (j) + 2), a((i), (j) + 3))

__kernel void advance(
    __global const double *p_data, const long p_start, const long p_stride0, const long p_stride1,
    __global const double *q_data, const long q_start, const long q_stride0, const long q_stride1,
    __global const double *pq_data, const long pq_start, __global const double *rr_data, const long rr_start,
    __global double *x_data, const long x_start, const long x_stride0, const long x_stride1,
    __global double *r_data, const long r_start, const long r_stride0, const long r_stride1,
    __global double *new_data, const long new_start, const long n0, const long n1)
{
    __local double found[32];
    const int item = get_local_id(0), items = get_local_size(0);
    const double length = rr() / pq();
    double4 four = 0.0;
    double one = 0.0;
    for (long i = item, j; i < n0; i += items) {
        for (j = 0; j < n1; j++) x(i, j) += length * p(i, j);
        for (j = 0; j < n1; j++) r(i, j) -= length * q(i, j);
        for (j = 0; j + 4 <= n1; j += 4) four += FOUR(r, i, j) * FOUR(r, i, j);
        for (; j < n1; j++) one += r(i, j) * r(i, j);
    }
    found[item] = one + four.s0 + four.s1 + four.s2 + four.s3;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int other = 0; item == 0 && other < items; other++) new() += found[other];
}
