// One work-group does a block of points, tile by tile: its items first find labels, then each adds up one coordinate.
#define TILE 256

__kernel void assign(
    __global const double *x_data, const long x_start, const long x_stride0, const long x_stride1,
    __global const double *centre_data, const long centre_start, const long centre_stride0, const long centre_stride1,
    __global int *label_data, const long label_start, const long label_stride0,
    __global double *sums_data, const long sums_start, const long sums_stride0, const long sums_stride1,
    __global double *count_data, const long count_start, const long count_stride0,
    const long n0, const long n1, const long centre_n0)
{
    __local int found[TILE];
    const int item = get_local_id(0), items = get_local_size(0);
    for (long lo = 0; lo < n0; lo += TILE) {
        const int rows = min((long)TILE, n0 - lo);
        for (int row = item; row < rows; row += items) {
            double best = INFINITY;
            int nearest = 0;
            for (int c = 0; c < centre_n0; c++) {
                double distance = 0.0;
                for (int d = 0; d < n1; d++) {
                    const double difference = x(lo + row, d) - centre(c, d);
                    distance += difference * difference;
                }
                if (distance <= best) { best = distance; nearest = c; }
            }
            found[row] = nearest;
            label(lo + row) = nearest;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int d = item; d <= n1; d += items)
            for (int row = 0; row < rows; row++)
                if (d < n1) sums(found[row], d) += x(lo + row, d); else count(found[row]) += 1.0;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
