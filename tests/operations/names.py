"""What covers names of other libraries: ``=`` where the operation has the same name, else how it is written."""

from __future__ import annotations


def same(names: str, **others: str) -> dict[str, str]:
    """A table of names that are the same, and of those that are not."""
    return dict.fromkeys(names.split(), "=") | others


TORCH = same(
    """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear binary_cross_entropy
    binary_cross_entropy_with_logits celu channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d cosine_embedding_loss cosine_similarity elu fold gaussian_nll_loss gelu glu group_norm hardshrink
    hardsigmoid hardswish hardtanh hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss layer_norm
    leaky_relu linear local_response_norm log_softmax logsigmoid margin_ranking_loss max_pool1d max_pool2d max_pool3d
    mish mse_loss nll_loss normalize pad pairwise_distance pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu
    relu6 rms_norm selu sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink softsign tanh
    tanhshrink threshold triplet_margin_loss unfold
    cross_entropy embedding one_hot affine_grid grid_sample lp_pool1d lp_pool2d lp_pool3d
    """,
    dropout="=",
    dropout1d="tp.dropout(shared=2)",
    dropout2d="tp.dropout(shared=(2, 3))",
    dropout3d="tp.dropout(shared=(2, 3, 4))",
    native_channel_shuffle="tp.channel_shuffle",
    scaled_dot_product_attention="tp.attention",
    upsample="tp.interpolate",
    upsample_nearest="tp.interpolate",
    upsample_bilinear="tp.interpolate(align_corners=True)",
)
NUMPY = same(
    """
    abs acos acosh add all any arange argmax argmin asin asinh atan atan2 atanh average bitwise_and bitwise_not
    bitwise_or bitwise_xor broadcast_to cbrt ceil clip concat cos cosh count_nonzero cross cumprod cumsum
    deg2rad diag diagonal divide
    einsum equal exp exp2 expand_dims expm1 eye flip fliplr flipud floor floor_divide fmod full full_like greater
    greater_equal heaviside hstack hypot inner isclose isfinite isinf isnan kron left_shift less less_equal linspace log
    log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or matmul max maximum mean meshgrid min
    minimum moveaxis multiply nansum negative not_equal ones ones_like outer pad power prod ptp rad2deg reciprocal
    remainder reshape right_shift roll rot90 round sign sin sinh split sqrt square squeeze stack std subtract sum
    swapaxes tan tanh tensordot tile trace transpose tril triu trunc var vdot vstack where zeros zeros_like
    take take_along_axis
    argsort bincount histogram sort
    """,
    absolute="tp.abs", amax="tp.max", amin="tp.min", arccos="tp.acos", arccosh="tp.acosh", arcsin="tp.asin",
    arcsinh="tp.asinh", arctan="tp.atan", arctan2="tp.atan2", arctanh="tp.atanh", around="tp.round",
    astype="x.astype", bitwise_invert="tp.bitwise_not", bitwise_left_shift="tp.left_shift",
    bitwise_right_shift="tp.right_shift", concatenate="tp.concat", degrees="tp.rad2deg", dot="tp.matmul",
    fabs="tp.abs", fix="tp.trunc", identity="tp.eye", invert="tp.bitwise_not", mod="tp.remainder",
    permute_dims="tp.transpose", pow="tp.power", radians="tp.deg2rad", ravel="tp.flatten",
    repeat="tp.repeat_interleave", rint="tp.round", row_stack="tp.vstack", true_divide="tp.divide",
    unstack="tp.unbind", logical_xor="tp.not_equal",
)  # fmt: skip
JAX = same(
    """
    abs acos acosh add argmax argmin asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor cbrt
    ceil cos cosh cummax cummin cumprod cumsum
    erf erfc exp exp2 expand_dims expm1 floor full full_like log log1p max min pad reciprocal reshape
    round rsqrt sign sin sinh split sqrt square squeeze tan tanh transpose
    dynamic_slice dynamic_update_slice scatter_add
    """,
    associative_scan="tp.scan", cumlogsumexp="tp.logcumsumexp",
    fft="tp.fft", batch_matmul="tp.matmul", broadcast="tp.broadcast_to", broadcast_in_dim="tp.broadcast_to",
    broadcasted_iota="tp.arange", clamp="tp.clip", collapse="tp.flatten", concatenate="tp.concat", conv="tp.conv2d",
    conv_general_dilated="tp.conv2d", conv_general_dilated_patches="tp.unfold", conv_transpose="tp.conv_transpose2d",
    conv_with_general_padding="tp.conv2d", convert_element_type="tp.cast", div="tp.divide", dot="tp.matmul",
    dot_general="tp.einsum", eq="tp.equal", ge="tp.greater_equal", gt="tp.greater", index_in_dim="x[:, 3]",
    integer_pow="tp.power", iota="tp.arange", is_finite="tp.isfinite", le="tp.less_equal", logistic="tp.sigmoid",
    lt="tp.less", mul="tp.multiply", ne="tp.not_equal", neg="tp.negative", pow="tp.power", reduce_and="tp.all",
    reduce_max="tp.max", reduce_min="tp.min", reduce_or="tp.any", reduce_prod="tp.prod", reduce_sum="tp.sum",
    rem="tp.fmod",
    rng_bit_generator="tp.random_bits", rng_uniform="tp.uniform",
    rev="tp.flip", select="tp.where", select_n="tp.where", shift_left="tp.left_shift",
    shift_right_arithmetic="tp.right_shift", slice="x[1:5:2]", slice_in_dim="x[1:5:2]",
    stop_gradient="tp.stop_gradient", sub="tp.subtract", zeros_like_array="tp.zeros_like",
    gather="table[ids[t], d]", index_take="tp.take", approx_max_k="tp.topk", approx_min_k="tp.topk(largest=False)",
    sort="tp.sort", top_k="tp.topk",
)  # fmt: skip
EINOPS = same("rearrange reduce repeat einsum")
