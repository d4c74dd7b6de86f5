# txl_tf on CPUs:
#   docker build -f docker/cpu.Dockerfile -t txl_tf .
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" txl_tf train --preset=demo --data_dir=.. --model_dir=..
FROM python:3.12-slim

WORKDIR /txl_tf
# First what changes seldom, so that a change of the code does not install TensorFlow again.
COPY requirements.txt ./
RUN python -m pip install --no-cache-dir -r requirements.txt
COPY . ./
RUN python -m pip install --no-cache-dir --no-deps . && useradd --uid 1000 txl

USER 1000
# Some libraries write to the home directory.
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["txl"]
CMD ["--help"]
