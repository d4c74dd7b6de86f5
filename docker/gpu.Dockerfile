# txl_tf on NVIDIA's GPUs. The libraries of CUDA come with TensorFlow; the host needs NVIDIA's driver and its container
# toolkit.
#   docker build -f docker/gpu.Dockerfile -t txl_tf:gpu .
#   docker run --rm --gpus=all -v "$PWD:/work" --user "$(id -u):$(id -g)" txl_tf:gpu train --preset=demo ..
FROM python:3.12-slim

WORKDIR /txl_tf
# First what changes seldom, so that a change of the code does not install TensorFlow again.
COPY requirements.txt ./
RUN sed 's/^tensorflow>/tensorflow[and-cuda]>/' requirements.txt > gpu.txt \
    && grep -q 'and-cuda' gpu.txt \
    && python -m pip install --no-cache-dir -r gpu.txt
COPY . ./
RUN python -m pip install --no-cache-dir --no-deps . && useradd --uid 1000 txl

USER 1000
# Some libraries write to the home directory.
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["txl"]
CMD ["--help"]
