// One work-group adds up a block: its items a run of options each, the first what the others have found.
__kernel void total(
    __global const double *call_data, const long call_start, const long call_stride0,
    __global const double *put_data, const long put_start, const long put_stride0,
    __global double *value_data, const long value_start, const long n0)
{
    __local double found[64];
    const long item = get_local_id(0), items = get_local_size(0), each = (n0 + items - 1) / items;
    double mine = 0.0;
    for (long i = item * each; i < min(n0, (item + 1) * each); i++) mine += call(i) + put(i);
    found[item] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int other = 0; item == 0 && other < items; other++) value() += found[other];
}
