/* out = conv2d(x, w) for CPUs, as a matrix product: w is (output channels) x (taps and channels), and the pixels that each
   tap meets are packed into panels on the way (block_cpu.cl multiplies). One work-item computes some output channels
   of COLUMNS pixels, which are counted through rows and images. Sums run over channels first, then over taps.
   PARAMETERS, the sizes, and what is done to sums (BIAS, OTHER, LOW, HIGH) come from conv2d.py. */

typedef struct {
    long n, s0, s1, s2, s3; /* pixels: images' strides in x */
    int height, width;      /* of x, as far as it is here */
    int rows, columns;      /* of out */
    int sh, sw, dh, dw;     /* stride and dilation */
    int top, left;          /* where the first pixel's first tap lies in x; negative in the padding */
    int channels, taps_across;
} Geometry;

/* Pack `depth` taps and channels, from k0, of the NR pixels from `pixel`; past the last one, repeat it. */
inline void pack_pixels(__local T *p, const __global T *x, const Geometry g, const long pixel, const int count,
                        const long k0, const int depth)
{
    long at[NR], offset[NR];
    int y[NR], z[NR], inside[NR];
    for (int i = 0; i < NR; i++) {
        const long q = pixel + min(i, count - 1), line = q / g.columns;
        at[i] = line / g.rows * g.s0;
        y[i] = (int)(line % g.rows) * g.sh + g.top;
        z[i] = (int)(q % g.columns) * g.sw + g.left;
    }
    const int side_by_side = g.sw == 1 && g.s3 == 1 && count == NR && at[0] == at[NR - 1] && y[0] == y[NR - 1] &&
                             z[NR - 1] - z[0] == NR - 1;
    long k = k0;
    while (k < k0 + depth) {
        const int tap = k / g.channels, c = k % g.channels, many = min((long)(g.channels - c), k0 + depth - k);
        const int dy = tap / g.taps_across * g.dh, dz = tap % g.taps_across * g.dw;
        const __global T *from = x + c * g.s1;
        k += many;
        if (side_by_side && y[0] + dy >= 0 && y[0] + dy < g.height && z[0] + dz >= 0 && z[0] + dz + NR <= g.width) {
            from += at[0] + (y[0] + dy) * g.s2 + (z[0] + dz);
            for (int m = 0; m < many; m++, p += NR, from += g.s1) {
                *(__local V *)p = VLOAD(0, from);
                *(__local V *)(p + W) = VLOAD(1, from);
            }
            continue;
        }
        int all = 1;
        for (int i = 0; i < NR; i++) {
            const int row = y[i] + dy, column = z[i] + dz;
            inside[i] = row >= 0 && row < g.height && column >= 0 && column < g.width;
            offset[i] = inside[i] ? at[i] + row * g.s2 + column * g.s3 : 0;
            all &= inside[i];
        }
        if (all)
            for (int m = 0; m < many; m++, p += NR, from += g.s1)
                for (int i = 0; i < NR; i++)
                    p[i] = from[offset[i]];
        else
            for (int m = 0; m < many; m++, p += NR, from += g.s1)
                for (int i = 0; i < NR; i++)
                    p[i] = inside[i] ? from[offset[i]] : (T)0;
    }
}

/* Pack the weights of MR output channels for the same taps and channels; missing ones repeat the first. */
inline void pack_weights(__local T *pa, const __global T *w, const long s0, const long s1, const long s2, const long s3,
                         const Geometry g, const long k0, const int depth, const int rows)
{
    for (int r = 0; r < MR; r++) {
        const __global T *const mine = w + (r < rows ? r : 0) * s0;
        __local T *p = pa + r;
        long k = k0;
        while (k < k0 + depth) {
            const int tap = k / g.channels, c = k % g.channels, many = min((long)(g.channels - c), k0 + depth - k);
            const __global T *from = mine + tap / g.taps_across * s2 + tap % g.taps_across * s3 + c * s1;
            for (int m = 0; m < many; m++, p += MR, from += s1)
                *p = *from;
            k += many;
        }
    }
}

/* One filter of a group that has few: pixels one after the other, or W at a time where all taps lie inside the row. */
inline void filter(const __global T *x, const __global T *w, const long s1, const long s2, const long s3, const T start,
                   __global T *out, const long o0, const long o2, const long o3, const Geometry g, const long pixel0,
                   const int count, const int taps_down)
{
    const int across = (g.taps_across - 1) * g.dw, by_vector = g.sw == 1 && g.s3 == 1 && o3 == 1;
    int j = 0;
    while (j < count) { /* line by line */
        const long line = (pixel0 + j) / g.columns, n = line / g.rows, row = line % g.rows;
        const int q0 = (pixel0 + j) % g.columns, end = min(count - j, g.columns - q0) + q0;
        const int y0 = row * g.sh + g.top, safe = g.width - across - g.left - W; /* the last q whose taps are all there */
        int first = 0, last = taps_down, q = q0; /* the taps whose rows are inside x */
        while (first < last && y0 + first * g.dh < 0)
            first++;
        while (first < last && y0 + (last - 1) * g.dh >= g.height)
            last--;
        while (q < end) {
            /* The last vector may overlap the one before: its sums are the same. */
            const int back = min(min(q, end - W), safe), whole = by_vector && back >= q0 && back + g.left >= 0 && back + W > q;
            const int many = whole ? W : 1, at = whole ? back : q, z = at * g.sw + g.left;
            __global T *const p = out + n * o0 + row * o2 + at * o3;
            const __global T *const from = x + n * g.s0 + z * g.s3;
            if (whole) {
                V sums = (V)(start);
                for (int c = 0; c < g.channels; c++)
                    for (int r = first; r < last; r++) {
                        const __global T *const pixels = from + c * g.s1 + (y0 + r * g.dh) * g.s2;
                        const __global T *const weights = w + c * s1 + r * s2;
                        for (int s = 0; s < g.taps_across; s++)
                            sums += VLOAD(0, pixels + s * g.dw) * (V)(weights[s * s3]);
                    }
                VSTORE(sums, 0, p);
            } else {
                T sum = start;
                for (int c = 0; c < g.channels; c++)
                    for (int r = first; r < last; r++)
                        for (int s = 0; s < g.taps_across; s++)
                            if (z + s * g.dw >= 0 && z + s * g.dw < g.width)
                                sum += from[c * g.s1 + (y0 + r * g.dh) * g.s2 + s * g.dw * g.s3] * w[c * s1 + r * s2 + s * s3];
                *p = sum;
            }
            q = at + many;
        }
        j += end - q0;
    }
}

#if defined(OTHER) || defined(LOW) || defined(HIGH)
#define FINISH
#endif
inline T finished(T v)
{
#ifdef LOW
    v = v < LOW ? LOW : v; /* not a number stays so */
#endif
#ifdef HIGH
    v = v > HIGH ? HIGH : v;
#endif
    return v;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void conv2d(PARAMETERS)
{
    __local T pb[DEPTH * COLUMNS] __attribute__((aligned(128)));
    __local T pa[DEPTH * MR] __attribute__((aligned(128)));
    __local T tile[MR * NR] __attribute__((aligned(128))), start[MR];
    const long row0 = lo2 * sh - pad_top, image = n2 * n3, inner = w_n1 * w_n2 * w_n3;
    const Geometry g = {n0 * image, x_stride0, x_stride1, x_stride2, x_stride3, x_n2, x_n3, n2, n3, sh, sw, dh, dw,
                        min(row0, 0L), -pad_left, w_n1, w_n3}; /* x begins with row max(row0, 0) */
    const long share = ((n1 - 1) / (long)get_num_groups(1) / MR + 1) * MR; /* output channels of each work-item */
    const long pixel0 = (long)get_group_id(0) * COLUMNS, last = min(n1, ((long)get_group_id(1) + 1) * share);
    const int columns = min((long)COLUMNS, g.n - pixel0), dense = out_stride3 == 1 && out_stride2 == n3;
    const long begin = (long)get_group_id(1) * share;
    long o = begin;
    while (o < last) { /* one group of channels after the other */
        const long group = (lo1 + o) / per_group, end = min(last, (group + 1) * per_group - lo1);
        const __global T *const x = x_data + x_start + (group - lo1 / per_group) * w_n1 * x_stride1;
        if (end - o <= 2) {
            for (; o < end; o++) {
#ifdef BIAS
                const T first = bias_data[bias_start + o * bias_stride0];
#else
                const T first = 0;
#endif
                filter(x, w_data + w_start + o * w_stride0, w_stride1, w_stride2, w_stride3, first,
                       out_data + out_start + o * out_stride1, out_stride0, out_stride2, out_stride3, g, pixel0, columns,
                       w_n2);
            }
            continue;
        }
        long k0 = 0;
        do { /* once at least: an empty sum is zero */
            const int depth = min((long)DEPTH, inner - k0);
            for (int j = 0; j < columns; j += NR)
                pack_pixels(pb + j * DEPTH, x, g, pixel0 + j, min(NR, columns - j), k0, depth);
            for (long i = o; i < end; i += MR) {
                const int rows = min((long)MR, end - i);
                for (int r = 0; r < MR; r++)
#ifdef BIAS
                    start[r] = r < rows ? bias_data[bias_start + (i + r) * bias_stride0] : (T)0;
#else
                    start[r] = 0;
#endif
                pack_weights(pa, w_data + w_start + i * w_stride0, w_stride0, w_stride1, w_stride2, w_stride3, g, k0,
                             depth, rows);
                __global T *const c = out_data + out_start + i * out_stride1;
                for (int j = 0; j < columns; j += NR) {
                    const long pixel = pixel0 + j, n = pixel / image;
                    const int some = min(NR, columns - j);
                    const int direct = dense && rows == MR && some == NR && (pixel + NR - 1) / image == n;
                    block(pa, pb + j * DEPTH, tile, start, c + n * out_stride0 + pixel % image, out_stride1, depth,
                          k0 > 0, direct);
                    if (direct)
                        continue;
                    for (int e = 0; e < some; e++) {
                        const long q = pixel + e, line = q / n3;
                        __global T *p = c + line / n2 * out_stride0 + line % n2 * out_stride2 + q % n3 * out_stride3;
                        for (int r = 0; r < rows; r++, p += out_stride1)
                            *p = (k0 > 0 ? *p : start[r]) + tile[r * NR + e];
                    }
                }
            }
            k0 += DEPTH;
        } while (k0 < inner);
        o = end;
    }
#ifdef FINISH /* what this work-item wrote is still in the cache: line by line, so that lines become vectors */
    for (o = begin; o < last; o++)
        for (int j = 0, some; j < columns; j += some) {
            const long line = (pixel0 + j) / n3, n = line / n2, row = line % n2, q0 = (pixel0 + j) % n3;
            some = min((long)(columns - j), n3 - q0);
            __global T *p = out_data + out_start + n * out_stride0 + o * out_stride1 + row * out_stride2 + q0 * out_stride3;
#ifdef OTHER
            const __global T *from = other_data + other_start + n * other_stride0 + o * other_stride1 +
                                     row * other_stride2 + q0 * other_stride3;
            if (out_stride3 == 1 && other_stride3 == 1)
                for (int e = 0; e < some; e++)
                    p[e] = finished(p[e] + from[e]);
            else
                for (int e = 0; e < some; e++)
                    p[e * out_stride3] = finished(p[e * out_stride3] + from[e * other_stride3]);
#else
            if (out_stride3 == 1)
                for (int e = 0; e < some; e++)
                    p[e] = finished(p[e]);
            else
                for (int e = 0; e < some; e++)
                    p[e * out_stride3] = finished(p[e * out_stride3]);
#endif
        }
#endif
}
