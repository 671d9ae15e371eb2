"""How far a layer multiplies: read-outs of an additive and a multiplicative branch.

The published ones keep their formulas. The others are 0 when the multiplicative branch is constant, whatever
its size, and NaN when the data are. A share is a ratio of root mean squares, not of variances: x₁x₂ on
U(.5, 2) has a nonlinear share of .24, and .06 of its variance. Rows are observations, columns are outputs.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from app.maths.representation import thin
from app.maths.sigma_pi import at_least_float32, centred_exponents

# Enough rows for a stable fit; beyond that a batch of feature maps would make the probe slow.
MAX_FIT_ROWS = 1024

PUBLISHED: Mapping[str, str] = {
    "sigma_rms": "root mean square of the additive branch, constant part included; healthy .1 to 10; "
    "growing: weights grow, lower the learning rate",
    "pi_rms": "root mean square of the multiplicative branches, constant part included; healthy .01 to 10; "
    "far above sigma_rms: the product drowns the sum, lower pi_scale_init",
    "pi_share": "pi_rms/(sigma_rms + pi_rms), published; healthy .05 to .9 where products are needed; "
    "high although nonlinear_share is low: the branch is merely constant, believe nonlinear_share",
    "exponent_abs_mean": "mean |exponent|, published; healthy .05 to 1; moves also when all exponents move "
    "together, which a centring layer does not notice: look at exponent_centred_abs_mean",
    "pi_scale_mean": "mean amplitude exp(pi_scale), published; healthy .01 to 3; the size of the knob, not "
    "its effect, and weight decay alone raises it: look at ac_share",
}

TRUSTWORTHY: Mapping[str, str] = {
    "exponents": "distribution of the powers; healthy: spread around 0, or in peaks at whole numbers; "
    "piled up at ±max_exponent: the task wants higher powers, raise max_exponent",
    "exponent_centred_abs_mean": "mean |exponent − mean over the fan-in|, how unlike the powers are; "
    "healthy above .01; 0: no ratio of inputs matters, train longer or raise the learning rate",
    "ac_share": "pi_share with each output's mean removed, how much of what varies is multiplicative; "
    "healthy above .05 where products are needed; a product close to an affine map counts too: see "
    "nonlinear_share",
    "nonlinear_share": "what an affine fit of the inputs cannot explain, relative to the output's deviation; "
    "healthy above .2 where products are needed; below .05: a plain layer would do",
    "saturation_fraction": "share of log-products in the bend or at the clamp; healthy below .05; above: the "
    "bound, not the data, shapes the product, raise max_log or scale the inputs",
    "nonfinite_inputs": "share of inputs that are NaN or infinite; healthy 0; above: a fault upstream, in "
    "the data or in the layer before",
}

PER_BRANCH: Mapping[str, str] = {
    "product_ac_share": "the product's part of what varies, next to the additive and the bilinear branch; "
    "healthy above .05 where ratios and powers are needed; 0: the branch is dead",
    "bilinear_ac_share": "the bilinear branch's part of what varies, next to the other two; healthy above "
    ".05 where signed products are needed; 0: the branch has not started, train longer",
}

PUBLISHED_BLOCK: Mapping[str, str] = {
    "pi_effect_postbn": "relative change of the output without the product, at the running statistics, "
    "published; healthy above .05 where products are needed; also counts a constant, which batch "
    "normalisation would have removed: look at pi_effect_reestimated",
}

TRUSTWORTHY_BLOCK: Mapping[str, str] = {
    "pi_effect_reestimated": "the same change with the statistics of batch normalisation estimated anew on "
    "each side; healthy above .05 where products are needed; 0: the product is constant",
}

HISTOGRAM = 1024


def rms(x: Tensor) -> Tensor:
    """√mean(x²) over everything, 0-d. NaN for NaN and for no data."""
    return at_least_float32(x).square().mean().sqrt()


def nonfinite_share(x: Tensor) -> Tensor:
    """Share of the entries that are NaN or infinite, 0-d."""
    return 1 - x.isfinite().float().mean()


def deviation_rms(x: Tensor) -> Tensor:
    """RMS of [rows, outputs] with each output's mean removed, 0-d."""
    x = at_least_float32(x)
    return rms(x - x.mean(dim=0, keepdim=True))


def share(part: Tensor, rest: Tensor) -> Tensor:
    """part/(part + rest), and 0 when part is exactly 0. NaN in, NaN out."""
    return torch.where(part == 0, part * rest, part / (part + rest))


def relative_change(on: Tensor, off: Tensor) -> Tensor:
    """rms(on − off)/rms(on), and 0 when nothing changed. NaN in, NaN out."""
    change, size = rms(on - off), rms(on)
    return torch.where(change == 0, change * size, change / size)


def batch_normalised(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Batch normalisation of [N, C, …] with the statistics of x itself; keeps none."""
    dims = [0, *range(2, x.dim())]
    variance, mean = torch.var_mean(x, dim=dims, keepdim=True, correction=0)
    y = (x - mean) / torch.sqrt(variance + eps)
    channels = [1, -1] + [1] * (x.dim() - 2)
    y = y if weight is None else y * weight.view(channels)
    return y if bias is None else y + bias.view(channels)


def affine_residual_rms(inputs: Tensor, y: Tensor) -> Tensor:
    """RMS of what the best affine map of the inputs leaves of y, corrected for the degrees of freedom.

    Args:
        inputs: [rows, features].
        y: [rows, outputs].

    Returns:
        √(RSS / ((rows − 1 − k) · outputs)), 0-d. The fit is on the k leading principal components,
        k = min(features, (rows − 1)//2): all features when there are twice as many rows; else an upper bound,
        for a fit with as many unknowns as rows would explain anything. At most ``MAX_FIT_ROWS`` rows, evenly
        spaced, are used.
    """
    inputs, y = at_least_float32(inputs), at_least_float32(y)
    stride = max(1, -(-inputs.shape[0] // MAX_FIT_ROWS))
    inputs, y = inputs[::stride], y[::stride]
    rows, features = inputs.shape
    components = max(0, min(features, (rows - 1) // 2))
    inputs = inputs - inputs.mean(dim=0, keepdim=True)
    y = y - y.mean(dim=0, keepdim=True)
    finite = inputs.isfinite().all() & y.isfinite().all()
    # The decomposition refuses what is not finite; it sees zeros instead, and the answer is NaN below.
    left, size, _ = torch.linalg.svd(torch.where(finite, inputs, 0), full_matrices=False)
    basis, size = left[:, :components], size[:components]
    noise_floor = size.new_tensor(torch.finfo(size.dtype).eps * max(rows, features))
    basis = basis * (size > noise_floor * size[:1])
    residual = y - basis @ (basis.T @ y)
    residual = residual - basis @ (
        basis.T @ residual
    )  # once more: the first pass leaves rounding of y's size
    squares = residual.square().sum() / (max(0, rows - 1 - components) * y.shape[1])
    return torch.where(finite, squares, torch.nan).sqrt()


def published(
    sigma: Tensor, multiplicative: Tensor, exponents: Tensor, log_gain: Tensor
) -> dict[str, Tensor]:
    """The published read-outs under their names, by their formulas (see ``PUBLISHED``)."""
    sigma_rms, pi_rms = rms(sigma), rms(multiplicative)
    return {
        "sigma_rms": sigma_rms,
        "pi_rms": pi_rms,
        "pi_share": share(pi_rms, sigma_rms),
        "exponent_abs_mean": at_least_float32(exponents).abs().mean(),
        "pi_scale_mean": at_least_float32(log_gain).exp().mean(),
    }


def trustworthy(
    inputs: Tensor, sigma: Tensor, multiplicative: Tensor, exponents: Tensor, saturated: Tensor
) -> dict[str, Tensor]:
    """The read-outs that a constant branch does not move (see ``TRUSTWORTHY``).

    Args:
        inputs: [rows, fan-in]: what the additive branch is an affine map of.
        sigma: [rows, outputs], the additive branch.
        multiplicative: [rows, outputs], the sum of the multiplicative branches.
        exponents: [outputs, ...], the powers over the fan-in.
        saturated: any shape, True where the bound shapes the log-product.
    """
    unexplained = affine_residual_rms(inputs, multiplicative)
    deviation = deviation_rms(sigma + multiplicative)
    return {
        "exponents": thin(at_least_float32(exponents).flatten(), HISTOGRAM),
        "exponent_centred_abs_mean": centred_exponents(at_least_float32(exponents)).abs().mean(),
        "ac_share": share(deviation_rms(multiplicative), deviation_rms(sigma)),
        "nonlinear_share": torch.where(unexplained == 0, unexplained * deviation, unexplained / deviation),
        "saturation_fraction": saturated.float().mean(),
        "nonfinite_inputs": nonfinite_share(inputs),
    }


def per_branch(sigma: Tensor, product: Tensor, bilinear: Tensor | None) -> dict[str, Tensor]:
    """Each multiplicative branch's part of the deviations, [rows, outputs] each; nothing for one alone."""
    if bilinear is None:
        return {}
    additive, powers, pairs = (deviation_rms(branch) for branch in (sigma, product, bilinear))
    return {
        "product_ac_share": share(powers, additive + pairs),
        "bilinear_ac_share": share(pairs, additive + powers),
    }
