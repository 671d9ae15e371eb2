"""The layout of TensorBoard's custom scalars."""

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger

Chart = tuple[str, list[str]]  # kind, tags: a "Margin" has the mean, the lower and the upper line
Layout = dict[str, dict[str, Chart]]


def _lines(*tags: str) -> Chart:
    # A multiline tag is a regular expression, and it is matched from the start only.
    return "Multiline", [f"^{tag}$" for tag in tags]


def _depth(metric: str) -> Chart:
    return _lines(f"diagnostics/{metric}/(first|mean|last)")


LAYOUT: Layout = {
    "Health": {
        "loss": _lines("train/loss", "val/loss"),
        "accuracy": _lines("train/acc", "val/acc"),
        "cosine": _lines("train/cosine", "val/cosine"),
        "gradient norm": _lines("gradients/total_norm", "gradients/weight_norm/(first|last)"),
        "gradient ratio, first layer over last": _lines(
            "gradients/weight_ratio_first_last", "diagnostics/activation_gradient_ratio"
        ),
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
    "Residual operators": {
        "gate γ": ("Margin", [f"diagnostics/gamma_mean/{which}" for which in ("mean", "min", "max")]),
        "gate γ collapsed": _depth("gamma_collapsed"),
        "gate penalty": _depth("gate_penalty"),
        "rotation angle": _depth("angle_mean"),
        "β": _depth("beta_mean"),
        "orthogonality error of the skip path as applied": _depth("orthogonality"),
        "orthogonality error of rotation and reflection": _lines(
            "diagnostics/(rotation|reflection)_orthogonality/max"
        ),
        "energy of the shortcut": _lines("diagnostics/shortcut_energy/mean"),
        "norm drift": _lines("diagnostics/norm_drift/mean"),
    },
    "Gradients by layer": {
        "weight gradient norm": _lines("gradients/weight_norm/.+"),
    },
}


class Dashboard(Callback):
    """Writes the layout of the *Custom Scalars* tab at the start of a fit.

    The layout depends on tags alone, never on the network, so that many runs in one TensorBoard share one
    clean layout. Charts of what a run does not record stay empty.

    Logged:
        - nothing but the layout.

    Example:
        >>> trainer = Trainer(callbacks=[Dashboard(), Diagnostics(), GradientNorms()])  # doctest: +SKIP
    """

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Hands the layout to every TensorBoard logger."""
        for logger in trainer.loggers:
            if trainer.is_global_zero and isinstance(logger, TensorBoardLogger):
                logger.experiment.add_custom_scalars(LAYOUT)
