# One file for both kinds of image:
#   docker build -t geonets .                                                             for a CPU
#   docker build -t geonets --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .   for a GPU
# TORCH_INDEX is where PyTorch's wheels come from; empty for the package index that pip is set to use anyway.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /src
# PyTorch first, then what else the project needs: both layers are kept until pyproject.toml changes.
COPY pyproject.toml ./
SHELL ["/bin/sh", "-euc"]
RUN python -c "import tomllib; print('\n'.join(tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']))" \
      > /tmp/requirements.txt; \
    grep -E '^torch(vision)?[^a-z]' /tmp/requirements.txt > /tmp/torch.txt; \
    pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -r /tmp/torch.txt
RUN pip install -r /tmp/requirements.txt
COPY README.md LICENSE ./
COPY app app
COPY configs configs
COPY datamodules datamodules
RUN pip install --no-deps .

FROM python:${PYTHON}-slim
COPY --from=build /opt/venv /opt/venv
# Any user may write caches to /tmp, also one without a name or a home (inductor, matplotlib and torch ask for them).
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp USER=app LOGNAME=app \
    MPLCONFIGDIR=/tmp/matplotlib TORCHINDUCTOR_CACHE_DIR=/tmp/inductor TRITON_CACHE_DIR=/tmp/triton
# Volumes: data and runs; the working folder, below which the defaults put both.
RUN mkdir -p /workspace/data /workspace/runs && chmod -R 0777 /workspace
WORKDIR /workspace
USER 10001:10001
# Lightning and the application handle signals themselves; what an image runs as process 1 gets no others.
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "app"]
CMD ["--help"]
