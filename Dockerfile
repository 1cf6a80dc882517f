# Both of Taffrail's programs, in an image of nothing else. `make image` packs the same image without a container engine; with one:
#   make image && docker build -f Dockerfile -t NAME target/image
# The folder root/ is made by image/assemble.sh.
FROM scratch
COPY root/ /
USER 10001:10001
LABEL org.opencontainers.image.title="Taffrail" \
      org.opencontainers.image.description="Taffrail's broker and its operator for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
