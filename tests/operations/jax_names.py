"""Names of libraries that are not installed where tests run, as their documentation lists them."""

from __future__ import annotations

VERSION = "0.4.38"
LAX = tuple(
    """
    abs acos acosh add after_all approx_max_k approx_min_k argmax argmin asin asinh atan atan2 atanh batch_matmul
    bessel_i0e bessel_i1e betainc bitcast_convert_type bitwise_and bitwise_not bitwise_or bitwise_xor broadcast
    broadcast_in_dim broadcast_shapes broadcast_to_rank broadcasted_iota cbrt ceil clamp clz collapse complex
    concatenate conj conv conv_dimension_numbers conv_general_dilated conv_general_dilated_local
    conv_general_dilated_patches conv_transpose conv_with_general_padding convert_element_type cos cosh cummax
    cummin cumlogsumexp cumprod cumsum digamma div dot dot_general dynamic_index_in_dim dynamic_slice
    dynamic_slice_in_dim dynamic_update_index_in_dim dynamic_update_slice dynamic_update_slice_in_dim eq erf erf_inv
    erfc exp exp2 expand_dims expm1 fft floor full full_like gather ge gt igamma igamma_grad_a igammac imag
    index_in_dim index_take integer_pow iota is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter
    optimization_barrier pad polygamma population_count pow random_gamma_grad real reciprocal reduce reduce_and
    reduce_max reduce_min reduce_or reduce_precision reduce_prod reduce_sum reduce_window reduce_xor rem reshape rev
    rng_bit_generator rng_uniform round rsqrt scatter scatter_add scatter_apply scatter_max scatter_min scatter_mul
    select select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh slice slice_in_dim sort
    sort_key_val split sqrt square squeeze sub tan tanh top_k transpose zeros_like_array zeta associative_scan cond
    fori_loop map scan switch while_loop custom_linear_solve custom_root stop_gradient
    """.split()  # noqa: SIM905
)
EINOPS_VERSION = "0.8.1"
EINOPS = ("rearrange", "reduce", "repeat", "einsum", "pack", "unpack", "asnumpy", "parse_shape")
