"""Complete networks. Each takes ``input_shape`` (one sample, without the batch) and ``num_outputs``."""
