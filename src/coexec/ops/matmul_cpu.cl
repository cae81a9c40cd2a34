/* out = a b for CPUs. One work-item computes some rows of COLUMNS elements as GotoBLAS does: panels of b and slivers
   of a are packed into local memory, and block_cpu.cl multiplies them. PARAMETERS, LOCATE, T, W and the sizes come from
   matmul.py. Strides are whatever they are: packing takes care. */

/* Pack depth x columns elements of b, NR columns side by side; what is missing of the last NR becomes zero. */
inline void pack_b(__local T *pb, const __global T *b, const long s0, const long s1, const int depth, const int columns)
{
    for (int j = 0; j < columns; j += NR) {
        const int width = min(NR, columns - j);
        __local T *p = pb + j * DEPTH;
        const __global T *from = b + j * s1;
        if (width == NR && s1 == 1)
            for (int k = 0; k < depth; k++, p += NR, from += s0) {
                *(__local V *)p = VLOAD(0, from);
                *(__local V *)(p + W) = VLOAD(1, from);
            }
        else
            for (int i = 0; i < NR; i++)
                for (int k = 0; k < depth; k++)
                    p[k * NR + i] = i < width ? from[k * s0 + i * s1] : (T)0;
    }
}

/* Pack rows x depth elements of a, MR rows side by side; missing rows repeat the first, their results are not kept. */
inline void pack_a(__local T *pa, const __global T *a, const long s0, const long s1, const int depth, const int rows)
{
    if (s0 == 1 && rows == MR) {
        for (int k = 0; k < depth; k++, pa += MR, a += s1)
            for (int r = 0; r < MR; r++)
                pa[r] = a[r];
        return;
    }
    for (int r = 0; r < MR; r++) {
        const __global T *const from = a + (r < rows ? r : 0) * s0;
        if (s1 == 1)
            for (int k = 0; k < depth; k++)
                pa[k * MR + r] = from[k];
        else
            for (int k = 0; k < depth; k++)
                pa[k * MR + r] = from[k * s1];
    }
}

/* Add (or assign) the product of a sliver and a panel to MR x NR elements, or to the rows x columns of them that exist. */
inline void multiply(const __local T *pa, const __local T *pb, __local T *tile, const __local T *start, __global T *c,
                     const long s0, const long s1, const int depth, const int more, const int rows, const int columns)
{
    const int direct = rows == MR && columns == NR && s1 == 1;
    block(pa, pb, tile, start, c, s0, depth, more, direct);
    if (direct)
        return;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const T sum = tile[i * NR + j];
            __global T *const p = c + i * s0 + j * s1;
            *p = more ? *p + sum : sum;
        }
}

/* Few columns: dot products of rows of a, which lie densely, with packed columns of b. */
inline void dots(const __global T *a, const long a0, const __local T *pb, __global T *c, const long s0, const long s1,
                 const int depth, const int more, const int rows, const int columns)
{
    for (int i = 0; i < rows; i++, a += a0)
        for (int j = 0; j < columns; j++) {
            const __local T *const b = pb + j * DEPTH;
            V u = 0, v = 0, x = 0, y = 0;
            int k = 0;
            for (; k + 4 * W <= depth; k += 4 * W) {
                u += VLOAD(0, a + k) * VLOAD(0, b + k);
                v += VLOAD(1, a + k) * VLOAD(1, b + k);
                x += VLOAD(2, a + k) * VLOAD(2, b + k);
                y += VLOAD(3, a + k) * VLOAD(3, b + k);
            }
            T part[W], sum = 0;
            VSTORE((u + v) + (x + y), 0, part);
            for (int w = 0; w < W; w++)
                sum += part[w];
            for (; k < depth; k++)
                sum += a[k] * b[k];
            __global T *const p = c + i * s0 + j * s1;
            *p = more ? *p + sum : sum;
        }
}

/* Few rows: sums of rows of b, which lie densely; the four vectors of a sum stay in registers. */
inline void sums(const __global T *a, const long a0, const long a1, const __global T *b, const long b0, __global T *c,
                 const long s0, const int depth, const int more, const int rows, const int columns)
{
    for (int i = 0; i < rows; i++, a += a0, c += s0) {
        int j = 0;
        for (; j + 4 * W <= columns; j += 4 * W) {
            V u = 0, v = 0, x = 0, y = 0;
            const __global T *from = b + j;
            for (int k = 0; k < depth; k++, from += b0) {
                const V s = (V)(a[k * a1]);
                u += s * VLOAD(0, from);
                v += s * VLOAD(1, from);
                x += s * VLOAD(2, from);
                y += s * VLOAD(3, from);
            }
            __global T *const p = c + j;
            if (more) {
                u += VLOAD(0, p);
                v += VLOAD(1, p);
                x += VLOAD(2, p);
                y += VLOAD(3, p);
            }
            VSTORE(u, 0, p);
            VSTORE(v, 1, p);
            VSTORE(x, 2, p);
            VSTORE(y, 3, p);
        }
        for (; j < columns; j++) {
            T sum = 0;
            for (int k = 0; k < depth; k++)
                sum += a[k * a1] * b[k * b0 + j];
            c[j] = more ? c[j] + sum : sum;
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void matmul(PARAMETERS)
{
    __local T pb[DEPTH * COLUMNS] __attribute__((aligned(128)));
    __local T pa[DEPTH * MR] __attribute__((aligned(128)));
    __local T tile[MR * NR] __attribute__((aligned(128))), start[MR];
    for (int r = 0; r < MR; r++)
        start[r] = 0;
    LOCATE
    const long share = ((OUT_N0 - 1) / (long)get_num_groups(1) / MR + 1) * MR; /* rows of each work-item */
    const long i0 = (long)get_group_id(1) * share, j0 = (long)get_group_id(0) * COLUMNS;
    const int rows = min(share, OUT_N0 - i0), columns = min((long)COLUMNS, OUT_N1 - j0);
    if (rows <= 0)
        return;
    long k0 = 0;
    do { /* once at least: an empty sum is zero */
        const int depth = min((long)DEPTH, INNER - k0);
        const __global T *const a = a_data + a_at + i0 * A_S0 + k0 * A_S1, *const b = b_data + b_at + k0 * B_S0 + j0 * B_S1;
        __global T *const c = out_data + out_at + i0 * OUT_S0 + j0 * OUT_S1;
        if (columns <= 4 && A_S1 == 1) {
            for (int j = 0; j < columns; j++)
                for (int k = 0; k < depth; k++)
                    pb[j * DEPTH + k] = b[k * B_S0 + j * B_S1];
            dots(a, A_S0, pb, c, OUT_S0, OUT_S1, depth, k0 > 0, rows, columns);
        } else if (rows <= 3 && B_S1 == 1 && OUT_S1 == 1) {
            sums(a, A_S0, A_S1, b, B_S0, c, OUT_S0, depth, k0 > 0, rows, columns);
        } else {
            pack_b(pb, b, B_S0, B_S1, depth, columns);
            for (int i = 0; i < rows; i += MR) {
                const int some = min(MR, rows - i);
                pack_a(pa, a + i * A_S0, A_S0, A_S1, depth, some);
                for (int j = 0; j < columns; j += NR)
                    multiply(pa, pb + j * DEPTH, tile, start, c + i * OUT_S0 + j * OUT_S1, OUT_S0, OUT_S1, depth, k0 > 0,
                             some, min(NR, columns - j));
            }
        }
        k0 += DEPTH;
    } while (k0 < INNER);
}
