# tfsac on a CPU: docker build --tag tfsac . && docker run --rm --volume="$PWD/runs:/data/runs" tfsac train --seed=1
FROM python:3.12-slim
# Libraries for off-screen rendering with MuJoCo.
RUN apt-get update && apt-get install --yes --no-install-recommends libegl1 libosmesa6 && rm -rf /var/lib/apt/lists/*
ENV MUJOCO_GL=osmesa PYTHONUNBUFFERED=1
WORKDIR /src
COPY setup.py README.md LICENSE ./
COPY tfsac tfsac
COPY presets presets
RUN pip install --no-cache-dir '.[mujoco,video,litert]'
WORKDIR /data
ENTRYPOINT ["tfsac"]
CMD ["--help"]
