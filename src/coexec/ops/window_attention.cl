/* Attention within a window: a work-item per row and head. Scores are exponentiated relative to the largest so far, and what
   was summed before is scaled down when a larger one comes. PARAMETERS, T, W, D (of queries) and DV (of values) come from
   attention.py. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
typedef JOIN(T, W) V;
#define VLOAD JOIN(vload, W)
#define VSTORE JOIN(vstore, W)

__kernel void window_attention(PARAMETERS)
{
    const long row = get_global_id(0), head = get_global_id(1);
    if (row >= n1 || head >= n0)
        return;
    const long at = lo1 + row, begin = max((long)0, lo1 - reach); /* begin: the first key that this part was given */
    const long first = max((long)0, at - reach) - begin, last = min(begin + k_n1 - 1, at + reach) - begin;
    T query[D], sums[DV], kept[W];
    for (int x = 0; x < D; x++)
        query[x] = q_data[q_start + head * q_stride0 + row * q_stride1 + x * q_stride2] * (T)scale;
    for (int x = 0; x < DV; x++)
        sums[x] = 0;
    T largest = -INFINITY, total = 0;
    for (long key = first; key <= last; key++) {
        const __global T *const p = k_data + k_start + head * k_stride0 + key * k_stride1;
        const __global T *const r = v_data + v_start + head * v_stride0 + key * v_stride1;
        T score = 0;
        int x = 0;
        if (k_stride2 == 1) {
            V vector = 0;
            for (; x + W <= D; x += W)
                vector += VLOAD(0, query + x) * VLOAD(0, p + x);
            VSTORE(vector, 0, kept);
            for (int y = 0; y < W; y++)
                score += kept[y];
        }
        for (; x < D; x++)
            score += query[x] * p[x * k_stride2];
        if (score > largest || isnan(score)) {
            const T less = largest == -INFINITY ? (T)0 : exp(largest - score);
            for (int y = 0; y < DV; y++)
                sums[y] *= less;
            total *= less;
            largest = score;
        }
        const T share = largest == -INFINITY ? (T)0 : exp(score - largest);
        total += share;
        for (int y = 0; y < DV; y++)
            sums[y] += share * r[y * v_stride2];
    }
    for (int x = 0; x < DV; x++)
        out_data[out_start + head * out_stride0 + row * out_stride1 + x * out_stride2] = sums[x] / total;
}
