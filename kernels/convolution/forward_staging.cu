// Sums of the forward kernel that are rounded and staged, for the copy engine to store.

namespace {

// Rounds `matrices` / 2 pieces from `first` on, and stages them.
template <int matrices>
__device__ __forceinline__ void stage_pieces(const Accumulators& sums, const Affine& affine, unsigned to, RowParity a,
                                             Piece first) {
    unsigned packed[matrices], residual[matrices] = {};
    if constexpr (spec::RESIDUAL) load_matrices(residual, to);
#pragma unroll
    for (int half = 0; half < matrices / 2; ++half) {
        const Piece piece = first + half;
        const spec::PiecePlace at(piece.get());
        float sum[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            sum[i] = meets_any(a, at.get<ColumnParity>()) ? sums.sum[a.get()][piece.get()][i] : 0.0f;
        finish(packed + 2 * half, residual + 2 * half, sum, affine, at.get<K8>().get());
    }
    store_matrices(to, packed);
}

__device__ __forceinline__ void stage_row(const Accumulators& sums, const Affine& affine, const OutputPlaces& to,
                                          unsigned base) {
#pragma unroll
    for (RowParity a(0); a < RowParity(spec::CELL_ROWS); ++a)
#pragma unroll
        for (Piece piece(0); piece < Piece(spec::PIECES); piece += 2) {
            const unsigned place = to.at(a, piece).in_tile(base).address();
            if (piece + 1 < Piece(spec::PIECES))
                stage_pieces<4>(sums, affine, place, a, piece);
            else
                stage_pieces<2>(sums, affine, place, a, piece);
        }
}

}  // namespace
