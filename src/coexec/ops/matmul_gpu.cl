/* out = a b for GPUs: a work-group of 16 x 16 work-items computes a tile of 64 x 64 elements, each 4 x 4 of them, from
   pieces of a and b in local memory. PARAMETERS, LOCATE and T come from matmul.py. */
#define SIDE 64
#define GROUP 16
#define EACH 4 /* rows, and columns, of one work-item */
#define PIECE 16

__kernel __attribute__((reqd_work_group_size(GROUP, GROUP, 1))) void matmul(PARAMETERS)
{
    __local T ta[PIECE][SIDE + 1], tb[PIECE][SIDE + 1];
    LOCATE
    const int x = get_local_id(0), y = get_local_id(1), me = y * GROUP + x;
    const long i0 = (long)get_group_id(1) * SIDE, j0 = (long)get_group_id(0) * SIDE;
    T sums[EACH][EACH];
    for (int r = 0; r < EACH; r++)
        for (int s = 0; s < EACH; s++)
            sums[r][s] = 0;
    for (long k0 = 0; k0 < INNER; k0 += PIECE) {
        for (int e = me; e < SIDE * PIECE; e += GROUP * GROUP) { /* neighbours load what lies side by side */
            const int ka = A_S1 == 1 ? e % PIECE : e / SIDE, i = A_S1 == 1 ? e / PIECE : e % SIDE;
            const int kb = B_S1 == 1 ? e / SIDE : e % PIECE, j = B_S1 == 1 ? e % SIDE : e / PIECE;
            ta[ka][i] = i0 + i < OUT_N0 && k0 + ka < INNER ? a_data[a_at + (i0 + i) * A_S0 + (k0 + ka) * A_S1] : (T)0;
            tb[kb][j] = j0 + j < OUT_N1 && k0 + kb < INNER ? b_data[b_at + (k0 + kb) * B_S0 + (j0 + j) * B_S1] : (T)0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < PIECE; k++)
            for (int r = 0; r < EACH; r++)
                for (int s = 0; s < EACH; s++)
                    sums[r][s] += ta[k][y + r * GROUP] * tb[k][x + s * GROUP];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int r = 0; r < EACH; r++)
        for (int s = 0; s < EACH; s++) {
            const long i = i0 + y + r * GROUP, j = j0 + x + s * GROUP;
            if (i < OUT_N0 && j < OUT_N1)
                out_data[out_at + i * OUT_S0 + j * OUT_S1] = sums[r][s];
        }
}
