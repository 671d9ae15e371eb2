"""The layout of TensorBoard's custom scalars."""

Chart = tuple[str, list[str]]  # kind, tags: a "Margin" has the mean, the lower and the upper line
Layout = dict[str, dict[str, Chart]]


def _lines(*tags: str) -> Chart:
    # A multiline tag is a regular expression, and it is matched from the start only.
    return "Multiline", [f"^{tag}$" for tag in tags]


def _depth(*metrics: str) -> Chart:
    return _lines(*(f"diagnostics/{metric}/(first|mean|last)" for metric in metrics))


def _band(metric: str) -> Chart:
    return "Margin", [f"diagnostics/{metric}/{which}" for which in ("mean", "min", "max")]


LAYOUT: Layout = {
    "Health": {
        "loss": _lines("train/loss", "val/loss"),
        "accuracy": _lines("train/acc", "val/acc"),
        "cosine": _lines("train/cosine", "val/cosine"),
        "gradient norm": _lines("gradients/total_norm", "gradients/weight_norm/(first|last)"),
        "gradient ratio, first layer over last": _lines(
            "gradients/weight_ratio_first_last", "diagnostics/activation_gradient_ratio"
        ),
        "norm drift": _lines("diagnostics/norm_drift/mean"),
        "numbers that are not finite": _lines("diagnostics/.+nonfinite.*"),
        "warnings": _lines("warnings/.+"),
    },
    "Z-Plane": {
        "bounded fraction": _depth("bounded_fraction"),
        "RMS radius": _depth("rms_radius"),
        "phase coherence": _depth("phase_coherence"),
        "pairwise cosine": _depth("pairwise_cosine"),
        "participation ratio": _depth("participation_ratio"),
        "spectral norm": _depth("spectral_norm"),
    },
    "Sigma-Pi": {
        "pi share (published)": _depth("pi_share"),
        "share of what varies": _depth("ac_share"),
        "nonlinear share": _depth("nonlinear_share"),
        "product and bilinear branch": _lines("diagnostics/(product|bilinear)_ac_share/mean"),
        "effect behind batch normalisation": _lines(
            "diagnostics/(pi_effect_postbn|pi_effect_reestimated)/mean"
        ),
        "exponents, mean magnitude": _lines(
            "diagnostics/(exponent_abs_mean|exponent_centred_abs_mean)/(first|mean|last)"
        ),
        "amplitude exp(pi_scale) (published)": _depth("pi_scale_mean"),
        "RMS of the branches (published)": _lines("diagnostics/(sigma_rms|pi_rms)/(first|mean|last)"),
        "saturated log-products": _depth("saturation_fraction"),
        "inputs that are not finite": _lines("diagnostics/nonfinite_inputs/max"),
    },
    "Residual operators": {
        "gate γ": _band("gamma_mean"),
        "gate γ collapsed": _depth("gamma_collapsed"),
        "gate penalty": _depth("gate_penalty"),
        "rotation angle": _depth("angle_mean"),
        "β": _depth("beta_mean"),
        "log₁₀ ‖QᵀQ − I‖ of the skip path as applied": _band("orthogonality_log10"),
        "‖QᵀQ − I‖ of rotation and reflection": _lines("diagnostics/(rotation|reflection)_orthogonality/max"),
        "energy of the shortcut": _lines("diagnostics/shortcut_energy/mean"),
        "norm drift": _lines("diagnostics/norm_drift/mean"),
    },
    "Gradients by layer": {
        "weight gradient norm": _lines("gradients/weight_norm/.+"),
    },
}
